"""Greedy fusion: repeatedly fuses the pair of groups that saves most memory traffic, until no pair is left.

Only groups that touch a common buffer are candidates. A pair may be fused when no path leads from one to the other
through a third step, and the indices allow it (`legality.py`). By default it is where that pays; either way it is a
decision (`fusion_choices.py`).
"""
from __future__ import annotations

import heapq
import itertools
import math
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

import sympy

from ...artifacts.context import CompileContext
from ...artifacts.interruptions import pause
from ..ir.affine import Linear, Size, size
from ..ir.body_affine import NotLinear, coefficient
from ..ir.ir import Axis, LoopBody, Program
from ..lowering.pointwise import HEAVY
from ..lowering.realization import COLUMNS
from .fusion_choices import Choices, Pair
from .legality import Illegal, Legal, Unprofitable, accesses, aligned, conflict, crossing, iterations, turned
from .occupancy import idle
from .product_tiles import not_in_tile, why_apart
from .reachability import Paths
from .steps import SYMBOL_HINT, Node, hinted, is_seen, node_of, symbols_of

ROW_LIMIT = 512 * 1024  # bytes that one iteration of shared loops may pass to the next body: the size of L2
MAX_BODIES, MAX_BUFFERS = 48, 60
SMALL = 16 * 1024  # bytes: groups that touch less are fused for the sake of fewer calls
MOST_MEANS = 4096  # rows whose means a kernel keeps between the two passes of a variance
SHORT = 32  # iterations of a loop beside which an expensive value would be scalar code
SIBLING_SHARE = 0.1  # share of their traffic that siblings must have in common


