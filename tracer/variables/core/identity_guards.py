"""Guards on parts of user-defined functions and classes that no source reaches."""
from __future__ import annotations

import functools
import weakref
from collections.abc import Callable
from types import FunctionType
from typing import TYPE_CHECKING, Any

from .registry import is_library

if TYPE_CHECKING:
    from .base import Translator


def guard_unchanged(tx: Translator, owner: Any, holds: Callable[[Any], bool], what: str) -> None:
    """Guard that `what` of a function or class is unchanged, as `holds` decides; an object that has died is not
    checked."""
    known = weakref.ref(owner)

    def kept(_: Any) -> bool:
        now = known()
        return now is None or holds(now)

    tx.guards.add(None, "LAMBDA", (kept, f"{what} of {owner.__qualname__} (at {id(owner):#x}) is as it was"))


_PARTS = {
    property: "fget", classmethod: "__func__", staticmethod: "__func__", functools.cached_property: "func",
    functools.partialmethod: "func",
}  # fmt: skip
"""By type: where a decorator keeps the function."""


def guard_library_member(tx: Translator, cls: type, name: str, found: Any) -> None:
    """Guards that a class gives `found`, a function or what a decorator made of one, where the function is a library's,
    which no other guard looks at."""
    part = _PARTS.get(type(found))
    function = getattr(found, part) if part is not None else found
    if not isinstance(function, FunctionType) or not is_library(function.__module__):
        return
    holder = next((base for base in cls.__mro__ if base.__dict__.get(name) is found), None)
    if holder is not None:  # the class itself; of what `super()` finds, its base
        first = next(base for base in cls.__mro__ if name in base.__dict__)
        tx.guards.member(cls if first is holder else holder, name, found)
