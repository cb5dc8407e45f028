"""What is read of functions and classes of the program past the sources that guards follow."""
from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .base import Translator


def guard_unchanged(tx: Translator, owner: Any, holds: Callable[[Any], bool], what: str) -> None:
    """Guards that `what` of a function or class is as it was, which `holds` says; one that is gone is asked nothing."""
    known = weakref.ref(owner)

    def kept(_: Any) -> bool:
        now = known()
        return now is None or holds(now)

    tx.guards.add(None, "LAMBDA", (kept, f"{what} of {owner.__qualname__} (at {id(owner):#x}) is as it was"))
