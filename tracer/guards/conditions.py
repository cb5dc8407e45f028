"""Conditions on symbols (sizes, strides, ints that vary) as functions that guards call."""
from __future__ import annotations

import builtins
import math
import re
import sys
from collections.abc import Callable, Sequence
from operator import attrgetter
from types import NoneType
from typing import Any

import torch

from ..shapes.conditions import ShapeGuard
from ..sources.computed import ComputedSource
from ..sources.source import CallSource, ItemSource, Source

_FUNCTIONS: dict[str, Any] = {
    "math": math, "max": max, "min": min, "abs": abs, "round": round, "float": float, "torch": torch,
}

_NAMED = ("_operator", "builtins", "math", "torch")
"""Modules whose functions `_FUNCTIONS`, or operators, name."""


def on_number(guards: Sequence[ShapeGuard]) -> Callable[[int], bool]:
    """All of `guards`, which read one number only (perhaps under several names), as a function of that number."""
    first, *others = sorted({name for guard in guards for name in guard.names})
    body = " and ".join(f"({guard.expression})" for guard in guards)
    if others:
        body = f"(lambda {', '.join(others)}: {body})({', '.join([first] * len(others))})"
    return _function(f"lambda {first}: {body}", {})


def on_frame(
    guards: Sequence[ShapeGuard], f_globals: dict[str, Any], reader: Callable[[Source], Callable[[dict[str, Any]], Any]]
) -> Callable[[dict[str, Any]], bool]:
    """All of `guards` as a function of the frame's locals. `reader(source)` reads what Python over L and G cannot
    express: the item of a dict under a tensor."""
    names: dict[str, Any] = {"G": f_globals, "__import_module": sys.modules.__getitem__}

    def place(source: Source) -> str:
        if _has_name(source):
            return source.expression
        names[f"read{len(names)}"] = reader(source)
        return f"read{len(names) - 1}(L)"

    code = " and ".join(f"({condition_code(guard, place)})" for guard in guards)
    return _function(f"lambda L: {code}", names)


def _has_name(source: Source) -> bool:
    if isinstance(source, ItemSource) and not isinstance(source.key, (str, int, float, bytes, NoneType)):
        return False
    if isinstance(source, CallSource) and not hasattr(builtins, source.function):
        return False
    if isinstance(source, ComputedSource):
        return getattr(source.function, "__module__", None) in _NAMED and all(map(_has_name, source.args))
    return source.base is None or _has_name(source.base)


def conditions_code(guards: Sequence[ShapeGuard]) -> str:
    """Conditions as Python over L and G, as messages show them."""
    return " and ".join(f"({condition_code(guard)})" for guard in guards)


def condition_code(guard: ShapeGuard, place: Callable[[Source], str] = attrgetter("expression")) -> str:
    """One condition as Python over L and G, with each symbol replaced by its source."""
    where = {name: place(source) for name, source in zip(guard.names, guard.sources)}
    return re.sub(r"\b[a-z_]+\d+\b", lambda match: where.get(match.group(), match.group()), guard.expression)


def _function(code: str, names: dict[str, Any]) -> Any:
    return eval(compile(code, "<shape guard>", "eval"), {**_FUNCTIONS, **names})
