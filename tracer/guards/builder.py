"""Collects the guards of one frame while it is traced."""
from __future__ import annotations

import sys
from collections.abc import Callable
from itertools import islice
from typing import Any

from ...artifacts.records import Location
from ..sources.roots import GLOBAL_STATE
from ..sources.source import Source
from .guarded_frame import GuardedFrame
from .kinds import KINDS
from .read import Scope
from .spec import GuardSpec


class GuardBuilder(GuardedFrame):
    """The guards of one attempt to trace a frame."""

    def __init__(self, *frame: Any) -> None:
        super().__init__(*frame)
        self.locate: Callable[[], Location] | None = None  # the current location; set while guards are recorded
        self._specs: dict[tuple[Source, str, Any], GuardSpec] = {}
        self._members: dict[tuple[type, str], Any] = {}  # see `class_members.py`
        self._handled = not _nothing_is_handled(None)  # before the trace handles exceptions of its own
        self.add(GLOBAL_STATE, "GLOBAL_STATE")

    @property
    def specs(self) -> list[GuardSpec]:
        """All guards, in the order in which they were added."""
        return list(self._specs.values())

    def since(self, count: int) -> list[GuardSpec]:
        """All guards but the first `count`."""
        return list(islice(self._specs.values(), count, None)) if count < len(self._specs) else []

    def add(self, source: Source | None, kind: str, value: Any = None, location: Location | None = None) -> None:
        """Guard the object at `source`; adding the same guard again changes nothing.

        `value` is what the kind compares with; None where the kind needs nothing, or can read it from the object.
        Raises KeyError for an unknown kind.
        """
        entry = KINDS[kind]
        source = GLOBAL_STATE if source is None else source
        key = (source, kind, entry.key(value))
        if key not in self._specs:
            if location is None and self.locate is not None:
                location = self.locate()
            self._specs[key] = GuardSpec(len(self._specs), source, kind, value, location)

    def member(self, cls: type, name: str, found: Any) -> None:
        """Guard that the class of a library has `found` under `name`: one guard for all of them."""
        self._members.setdefault((cls, name), found)
        self.add(None, "CLASS_MEMBERS", self._members)

    def nothing_is_handled(self) -> bool:
        """Whether no caller of the frame is handling an exception, which is guarded then."""
        if not self._handled:
            self.add(GLOBAL_STATE, "LAMBDA", (_nothing_is_handled, "sys.exception() is None"))
        return not self._handled

    def forget(self) -> None:
        """The guards are written, or not needed: release the user's objects, which may die earlier."""
        self.scope = Scope({}, {}, {})
        self.closure = None
        self._specs.clear()
        self._members = {}
        self.shapes.forget()


def _nothing_is_handled(_: object) -> bool:
    return sys.exception() is None
