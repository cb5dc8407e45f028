"""A compiled graph and its kernels beside eager: time, bytes, operations, and what makes it slower where it is."""
from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import torch
from torch.utils._pytree import tree_leaves
from torch.utils.flop_counter import FlopCounterMode

from ...artifacts.context import CompileContext, CompileId
from ...artifacts.recorder import NullRecorder, Recorder
from ...artifacts.records import Graph, Location, Schedule, ScheduledGroup
from ...engine.compile import compile_graph
from ...engine.ir import interpreter
from ...engine.ir.ir import ExternCall, Group
from ...engine.scheduler.describe import describe
from ..failures.case import Case
from ..failures.rebuild import rebuild
from ..recorded.graphs import ReplayError, graph_module
from ..recorded.inputs import bind_symbols, clones
from ..repro.graph_source import changed_inputs
from ..repro.regenerate import Memory, Part, memory_of, parts
from .machine import Machine, machine, raised
from .nodes import node_seconds
from .timing import Timing, interleaved

SLOWER = 1.05  # times eager's time, from which on something is called slower


@dataclass(frozen=True)
class KernelTime:
    """One kernel or library call. `eager` is the time of the ATen operators that it computes, None where unknown.
    `bytes` are those that it touches, 0 where unknown: of its arguments, a library call need not read all."""

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

    @property
    def lost(self) -> float:
        """Seconds that it takes more than eager."""
        return self.seconds - self.eager if self.eager is not None else 0.0


@dataclass(frozen=True)
class Region:
    """A compiled graph beside eager. `overhead` is the time outside of kernels and library calls; `reasons` say what
    makes it slower than eager, the worst first."""

    selector: str
    what: str
    eager: Timing
    compiled: Timing
    overhead: float
    kernels: tuple[KernelTime, ...]
    reasons: tuple[str, ...]
    machine: Machine
    notes: tuple[str, ...] = ()

    @property
    def ratio(self) -> float:
        """How many times as fast as eager it is."""
        return self.eager.seconds / self.compiled.seconds if self.compiled.seconds else float("inf")

    def document(self) -> dict[str, Any]:
        """For JSON."""
        return {
            "selector": self.selector, "what": self.what, "eager_seconds": self.eager.seconds,
            "compiled_seconds": self.compiled.seconds, "ratio": round(self.ratio, 4),
            "noise": round(max(self.eager.noise, self.compiled.noise), 4), "overhead_seconds": self.overhead,
            "reasons": list(self.reasons), "notes": list(self.notes),
            "machine": {"device": self.machine.device, "threads": self.machine.threads,
                "bandwidth": self.machine.bandwidth, "flops": self.machine.flops},
            "kernels": [{
                "part": k.part, "name": k.name, "kind": k.kind, "seconds": k.seconds, "noise": round(k.noise, 4),
                "eager_seconds": k.eager, "operators": k.operators, "bytes": k.bytes, "flops": k.flops,
                "bandwidth": round(k.bandwidth, 4), "peak": round(k.peak, 4),
                "file": k.location.file if k.location else None, "line": k.location.line if k.location else None,
            } for k in self.kernels],
        }


def measure(case: Case, selector: str) -> Region:
    """Time a case, compiled and in eager, and each of its kernels. Raises ReplayError."""
    peaks = machine(case.device)
    whole = interleaved({"eager": one_step(case, eager_call(case)), "compiled": one_step(case, compiled_call(case))},
                        case.device)
    try:
        kernels, why = [k for part in parts(case) for k in _kernels(case, part)], []
    except Exception as error:  # what runs as a whole need not run piece by piece
        kernels, why = [], [f"its kernels were not timed: {type(error).__name__}: {error}"]
    seen = [(k.bytes if k.kind == "loops" else 0, k.flops, k.seconds) for k in kernels]
    peaks = raised(peaks, seen)  # what is reached is possible
    kernels = [_of_peaks(k, peaks) for k in kernels]
    inside = sum(k.seconds for k in kernels)
    overhead = max(whole["compiled"].seconds - inside, 0.0)
    what = "forward and backward" if case.training else "forward"
    reasons = [] if why else slower_because(whole["eager"], whole["compiled"], overhead, kernels)
    return Region(selector, what, whole["eager"], whole["compiled"], overhead, tuple(kernels), tuple(reasons), peaks,
                  tuple(why))


def _of_peaks(k: KernelTime, peaks: Machine) -> KernelTime:
    share = k.bytes / k.seconds / peaks.bandwidth_at(k.bytes)
    known = replace(k, bandwidth=share) if share <= 1 else replace(k, bytes=0)
    return replace(known, peak=k.flops / k.seconds / peaks.flops)


# ---- whole graphs ----------------------------------------------------------------------------------------------------
def eager_call(case: Case) -> Callable[..., Sequence[Any]]:
    """The captured graph in eager."""
    return graph_module(case.graph, bind_symbols(case.graph, case.inputs.values()), case.trust)


def compiled_call(case: Case, recorder: Recorder | None = None) -> Callable[..., Sequence[Any]]:
    """The captured graph, compiled; with a `recorder`, which gets its records. Raises ReplayError."""
    context = CompileContext(CompileId(0, 0), recorder or NullRecorder(), dict(case.forced),
                             recording=recorder is not None, **case.options)
    compiled = compile_graph(rebuild(case, clones(case.inputs.values(), case.device)), context)
    if context.fallback:
        raise ReplayError(f"the engine does not compile the graph: {context.fallback}")
    return compiled