class Fusion:
    """The state of the search. `run` gives the nodes in execution order."""

    def __init__(self, program: Program, context: CompileContext) -> None:
        self.program, self.choices = program, Choices(context)
        self.nodes: dict[int, Node] = {}
        self._heap: list[tuple[int, int, int, int]] = []
        self._users: dict[str, set[int]] = {}  # of `nodes`, as they are now
        self._bytes: dict[str, int] = {}
        self._next = 0
        names = Counter(step.name for step in program.steps if isinstance(step, LoopBody))
        self._in_parts = {name for name, bodies in names.items() if bodies > 1}
        for position, step in enumerate(program.steps):
            self._add(node_of(step, self._next, position, program))
        self._order_steps()
        self._paths = Paths(self.nodes)  # the program's order respects all edges

    def run(self) -> list[Node]:
        """Fuse until nothing is left to fuse; the nodes in an order that respects all dependences."""
        for node in list(self.nodes.values()):
            self._push_pairs(node, later_only=True)
        while self._heap:
            _, _, first, second = heapq.heappop(self._heap)
            if first in self.nodes and second in self.nodes:
                one, other = self.nodes[first], self.nodes[second]
                self._consider(*((other, one) if other.id in one.before else (one, other)))
        self.choices.tell()
        return self._sorted()

    # ---- graph of steps ----------------------------------------------------------------------------------------------
    def _add(self, node: Node) -> None:
        self.nodes[node.id] = node
        self._next = node.id + 1
        for name in node.touched:
            self._users.setdefault(name, set()).add(node.id)

    def _order_steps(self) -> None:
        """Reads follow writes, and writes follow what came before them, for each buffer in program order; uses
        of a symbol follow the call that defines it, and random operators keep their order."""
        writers: dict[str, list[Node]] = {}
        self._order_symbols()
        seen = [node for node in self.nodes.values() if node.extern is not None and is_seen(node.extern)]
        for one, other in itertools.pairwise(seen):
            one.after.add(other.id)
            other.before.add(one.id)
        readers: dict[str, list[Node]] = {}
        for node in sorted(self.nodes.values(), key=lambda n: n.position):
            for name in node.touched:
                earlier = list(writers.get(name, ()))
                if name in node.writes:
                    earlier += readers.get(name, ())
                for other in earlier:
                    if other is not node:
                        node.before.add(other.id)
                        other.after.add(node.id)
            for name in node.reads:
                readers.setdefault(name, []).append(node)
            for name in node.writes:
                writers.setdefault(name, []).append(node)

    def _order_symbols(self) -> None:
        tellers = {symbol: n for n in self.nodes.values() if n.extern is not None for symbol, *_ in n.extern.binds}
        for node in self.nodes.values() if tellers else ():
            for symbol in symbols_of(node, self.program) & tellers.keys():
                if tellers[symbol] is not node:
                    node.before.add(tellers[symbol].id)
                    tellers[symbol].after.add(node.id)

    def _sorted(self) -> list[Node]:
        waiting = {n.id: len(n.before) for n in self.nodes.values()}
        ready = [(n.position, n.id) for n in self.nodes.values() if not n.before]
        heapq.heapify(ready)
        order = []
        while ready:
            _, at = heapq.heappop(ready)
            node = self.nodes[at]
            order.append(node)
            for follower in node.after:
                waiting[follower] -= 1
                if not waiting[follower]:
                    heapq.heappush(ready, (self.nodes[follower].position, follower))
        assert len(order) == len(self.nodes), "fusion made a cycle"
        return order

    # ---- candidates --------------------------------------------------------------------------------------------------
    def _push_pairs(self, node: Node, later_only: bool = False) -> None:
        if node.extern is not None:
            return
        partners = {i for name in node.touched for i in self._users[name] if i != node.id}
        for other_id in partners:
            other = self.nodes[other_id]
            if other.extern is not None or (later_only and other.position < node.position):
                continue
            first, second = (node, other) if node.position < other.position else (other, node)
            distance = second.position - first.position
            heapq.heappush(self._heap, (-self._saved(first, second), distance, first.id, second.id))

    def bytes_of(self, name: str) -> int:
        """The size of a buffer in bytes, with a guess for symbolic sizes."""
        known = self._bytes.get(name)
        if known is None:  # computed for each pair, of which a buffer with many users has many
            buffer = self.program.buffers[name]
            known = self._bytes[name] = buffer.dtype.itemsize * hinted(sympy.Mul(*buffer.size))
        return known

    def _count(self, count: int, names: Iterable[str]) -> str:
        """`count` bytes as text, which says where it rests on a guess."""
        guess = f" (sizes that vary counted as {SYMBOL_HINT})" if self._varies(names) else ""
        return f"{count:,} bytes{guess}"

    def _varies(self, names: Iterable[str]) -> bool:
        return any(not n.is_Integer for name in names for n in self.program.buffers[name].size)

    def _saved(self, first: Node, second: Node) -> int:
        """Bytes of memory traffic that fusing saves: what the second need not load, and writes nobody else reads."""
        saved = 0
        for name in first.touched & second.touched:
            saved += self.bytes_of(name)
            if name in first.writes and self._users[name] <= {first.id, second.id}:
                saved += self.bytes_of(name)
        return saved

    def _label(self, body: LoopBody) -> str:
        """The name of a body; of those that fill one buffer one after the other, as stage `loops` calls them."""
        if body.name not in self._in_parts:
            return body.name
        nodes = sorted(self.nodes.values(), key=lambda node: node.position)
        number = [b is body for node in nodes for b in node.bodies if b.name == body.name].index(True)
        return body.name if number == 0 else f"{body.name}_part{number + 1}"

    def _consider(self, first: Node, second: Node) -> None:
        pause()
        dependent = bool(first.writes & second.reads)
        found = self._judged(first, second, dependent)
        fused = isinstance(found, Legal) and found.against is None
        if self.choices.asked:
            fused = self._chosen(first, second, dependent, found)
        if fused:
            assert isinstance(found, Legal)
            self._merge(first, second, found.bodies, found.axes)

    def _chosen(self, first: Node, second: Node, dependent: bool, found: Legal | Illegal | Unprofitable) -> bool:
        """Whether the pair is fused, by a decision where it can be."""
        shared = sorted(first.touched & second.touched, key=lambda n: (n not in first.writes, -self.bytes_of(n), n))
        left = next(b for b in reversed(first.bodies) if shared[0] in (*b.writes, *b.reads))
        right = next(b for b in second.bodies if shared[0] in (*b.reads, *b.writes))
        saved = self._saved(first, second)
        pair = Pair(self._label(left), self._label(right), "producer-consumer" if dependent else "siblings",
                    None if self._varies(shared) else saved)
        if isinstance(found, Illegal):
            self.choices.illegal(pair, found)
            return False
        against = found if isinstance(found, Unprofitable) else found.against
        if against is not None:
            return self.choices.unprofitable(pair, against)
        why = f"saves {self._count(saved, shared)} of traffic on {', '.join(shared[:4])}"
        return self.choices.profitable(pair, saved, why)

    def _judged(self, first: Node, second: Node, dependent: bool) -> Legal | Illegal | Unprofitable:
        """Whether both can share a kernel, and if so, the bodies of both on common axes and whether that is worth it.

        Unprofitable is one of which nobody asks whether it would be legal.
        """
        if first.device != second.device:
            return Illegal("they run on different devices")
        if any(accesses(b).scatters for b in first.bodies + second.bodies):
            return Illegal("one of them adds to data-dependent addresses", "a scatter without conflicts")
        against = self._too_large(first, second)
        if against is not None and not self.choices.asked:
            return against
        apart = why_apart(first.bodies, second.bodies, dependent)
        if apart is not None:
            return apart
        third = self._paths.between(first.id, second.id)
        if third is not None:
            between = self.nodes[third]
            name = between.extern.name if between.extern is not None else between.bodies[0].name
            return Illegal(f"{name} must run between them", f"{name} as part of the same kernel")
        against = against or (None if dependent else self._too_little(first, second))
        if against is not None and not self.choices.asked:
            return against
        found = self._common_loops(first, second, dependent)
        return replace(found, against=against) if against is not None and isinstance(found, Legal) else found

    @staticmethod
    def _too_large(first: Node, second: Node) -> Unprofitable | None:
        if len(first.bodies) + len(second.bodies) <= MAX_BODIES and len(first.touched | second.touched) <= MAX_BUFFERS:
            return None
        return Unprofitable("the kernel would grow too large", "a smaller group", None)

    def _too_little(self, first: Node, second: Node) -> Unprofitable | None:
        """What speaks against siblings that have little in common."""
        saved = self._saved(first, second)
        traffic = sum(self.bytes_of(n) for n in first.touched) + sum(self.bytes_of(n) for n in second.touched)
        if saved >= SIBLING_SHARE * traffic:
            return None
        count = self._count(traffic, first.touched | second.touched)
        why = f"they share only {saved:,} of {count}"
        return Unprofitable(why, "a larger common input", saved, math.ceil(SIBLING_SHARE * traffic))

    def _common_loops(self, first: Node, second: Node, dependent: bool) -> Legal | Illegal | Unprofitable:
        """The longest common outer loops, with the loops of a pointwise side in another order if that makes more."""
        best = self._same_order(first, second, dependent)
        if dependent and _rank(best) < (2, min(len(first.axes), len(second.axes))):
            for one, other in self._turned(first, second):
                found = self._same_order(one, other, dependent)
                if _rank(found) > _rank(best):
                    best = found
        return best

    @staticmethod
    def _turned(first: Node, second: Node) -> Iterator[tuple[Node, Node]]:
        """The pair with the loops of one of them in the order of the other, which has reductions."""
        for name in sorted(first.writes & second.reads):
            stores = [a.form for b in first.bodies for a in accesses(b).stores.get(name, ()) if a.form is not None]
            loads = [a.form for b in second.bodies for a in accesses(b).loads.get(name, ()) if a.form is not None]
            if len(stores) != 1 or not loads:
                continue
            if any(b.reduction_axes for b in first.bodies):
                found = turned(second.bodies, second.axes, loads[0], first.axes, stores[0])
                if found is not None:
                    yield first, replace(second, bodies=found[0], axes=found[1])
            if any(b.reduction_axes for b in second.bodies):
                found = turned(first.bodies, first.axes, stores[0], second.axes, loads[0])
                if found is not None:
                    yield replace(first, bodies=found[0], axes=found[1]), second

    def _same_order(self, first: Node, second: Node, dependent: bool) -> Legal | Illegal | Unprofitable:
        try:
            moved, count = aligned(first.axes, second.bodies, second.axes)
            fixed = first.bodies
            axes = first.axes
            if count == 0 or (count < min(len(first.axes), len(second.axes)) and len(first.axes) < len(second.axes)):
                other, other_count = aligned(second.axes, first.bodies, first.axes)
                if other_count > count:
                    fixed, moved, count, axes = other, second.bodies, other_count, second.axes
        except NotLinear as error:
            return Illegal(f"an index does not follow the other's loops: {error}", "a linear index")
        illegal: Illegal | None = None
        possible: Legal | Unprofitable | None = None  # that would be legal, as far as anybody asks
        for shared in range(count, 0, -1):
            illegal = illegal or not_in_tile((*fixed, *moved), shared)
            if illegal is not None and any(b.is_product for b in (*fixed, *moved)):
                break
            if first.device == "cpu" and _keeps_means((*fixed, *moved), shared):
                illegal = Illegal("a variance would keep the means of many rows", "fewer rows in one iteration")
                continue
            against = _expensive_apart((*fixed, *moved), axes[:shared]) if first.device == "cpu" else None
            if against is not None and not self.choices.asked:
                possible = against
                continue
            conflicts = conflict(fixed, moved, axes[:shared])
            if conflicts is not None:
                illegal = illegal or conflicts
                continue
            if against is None and not dependent:
                against = crossing(fixed, moved, axes[:shared])
            whole = against is None
            against = against or self._too_coarse(fixed, moved, axes[:shared])
            if against is None and dependent and first.device == "cuda":
                against = idle(fixed, moved, axes[:shared], self.program)
            if whole:
                return Legal([*fixed, *moved], axes[:shared], against)
            possible = possible or Legal([*fixed, *moved], axes[:shared], against)
        return self._without_loops(first, second, illegal, possible)

    def _without_loops(self, first: Node, second: Node, illegal: Illegal | None, possible: Legal | Unprofitable | None
                       ) -> Legal | Illegal | Unprofitable:
        """One after the other in one kernel, where both are small; `illegal` and `possible`: with loops in common."""
        if any(b.is_product for b in (*first.bodies, *second.bodies)):
            return illegal or _nothing_in_common(first, second)
        small = (not first.axes and not second.axes) or self._small(first, second)
        if not small and not self.choices.asked:
            return possible or illegal or _nothing_in_common(first, second)
        conflicts = conflict(first.bodies, second.bodies, ())
        if first.device == "cpu" and (first.axes or second.axes) and _keeps_means((*first.bodies, *second.bodies), 0):
            conflicts = conflicts or Illegal("a variance would keep the means of many rows", "fewer rows")
        if conflicts is None and small:
            return Legal(first.bodies + second.bodies, ())
        if possible is None and conflicts is None:
            return Legal(first.bodies + second.bodies, (), _nothing_in_common(first, second, illegal))
        return possible or illegal or conflicts or _nothing_in_common(first, second)

    def _small(self, first: Node, second: Node) -> bool:
        return all(sum(self.bytes_of(b) for b in n.touched) <= SMALL for n in (first, second))

    def _too_coarse(
        self, writers: Sequence[LoopBody], readers: Sequence[LoopBody], shared: Sequence[Axis]
    ) -> Unprofitable | None:
        """What speaks against it when what one iteration leaves for the next body would not stay in the cache, for two
        nests."""
        if all(len(b.axes) == len(shared) and not b.reduction_axes for b in (*writers, *readers)):
            return None
        count = iterations(shared)
        written = {n for b in writers for n in b.writes} & {n for b in readers for n in b.reads}
        common = written or {n for b in writers for n in b.reads} & {n for b in readers for n in b.reads}
        largest = max((self.bytes_of(n) for n in common), default=0)
        row = largest // max(count or SYMBOL_HINT, 1)
        if row > ROW_LIMIT and not _one_pass(writers, readers, shared):
            why = f"one iteration of the outer loops would pass {row} bytes to the next loop"
            return Unprofitable(why, f"rows of at most {ROW_LIMIT} bytes")
        return None

    def _merge(self, first: Node, second: Node, bodies: list[LoopBody], axes: tuple[Axis, ...]) -> None:
        self._paths.merge(first.id, second.id, self._next)
        for old in (first, second):
            del self.nodes[old.id]
            for name in old.touched:
                self._users[name].discard(old.id)
        node = Node(
            self._next, first.position, bodies, axes, first.reads | second.reads, first.writes | second.writes,
            device=first.device, before=(first.before | second.before) - {first.id, second.id},
            after=(first.after | second.after) - {first.id, second.id},
        )
        for others, back in ((node.before, "after"), (node.after, "before")):
            for i in others:
                links: set[int] = getattr(self.nodes[i], back)
                links -= {first.id, second.id}
                links.add(node.id)
        self._add(node)
        self._push_pairs(node)


