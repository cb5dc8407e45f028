"""A lowered program as records: one `Loops` record for each body."""
from __future__ import annotations

from collections.abc import Iterator, Sequence

import sympy

from ...artifacts.records import LoopAxis, Loops, LoopStatement, TensorMeta
from ..ir.ir import Axis, Buffer, LoopBody, Program, Statement
from ..ir.printer import dtype_name, format_expr, format_statement


def loops_records(program: Program) -> Iterator[tuple[str, str, Loops]]:
    """(stage, name, record) of each loop body; origins refer to nodes of the ATen graph ("forward#add_1")."""
    seen: dict[str, int] = {}
    for step in program.steps:
        if isinstance(step, LoopBody):
            again = seen[step.name] = seen.get(step.name, 0) + 1
            name = step.name if again == 1 else f"{step.name}_part{again}"
            yield "loop_ir", name, describe_body(step, program.buffers[step.name], name)


def describe_body(body: LoopBody, buffer: Buffer | None = None, name: str = "") -> Loops:
    """One body as a record; a store, which has no name, is called after its buffer."""
    stored: set[str] = set()
    statements = []
    for s in body.statements:
        identifier = s.name
        if s.op == "store":
            identifier = s.buffer if s.buffer not in stored else f"{s.buffer}_{len(stored)}"
            stored.add(identifier)
        statements.append(_statement(s, identifier))
    value = None
    if buffer is not None:
        size, stride = tuple(map(_number, buffer.size)), tuple(map(_number, buffer.stride))
        value = TensorMeta(dtype_name(buffer.dtype), size, stride, str(buffer.device))
    return Loops(name or body.name, _axes(body.axes), _axes(body.reduction_axes), tuple(statements), body.reads,
                 body.writes, value)


def _statement(s: Statement, identifier: str) -> LoopStatement:
    args = (*s.args, s.mask) if s.mask else tuple(s.args)
    return LoopStatement(identifier, s.op, format_statement(s), dtype_name(s.dtype), args,
                         tuple([f"forward#{origin}" for origin in s.origins]))


def _axes(axes: Sequence[Axis]) -> tuple[LoopAxis, ...]:
    return tuple([LoopAxis(a.symbol.name, format_expr(a.extent)) for a in axes])


def _number(size: sympy.Expr) -> int | str:
    if size.is_Integer:
        return int(size.p)
    text = format_expr(size)
    return int(text) if text.lstrip("-").isdigit() else text
