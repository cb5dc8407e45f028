"""Finds recorded values in a running frame by the names of inputs and guards.

A name such as `L['self'].layers[0]._parameters['weight']` is a walk from the frame's locals (L) or globals (G) by
attributes and constant keys. Names from a recording are followed step by step and never evaluated; other expressions
are not supported.
"""
from __future__ import annotations

import ast
import contextlib
import re
from collections.abc import Mapping
from types import FrameType
from typing import Any

MISSING = object()

_EQUALS = (ast.Eq, ast.Is)


def is_place(name: str) -> bool:
    """Whether a name is a walk that `look` can go."""
    return _steps(name) is not None


def equality(code: str) -> tuple[str, Any] | None:
    """The place and the literal of a guard that says what a place holds: `L['scale'] == 2`, `L['mask'] is None`."""
    with contextlib.suppress(SyntaxError, ValueError, TypeError, RecursionError, MemoryError):
        tree = ast.parse(code, mode="eval").body
        if isinstance(tree, ast.Compare) and len(tree.ops) == 1 and isinstance(tree.ops[0], _EQUALS):
            place = ast.unparse(tree.left)
            return (place, ast.literal_eval(tree.comparators[0])) if is_place(place) else None
    return None


def look(frame: FrameType, name: str) -> Any:
    """What is at a place when `frame` runs, or MISSING."""
    return look_in(frame.f_locals, frame.f_globals, name)


def look_in(variables: Mapping[str, Any], module: Mapping[str, Any], name: str) -> Any:
    """The same where a frame's local and global variables are these."""
    found: Any = {"L": variables, "G": module}
    for by_attribute, key in _steps(name) or [(False, None)]:
        found = _next(found, by_attribute, key)
        if found is MISSING:
            return MISSING
    return found


def _next(owner: Any, by_attribute: bool, key: Any) -> Any:
    """One step of a walk."""
    if by_attribute and key in _WRAPPED and not hasattr(owner, key):
        return owner  # nothing was compiled here: this is the object itself
    try:
        return getattr(owner, key) if by_attribute else owner[key]
    except Exception:  # the program's own __getattr__ may raise anything
        return MISSING


class Objects:
    """What is at many places at one time, where local and global variables are these: shared steps are gone once."""

    def __init__(self, variables: Mapping[str, Any], module: Mapping[str, Any]) -> None:
        self._roots = {"L": variables, "G": module}
        self._found: dict[str, Any] = {}

    def at(self, name: str) -> Any:
        """What is at a place, or MISSING."""
        if name not in self._found:
            last = _LAST.fullmatch(name)
            if last is not None:
                self._found[name] = self._after(*last.groups())
            else:
                self._found[name] = look_in(self._roots["L"], self._roots["G"], name)
        return self._found[name]

    def _after(self, before: str, attribute: str | None, number: str | None, one: str | None, other: str) -> Any:
        owner = self._roots[before] if before in self._roots else self.at(before)
        if owner is MISSING:
            return MISSING
        if attribute is not None:
            return _next(owner, True, attribute)
        return _next(owner, False, int(number) if number is not None else other if one is None else one)


_WRAPPED = ("_ptdebug_original", "_orig_mod")
"""Attributes by which what was compiled holds the program's function or module."""


_STEP = re.compile(r"\.([A-Za-z_]\w*)|\[(?:(-?(?:0|[1-9]\d*))|'([^'\\\n]*)'|\"([^\"\\\n]*)\")\]", re.ASCII)
_PLAIN = re.compile(rf"([LG])((?:{_STEP.pattern})+)", re.ASCII)
"""Nearly all places are written so; a call has a thousand of them."""
_LAST = re.compile(rf"(.+)(?:{_STEP.pattern})", re.ASCII)


def _steps(name: str) -> list[tuple[bool, Any]] | None:
    """From {"L": locals, "G": globals}: (is it an attribute?, its name or the key)."""
    plain = _PLAIN.fullmatch(name)
    if plain is None:
        return _parsed_steps(name)
    steps: list[tuple[bool, Any]] = [(False, plain[1])]
    for attribute, number, one, other in _STEP.findall(name, 1):
        steps.append((True, attribute) if attribute else (False, int(number) if number else one or other))
    return steps


def _parsed_steps(name: str) -> list[tuple[bool, Any]] | None:
    with contextlib.suppress(SyntaxError, ValueError, TypeError, RecursionError, MemoryError):
        tree, steps = ast.parse(name, mode="eval").body, []
        while isinstance(tree, (ast.Attribute, ast.Subscript)):
            if isinstance(tree, ast.Attribute):
                steps.append((True, tree.attr))
            else:
                steps.append((False, ast.literal_eval(tree.slice)))
            tree = tree.value
        if isinstance(tree, ast.Name) and tree.id in ("L", "G") and steps:
            return [(False, tree.id), *reversed(steps)]
    return None
