"""May two groups of loop bodies share their outer loops, and how many of them?

Bodies that share outer loops run one after the other in each iteration. So a body may read what another wrote only if
it reads, in each iteration of the shared loops, elements that the same iteration wrote. Both indices are linear forms:
the shared axes must have the same factors in both, and the inner loops of the reader must run over a part of what the
inner loops of the writer cover.
"""
from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace

import sympy

from ..ir.affine import Atom, Linear, Size, axis, size
from ..ir.body_affine import NotLinear, coefficient, index_forms, mentions, new_axis, rewrite, static
from ..ir.ir import Axis, LoopBody, Statement


@dataclass(frozen=True)
class Illegal:
    """Why two groups cannot be fused, whatever it would save, and what would allow it."""

    why: str
    allow: str = ""


@dataclass(frozen=True)
class Unprofitable:
    """Why fusing two groups is not worth it, and what would make it so.

    In bytes of memory traffic, where that is what is compared: what it saves, and what it would have to save.
    """

    why: str
    allow: str = ""
    saved: int | None = 0
    needed: int = 0


@dataclass(frozen=True)
class Legal:
    """Two groups may be fused: their bodies on common axes, and what speaks against it, if anything does."""

    bodies: list[LoopBody]
    axes: tuple[Axis, ...]
    against: Unprofitable | None = None


@dataclass(frozen=True)
class Access:
    """A load or store of a body, with its index as a linear form (None where it is none)."""

    statement: Statement
    form: Linear | None


class Accesses:
    """The loads and stores of a body by buffer."""

    def __init__(self, body: LoopBody) -> None:
        self.loads: dict[str, list[Access]] = {}
        self.stores: dict[str, list[Access]] = {}
        for position, form in index_forms(body).items():
            s = body.statements[position]
            (self.loads if s.op == "load" else self.stores).setdefault(s.buffer, []).append(Access(s, form))
        moded = [a for group in self.stores.values() for a in group if a.statement.mode]
        axes = {a.symbol.name for a in body.axes}
        self.adds = bool(moded) and all(  # at addresses that do not depend on data
            a.statement.mode == "add" and a.form is not None and {t.name for t in a.form.terms} <= axes for a in moded
        )
        self.scatters = bool(moded) and not self.adds


def accesses(body: LoopBody) -> Accesses:
    """The accesses of a body, kept on it."""
    found = body.__dict__.get("_accesses")
    if found is None:
        found = Accesses(body)
        object.__setattr__(body, "_accesses", found)
    return found


def aligned(first: Sequence[Axis], bodies: Sequence[LoopBody], axes: Sequence[Axis]) -> tuple[list[LoopBody], int]:
    """`bodies` (whose shared axes are `axes`) on axes named as `first`, and how many leading ones are the same.

    Where one side has (8, 512) and the other 4096, the longer loop is split, if it is on the side of `bodies`.
    Raises NotLinear when an index cannot follow.
    """
    mapping: dict[sympy.Symbol, Linear] = {}
    shared: list[Axis] = []
    position = 0
    for old in axes:
        parts = _split_like(old, first[position:])
        if not parts:
            break
        shared += parts
        position += len(parts)
        mapping[old.symbol] = _joined(parts)
    if not shared:
        return list(bodies), 0
    renamed = []
    for body in bodies:
        rest, reduction, own = _others(body, len(mapping), shared, mapping)
        renamed.append(rewrite(body, own, (*shared, *rest), reduction) if own else body)
    return renamed, len(shared)


def _split_like(old: Axis, targets: Sequence[Axis]) -> list[Axis]:
    """The leading `targets` whose product is the extent of `old`; [] if there are none."""
    product: Size = 1
    wanted = size(old.extent)
    for count, target in enumerate(targets, 1):
        product = size(product * size(target.extent))
        if product == wanted:
            return list(targets[:count])
        if not (isinstance(product, int) and isinstance(wanted, int) and product < wanted):
            return []
    return []


def _joined(parts: Sequence[Axis]) -> Linear:
    total: Linear | None = None
    for part in parts:
        one = axis(part.symbol.name, size(part.extent))
        total = one if total is None else total * size(part.extent) + one
    assert total is not None
    return total


