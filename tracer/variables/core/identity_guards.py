"""Guards on parts of user-defined functions and classes that no source reaches."""
from __future__ import annotations

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


def guard_library_method(tx: Translator, cls: type, name: str, found: Any) -> None:
    """Guards that a class gives `found`, where that is a library's function, which no other guard looks at."""
    if not isinstance(found, FunctionType) or not is_library(found.__module__):
        return
    holders = [base for base in cls.__mro__ if name in base.__dict__]
    if holders and holders[0].__dict__[name] is found:
        tx.guards.member(cls, name, found)
        return
    for base in holders:  # what `super()` finds is its base's
        if base.__dict__[name] is found:
            tx.guards.member(base, name, found)
            return
