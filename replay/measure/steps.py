"""The kernels and library calls of a compiled graph, each run on the buffers that it has in the program."""
from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch.utils._pytree import tree_leaves
from torch.utils.flop_counter import FlopCounterMode

from ...artifacts.records import Location, Schedule, ScheduledGroup
from ...engine.ir import interpreter
from ...engine.ir.ir import ExternCall, Group
from ...engine.scheduler.describe import describe
from ..repro.regenerate import Memory, Part, memory_of
from .stopwatch import Stopwatch
from .timing import Launched, Timing


@dataclass(frozen=True)
class KernelTime:
    """One kernel or library call. `eager` is the time of the ATen operators that it computes, None where unknown.
    `bytes` are those that it touches, 0 where unknown: of its arguments, a library call need not read all. `launched`
    are the kernels that ran on a GPU."""

    part: str
    name: str
    kind: str  # loops | extern
    seconds: float
    noise: float
    eager: float | None
    operators: int
    bytes: int
    flops: int
    location: Location | None
    bandwidth: float = 0.0  # of this machine's, as a share
    peak: float = 0.0
    units: str = ""  # which units of a GPU multiply: see machine.KINDS
    launched: tuple[Launched, ...] = ()
    captured: tuple[str, ...] = ()  # the operators of the captured graph that it computes, whole or in part

    @property
    def lost(self) -> float:
        """Seconds that it takes more than eager."""
        return self.seconds - self.eager if self.eager is not None else 0.0


@dataclass(frozen=True)
class Step:
    """A step of a part that was run, and what it does."""

    part: Part
    item: Group | ExternCall
    record: ScheduledGroup
    flops: int
    bytes: int
    units: str
    timed: str  # the name of its time

    def kernel(self, times: dict[str, Timing]) -> KernelTime:
        """With the times, those of the operators among them."""
        timing, nodes = times[self.timed], _nodes(self.item)
        eager = [times[name] for node in nodes if (name := eager_name(self.part, node)) in times]
        return KernelTime(
            self.part.name, self.record.kernel, self.record.kind, max(timing.seconds, 1e-9), timing.noise,
            sum(t.seconds for t in eager) if eager and len(eager) == len(nodes) else None, len(nodes), self.bytes,
            self.flops, _location(self.part, nodes), units=self.units, launched=timing.launched,
            captured=() if self.part.name else _captured(self.part, nodes),
        )


def eager_name(part: Part, node: str) -> str:
    """The name of the time of an ATen node."""
    return f"eager {part.name}#{node}"


def run_steps(part: Part, device: str, watch: Stopwatch) -> list[Step]:
    """Time a part's kernels and library calls."""
    work = part.work
    schedule = next(record for stage, _, record in describe(work.plan) if isinstance(record, Schedule))
    memory, symbols = memory_of(work.plan.program, work.aten, part.inputs, device)
    found = []
    with torch.no_grad():
        for number, (item, record) in enumerate(zip(work.plan.items, schedule.groups)):
            name, units = f"step {part.name}#{number}", ""
            if isinstance(item, Group):
                signature = work.signatures[item.kernel]
                pointers = [memory[name].data_ptr() for name in signature.buffers]
                sizes = [symbols[s] for s in signature.symbols]
                watch.run(name, partial(work.kernels[item.kernel], *pointers, *sizes))
                flops, touched = record.flops or 0, _touched(item, memory, symbols)
            else:
                flops, touched, units = _library_call(item, memory, symbols, name, watch)
            found.append(Step(part, item, record, int(flops), touched, units, name))
    return found


def _touched(group: Group, memory: Memory, symbols: Any) -> int:
    """Bytes that a kernel reads and writes in memory: of each buffer at most one element a point of the loops and load
    or store, so that of a table only what is looked up counts."""
    elements: Counter[str] = Counter()
    for body in group.bodies:
        points = math.prod(interpreter.integer(axis.extent, symbols) for axis in body.axes + body.reduction_axes)
        for s in body.statements:
            if s.op in ("load", "store") and s.buffer not in group.internal:
                elements[s.buffer] += points
    return sum(min(count, memory[name].numel()) * memory[name].element_size() for name, count in elements.items())


def _library_call(
    step: ExternCall, memory: Any, symbols: Any, name: str, watch: Stopwatch
) -> tuple[int, int, str]:
    """Operations, bytes, and what multiplies."""
    args = interpreter.resolve(step.args, memory, symbols)
    kwargs = interpreter.resolve(dict(step.kwargs), memory, symbols)
    with FlopCounterMode(display=False) as counter:
        interpreter.call(step, memory, symbols)
    values = tree_leaves((args, kwargs, [memory[name] for name in step.outputs if name in memory]))
    tensors = [v for v in values if isinstance(v, torch.Tensor)]
    watch.run(name, partial(step.target, *args, **kwargs))
    touched = sum(v.numel() * v.element_size() for v in tensors)
    return counter.get_total_flops(), touched, _units(str(step.target), tensors)


def _units(target: str, tensors: list[torch.Tensor]) -> str:
    dtype = next((t.dtype for t in tensors if t.dtype.is_floating_point), None)
    if dtype is not torch.float32:
        return str(dtype).removeprefix("torch.")
    tf32 = torch.backends.cudnn.allow_tf32 if "conv" in target else torch.get_float32_matmul_precision() != "highest"
    return "tf32" if tf32 else ""


def _nodes(step: Group | ExternCall) -> list[str]:
    """The ATen nodes that a step computes."""
    if isinstance(step, ExternCall):
        return list(dict.fromkeys(step.origins))
    return list(dict.fromkeys(origin for body in step.bodies for s in body.statements for origin in s.origins))


def _location(part: Part, nodes: list[str]) -> Location | None:
    for node in part.work.aten.module.graph.nodes:
        if node.name in nodes and node.meta.get("stack"):
            place: Location = node.meta["stack"][-1]
            return place
    return None


def _captured(part: Part, nodes: list[str]) -> tuple[str, ...]:
    wanted = set(nodes)
    return tuple(dict.fromkeys(origin for node in part.work.aten.module.graph.nodes if node.name in wanted
                               for origin in node.meta.get("origins", ())))