def _others(
    body: LoopBody, replaced: int, shared: Sequence[Axis], mapping: dict[sympy.Symbol, Linear]
) -> tuple[tuple[Axis, ...], tuple[Axis, ...], dict[sympy.Symbol, Linear]]:
    """The remaining axes of a body, renamed where the shared ones took their names, and the whole mapping."""
    own = {s: f for s, f in mapping.items() if f != axis(s.name, _extent(body, s))}
    taken = {a.symbol for a in shared}
    names = {a.symbol.name for a in (*shared, *body.axes, *body.reduction_axes)}

    def fresh(a: Axis) -> Axis:
        if a.symbol not in taken:
            return a
        number = 0
        while f"{a.symbol.name[0]}{number}" in names:
            number += 1
        renamed = new_axis(f"{a.symbol.name[0]}{number}", size(a.extent))
        names.add(renamed.symbol.name)
        own[a.symbol] = axis(renamed.symbol.name, size(a.extent))
        return renamed

    rest = tuple([fresh(a) for a in body.axes[replaced:]])
    return rest, tuple([fresh(a) for a in body.reduction_axes]), own


def _extent(body: LoopBody, symbol: sympy.Symbol) -> Size:
    return next((size(a.extent) for a in body.axes if a.symbol == symbol), 0)


def turned(
    bodies: Sequence[LoopBody], axes: tuple[Axis, ...], mine: Linear, like: Sequence[Axis], theirs: Linear
) -> tuple[list[LoopBody], tuple[Axis, ...]] | None:
    """Pointwise `bodies` with their loops in another order: that in which `like` runs through a buffer they share.

    `mine` and `theirs` are the indices of the buffer on both sides. None where there is no such order.
    """
    if any(b.axes != axes or b.reduction_axes or accesses(b).adds for b in bodies):
        return None
    order: list[Axis] = []
    for a in like:
        factor = coefficient(theirs, a.symbol)
        match = [x for x in axes if x not in order and x.extent == a.extent and coefficient(mine, x.symbol) == factor]
        if not match or not factor:
            break
        order.append(match[0])
    whole = (*order, *[x for x in axes if x not in order])
    if whole == axes:
        return None
    return [replace(b, axes=whole) for b in bodies], whole


def conflict(writers: Sequence[LoopBody], readers: Sequence[LoopBody], shared: Sequence[Axis]) -> Illegal | None:
    """Why `readers`, which follow, cannot run in the same iterations of `shared` as `writers`; None when they can."""
    for writer in writers:
        written = accesses(writer)
        for reader in readers:
            read = accesses(reader)
            for name, stores in written.stores.items():
                if name in read.stores and not _disjoint(writer, stores, reader, read.stores[name]):
                    return Illegal(f"both write {name}, perhaps at the same addresses", "pieces that do not overlap")
                for load in read.loads.get(name, ()):
                    for store in stores:
                        refusal = _mismatch(name, writer, store, reader, load, shared)
                        if refusal is not None:
                            return refusal
            overwritten = next((n for n in read.stores if n in written.loads), None)
            if overwritten is not None:
                return Illegal(f"{reader.name} overwrites {overwritten}, which {writer.name} reads", "another buffer")
    return None


def crossing(first: Sequence[LoopBody], second: Sequence[LoopBody], shared: Sequence[Axis]) -> Unprofitable | None:
    """Advises against siblings that run through every input they share in different directions (rows and columns)."""
    names = [a.symbol.name for a in shared]
    against = None
    for name in {n for b in first for n in accesses(b).loads} & {n for b in second for n in accesses(b).loads}:
        ways = [
            [_outer_terms(a.form, names) for b in bodies for a in accesses(b).loads.get(name, ()) if a.form is not None]
            for bodies in (first, second)
        ]
        if any(left == right for left in ways[0] for right in ways[1]):
            return None
        against = Unprofitable(f"they run through {name} in different directions", "the same direction in both")
    return against


def _mismatch(
    name: str, writer: LoopBody, store: Access, reader: LoopBody, load: Access, shared: Sequence[Axis]
) -> Illegal | None:
    if store.statement.mode and shared:
        return Illegal(f"{name} is complete only when every iteration has added to it", "a kernel of its own")
    if store.form is None or load.form is None:
        return Illegal(f"the index of {name} is not linear", "a view whose index is a sum of axes")
    if store.form.const != load.form.const:
        return Illegal(
            f"{reader.name} reads {name} at another index than {writer.name} writes it", "reading it without an offset"
        )
    names = [a.symbol.name for a in shared]
    left, right = _outer_terms(store.form, names), _outer_terms(load.form, names)
    if left is None or right is None or left != right:
        return Illegal(
            f"{reader.name} reads {name} in another order of loops ({', '.join(names)}) than {writer.name} writes it",
            "the same order of loops in both (there is a transposition between them)",
        )
    made, wanted = row_terms(store.form, writer, shared), row_terms(load.form, reader, shared)
    if made is None or wanted is None:
        return Illegal(f"what {reader.name} reads of {name} in one iteration is computed from data", "a direct index")
    for factor, extent in wanted.items():
        if factor not in made or not _covers(made[factor], extent):
            return Illegal(
                f"one iteration of {reader.name} needs more of {name} than one iteration of {writer.name} produces",
                "fewer shared loops",
            )
    return None


