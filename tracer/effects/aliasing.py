"""Guards that distinct objects stay distinct, where one of them is changed or the user's code compares them by identity
(`a is b`, `x in objects`, a key of a dict).

The trace keeps a Value for each object. If traced code appends to one list and reads the length of another, a later
call that passes one list in both places behaves differently. Tensors have a guard of their own (`NO_ALIASING`), except
those that modules own.
"""
from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

import torch

from ..sources.computed import ComputedSource
from ..sources.source import CellSource, Source
from ..sources.source_functions import are_different
from ..variables.core.base import Value
from ..variables.core.registry import is_stable
from ..variables.python.cells import CellValue

if TYPE_CHECKING:
    from ..variables.core.base import Translator


def guard_distinct(root: Translator) -> None:
    """Guard that a changed object is no other object of its type that was read, and that objects compared by identity
    stay distinct."""
    kinds = {value.python_type() for value in root.effects.changed_outside()}
    groups: dict[type, dict[Source, None]] = {kind: {} for kind in kinds}
    for value in (*root.trace.values_by_id.values(), *root.effects.cells.values()) if kinds else ():
        source = _moving(value)
        if source is not None and value.python_type() in kinds:
            groups[value.python_type()][source] = None
    for kind, values in root.trace.compared_by_identity.items():
        compared = {source: None for source in map(_moving, values) if source is not None}
        if compared:
            _guard_other_than_fixed(root, compared, [value for value in values if _moving(value) is None])
        if kind not in groups and not (issubclass(kind, torch.Tensor) and _stay_different(root, compared)):
            groups[kind] = compared
    for sources in groups.values():
        if len(sources) > 1:
            root.trace.guards.add(ComputedSource(are_different, tuple(sources)), "DISTINCT", True)


def _stay_different(root: Translator, tensors: Iterable[Source]) -> bool:
    """Whether `NO_ALIASING` covers all of them."""
    guards = root.trace.guards
    return all(guards.stays_different(source, guards.value(source)) for source in tensors)


def _guard_other_than_fixed(root: Translator, sources: Iterable[Source], values: Sequence[Value]) -> None:
    """Guard that the objects at `sources` are none of the objects that are the same in each call: items of a set."""
    found = set(values)
    fixed = {at for at, value in root.trace.values_by_id.items() if value in found} if found else set()
    for source in sources if fixed else ():
        other = (lambda real: id(real) not in fixed, "{} is none of the objects that it was compared with")
        root.trace.guards.add(source, "LAMBDA", other)


def _moving(value: Value) -> Source | None:
    """The source of an object that may be another one in the next call."""
    source = _source_of(value)
    return None if source is None or is_stable(source) else source


def _source_of(value: Value) -> Source | None:
    if isinstance(value, CellValue) and isinstance(value.source, CellSource):
        return value.source.cell  # the source of a cell reads its content
    return value.source
