"""The loops of one kernel, reduced: the fewest statements, over the fewest points, that are still compiled wrongly.

A part of a kernel is judged by itself: it is compiled alone and held against the loop IR's interpreter, in a fork.
"""
from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial

import sympy

from ...engine.ir.ir import Axis, Group, LoopBody, Statement
from ...engine.ir.verifier import VerifyError, verify_body
from ..repro.loops import Loops
from ..workers.forked import HANG, in_fork
from .ddmin import Reduction

LIMIT = 120.0  # seconds of one run
_NEEDED_AS_SYMBOL = ("indirect",)  # their values stand in indices


@dataclass(frozen=True)
class MinifiedLoops:
    """The small group, what it shows, and how many runs that took."""

    group: Group
    shown: str
    runs: int


def kind_of(shown: str) -> str:
    """What two failures have in common: NaN, other values, a signal, an exception's type; "" where nothing is shown."""
    if not shown or shown == HANG or shown.startswith("SIG"):
        return shown
    head, _, rest = shown.partition(": ")
    return head if head.endswith(("Error", "Exception")) else "nan" if rest.startswith("NaN") else "values"


def minify_loops(loops: Loops, limit: float = LIMIT) -> MinifiedLoops | None:
    """The smallest part found; None where the whole is right, compiled alone."""
    runs = 0

    def judged(group: Group) -> str:
        nonlocal runs
        runs += 1
        return in_fork(lambda: loops.shown(group), limit)

    first = judged(loops.group)
    if not first:
        return None
    kind, said = kind_of(first), {loops.group: first}

    def judge(groups: Sequence[Group]) -> list[bool]:
        for group in groups:
            if group not in said:
                said[group] = judged(group)
        return [kind_of(said[group]) == kind for group in groups]

    reduction = Reduction(loops.group, judge)
    size = -1
    while size != _size(reduction.best):
        size = _size(reduction.best)
        _reduce(reduction, loops)
    return MinifiedLoops(reduction.best, said[reduction.best], runs)


def statements(group: Group) -> int:
    """How many there are."""
    return sum(len(body.statements) for body in group.bodies)


def _size(group: Group) -> int:
    return statements(group) + sum(int(a.extent) for body in group.bodies for a in body.axes + body.reduction_axes)


def _reduce(reduction: Reduction[Group], loops: Loops) -> None:
    """One round: bodies, stores, statements, then points."""
    whole = reduction.best
    reduction.take(range(len(whole.bodies)), lambda gone: tidy(loops, whole, tuple(
        body for number, body in enumerate(whole.bodies) if number not in set(gone))))
    stored = reduction.best
    reduction.take(_places(stored, ("store",)), lambda gone: tidy(loops, stored, tuple(
        replace(body, statements=tuple(s for k, s in enumerate(body.statements) if (number, k) not in set(gone)))
        for number, body in enumerate(stored.bodies))))
    for change in (partial(_by_operand, last=True), partial(_by_operand, last=False), _by_constant):
        before = reduction.best
        places = [place for place in _places(before) if change(before.bodies[place[0]], place[1]) is not None]
        reduction.take(places[::-1], lambda edits, before=before, change=change: tidy(  # type: ignore[misc]
            loops, before, tuple(_changed(body, number, edits, change) for number, body in enumerate(before.bodies))))
    for axis in {a.symbol: a for body in reduction.best.bodies for a in body.axes + body.reduction_axes}.values():
        shorter = (size for size in (1, 2, 17, int(axis.extent) // 2) if 0 < size < int(axis.extent))
        reduction.first(made for size in shorter if (made := _over(loops, reduction.best, axis, size)) is not None)


def _places(group: Group, ops: Sequence[str] = ()) -> list[tuple[int, int]]:
    """(body, statement) of those that have one of `ops`; without, of all but stores."""
    return [(number, k) for number, body in enumerate(group.bodies) for k, s in enumerate(body.statements)
            if (s.op in ops if ops else s.op != "store")]


def _by_operand(body: LoopBody, k: int, last: bool) -> Statement | str | None:
    """The operand that may take a statement's place: the first or the last one of its dtype."""
    s = body.statements[k]
    if s.op in ("reduce", "scan", "part", "indirect", "load", "constant", "index"):
        return None
    dtypes = {other.name: other.dtype for other in body.statements}
    return next((a for a in (s.args[::-1] if last else s.args) if dtypes.get(a) is s.dtype), None)


def _by_constant(body: LoopBody, k: int) -> Statement | str | None:
    s = body.statements[k]
    if s.op == "constant" or s.op in _NEEDED_AS_SYMBOL or any(o.op == "part" and s.name in o.args
                                                              for o in body.statements):
        return None
    return Statement(s.name, "constant", (), s.dtype, value=True if str(s.dtype) == "torch.bool" else 1)


Change = Callable[[LoopBody, int], "Statement | str | None"]


def _changed(body: LoopBody, number: int, edits: Sequence[tuple[int, int]], change: Change) -> LoopBody:
    """A body with statements replaced: by constants where they stand, or by operands where they are used."""
    renamed: dict[str, str] = {}
    made: list[Statement] = []
    wanted = {k for where, k in edits if where == number}
    for k, s in enumerate(body.statements):
        s = replace(s, args=tuple(renamed.get(a, a) for a in s.args), mask=renamed.get(s.mask, s.mask))
        new = change(replace(body, statements=(*made, s, *body.statements[k + 1:])), len(made)) if k in wanted else None
        if isinstance(new, str):
            renamed[s.name] = new
        else:
            made.append(s if new is None else new)
    return replace(body, statements=tuple(made))


def _over(loops: Loops, group: Group, axis: Axis, size: int) -> Group | None:
    """A group whose loop along an axis runs over the first points alone."""
    def cut(axes: tuple[Axis, ...]) -> tuple[Axis, ...]:
        return tuple([Axis(a.symbol, sympy.Integer(size)) if a.symbol == axis.symbol else a for a in axes])

    bodies = tuple([replace(b, axes=cut(b.axes), reduction_axes=cut(b.reduction_axes)) for b in group.bodies])
    return tidy(loops, replace(group, axes=cut(group.axes)), bodies)


def tidy(loops: Loops, group: Group, bodies: tuple[LoopBody, ...]) -> Group | None:
    """A group of these bodies, without what nothing reads; None where that is no kernel."""
    kept = tuple([_used(body) for body in bodies if body.writes])
    if not kept:
        return None
    written = {name for body in kept for name in body.writes}
    read = {name for body in kept for name in body.reads}
    made = replace(group, bodies=kept, internal=group.internal & written & read)
    try:
        for body in kept:
            verify_body(body, loops.buffers, (), written)
    except VerifyError:
        return None
    return made


def _used(body: LoopBody) -> LoopBody:
    """A body without statements that nothing uses."""
    needed: set[str] = set()
    kept = []
    for s in reversed(body.statements):
        if s.op == "store" or s.name in needed:
            kept.append(s)
            symbols = s.index.free_symbols if s.index is not None else ()
            needed.update((*s.args, s.mask, *(symbol.name for symbol in symbols)))
    return replace(body, name=body.writes[0], statements=tuple(kept[::-1]))
