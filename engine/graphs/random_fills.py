"""In-place random fills (`x.bernoulli_(p)`, dropout masks), which a graph holds in functional form.

A fill assigns numbers in the order of the tensor's strides, and the functional form would choose strides of its own. So
the fill itself is called, on new memory with the strides of the first argument.
"""
from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache
from typing import Any

import torch

from ..kernels.mt19937 import fill_bernoulli

aten = torch.ops.aten


def _filling(fill: Any) -> Callable[..., torch.Tensor]:
    def call(like: torch.Tensor, *args: Any, **kwargs: Any) -> torch.Tensor:
        memory = torch.empty_strided(like.size(), like.stride(), dtype=like.dtype, device=like.device)
        filled: torch.Tensor = fill(memory, *args, **kwargs)
        return filled

    return call


def _bernoulli_(memory: torch.Tensor, p: float, generator: torch.Generator | None = None) -> torch.Tensor:
    if generator is None and fill_bernoulli(memory, p):
        return memory
    filled: torch.Tensor = aten.bernoulli_.float(memory, p, generator=generator)
    return filled


def _fill(name: str) -> Callable[..., torch.Tensor]:
    packet, _, overload = name.partition(".")
    return _filling(_bernoulli_ if name == "bernoulli_.float" else getattr(getattr(aten, packet), overload))


@cache
def random_fills() -> Mapping[Any, Callable[..., torch.Tensor]]:
    """Functional form -> what is called for it."""
    from ...operators.traits import operators_with  # a second to import, which few loaded graphs need

    return {functional: _fill(name) for functional, name in operators_with("fills")}


def fill_of(operator: Any) -> Callable[..., torch.Tensor] | None:
    """What is called for this functional form; None for other operators."""
    if torch.Tag.nondeterministic_seeded not in getattr(operator, "tags", ()):
        return None
    name = operator._schema.name.partition("::")[2].removesuffix("_functional")
    in_place = hasattr(aten, f"{name}_")  # attention and dropout have none
    return random_fills().get(operator) if in_place else None
