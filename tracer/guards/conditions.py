"""Conditions on symbols (sizes, strides, ints that vary) as functions that guards call."""
from __future__ import annotations

import math
import re
import sys
from collections.abc import Callable, Sequence
from typing import Any

import torch

from ..shapes import ShapeGuard

_FUNCTIONS: dict[str, Any] = {
    "math": math, "max": max, "min": min, "abs": abs, "round": round, "float": float, "torch": torch,
}


def on_number(guards: Sequence[ShapeGuard]) -> Callable[[int], bool]:
    """All of `guards`, which read one number only (perhaps under several names), as a function of that number."""
    first, *others = sorted({name for guard in guards for name in guard.names})
    body = " and ".join(f"({guard.expression})" for guard in guards)
    if others:
        body = f"(lambda {', '.join(others)}: {body})({', '.join([first] * len(others))})"
    return _function(f"lambda {first}: {body}", {})


def on_frame(code: str, f_globals: dict[str, Any]) -> Callable[[dict[str, Any]], bool]:
    """Python over L and G (`conditions_code`) as a function of the frame's locals."""
    return _function(f"lambda L: {code}", {"G": f_globals, "__import_module": sys.modules.__getitem__})


def conditions_code(guards: Sequence[ShapeGuard]) -> str:
    """Conditions as Python over L and G, each symbol replaced by what it stands for."""
    return " and ".join(f"({condition_code(guard)})" for guard in guards)


def condition_code(guard: ShapeGuard) -> str:
    """One condition as Python over L and G."""
    where = {name: source.expression for name, source in zip(guard.names, guard.sources)}
    return re.sub(r"\b[a-z_]+\d+\b", lambda match: where.get(match.group(), match.group()), guard.expression)


def _function(code: str, names: dict[str, Any]) -> Any:
    return eval(compile(code, "<shape guard>", "eval"), {**_FUNCTIONS, **names})
