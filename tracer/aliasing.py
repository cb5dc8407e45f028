"""Objects that were different when a frame was traced, and must stay so where one of them changes.

The trace keeps a Value for each object. Where the program appends to one list and reads the length of another, a later
call that passes one list in both places is another program. Tensors have a guard of their own (`NO_ALIASING`).
"""
from __future__ import annotations

from typing import TYPE_CHECKING

from .side_effects import CellValue
from .sources import CellSource, ComputedSource, Source
from .values.base import Value
from .values.registry import is_stable

if TYPE_CHECKING:
    from .interpreter import Interpreter


def guard_distinct(root: Interpreter) -> None:
    """Guard that what changed is no other object of its type that was read."""
    kinds = {value.python_type() for value in root.effects.changed_outside()}
    groups: dict[type, dict[Source, None]] = {kind: {} for kind in kinds}
    for value in (*root.trace.values_by_id.values(), *root.effects.cells.values()) if kinds else ():
        source = _source_of(value)
        if source is not None and not is_stable(source) and value.python_type() in kinds:
            groups[value.python_type()][source] = None
    for sources in groups.values():
        if len(sources) > 1:
            root.trace.guards.add(ComputedSource(are_different, tuple(sources)), "DISTINCT", True)


def _source_of(value: Value) -> Source | None:
    if isinstance(value, CellValue) and isinstance(value.source, CellSource):
        return value.source.cell  # the source of a cell reads what is in it
    return value.source


def are_different(*objects: object) -> bool:
    """Whether no two of them are one object."""
    return len(set(map(id, objects))) == len(objects)
