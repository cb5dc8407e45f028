"""Index expressions of loop bodies as linear forms, and the rewriting of bodies onto other axes."""
from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import lru_cache

import sympy
from torch.utils._sympy.functions import FloorDiv, Mod, PythonMod

from .affine import ZERO, Linear, Size, axis, axis_symbol, constant, expr, indirect, size
from .ir import Axis, LoopBody, Statement

Environment = Mapping[sympy.Symbol, Linear]


class NotLinear(Exception):
    """An index expression that is no linear form over axes, quotients and remainders."""


@lru_cache(maxsize=8192)
def _axes_environment(axes: tuple[Axis, ...]) -> dict[sympy.Symbol, Linear]:
    return {a.symbol: axis(a.symbol.name, size(a.extent)) for a in axes}


def environment(body: LoopBody) -> Environment:
    """What the symbols of a body's index expressions represent: its axes and its indirect values."""
    known = _axes_environment(body.axes + body.reduction_axes)
    found = {axis_symbol(s.name): indirect(s.name, size(s.bound)) for s in body.statements if s.op == "indirect"}
    return {**known, **found} if found else known


def linear(index: sympy.Expr, where: Environment) -> Linear:
    """`index` with the symbols of `where` replaced, as a linear form. Other symbols are sizes. Raises NotLinear."""
    if index.is_Symbol:
        return where[index] if index in where else constant(index)
    if index.is_Integer:
        return constant(int(index))
    if index.is_Add:
        total = ZERO
        for term in index.args:
            total = total + linear(term, where)
        return total
    if index.is_Mul:
        return _product([linear(factor, where) for factor in index.args])
    if not any(symbol in where for symbol in index.free_symbols):
        return constant(index)
    if isinstance(index, (FloorDiv, Mod, PythonMod)):
        inner, divisor = linear(index.args[0], where), linear(index.args[1], where)
        if not divisor.terms:
            return inner // divisor.const if isinstance(index, FloorDiv) else inner % divisor.const
    raise NotLinear(str(index))


def form_of(index: sympy.Expr, *axes: Sequence[Axis]) -> Linear:
    """The linear form of an index over the axes. Raises NotLinear."""
    return linear(index, {a.symbol: axis(a.symbol.name, size(a.extent)) for group in axes for a in group})


def form_or_none(index: sympy.Expr, *axes: Sequence[Axis]) -> Linear | None:
    """The linear form of an index over the axes, None where it has none."""
    try:
        return form_of(index, *axes)
    except NotLinear:
        return None


def _product(factors: Sequence[Linear]) -> Linear:
    scale: Size = 1
    form: Linear | None = None
    for factor in factors:
        if not factor.terms:
            scale = size(scale * factor.const)
        elif form is None:
            form = factor
        else:
            raise NotLinear("a product of two indices")
    return constant(scale) if form is None else form * scale


def index_forms(body: LoopBody) -> dict[int, Linear | None]:
    """The linear form of each load's and store's index, by position of the statement; None where there is none."""
    where = environment(body)
    forms: dict[int, Linear | None] = {}
    for position, statement in enumerate(body.statements):
        if statement.op in ("load", "store"):
            try:
                forms[position] = linear(statement.index, where)
            except NotLinear:
                forms[position] = None
    return forms


def rewrite_statements(
    statements: Sequence[Statement], where: Environment, mapping: Environment
) -> tuple[Statement, ...]:
    """`statements` with the axis symbols in `mapping` replaced by linear forms. Raises NotLinear."""
    merged = {**where, **mapping}
    return tuple([
        s if s.index is None else replace(s, index=linear(s.index, merged).expr) for s in statements
    ])


def rewrite(body: LoopBody, mapping: Environment, axes: tuple[Axis, ...], reduction_axes: tuple[Axis, ...]) -> LoopBody:
    """`body` on other axes: `mapping` says what each old axis is in terms of the new ones. Raises NotLinear."""
    statements = rewrite_statements(body.statements, environment(body), mapping)
    return LoopBody(body.name, axes, reduction_axes, statements)


def new_axis(name: str, extent: Size) -> Axis:
    """An axis of that name."""
    return Axis(axis_symbol(name), expr(extent))


def static(extent: sympy.Expr) -> int | None:
    """The extent as an int, None where symbolic."""
    return int(extent) if extent.is_Integer else None


def coefficient(form: Linear, symbol: sympy.Symbol) -> Size:
    """The factor of an axis in a form (0 where absent); None where the axis is inside of a quotient or remainder."""
    total: Size = 0
    for atom, factor in form.terms.items():
        if atom.kind == "axis":
            if atom.name == symbol.name:
                total = factor
        elif atom.inner is not None and mentions(atom.inner, symbol):
            return None
    return total


def mentions(form: Linear, symbol: sympy.Symbol) -> bool:
    """True when the form depends on the axis, also inside quotients and remainders."""
    return any(
        a.name == symbol.name if a.inner is None else mentions(a.inner, symbol) for a in form.terms
    )
