"""In-place writes: new values of inputs go into the inputs, and results over buffers that die there.

A kernel may store a buffer straight into another one's memory when nothing reads the old elements afterwards: no later
step, no later body of the kernel, and no other iteration of its loops. So the writer itself may load an element only at
the index where it stores, and bodies before it only rows that the same iteration of the shared loops overwrites. Steps
are rewritten to name the memory that they write, so that later stages see one buffer, not two.
"""
from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from ...artifacts.context import CompileContext
from ...operators import effects
from ..ir.affine import Linear
from ..ir.ir import Buffer, ExternCall, Group, LoopBody, Program, View
from ..kernels import int8
from .legality import accesses, overtaken
from .steps import views_in

Item = Group | ExternCall

FRESH = frozenset((  # ATen operators whose result is always new memory
    "mm", "addmm", "bmm", "baddbmm", "convolution", "convolution_backward", "mkldnn_convolution", "embedding_bag",
    "_linear_pointwise", "_mkl_linear", "_convolution_pointwise", "product", "unaligned_product", "tiled_product",
    "_addmm_activation", "qconv_pointwise", "qlinear_pointwise", "int8_convolution_sum",
    "int8_rows_sum", "int8_depthwise",
))


@dataclass(frozen=True)
class Rewritten:
    """A program and its steps where `over[new]` is the buffer whose memory `new` is written to."""

    program: Program
    items: tuple[Item, ...]
    over: Mapping[str, str]


def write_in_place(program: Program, items: Sequence[Item], context: CompileContext) -> Rewritten:
    """Let kernels write over inputs that the program mutates, and over buffers that are dead afterwards."""
    search = _Search(program, items, context)
    search.inputs()
    search.dead_buffers()
    return Rewritten(search.program, tuple(search.items), search.over)


