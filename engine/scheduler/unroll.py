"""Full unrolling of an innermost loop of two to four iterations; the loop around it is vectorized.

Colours of a pixel, corners of a box, real and imaginary parts, and what an upsampling repeats fill no vector. Memory is
contiguous across both loops, so the compiler loads and stores whole vectors for neighbouring iterations of the outer
loop, and interleaves them in registers.
"""
from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import sympy

from ...artifacts.context import CompileContext
from ..ir.affine import constant, size
from ..ir.body_affine import NotLinear, coefficient, environment, index_forms, rewrite_statements, static
from ..ir.ir import Axis, Group, LoopBody, Statement
from .loop_order import is_free

FEWEST, MOST = 2, 4  # iterations: more streams take many shuffles
LONG = 32  # iterations of the outer loop, at least
STATEMENTS = 100  # of the unrolled body


def unrolled(group: Group, context: CompileContext) -> Group:
    """`group` without its innermost loop, where that is worth it (a decision of kind "unroll")."""
    if len(group.axes) < 2 or group.internal or not is_free(group):
        return group
    around, last = group.axes[-2:]
    few, many = static(last.extent), static(around.extent)
    if few is None or not FEWEST <= few <= MOST or (many is not None and many < LONG):
        return group
    statements = sum(len(b.statements) for b in group.bodies) * few
    if statements > STATEMENTS or not all(_goes_along(b, around, last) for b in group.bodies):
        return group
    try:
        bodies = tuple([_written_out(b, last, few) for b in group.bodies])
    except NotLinear:
        return group
    why = f"a loop of {few} fills no vector; memory is contiguous across it and the loop of {around.extent}"
    if context.decide("unroll", group.kernel, ("unroll", "loop"), "unroll", why, origins=group.origins) != "unroll":
        return group
    return replace(group, axes=group.axes[:-1], bodies=bodies)


def _goes_along(body: LoopBody, around: Axis, last: Axis) -> bool:
    """Whether all stores, and the loads that vary in it, are contiguous across both loops."""
    forms = index_forms(body)
    for position, s in enumerate(body.statements):
        if s.op == "indirect":
            return False
        if s.op not in ("load", "store"):
            continue
        form = forms[position]
        inner, outer = (None, None) if form is None else (coefficient(form, a.symbol) for a in (last, around))
        if inner is None or outer is None or (s.op == "store" and inner != 1):
            return False
        if inner != 0 and (inner != 1 or outer not in (0, size(last.extent))):
            return False
    return True


def _written_out(body: LoopBody, last: Axis, few: int) -> LoopBody:
    """The statements of all iterations; those that are the same in each, once. Raises NotLinear."""
    varying = _varying(body, last.symbol)
    made: list[Statement] = [s for s in body.statements if s.name and s.name not in varying]
    for k in range(few):
        here = rewrite_statements(body.statements, environment(body), {last.symbol: constant(k)})
        names = {name: f"{name}_{k}" for name in varying}
        made += [_renamed(s, names) for s in here if not s.name or s.name in varying]
    return replace(body, axes=body.axes[:-1], statements=tuple(_numbered(made)))


def _varying(body: LoopBody, symbol: sympy.Symbol) -> set[str]:
    varying: set[str] = set()
    for s in body.statements:
        depends = s.index is not None and symbol in s.index.free_symbols
        if s.name and (depends or not varying.isdisjoint((*s.args, s.mask))):
            varying.add(s.name)
    return varying


def _numbered(statements: list[Statement]) -> Iterator[Statement]:
    """The statements with names in order: t0, t1, ..."""
    names = {name: f"t{n}" for n, name in enumerate(s.name for s in statements if s.name)}
    return (_renamed(s, names) for s in statements)


def _renamed(s: Statement, names: dict[str, str]) -> Statement:
    args = tuple([names.get(a, a) for a in s.args])
    return replace(s, name=names.get(s.name, s.name), args=args, mask=names.get(s.mask, s.mask))
