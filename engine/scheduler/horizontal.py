"""Horizontal fusion: independent loop nests of one form become one kernel.

An optimizer's update is the same few operations for hundreds of parameters. Nests that are equal except for names and
sizes (`templates.py`) become one kernel that runs the nest over a table of pointers and sizes: one body to compile, one
call, and threads share all elements, however they are distributed over buffers. (Inductor's foreach and combo kernels
hold a body for each nest instead.)

The kernel runs where its first member ran, so the other members move forward: only past steps that they share no buffer
with, and only while their outputs do not hold much memory early.
"""
from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field

import sympy

from ...artifacts.context import CompileContext
from ...artifacts.records import FusionCandidate, Option
from ..ir.ir import ExternCall, Foreach, Group, Program
from .in_place import may_raise
from .legality import Illegal
from .memory import touched_by
from .templates import Templated, templated

Item = Group | ExternCall

CALL = {"cpu": 0.2, "cuda": 5.0}  # microseconds that a call of a kernel takes
TABLE = {"cpu": 0.5, "cuda": 15.0}  # the same for passing a table and looking members up in it
MEMBERS = 1024  # of one kernel: some thousands of pointers
EARLY_BYTES = 256 * 1024  # that members may write early: the size of L2


@dataclass(frozen=True)
class Combined:
    """Steps in order, and the verdicts on what could have shared a kernel."""

    items: tuple[Item, ...]
    candidates: tuple[FusionCandidate, ...]


def combine(program: Program, items: Sequence[Item], context: CompileContext) -> Combined:
    """Replace independent groups of one form by `Foreach` kernels (a decision, `horizontal-fusion`). Those that stay
    separate stay where they are as well."""
    search = _Search(program, items)
    search.run()
    candidates, apart = list(search.refused), set()
    for slot in search.slots:
        if _pays(slot):
            kernel = _kernel(slot)
            fused = _decide(slot, kernel.kernel, context)
            candidates.append(_candidate(kernel, fused, _why(slot)))
            apart |= set() if fused else {id(item) for item in slot.items}
    if apart:
        search = _Search(program, items, frozenset(apart))
        search.run()
    made: list[Item] = []
    for slot in search.slots:
        made += [_kernel(slot)] if _pays(slot) else slot.items
    return Combined(tuple(made), tuple(candidates) if context.recording else ())


@dataclass
class _Slot:
    """A position in execution order: one step, or the members of a kernel."""

    items: list[Item]
    members: list[Templated] = field(default_factory=list)
    early: int = 0  # bytes that members write early