class _Search:
    def __init__(self, program: Program, items: Sequence[Item], context: CompileContext) -> None:
        self.program, self.items, self.context = program, list(items), context
        self.over: dict[str, str] = {}
        self.held = held_by_views(items)
        self.touched: dict[str, set[int]] = {}  # buffer -> positions of the steps that touch it
        self.writers: dict[str, list[int]] = {}
        self.last_check = max((i for i, item in enumerate(items) if may_raise(item)), default=-1)
        for position, item in enumerate(items):
            for name in _names(item):
                self.touched.setdefault(name, set()).add(position)
            for name in _written(item):
                self.writers.setdefault(name, []).append(position)

    # ---- inputs
    def inputs(self) -> None:
        """New values of inputs: the kernel that computes one writes it to the input."""
        sources = [v.buffer for v, _ in self.program.copies]
        returned = {v.buffer for v in views_in(list(self.program.outputs))}
        for view, name in self.program.copies:
            new, old = self.program.buffers[view.buffer], self.program.buffers[name]
            whole = View(new.name, new.size, new.stride)
            if new.role != "intermediate" or view not in (whole, replace(whole, dtype=new.dtype)):
                continue
            if sources.count(new.name) == 1 and name not in sources and not returned & {new.name, name}:
                self._try(new, old, "the input's new value, and nothing reads the old one afterwards")
        self._rename_outputs()

    # ---- dead buffers
    def dead_buffers(self) -> None:
        """Results of kernels: written over a buffer of the same layout that the kernel is the last to read."""
        fresh = self._fresh()
        kept = {v.buffer for v in views_in([list(self.program.outputs), [v for v, _ in self.program.copies]])}
        for position in range(len(self.items)):
            item = self.items[position]
            if not isinstance(item, Group):
                if item.target in int8.SUMS:
                    self._sum(position, item, fresh, kept)
                continue
            reads = [n for n in dict.fromkeys(n for b in item.bodies for n in b.reads) if n in fresh and n not in kept]
            reads = [n for n in reads if n not in self.held and max(self.touched[n]) == position]
            for name in dict.fromkeys(n for b in item.bodies for n in b.writes if n not in item.internal):
                new = self.program.buffers[name]
                why = "its last reader computes this at the same indices"
                taken = next((n for n in reads if self._try(new, self.program.buffers[n], why)), None)
                fresh.discard(name)
                if taken is not None and name in kept:
                    kept.add(taken)  # that memory now holds an output
                if taken is not None:  # it may be overwritten once more, if nothing later reads it
                    gone = {name} | ({taken} if taken in kept or max(self.touched[taken]) > position else set())
                    reads = [n for n in reads if n not in gone]
        self._rename_outputs()

    def _sum(self, position: int, call: ExternCall, fresh: set[str], kept: set[str]) -> None:
        """A residual sum of integers: written over what is added, where this is the last to read it."""
        added, (name,) = call.args[int8.ADDED], call.outputs
        if name is None or added.buffer not in fresh - kept - self.held:
            return
        new, old = self.program.buffers[name], self.program.buffers[added.buffer]
        once = sum(view.buffer == old.name for view in views_in(call.args)) == 1
        whole = added == View(old.name, old.size, old.stride)
        if not (_alike(new, old) and once and whole) or max(self.touched[old.name]) != position:
            return
        why = f"{old.name}: it is added here, and nothing reads it afterwards"
        if self.context.decide("in-place", name, ("in-place", "new-buffer"), "in-place", why) == "in-place":
            target, arguments = int8.sum_in_place(call.target, call.args)
            self.items[position] = replace(call, target=target, args=arguments)
            self._take(new, old)
            if name in kept:
                kept.add(old.name)  # that memory now holds an output

    def _fresh(self) -> set[str]:
        """Intermediate buffers that alias nothing else."""
        names: set[str] = set()
        for item in self.items:
            if isinstance(item, Group):
                names.update(n for b in item.bodies for n in b.writes if n not in item.internal)
            elif _packet(item) in FRESH:
                names.update(n for n in item.outputs if n is not None)
        return {n for n in names if self.program.buffers[n].role == "intermediate"}

    # ---- one candidate
    def _try(self, new: Buffer, old: Buffer, why: str) -> bool:
        if not _alike(new, old) or new is old or new.role != "intermediate" or 0 in new.stride:
            return False
        group = self._safe(new, old)
        if group is None:
            return False
        options = ("in-place", "new-buffer")
        if self.context.decide("in-place", new.name, options, "in-place", f"{old.name}: {why}") != "in-place":
            return False
        self.items[self.writers[new.name][0]] = group
        self._take(new, old)
        return True

    def _take(self, new: Buffer, old: Buffer) -> None:
        """Let all steps name `old` where they name `new`."""
        names = {new.name: old.name}
        for position in self.touched[new.name]:
            self.items[position] = renamed(self.items[position], names)
        self.touched.setdefault(old.name, set()).update(self.touched.pop(new.name))
        self.writers.setdefault(old.name, []).extend(self.writers.pop(new.name))
        self.over[new.name] = old.name

    def _rename_outputs(self) -> None:
        outputs, copies = _renamed_views((self.program.outputs, self.program.copies), self.over)
        self.program = replace(self.program, outputs=outputs, copies=copies)

    def _safe(self, new: Buffer, old: Buffer) -> Group | None:
        """The one kernel that writes `new`, as it may write over `old`; None where it may not."""
        writers = self.writers.get(new.name, [])
        if len(writers) != 1 or old.name in self.held:
            return None
        at = writers[0]
        group = self.items[at]
        if not isinstance(group, Group) or old.name in group.internal:
            return None
        if any(i > at for i in self.touched.get(old.name, ())) or any(i < at for i in self.touched[new.name]):
            return None
        if old.role == "constant":
            return None
        if old.role == "input" and self.last_check >= at:
            return None  # a call that raises IndexError leaves its inputs alone
        group = _written_last(group, new.name, old.name)
        return group if _safe_in(group, new.name, old.name) else None


def _alike(new: Buffer, old: Buffer) -> bool:
    return (new.dtype, new.size, new.stride, new.device) == (old.dtype, old.size, old.stride, old.device)


def _written_last(group: Group, new: str, old: str) -> Group:
    """`group`, what writes `new` moved behind the bodies that read `old`, where none of them needs it before: momentum
    that both its own update and the parameter's are computed from."""
    at = next(i for i, b in enumerate(group.bodies) if new in b.writes)
    last = max(i for i, b in enumerate(group.bodies) if i == at or old in b.reads)
    if last <= at:
        return group
    writer, between = group.bodies[at], group.bodies[at + 1: last + 1]
    made, read = set(writer.writes), set(writer.reads)
    if any(made & {*b.reads, *b.writes} or read & set(b.writes) for b in between):
        return group
    return replace(group, bodies=(*group.bodies[:at], *between, writer, *group.bodies[last + 1:]))


