"""What is read of functions and classes of the program past the sources that guards follow."""
from __future__ import annotations

import weakref
from collections.abc import Callable
from types import FunctionType
from typing import TYPE_CHECKING, Any

from .registry import is_library

if TYPE_CHECKING:
    from .base import Translator


def guard_kept(tx: Translator, owner: Any, holds: Callable[[Any], bool], what: str) -> None:
    """Guards that `what` of a function or class is as it was, which `holds` says; one that is gone is asked nothing."""
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
