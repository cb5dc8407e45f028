"""One guard: as values ask for it while a frame is traced, and as a guard tree keeps it."""
from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ...artifacts.records import Location
from ..sources.source import Source


@dataclass(frozen=True, slots=True)
class GuardSpec:
    """One guard: the object at `source` satisfies `kind` (an entry of `kinds.KINDS`) with `value`."""

    index: int
    source: Source
    kind: str
    value: Any
    location: Location | None


@dataclass(frozen=True, slots=True)
class Check:
    """One guard of a tree: what is needed to explain and record it, without references to the user's objects."""

    index: int
    source: Source
    kind: str
    expectation: Any
    location: Location | None