def _safe_in(group: Group, new: str, old: str) -> bool:
    at = next(i for i, b in enumerate(group.bodies) if new in b.writes)
    writer = group.bodies[at]
    if any(new in b.writes for b in group.bodies[at + 1:]) or any(new in b.reads for b in group.bodies[:at]):
        return False
    stores = accesses(writer).stores[new]
    if len(stores) != 1 or stores[0].statement.mode or not _direct(stores[0].form):
        return False
    if any(load.form != stores[0].form for load in accesses(writer).loads.get(old, ())):
        return False
    if old in writer.writes or any(old in (*b.reads, *b.writes) for b in group.bodies[at + 1:]):
        return False
    earlier = [b for b in group.bodies[:at] if old in (*b.reads, *b.writes)]
    if earlier and group.device.type != "cpu":  # there is no barrier between threads there
        return False
    return not any(overtaken(old, writer, stores[0], b, group.axes) for b in earlier)


def _direct(form: Linear | None) -> bool:
    """True for an injective index: a plain sum over axes."""
    return form is not None and all(atom.kind == "axis" for atom in form.terms)


def may_raise(item: Item) -> bool:
    """Whether a step may raise for some data, before which no input may have changed."""
    if not isinstance(item, Group):
        return effects.may_raise(_packet(item))
    return any(s.op == "indirect" and s.mode != "unchecked" for b in item.bodies for s in b.statements)


def _packet(call: ExternCall) -> str:
    return str(getattr(getattr(call.target, "overloadpacket", None), "__name__", call.target))


def _written(item: Item) -> set[str]:
    if isinstance(item, Group):
        return {n for b in item.bodies for n in b.writes}
    return {n for n in item.outputs if n is not None} | set(item.mutates)


def _names(item: Item) -> set[str]:
    """Every buffer that a step touches."""
    if isinstance(item, Group):
        return {n for b in item.bodies for n in (*b.reads, *b.writes)}
    return _written(item) | {v.buffer for v in views_in((item.args, dict(item.kwargs)))}


def held_by_views(items: Iterable[Item]) -> set[str]:
    """Arguments of library calls whose result may be a view of them, or that are read until a later call waits."""
    held: set[str] = set()
    for item in items:
        if isinstance(item, ExternCall):
            schema = getattr(item.target, "_schema", None)
            views = schema is None or any(r.alias_info is not None for r in schema.returns)
            if views or item.mutates or getattr(item.target, "namespace", "") == "_c10d_functional":
                held.update(v.buffer for v in views_in((item.args, dict(item.kwargs))))
    return held


# ---- renaming
def renamed(item: Item, names: Mapping[str, str]) -> Item:
    """A step with buffers called by other names. The names of bodies stay: they are those of the loop IR."""
    if not _names(item) & names.keys():
        return item
    if isinstance(item, Group):
        return replace(item, bodies=tuple([_renamed_body(b, names) for b in item.bodies]))
    args, kwargs = _renamed_views((item.args, dict(item.kwargs)), names)
    outputs = tuple([names.get(n, n) if n is not None else None for n in item.outputs])
    return replace(item, args=args, kwargs=kwargs, outputs=outputs)


def _renamed_body(body: LoopBody, names: Mapping[str, str]) -> LoopBody:
    if not {*body.reads, *body.writes} & names.keys():
        return body
    statements = [replace(s, buffer=names[s.buffer]) if s.buffer in names else s for s in body.statements]
    return replace(body, statements=tuple(statements))


def _renamed_views(tree: Any, names: Mapping[str, str]) -> Any:
    if isinstance(tree, View):
        return replace(tree, buffer=names.get(tree.buffer, tree.buffer))
    if isinstance(tree, (tuple, list)):
        return type(tree)([_renamed_views(t, names) for t in tree])
    if isinstance(tree, Mapping):
        return {k: _renamed_views(v, names) for k, v in tree.items()}
    return tree


__all__ = ["Rewritten", "held_by_views", "may_raise", "renamed", "write_in_place"]
