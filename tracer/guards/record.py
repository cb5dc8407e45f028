"""The record of a compilation's guards: stage `guards`."""
from __future__ import annotations

from collections.abc import Mapping, Sequence

from ...artifacts.records import Guard, Guards, Ref
from ..sources import Source
from .kinds import KINDS
from .tree import Check


def record_guards(checks: Sequence[Check], nodes: Mapping[str, Ref] | None = None) -> Guards:
    """Records of `checks`; `nodes` maps a source's expression to the node that reads it, where there is one."""
    first: dict[Source, str] = {}
    for check in checks:
        first.setdefault(check.source, f"g{check.index}")
    return Guards(tuple(_record(check, first, nodes or {}) for check in checks))


def _record(check: Check, first: Mapping[Source, str], nodes: Mapping[str, Ref]) -> Guard:
    kind = KINDS[check.kind]
    node = nodes.get(check.source.expression)
    return Guard(
        id=f"g{check.index}",
        source=check.source.expression,
        kind=check.kind,
        code=check.code,
        expected=kind.expected(check.expectation),
        subject=kind.subject(check.expectation),
        location=check.location,
        parent=_parent(check.source, first),
        origins=(node,) if node else (),
    )


def _parent(source: Source, first: Mapping[Source, str]) -> str:
    """The first guard of the nearest object on the way to `source` that has one."""
    owner = source.base
    while owner is not None:
        if owner in first:
            return first[owner]
        owner = owner.base
    return ""
