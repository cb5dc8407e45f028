"""Guards on parts of user-defined functions and classes that no source reaches."""
from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

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
