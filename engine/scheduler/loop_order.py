"""Loop interchange: which loop of a pointwise group, or of a pointwise body in any group, is innermost and vectorized.

Loops start in memory order, which is best while the innermost loop is long. A short innermost loop leaves most of a
vector empty; in arithmetic-heavy kernels it pays to vectorize another loop and to access memory with strides. The cost
of an order is estimated in simple operations for each element: arithmetic and contiguous loads and stores are divided
by the lanes in use, and what is invariant in the innermost loop is counted once.
"""
from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import sympy

from ...artifacts.context import CompileContext
from ...artifacts.records import Option
from ..ir.body_affine import coefficient, index_forms, static
from ..ir.ir import Axis, Group, LoopBody
from ..lowering.realization import COLUMNS, LANES

SHORT = COLUMNS  # iterations of an innermost loop below which the compiler does not vectorize
ARITHMETIC = 1.0
TRANSCENDENTAL = 20.0  # a call of the vector math library, for one vector
STRIDED = 3.0  # one access for each lane
GAIN = 1.5  # how many times cheaper another order must look
SLOW = frozenset("exp exp2 expm1 log log2 log10 log1p sin cos tan asin acos atan sinh cosh tanh asinh acosh atanh erf "
                 "erfc erfinv lgamma digamma sigmoid pow atan2".split())


def ordered(group: Group, context: CompileContext) -> Group:
    """`group` with another loop innermost where that is much cheaper (a decision of kind "loop-order")."""
    if len(group.axes) < 2 or not is_free(group):
        return group
    last = static(group.axes[-1].extent)
    if last is None or last >= SHORT:
        return group
    orders = {_name(order): order for order in _orders(group.axes)}
    costs = {name: sum(_cost(b, order[-1]) for b in group.bodies) for name, order in orders.items()}
    current, best = next(iter(costs)), min(costs, key=costs.__getitem__)
    if costs[best] * GAIN > costs[current]:
        best = current
    why = f"an innermost loop of {last} iterations fills no vector; {best} has the lowest estimated cost"
    options = [Option(name, round(c, 3), unit="operations/element", better="lower") for name, c in costs.items()]
    chosen = orders[context.decide("loop-order", group.kernel, options, best, why, origins=group.origins)]
    return replace(group, axes=chosen, bodies=tuple([replace(b, axes=chosen) for b in group.bodies]))


def along_memory(bodies: Sequence[LoopBody], outer: int) -> list[LoopBody]:
    """`bodies` inside of `outer` common loops, pointwise ones with a contiguous innermost loop.

    A body has the loops of the reduction that it was fused with, and keeps them in any larger group. Those with loops
    of the same extents share a nest, so they change together, and only where none of them is contiguous as it is.
    """
    families: dict[tuple[sympy.Expr, ...], list[int]] = {}
    for number, body in enumerate(bodies):
        if not body.reduction_axes and not any(s.op == "indirect" or s.mode for s in body.statements):
            families.setdefault(tuple([a.extent for a in body.axes[outer:]]), []).append(number)
    found = list(bodies)
    for extents, members in families.items():
        near = [sum(_neighbours(bodies[n], place) for n in members) for place in range(outer + len(extents))]
        if len(extents) < 2 or near[-1] or max(near[outer:]) <= max(near[:outer], default=0):
            continue
        best = near.index(max(near[outer:]), outer)
        for n in members:
            axes = bodies[n].axes
            found[n] = replace(bodies[n], axes=(*axes[:best], *axes[best + 1:], axes[best]))
    return found


def _neighbours(body: LoopBody, place: int) -> int:
    """How many accesses of a body have unit stride in the loop at `place`."""
    symbol = body.axes[place].symbol
    return sum(form is not None and coefficient(form, symbol) == 1 for form in index_forms(body).values())


def is_free(group: Group) -> bool:
    """Whether the iterations may run in any order: every body is pointwise in all loops, and accumulates nothing."""
    return all(b.axes == group.axes and not b.reduction_axes for b in group.bodies) and not any(
        s.op == "store" and s.mode for b in group.bodies for s in b.statements
    )


def _orders(axes: tuple[Axis, ...]) -> list[tuple[Axis, ...]]:
    """The given order first, then each other loop of static extent moved innermost."""
    moved = [a for a in axes[:-1] if static(a.extent) is not None]
    return [axes, *[(*[x for x in axes if x is not a], a) for a in moved]]


def _name(order: tuple[Axis, ...]) -> str:
    return ",".join(a.symbol.name for a in order)


def _cost(body: LoopBody, inner: Axis) -> float:
    """Operations for one element of `body` when `inner` is the vector loop."""
    extent = static(inner.extent) or 1
    lanes = extent / -(-extent // LANES) if extent >= SHORT else 1.0
    forms = index_forms(body)
    varying: set[str] = set()
    total = 0.0
    for position, s in enumerate(body.statements):
        step = None
        if s.index is not None:
            form = forms.get(position)
            step = coefficient(form, inner.symbol) if form is not None else None
            depends = step != 0 if form is not None else inner.symbol in s.index.free_symbols
        else:
            depends = False
        depends = depends or not varying.isdisjoint((*s.args, s.mask))
        if depends:
            varying.add(s.name)
        if s.op in ("load", "store"):
            each = 1 / lanes if step == 1 else STRIDED
        elif s.op == "constant":
            each = 0.0
        else:
            each = (TRANSCENDENTAL if s.op in SLOW else ARITHMETIC) / lanes
        total += each if depends else each * lanes / extent
    return total