class _Search:
    """One walk through the steps; each goes into the first slot that has its form and comes after all it needs. Those
    of `apart` (by id) get slots of their own."""

    def __init__(self, program: Program, items: Sequence[Item], apart: frozenset[int] = frozenset()) -> None:
        self.program, self.items, self.apart = program, items, apart
        self.slots: list[_Slot] = []
        self.refused: list[FusionCandidate] = []
        self._open: dict[Hashable, list[int]] = {}
        self._written: dict[str, int] = {}  # buffer -> the last slot that writes it
        self._touched: dict[str, int] = {}
        self._wall = -1  # the last slot that no step may move past

    def run(self) -> None:
        """Fill the slots."""
        sketches = [_sketch(item) if isinstance(item, Group) else None for item in self.items]
        alike = Counter(sketches)
        groups: dict[Hashable, list[Group]] = {}
        for item, sketch in zip(self.items, sketches):
            if isinstance(item, Group):
                groups.setdefault(sketch, []).append(item)
        for item, sketch in zip(self.items, sketches):
            found = None
            if isinstance(item, Group) and alike[sketch] > _fewest(item) and id(item) not in self.apart:
                found = templated(item, self.program.buffers)
            if isinstance(found, Illegal) and isinstance(item, Group):
                self._refuse(item, next(other for other in groups[sketch] if other is not item), found)
            place = self._join(item, found) if isinstance(found, Templated) else self._append(item)
            self._note(item, place)

    def _append(self, item: Item, member: Templated | None = None) -> int:
        self.slots.append(_Slot([item], [member] if member is not None else []))
        return len(self.slots) - 1

    def _join(self, item: Item, member: Templated) -> int:
        places = self._open.setdefault(member.key, [])
        after = max(self._last_needed(item), self._wall)
        for place in places:
            slot = self.slots[place]
            if place > after and len(slot.members) < MEMBERS:
                early = slot.early + (self._made(item) if place < len(self.slots) - 1 else 0)
                if early <= EARLY_BYTES:
                    slot.items.append(item)
                    slot.members.append(member)
                    slot.early = early
                    return place
        places.append(self._append(item, member))
        return places[-1]

    def _last_needed(self, item: Item) -> int:
        """The last slot that `item` must come after."""
        reads, writes = touched_by(item)
        needed = [self._written.get(n, -1) for n in reads] + [self._touched.get(n, -1) for n in writes]
        return max(needed, default=-1)

    def _note(self, item: Item, place: int) -> None:
        reads, writes = touched_by(item)
        for name in (*reads, *writes):
            self._touched[name] = max(place, self._touched.get(name, -1))
        for name in writes:
            self._written[name] = max(place, self._written.get(name, -1))
        if may_raise(item) or (isinstance(item, ExternCall) and (item.mutates or item.binds)):
            self._wall = place

    def _made(self, item: Item) -> int:
        """Bytes of the new memory that a group of fixed sizes fills."""
        buffers = [self.program.buffers[n] for n in dict.fromkeys(touched_by(item)[1])]
        return sum(int(sympy.Mul(b.dtype.itemsize, *b.size)) for b in buffers if b.role == "intermediate")

    def _refuse(self, group: Group, other: Group, refusal: Illegal) -> None:
        first, another = group.bodies[0].name, other.bodies[0].name  # parts of one `cat` have its name
        self.refused.append(FusionCandidate(
            f"foreach {first}", first, another, "horizontal", False,
            f"illegal: others have the same form, but {refusal.why}", None, refusal.allow, legal=False,
        ))


def _sketch(group: Group) -> Hashable:
    """Equal for groups of one form, and cheap."""
    statements = tuple([(s.op, s.dtype) for b in group.bodies for s in b.statements])
    return group.device, len(group.axes), statements


def _fewest(group: Group) -> int:
    """How many members are too few to pay for a table."""
    kind = group.device.type
    return 1 + int(TABLE.get(kind, TABLE["cpu"]) / CALL.get(kind, CALL["cpu"]))


def _pays(slot: _Slot) -> bool:
    return bool(slot.members) and len(slot.members) > _fewest(slot.members[0].member.group)


def _kernel(slot: _Slot) -> Foreach:
    members = tuple([m.member for m in slot.members])
    first = members[0].group
    internal = frozenset(n for m in members for n in m.group.internal)
    bodies = tuple([b for m in members for b in m.group.bodies])
    name = first.kernel.replace("fused_", "foreach_", 1)
    return Foreach(name, (), bodies, internal, first.device, template=slot.members[0].template, members=members)


def _decide(slot: _Slot, name: str, context: CompileContext) -> bool:
    kind = slot.members[0].member.group.device.type
    saved = (len(slot.members) - 1) * CALL.get(kind, CALL["cpu"]) - TABLE.get(kind, TABLE["cpu"])
    options = [Option("fuse", round(saved, 1), unit="us saved", better="higher"),
               Option("separate", 0.0, unit="us saved", better="higher")]
    return context.decide("horizontal-fusion", name, options, "fuse", _why(slot)) == "fuse"


def _why(slot: _Slot) -> str:
    count, sizes = len(slot.members), len({m.member.sizes for m in slot.members})
    form = "one size" if sizes == 1 else f"{sizes} sizes"
    return f"{count} loop nests of one form, in {form}, are independent: one body to compile, one call"


def _candidate(kernel: Foreach, fused: bool, why: str) -> FusionCandidate:
    first, last = kernel.bodies[0].name, kernel.bodies[-1].name
    why, allow = (why, "") if fused else ("an override keeps them separate", "dropping the override")
    return FusionCandidate(
        kernel.kernel, first, last, "horizontal", fused, why, None, allow, f"horizontal-fusion:{kernel.kernel}",
    )


__all__ = ["Combined", "combine"]