def _rank(found: Legal | Illegal | Unprofitable) -> tuple[int, int]:
    """By which the better of two ways to share loops is known: profitable ones first, then those with more loops."""
    if not isinstance(found, Legal):
        return 0, 0
    return (1 if found.against is not None else 2), len(found.axes)


def _nothing_in_common(first: Node, second: Node, illegal: Illegal | None = None) -> Unprofitable:
    if illegal is not None:
        return Unprofitable(f"only without a loop in common: {illegal.why}", illegal.allow)
    sizes = " and ".join("(" + ", ".join(str(a.extent) for a in n.axes) + ")" for n in (first, second))
    return Unprofitable(f"their loops {sizes} have no outer loop in common", "the same outermost sizes")


def _expensive_apart(bodies: Sequence[LoopBody], shared: Sequence[Axis]) -> Unprofitable | None:
    """What speaks against shared loops beside which an expensive value is not computed in vectors."""
    if _one_by_one(bodies, len(shared)):
        return Unprofitable("an expensive value would be computed one by one, beside a short loop", "longer rows", None)
    if _in_columns(bodies, shared):
        return Unprofitable("an expensive value would be computed for a few columns at once", "more columns", None)
    return None


def _one_by_one(bodies: Sequence[LoopBody], shared: int) -> bool:
    """True when a body with expensive operations would have no loop of its own, while all the others' are short."""
    inner = [b.axes[shared:] + b.reduction_axes for b in bodies]
    lengths = [sympy.Mul(*[a.extent for a in loops]) for loops in inner if loops]
    if len(lengths) == len(inner) or not all(n.is_Integer and n < SHORT for n in lengths) or not lengths:
        return False
    return any(s.op in HEAVY for b, loops in zip(bodies, inner) if not loops for s in b.statements)


