"""A break, what is advised at it, and programs that follow the advice: the rows of the tables of `test_advice.py`."""
from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

Program = Callable[[Callable[..., Any]], Any]

X = torch.linspace(-1.1, 2.3, 12).reshape(3, 4)


@dataclass(frozen=True)
class Advice:
    """`broken` breaks in the line with `at`, for the reason `code`; `change` is a part of the advice, and each program
    of `advised` follows it. Where `same` is False they need not give the same: random numbers, another order."""

    code: str
    at: str
    change: str
    broken: Program
    advised: tuple[Program, ...]
    same: bool = True


def whole(function: Callable[..., Any]) -> Program:
    """The program that calls `function`, compiled, on X."""
    return lambda compile: compile(function)(X.clone())
