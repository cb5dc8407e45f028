"""Normalizes a scheduled group for tiling: few axes, inner loops with shared names, and the level of each statement.

`Group` says which loops are nested in which; a Triton kernel works on tiles. In between: adjacent axes that every index
expression uses together are collapsed; bodies with equal inner loops get equal symbols for them (a *space*), so that
equal loads have equal text; and each statement is placed: at the level of the outer axes, inside the inner loops, or
after a reduction over them.
"""
from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from types import MappingProxyType
from typing import Any

import sympy

from ...ir.ir import DOTS, Axis, Buffer, Group, LoopBody, Statement

Sizes = Mapping[sympy.Symbol, int]
"""What symbols were in the call that a graph was compiled for, where that is known."""

NO_SIZES: Sizes = MappingProxyType({})
_SPACE_NAMES = "rqpkjmn"
UNKNOWN_SIZE = 1024  # assumed for a symbol that a graph itself computes
SHORTEST = 64  # elements of rows whose length varies


@dataclass(frozen=True)
class Space:
    """The inner loops of one or several bodies. `numel` is the product of the extents."""

    name: str
    axes: tuple[Axis, ...]

    @property
    def numel(self) -> sympy.Expr:
        return product(a.extent for a in self.axes)


@dataclass(frozen=True)
class TileBody:
    """A loop body whose statements use the axes of the form and of `space` (None: it has no inner loops).

    `inner` are the statements that run inside the inner loops, `after` those that need a reduction's result.
    """

    key: int  # its position in the group: several bodies may write, and be named after, one buffer
    name: str
    space: Space | None
    statements: tuple[Statement, ...]
    source: LoopBody

    @cached_property
    def by_name(self) -> Mapping[str, Statement]:
        return {s.name: s for s in self.statements}

    @cached_property
    def _last_of_node(self) -> Mapping[str, str]:
        return {s.origins[-1]: s.name for s in self.statements if s.origins and s.op != "store"}

    def wanted_name(self, statement: Statement) -> str:
        """A name for the value: the ATen node's for its result, "node_op" for what leads there."""
        if not statement.origins:
            return statement.op
        node = statement.origins[-1]
        return node if self._last_of_node[node] == statement.name else f"{node}_{statement.op}"

    @property
    def reduces(self) -> bool:
        return any(s.op == "reduce" for s in self.statements)

    def is_narrow(self, statement: Statement) -> bool:
        """Whether all that becomes of a value is that it is rounded to a floating dtype of 16 bits or fewer."""
        readers = [s for s in self.statements if statement.name in uses(s)]
        return bool(readers) and all(
            s.op == "cast" and s.dtype.is_floating_point and s.dtype.itemsize <= 2 for s in readers)

    @cached_property
    def inner(self) -> frozenset[str]:
        symbols = {a.symbol.name for a in self.space.axes} if self.space else set()
        found: set[str] = set()
        for s in self.statements:
            free = {x.name for x in s.index.free_symbols} if s.index is not None else set()
            if s.op not in ("reduce", "part") and (free & symbols or (set(uses(s)) | free) & found):
                found.add(s.name)
        return frozenset(found)

    @cached_property
    def after(self) -> frozenset[str]:
        found: set[str] = set()
        for s in self.statements:
            free = {x.name for x in s.index.free_symbols} if s.index is not None else set()
            if s.op == "reduce" or (set(uses(s)) | free) & found:
                found.add(s.name)
        return frozenset(found)


