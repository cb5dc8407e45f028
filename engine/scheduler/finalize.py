"""From fused nodes to groups: contiguous loops are collapsed, and buffers that never reach memory are marked."""
from __future__ import annotations

from collections.abc import Callable, Sequence

import sympy

from ..ir.affine import ZERO, Linear, axis, size
from ..ir.body_affine import NotLinear, coefficient, environment, linear, new_axis, rewrite
from ..ir.ir import Axis, Group, LoopBody, Program, View
from .legality import accesses, row_terms
from .loop_order import along_memory
from .steps import Node, views_in

SCRATCH_LIMIT = 16384  # elements of a row that a kernel may keep in scratch
SCRATCH_TOTAL = 24 * 1024  # of all rows of a group


def finished(node: Node, kernel: str, program: Program, needed_outside: Callable[[str, Node], bool]) -> Group:
    """The group of a node. `needed_outside(buffer, node)` says whether something else reads a buffer."""
    bodies, axes = merged(along_memory(node.bodies, len(node.axes)), node.axes)
    internal: set[str] = set()
    total = 0
    for body in bodies:
        for name in body.writes:
            if needed_outside(name, node):
                continue
            row = _row_size(name, bodies, axes)
            if row is not None and row <= SCRATCH_LIMIT and total + row <= SCRATCH_TOTAL:
                internal.add(name)
                total += row
    device = program.buffers[bodies[0].writes[0]].device
    return Group(kernel, axes, tuple(bodies), frozenset(internal), device)


def escaping(program: Program) -> frozenset[str]:
    """Buffers that outlive the program: its outputs, and the new values of its inputs."""
    names = {v.buffer for v in views_in(list(program.outputs))}
    names.update(view.buffer for view, _ in program.copies if isinstance(view, View))
    names.update(n for n, b in program.buffers.items() if b.role != "intermediate")
    return frozenset(names)


def _row_size(name: str, bodies: Sequence[LoopBody], axes: tuple[Axis, ...]) -> int | None:
    """Elements of a buffer that one iteration of the outer loops makes, None where it cannot be kept in a row."""
    writers = [b for b in bodies if name in accesses(b).stores]
    if len(writers) != 1:
        return None
    stores = accesses(writers[0]).stores[name]
    if len(stores) != 1 or stores[0].form is None or stores[0].statement.mode:
        return None
    made = row_terms(stores[0].form, writers[0], axes)
    if made is None or not all(isinstance(e, int) for e in made.values()):
        return None
    for reader in bodies:
        for load in accesses(reader).loads.get(name, ()):
            wanted = None if load.form is None else row_terms(load.form, reader, axes)
            if wanted is None or any(f not in made or not isinstance(e, int) or e > made[f] for f, e in wanted.items()):
                return None
    elements = 1
    for extent in made.values():
        elements *= int(extent)
    return elements


# ---- merging of loops ------------------------------------------------------------------------------------------------
def merged(bodies: Sequence[LoopBody], axes: tuple[Axis, ...]) -> tuple[list[LoopBody], tuple[Axis, ...]]:
    """Collapses adjacent loops wherever every index of every body is contiguous across both."""
    current = list(bodies)
    position = 0
    while position + 1 < len(axes):
        pairs = [(b, axes[position], axes[position + 1]) for b in current]
        joined = _join(pairs)
        if joined is None:
            position += 1
            continue
        current = joined
        axes = current[0].axes[: len(axes) - 1]
    return _merged_inside(current, len(axes)), axes


def _merged_inside(bodies: list[LoopBody], outer: int) -> list[LoopBody]:
    """Collapses inner loops; bodies with equal inner extents keep equal ones."""
    done: set[tuple[sympy.Expr, ...]] = set()
    while True:
        families: dict[tuple[sympy.Expr, ...], list[int]] = {}
        for number, body in enumerate(bodies):
            for loops in (body.axes[outer:], body.reduction_axes):
                if len(loops) > 1:
                    families.setdefault(tuple([a.extent for a in loops]), []).append(number)
        todo = [f for f in families if f not in done]
        if not todo:
            return bodies
        family = todo[0]
        done.add(family)
        for place in range(len(family) - 1):
            members = list(dict.fromkeys(families[family]))
            inner = [_loops_with(bodies[n], outer, family) for n in members]
            joined = _join([(bodies[n], a[place], a[place + 1]) for n, a in zip(members, inner)])
            if joined is not None:
                for number, body in zip(members, joined):
                    bodies[number] = body
                break


def _loops_with(body: LoopBody, outer: int, extents: tuple[sympy.Expr, ...]) -> tuple[Axis, ...]:
    inner = body.axes[outer:]
    return inner if tuple([a.extent for a in inner]) == extents else body.reduction_axes


def _join(pairs: Sequence[tuple[LoopBody, Axis, Axis]]) -> list[LoopBody] | None:
    """The bodies with two adjacent axes collapsed, if every index permits it; else None."""
    joined = []
    for body, left, right in pairs:
        one = _joined_body(body, left, right)
        if one is None:
            return None
        joined.append(one)
    return joined


def _joined_body(body: LoopBody, left: Axis, right: Axis) -> LoopBody | None:
    where = environment(body)
    extent = size(right.extent)
    for s in body.statements:
        if s.index is None:
            continue
        try:
            form = linear(s.index, where)
        except NotLinear:
            return None
        a, b = coefficient(form, left.symbol), coefficient(form, right.symbol)
        if a is None or b is None or size(b * extent) != a:
            return None
    whole = new_axis(right.symbol.name, size(left.extent * right.extent))
    mapping: dict[sympy.Symbol, Linear] = {
        left.symbol: ZERO, right.symbol: axis(whole.symbol.name, size(whole.extent)),
    }

    def without(axes: tuple[Axis, ...]) -> tuple[Axis, ...]:
        return tuple([whole if a == right else a for a in axes if a != left])

    try:
        return rewrite(body, mapping, without(body.axes), without(body.reduction_axes))
    except NotLinear:
        return None
