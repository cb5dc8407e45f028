"""Transposed copies of small operands, which let a short reduction be vectorized over its results.

In (x[:, None] - c[None]).square().sum(-1), many short rows of x are combined with all rows of c. A vector along the
short reduced axis ends in a horizontal sum for each result; a vector along the rows of c does not, but its loads are
`stride` elements apart. A transposed copy of c, made once, makes them contiguous.
"""
from __future__ import annotations

from dataclasses import replace

import sympy

from ...artifacts.context import CompileContext
from ..ir.affine import Linear, axis_symbol
from ..ir.body_affine import coefficient, index_forms, mentions, static
from ..ir.ir import Axis, Buffer, ExternCall, LoopBody, Program, Statement

SHORT = 256  # elements of a reduced axis that is worth transposing
LANES = 16  # contiguous results that make it worth it
REPEATS = 64  # times that each element of the copy is read
COPY_LIMIT = 64 * 1024  # elements of a copy


def with_transposed_copies(program: Program, context: CompileContext) -> Program:
    """`program` with operands of short reductions transposed first (a decision for each)."""
    steps: list[LoopBody | ExternCall] = []
    buffers = dict(program.buffers)
    for step in program.steps:
        if isinstance(step, LoopBody):
            turned = _candidates(step, program)
            options = ("transposed-copy", "as-is")
            for statement in turned:
                why = f"short rows, read {REPEATS} times or more; transposed, they are contiguous and fill vectors"
                subject = f"{statement.buffer}@{step.name}"
                if context.decide("operand-layout", subject, options, options[0], why) == options[0]:
                    copy, step = _copied(step, statement, buffers)
                    steps.append(copy)
        steps.append(step)
    return replace(program, steps=tuple(steps), buffers=buffers)


def _candidates(body: LoopBody, program: Program) -> list[Statement]:
    """The loads to transpose, all or none: afterwards every load of the reduction is contiguous or invariant."""
    if body.is_product:
        return []
    if len(body.reduction_axes) != 1 or len(body.axes) < 2 or program.buffers[body.writes[0]].device.type != "cpu":
        return []
    lane, over = body.axes[-1], body.reduction_axes[0]
    width, length = static(lane.extent), static(over.extent)
    around = sympy.Mul(*[a.extent for a in body.axes[:-1]])
    if width is None or length is None or width < LANES or not 2 <= length <= SHORT or width * length > COPY_LIMIT:
        return []
    if around.is_Integer and int(around) < REPEATS:
        return []
    turned = []
    for position, form in index_forms(body).items():
        s = body.statements[position]
        if form is None:
            return []
        along = coefficient(form, lane.symbol)
        if s.op == "store":
            if along != 1:
                return []
        elif along != 1 and along != 0:
            if along is None or s.mask or not _small(form, body, lane, over):
                return []
            turned.append(s)
    return turned


def _small(form: Linear, body: LoopBody, lane: Axis, over: Axis) -> bool:
    """True for an index over the two axes alone, contiguous along the reduced one."""
    others = [a.symbol for a in body.axes if a != lane]
    plain = all(atom.kind == "axis" for atom in form.terms)
    return plain and coefficient(form, over.symbol) == 1 and not any(mentions(form, symbol) for symbol in others)


def _copied(body: LoopBody, load: Statement, buffers: dict[str, Buffer]) -> tuple[LoopBody, LoopBody]:
    """(the body that makes the copy, `body` with the load from it)."""
    lane, over = body.axes[-1], body.reduction_axes[0]
    source = buffers[load.buffer]
    name = f"{load.buffer}_turned"
    while name in buffers:
        name += "_"
    width = lane.extent
    buffers[name] = Buffer(name, source.dtype, source.device, (over.extent, width), (width, sympy.S.One))
    outer, inner = Axis(axis_symbol("i0"), over.extent), Axis(axis_symbol("i1"), width)
    assert load.index is not None
    place = load.index.xreplace({over.symbol: outer.symbol, lane.symbol: inner.symbol})
    to = sympy.expand(width * outer.symbol + inner.symbol)
    statements = (
        replace(load, name="t0", index=place),
        Statement("", "store", ("t0",), source.dtype, name, to, origins=load.origins),
    )
    copy = LoopBody(name, (outer, inner), (), statements)
    turned = replace(load, buffer=name, index=sympy.expand(width * over.symbol + lane.symbol))
    return copy, replace(body, statements=tuple([turned if s is load else s for s in body.statements]))