def one_step(case: Case, call: Callable[..., Sequence[Any]]) -> Callable[[], object]:
    """One call, with gradients where the graph trains. Inputs that the graph changes go on changing."""
    own = clones(case.inputs.values(), case.device)
    if not case.training:
        def forward() -> object:
            with torch.no_grad():
                return call(*own)
        return forward
    for value, item in zip(own, case.inputs.records):
        if isinstance(value, torch.Tensor) and item.meta is not None:
            value.requires_grad_(item.meta.requires_grad)
    changed = _written(case.graph)
    leaves = [v for v in own if isinstance(v, torch.Tensor) and v.requires_grad]

    def both() -> object:
        given = [v.clone() if i in changed and isinstance(v, torch.Tensor) and v.requires_grad else v
                 for i, v in enumerate(own)]
        roots = [v for v in call(*given) if isinstance(v, torch.Tensor) and v.grad_fn is not None]
        return torch.autograd.grad(roots, leaves, [torch.ones_like(r) for r in roots], allow_unused=True)
    return both


def _written(graph: Graph) -> set[int]:
    names = changed_inputs(graph)
    placeholders = [node.id for node in graph.nodes if node.op == "placeholder"]
    return {i for i, name in enumerate(placeholders) if name in names}


# ---- kernels ---------------------------------------------------------------------------------------------------------
def _kernels(case: Case, part: Part) -> list[KernelTime]:
    """The times of a part's kernels and library calls, each on the buffers that it has in the program."""
    work = part.work
    schedule = next(record for stage, _, record in describe(work.plan) if isinstance(record, Schedule))
    eager = node_seconds(work.aten.module, part.inputs, case.device)
    memory, symbols = memory_of(work.program, work.aten, part.inputs)
    found = []
    with torch.no_grad():
        for step, record in zip(work.plan.items, schedule.groups):
            if isinstance(step, Group):
                signature = work.signatures[step.kernel]
                pointers = [memory[name].data_ptr() for name in signature.buffers]
                sizes = [symbols[s] for s in signature.symbols]
                kernel = work.kernels[step.kernel]
                timing = interleaved({"": partial(kernel, *pointers, *sizes)}, case.device)[""]
                flops, touched = record.flops or 0, _touched(step, memory, symbols)
            else:
                timing, flops, touched = _library_call(step, memory, symbols, case.device)
            found.append(_kernel(part, step, record, timing, (flops, touched), eager))
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


def _library_call(step: ExternCall, memory: Any, symbols: Any, device: str) -> tuple[Timing, int, int]:
    args = interpreter.resolve(step.args, memory, symbols)
    kwargs = interpreter.resolve(dict(step.kwargs), memory, symbols)
    with FlopCounterMode(display=False) as counter:
        interpreter.call(step, memory, symbols)
    values = tree_leaves((args, kwargs, [memory[name] for name in step.outputs if name in memory]))
    touched = sum(v.numel() * v.element_size() for v in values if isinstance(v, torch.Tensor))
    return interleaved({"": partial(step.target, *args, **kwargs)}, device)[""], counter.get_total_flops(), touched


def _kernel(
    part: Part, step: Group | ExternCall, record: ScheduledGroup, timing: Timing, work: tuple[int, int],
    eager: dict[str, float],
) -> KernelTime:
    """`work`: operations, and bytes."""
    nodes = _nodes(step)
    known = [eager[name] for name in nodes if name in eager]
    flops, touched = work
    return KernelTime(
        part.name, record.kernel, record.kind, max(timing.seconds, 1e-9), timing.noise,
        sum(known) if known and len(known) == len(nodes) else None, len(nodes), touched, int(flops),
        _location(part, nodes),
    )


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


# ---- reasons ---------------------------------------------------------------------------------------------------------
def slower_because(eager: Timing, compiled: Timing, overhead: float, kernels: list[KernelTime]) -> list[str]:
    """What makes the compiled graph slower than eager; nothing where it is not, beyond noise."""
    noise = max(eager.noise, compiled.noise)
    if compiled.seconds <= eager.seconds * SLOWER:
        return []
    lost = compiled.seconds - eager.seconds
    found = [(overhead, f"{_us(overhead)} outside of kernels: allocating, calling {len(kernels)} of them, and what is "
              "around the graph")] if overhead > lost / 4 else []
    for k in kernels:
        if k.eager is not None and k.lost > max(lost / 20, 0.05 * k.eager):
            place = f" ({k.location.file.rpartition('/')[2]}:{k.location.line})" if k.location else ""
            found.append((k.lost, f"{k.name}{place} takes {_us(k.seconds)}, eager's {k.operators} operators "
                          f"{_us(k.eager)}"))
    texts = [text for _, text in sorted(found, reverse=True)]
    if noise > lost / eager.seconds:
        texts.append(f"the noise ({noise:.0%}) is as large as the difference")
    return texts


def _us(seconds: float) -> str:
    return f"{seconds * 1e6:.1f} us" if seconds < 1e-3 else f"{seconds * 1e3:.2f} ms"