def _in_columns(bodies: Iterable[LoopBody], shared: Sequence[Axis]) -> bool:
    """True when the shared loops leave a body with expensive operations only a short contiguous loop, or a strided one:
    vectors would hold few elements."""
    for body in bodies if any(a.extent.is_Integer and 1 < a.extent < COLUMNS for a in shared) else ():
        if body.reduction_axes or len(body.axes) == len(shared) or not any(s.op in HEAVY for s in body.statements):
            continue
        forms = [access.form for stores in accesses(body).stores.values() for access in stores]
        counts = [_side_by_side(form, shared) for form in forms if form is not None]
        if any(type(count) is int and 1 < count < COLUMNS for count in counts):
            return True
    return False


def _side_by_side(form: Linear, axes: Sequence[Axis]) -> Size:
    """How many elements in a row of memory the loops over `axes` reach."""
    count: Size = 1
    steps = {coefficient(form, a.symbol): size(a.extent) for a in axes}
    while count in steps:
        count = size(count * steps.pop(count))
    return count


def _keeps_means(bodies: Iterable[LoopBody], shared: int) -> bool:
    """True when a body would run the two passes of a variance over many rows in one iteration."""
    for b in bodies:
        rows = sympy.Mul(*[a.extent for a in b.axes[shared:]])
        if any(s.op == "reduce" and s.mode == "welford" for s in b.statements) and not (
            rows.is_Integer and rows <= MOST_MEANS
        ):
            return True
    return False


def _one_pass(writers: Iterable[LoopBody], readers: Iterable[LoopBody], shared: Sequence[Axis]) -> bool:
    """True when values are forwarded from writer to reader inside one loop, so that no row is kept."""
    return all(not b.reduction_axes for b in writers) and len({
        tuple(a.extent for a in (b.axes[len(shared):] + b.reduction_axes)) for b in (*writers, *readers)
    }) == 1