@dataclass(frozen=True)
class Form:
    """A kernel before tiling: outer axes, spaces, bodies in order."""

    name: str
    axes: tuple[Axis, ...]
    spaces: tuple[Space, ...]
    bodies: tuple[TileBody, ...]
    buffers: Mapping[str, Buffer]
    internal: frozenset[str]
    sizes: Sizes

    def hint(self, size: Any) -> int:
        """`size` in the call that the graph was compiled for, as far as that is known."""
        return hint(size, self.sizes)

    @property
    def numel(self) -> sympy.Expr:
        return product(a.extent for a in self.axes)

    @property
    def rows(self) -> int:
        """How many points the outer axes have. Where that varies there may be more than in the first call, of a batch
        of one, say: a tile for as few would suit no other."""
        return self._at_least(self.numel, UNKNOWN_SIZE)

    def length(self, space: Space) -> int:
        """How many points a space has; as many as fill a few sectors of memory at least, where that varies."""
        return self._at_least(space.numel, SHORTEST)

    def _at_least(self, size: sympy.Expr, least: int) -> int:
        known = self.hint(size)
        return known if sympy.sympify(size).is_Integer else max(known, least)

    @property
    def reduces(self) -> bool:
        return any(b.reduces for b in self.bodies)

    @property
    def multiplies(self) -> bool:
        """Whether it computes the product of a matrix and a vector."""
        return any(s.op == "reduce" and s.mode in DOTS for b in self.bodies for s in b.statements)

    @cached_property
    def other_contiguous_axis(self) -> sympy.Symbol | None:
        """An axis other than the last along which some access is contiguous, while another is along the last."""
        if len(self.axes) < 2:
            return None
        last = self.axes[-1].symbol
        last_used, others = False, []
        for body in self.bodies:
            for s in body.statements:
                if s.index is None or s.op not in ("load", "store"):
                    continue
                last_used = last_used or s.index.coeff(last) == 1
                if s.index.has(last) and s.index.coeff(last) != 1:  # a load without it is one value for all of them
                    others += [a for a in self.axes[:-1] if s.index.coeff(a.symbol) == 1 and self.hint(a.extent) >= 8]
        return others[0].symbol if last_used and others and self.hint(self.axes[-1].extent) >= 8 else None

    @cached_property
    def contiguous_over_rows(self) -> bool:
        """True when more elements are loaded along the outer axes than along the inner ones: a column reduction."""
        outer = inner = 0
        for body in self.bodies:
            for s in body.statements:
                if s.op in ("load", "store") and s.name in body.inner and body.space and s.index is not None:
                    count = self.hint(sympy.Mul(*self.buffers[s.buffer].size))
                    outer += count * bool(s.index.coeff(self.axes[-1].symbol) == 1)
                    inner += count * bool(s.index.coeff(body.space.axes[-1].symbol) == 1)
        return outer > inner

    @cached_property
    def scratch(self) -> frozenset[str]:
        """Internal buffers that some body reads at other indices than they were written."""
        return frozenset(buffer for _, buffer in self.misaligned) & self.internal

    @cached_property
    def misaligned(self) -> tuple[tuple[TileBody, str], ...]:
        """(reader, buffer): loads of this kernel's own results that are no longer in a register."""
        written: dict[str, list[tuple[sympy.Expr, Space | None]]] = {}
        found: list[tuple[TileBody, str]] = []
        for body in self.bodies:
            for s in body.statements:
                if s.op == "load" and s.buffer in written:
                    level = body.space if s.name in body.inner else None
                    if (s.index, level) not in written[s.buffer]:
                        found.append((body, s.buffer))
            for s in body.statements:
                if s.op == "store":
                    written.setdefault(s.buffer, []).append((s.index, body.space if s.name in body.inner else None))
        return tuple(found)


def uses(statement: Statement) -> tuple[str, ...]:
    """Names of the statements that this one takes as operands or mask (not those inside its index)."""
    return (*statement.args, statement.mask) if statement.mask else statement.args


def product(sizes: Iterable[sympy.Expr]) -> sympy.Expr:
    """The product of `sizes` as a SymPy expression, 1 of none."""
    total: sympy.Expr = sympy.S.One
    for s in sizes:
        total = total * s
    return total


def hint(size: Any, sizes: Sizes) -> int:
    """`size` as a number: its symbols have the values in `sizes`; each other one counts as UNKNOWN_SIZE."""
    expr = sympy.sympify(size)
    if expr.is_Integer:
        return int(expr)
    number = expr.subs({symbol: sizes.get(symbol, UNKNOWN_SIZE) for symbol in expr.free_symbols})
    return int(number) if number.is_Integer else UNKNOWN_SIZE


