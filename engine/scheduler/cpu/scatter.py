"""Parallel scatters: which loops may run in any order, and how threads share the work.

Iterations that differ in a *free* axis never write to the same address, so that axis may be vectorized or parallel: it
appears in the index with a factor of its own, like a digit of a number. Where no outer axis is free, threads follow the
owner-computes rule: each runs all iterations, and performs those whose address falls into its range. Either way every
address receives its values in loop order, so results do not depend on the number of threads.
"""
from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import sympy

from ...ir.body_affine import NotLinear, environment, linear
from ...ir.ir import Axis, LoopBody, Statement
from .distribution import dependent

OWNED_WORK = 8  # operations for each address; for fewer, reading every index costs as much as the work


def scatters(body: LoopBody) -> tuple[Statement, ...]:
    """The data-dependent stores of a body."""
    return tuple([s for s in body.statements if s.op == "store" and s.mode])


def free_axes(body: LoopBody) -> frozenset[sympy.Symbol]:
    """The axes of a body along which no two iterations store to one address."""
    axes = {a.symbol for a in body.axes}
    for s in scatters(body):
        axes &= _digits(body, s)
    return frozenset(axes)


def _digits(body: LoopBody, store: Statement) -> frozenset[sympy.Symbol]:
    """The axes of a store's index when it is a number in mixed radix over axes and indirect values."""
    extents: dict[str, sympy.Expr] = {a.symbol.name: a.extent for a in body.axes}
    extents |= {s.name: s.bound for s in body.statements if s.op == "indirect" and s.bound is not None}
    try:
        form = linear(store.index, environment(body))
    except NotLinear:
        return frozenset()
    terms = []
    for atom, factor in form.terms.items():
        extent = extents.get(atom.name)
        if atom.inner is not None or extent is None or type(factor) is not int or factor <= 0:
            return frozenset()
        terms.append((factor, extent, atom.name))
    terms.sort(key=lambda t: t[0])
    for (low, extent, _), (high, _, _) in pairwise(terms):
        if not extent.is_Integer or low * int(extent) > high:
            return frozenset()
    return frozenset(a.symbol for a in body.axes if any(name == a.symbol.name for _, _, name in terms))


def owner(body: LoopBody, outer: Sequence[Axis]) -> Statement | None:
    """The indirect value whose range threads divide: known in the outer loops, and the leading digit of every store."""
    stores = scatters(body)
    inner = frozenset(a.symbol for a in body.axes) - {a.symbol for a in outer}
    late = dependent(body, inner)
    found: set[str] = set()
    for s in stores:
        if not _digits(body, s):
            return None
        form = linear(s.index, environment(body))
        atom, _ = max(form.terms.items(), key=lambda item: item[1] if type(item[1]) is int else 0)
        found.add(atom.name)
    name = found.pop() if len(found) == 1 else ""
    return next((s for s in body.statements if s.op == "indirect" and s.name == name and name not in late), None)


def worth_owning(body: LoopBody, outer: Sequence[Axis]) -> bool:
    """True when there is enough work for each address to pay for every thread's reading every index."""
    inner = sympy.Mul(*[a.extent for a in body.axes[len(outer):]])
    return not inner.is_Integer or int(inner) * sum(s.op != "constant" for s in body.statements) >= OWNED_WORK * 4


__all__ = ["free_axes", "owner", "scatters", "worth_owning"]
