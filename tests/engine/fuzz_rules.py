"""The table of what the fuzz calls. A rule adds one call of a family of operators to a program, or none."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from .fuzz_programs import Builder

Rule = Callable[[Builder], Any]
RULES: list[tuple[int, Rule]] = []
DTYPES = (
    torch.float32,
    torch.float64,
    torch.bfloat16,
    torch.float16,
    torch.int64,
    torch.int32,
    torch.int16,
    torch.int8,
    torch.uint8,
    torch.bool,
)


def rule(weight: int) -> Callable[[Rule], Rule]:
    """Add the decorated function to the table."""

    def register(function: Rule) -> Rule:
        RULES.append((weight, function))
        return function

    return register


def step(b: Builder) -> None:
    """Try one random rule."""
    weights, rules = zip(*RULES)
    b.rng.choices(rules, weights)[0](b)