def form_of(group: Group, buffers: Mapping[str, Buffer], sizes: Sizes = NO_SIZES) -> Form:
    """Normalize `group`; every statement of every body is kept."""
    bodies = [_TileDraft(b, tuple(b.axes[len(group.axes):]) + b.reduction_axes) for b in group.bodies]
    axes = group.axes
    if not any(b.body.reduction_axes for b in bodies) and len({_extents(b.inner) for b in bodies}) == 1:
        axes = axes + bodies[0].inner  # all bodies have the same loops: all of them are outer
        for draft in bodies[1:]:
            draft.substitute({a.symbol: b.symbol for a, b in zip(draft.inner, bodies[0].inner)})
        for draft in bodies:
            draft.inner = ()
    axes = _drop_ones(axes, bodies)
    axes = _merge(axes, bodies)
    spaces = _spaces(bodies)
    tiles = tuple(
        TileBody(key, d.body.name, spaces.get(_extents(d.inner)), tuple(d.statements), d.body)
        for key, d in enumerate(bodies)
    )
    return Form(group.kernel, axes, tuple(spaces.values()), tiles, buffers, group.internal, sizes)


class _TileDraft:
    """A body while its axes are renamed; `inner` are its inner loops as they were."""

    def __init__(self, body: LoopBody, inner: tuple[Axis, ...]) -> None:
        self.body = body
        self.inner = inner
        self.statements = [
            replace(s, index=sympy.expand(sympy.sympify(s.index))) if s.index is not None else s
            for s in body.statements
        ]

    def substitute(self, changes: Mapping[sympy.Symbol, sympy.Expr]) -> None:
        if changes:
            self.statements = [
                replace(s, index=sympy.expand(s.index.xreplace(changes))) if s.index is not None else s
                for s in self.statements
            ]

    def indices(self) -> list[sympy.Expr]:
        return [s.index for s in self.statements if s.index is not None]


def _extents(axes: Sequence[Axis]) -> tuple[sympy.Expr, ...]:
    return tuple(sympy.sympify(a.extent) for a in axes)


def _drop_ones(axes: tuple[Axis, ...], drafts: Sequence[_TileDraft]) -> tuple[Axis, ...]:
    ones = {a.symbol: sympy.S.Zero for a in axes if a.extent == 1}
    for draft in drafts:
        draft.substitute(ones)
    return tuple(a for a in axes if a.extent != 1)


def _merge(axes: tuple[Axis, ...], drafts: Sequence[_TileDraft]) -> tuple[Axis, ...]:
    """Make one axis of each two neighbours (a, b) that every index uses as `a * extent(b) + b`."""
    merged = list(axes)
    for k in range(len(merged) - 2, -1, -1):
        outer, inner = merged[k], merged[k + 1]
        changes: dict[sympy.Expr, sympy.Expr] = {}
        for expr in {e for d in drafts for e in d.indices()}:
            together = _merged_index(expr, outer, inner)
            if together is None:
                break
            changes[expr] = together
        else:
            for draft in drafts:
                draft.statements = [
                    replace(s, index=changes[s.index]) if s.index is not None else s for s in draft.statements
                ]
            merged[k : k + 2] = [Axis(inner.symbol, sympy.sympify(outer.extent) * inner.extent)]
    return tuple(merged)


def _merged_index(expr: sympy.Expr, outer: Axis, inner: Axis) -> sympy.Expr | None:
    a, b = outer.symbol, inner.symbol
    if a not in expr.free_symbols:
        return None if b in expr.free_symbols else expr
    together = expr.xreplace({a: sympy.S.Zero})
    back = sympy.expand(together.xreplace({b: a * inner.extent + b}))
    return sympy.expand(together) if back == expr else None


def _spaces(drafts: Sequence[_TileDraft]) -> dict[tuple[sympy.Expr, ...], Space]:
    """Give bodies with equal inner loops equal symbols; merge those loops where all of these bodies permit."""
    together: dict[tuple[sympy.Expr, ...], list[_TileDraft]] = {}
    for draft in drafts:
        if draft.inner:
            together.setdefault(_extents(draft.inner), []).append(draft)
    spaces: dict[tuple[sympy.Expr, ...], Space] = {}
    for number, (extents, members) in enumerate(together.items()):
        letter = _SPACE_NAMES[number] if number < len(_SPACE_NAMES) else f"r{number}_"
        axes = tuple(Axis(_symbol(f"{letter}{k}"), e) for k, e in enumerate(extents))
        for draft in members:
            draft.substitute({old.symbol: new.symbol for old, new in zip(draft.inner, axes)})
        kept = _merge(_drop_ones(axes, members), members) or axes[-1:]
        spaces[extents] = Space(letter, kept)
    return spaces


def _symbol(name: str) -> sympy.Symbol:
    return sympy.Symbol(name, integer=True, nonnegative=True)
