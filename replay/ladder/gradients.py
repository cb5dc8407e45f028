"""The first wrong gradient inside of a joint graph: which operator's derivative has no counterpart in eager.

Autograd says, for each operator that it differentiates in eager, which gradients its inputs get; each of these must be
a value of the joint graph's backward, too.
"""
from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
import torch.fx

CLOSE = 1e-3
"""Relative: gradients are known to differ by more than rounding, and the place is wanted."""


@dataclass(frozen=True)
class Derivative:
    """What one node of autograd gave its inputs, and what it was given; `node` is the captured node that made it."""

    node: str
    given: tuple[torch.Tensor, ...]
    made: tuple[torch.Tensor, ...]


class Watch:
    """Notes the derivatives of a graph that runs node by node, in the order in which autograd computes them."""

    def __init__(self) -> None:
        self.found: list[Derivative] = []
        self._known: set[Any] = set()

    def start(self, inputs: Sequence[Any]) -> None:
        """The graph is about to run; what autograd has recorded of its inputs belongs to none of its nodes."""
        for value in inputs:
            self._new(value)

    def __call__(self, node: torch.fx.Node, value: Any) -> None:
        """A node has run: what autograd has recorded since belongs to it."""
        for one in value if isinstance(value, (tuple, list)) else (value,):
            for function in self._new(one):
                function.register_hook(self._hook(node.name))

    def _new(self, value: Any) -> list[Any]:
        waiting = [value.grad_fn] if isinstance(value, torch.Tensor) else []
        new = []
        while waiting:
            function = waiting.pop()
            if function is None or function in self._known:
                continue
            self._known.add(function)
            new.append(function)
            waiting += [following for following, _ in function.next_functions]
        return [function for function in new if "AccumulateGrad" not in function.name()]

    def _hook(self, node: str) -> Callable[[Any, Any], None]:
        def hook(made: Any, given: Any) -> None:
            self.found.append(Derivative(node, tuple(_copies(given)), tuple(_copies(made))))

        return hook


def _copies(values: Any) -> Iterator[torch.Tensor]:
    yield from (v.detach().clone() for v in values if isinstance(v, torch.Tensor) and v.layout is torch.strided)


def first_wrong(derivatives: Sequence[Derivative], backward: Sequence[torch.Tensor]) -> str:
    """The captured node whose derivative, in eager, is none of the values of `backward`; "" for none."""
    for derivative in derivatives:
        for made in derivative.made:
            if not any(_close(made, value) for value in (*derivative.given, *backward)):
                return derivative.node
    return ""


def _close(one: torch.Tensor, other: torch.Tensor) -> bool:
    if one.numel() != other.numel() or one.dtype != other.dtype:
        return False
    size = float(one.abs().max()) if one.numel() else 0.0
    return torch.allclose(other.reshape(one.shape), one, rtol=CLOSE, atol=CLOSE * size, equal_nan=True)
