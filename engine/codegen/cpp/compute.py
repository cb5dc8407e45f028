"""Prints what is done at the points of loops: statements, and where loads under masks start."""
from __future__ import annotations

import sympy

from ...ir.loop_nest import Compute, MaskedStarts, OwnIteration
from .accumulators import advance, update
from .indices import c_expression
from .scope import origins_of
from .statements import StatementWriter


def compute(p: StatementWriter, node: Compute) -> None:
    """Statements of a part."""
    part = node.part
    for s in node.statements:
        if s.op == "reduce":
            update(p, part, s)
        elif s.op == "scan":
            if p.scopes.get(("value", part.key, s.name)) is None:
                advance(p, part, s)
        else:
            p.emit(part, s)


def masked_starts(p: StatementWriter, node: MaskedStarts) -> None:
    """The start of each load, once for those that start together."""
    part = node.part
    names: dict[tuple[str, str, sympy.Expr], str] = {}
    for found in node.starts:
        s, key = found.load, (found.load.buffer, found.load.mask, found.start)
        if key not in names:
            names[key] = p.scopes.name(f"{s.buffer}_{s.name}_start")
            text = f"{p.value(part, s.mask)} ? {c_expression(found.start)} : 0"
            p.writer.line(f"const int64 {names[key]} = {text};", origins_of(part.body.name, s.name, s.origins))
        p.scopes.put(("start", part.key, s.name), names[key])
        p.scopes.put(("step", part.key, s.name), c_expression(found.step))


def own_iteration(p: StatementWriter, node: OwnIteration) -> None:
    """Skips what another thread does."""
    place = p.value(node.part, node.name)
    p.writer.line(f"if ({place} < own_first || {place} >= own_last) continue;  // another thread's")