def overtaken(old: str, writer: LoopBody, store: Access, reader: LoopBody, shared: Sequence[Axis]) -> bool:
    """Whether `reader`, which precedes `writer` in each iteration of `shared`, may touch elements of `old` that `store`
    has written over in another iteration."""
    found = accesses(reader)
    touched = (*found.loads.get(old, ()), *found.stores.get(old, ()))
    return any(_mismatch(old, writer, store, reader, access, shared) is not None for access in touched)


def _disjoint(first: LoopBody, one: Sequence[Access], second: LoopBody, other: Sequence[Access]) -> bool:
    """True when no element is stored by both: after the loops that both share, what is left are separate intervals."""
    for a in one:
        for b in other:
            if a.form is None or b.form is None or a.statement.mode or b.statement.mode:
                return False
            left, right = _static_terms(a.form, first), _static_terms(b.form, second)
            if left is None or right is None or not _separate(left, right):
                return False
    return True


def _static_terms(form: Linear, body: LoopBody) -> tuple[list[tuple[int, int]], int] | None:
    """([(factor, extent), ...] by falling factor, constant) of an index over loops of static extent; else None."""
    extents = {a.symbol.name: size(a.extent) for a in body.axes + body.reduction_axes}
    terms = []
    for atom, factor in form.terms.items():
        extent = extents.get(atom.name)
        if atom.kind != "axis" or type(extent) is not int or type(factor) is not int or factor < 0:
            return None
        terms.append((factor, extent))
    return (sorted(terms, reverse=True), form.const) if type(form.const) is int and form.const >= 0 else None


def _separate(left: tuple[list[tuple[int, int]], int], right: tuple[list[tuple[int, int]], int]) -> bool:
    (a, first), (b, second) = left, right
    while True:
        first_end = first + sum(f * (e - 1) for f, e in a)
        second_end = second + sum(f * (e - 1) for f, e in b)
        if first_end < second or second_end < first:
            return True
        if not a or not b or a[0] != b[0]:
            return False
        a, b, period = a[1:], b[1:], a[0][0]
        if max(first + sum(f * (e - 1) for f, e in a), second + sum(f * (e - 1) for f, e in b)) >= period:
            return False  # the rest reaches into the next round of the shared loop


def _covers(made: Size, wanted: Size) -> bool:
    return made == wanted or (isinstance(made, int) and isinstance(wanted, int) and made >= wanted)


def _outer_terms(form: Linear, names: Sequence[str]) -> dict[object, Size] | None:
    terms: dict[object, Size] = {}
    for atom, factor in form.terms.items():
        if atom.kind == "axis":
            if atom.name in names:
                terms[atom.name] = factor
        elif atom.inner is not None and any(mentions(atom.inner, sympy.Symbol(n)) for n in names):
            terms[atom.key] = factor
    return terms


def row_terms(form: Linear, body: LoopBody, shared: Sequence[Axis]) -> dict[Size, Size] | None:
    """factor -> extent of the inner loops in an index; None unless it is a plain sum over them."""
    outer = {a.symbol.name for a in shared}
    extents = {a.symbol.name: size(a.extent) for a in body.axes + body.reduction_axes}
    terms: dict[Size, Size] = {}
    for atom, factor in form.terms.items():
        if atom.kind == "axis" and atom.name in outer:
            continue
        if atom.kind != "axis":
            if not _of_outer(atom, outer):
                return None
            continue
        if factor in terms:
            return None
        terms[factor] = extents[atom.name]
    return terms


def _of_outer(atom: Atom, outer: Collection[str]) -> bool:
    """Whether a quotient or remainder is of outer loops alone: of a data-dependent value it may be anything."""
    if atom.kind == "axis":
        return atom.name in outer
    return atom.inner is not None and all(_of_outer(a, outer) for a in atom.inner.terms)


def iterations(axes: Sequence[Axis]) -> int | None:
    """How often loops over `axes` run, None where symbolic."""
    total = 1
    for a in axes:
        extent = static(a.extent)
        if extent is None:
            return None
        total *= extent
    return total


__all__ = ["Access", "Accesses", "Illegal", "Legal", "NotLinear", "Unprofitable", "accesses", "aligned", "conflict",
           "crossing", "iterations", "overtaken", "row_terms", "turned"]
