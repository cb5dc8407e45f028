"""Where the programs of the fuzz run: on the CPU, on a GPU, or as on a GPU, in Triton's interpreter on the CPU.

Programs are built on the CPU, whatever runs them. Eager, and all that it is measured by, runs where the kernels do.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch

CREATING = frozenset(
    f"torch.{name}" for name in "arange eye linspace full rand randint randperm normal".split()
)
"""Functions that make tensors from numbers: those get the device."""


@dataclass(frozen=True)
class Place:
    """The devices of tensors, and of the fake tensors from which a graph is compiled."""

    tensors: torch.device
    fakes: torch.device


CPU, GPU = torch.device("cpu"), torch.device("cuda:0")
PLACES = {"cpu": Place(CPU, CPU), "cuda": Place(GPU, GPU), "interpreter": Place(CPU, GPU)}

_CHOSEN = [PLACES["cpu"]]


def choose(name: str) -> None:
    """Run all programs from now on at one of `PLACES`."""
    _CHOSEN[0] = PLACES[name]


def here() -> Place:
    """Where programs run."""
    return _CHOSEN[0]


def random_state() -> torch.Tensor:
    """The state of the random numbers of the device."""
    return torch.get_rng_state() if here().tensors == CPU else torch.cuda.get_rng_state(here().tensors)


def set_random_state(state: torch.Tensor) -> None:
    """Go on from a state."""
    if here().tensors == CPU:
        torch.set_rng_state(state)
    else:
        torch.cuda.set_rng_state(state, here().tensors)
