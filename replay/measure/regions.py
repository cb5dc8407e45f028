"""A compiled graph and its kernels beside eager: time, bytes, operations, and what makes it slower where it is."""
from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch

from ...artifacts.context import CompileContext, CompileId
from ...artifacts.recorder import NullRecorder, Recorder
from ...artifacts.records import Graph
from ...engine.compile import compile_graph
from ..failures.case import Case
from ..failures.rebuild import rebuild
from ..recorded.graphs import ReplayError, graph_module
from ..recorded.inputs import bind_symbols, clones
from ..recorded.state import as_compiled, restored
from ..repro.graph_source import changed_inputs
from ..repro.regenerate import parts
from .machine import Machine, machine, raised
from .nodes import run_captured, run_nodes
from .reasons import slower_because
from .steps import KernelTime, eager_name, run_steps
from .stopwatch import stopwatch
from .timing import Timing, interleaved
from .twins import Twin, eager_twin_name, twins


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
    twins: tuple[Twin, ...] = ()
    device_seconds: tuple[float, ...] = ()  # of the kernels alone on a GPU: in eager, compiled

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
            "reasons": list(self.reasons), "notes": list(self.notes), "device_seconds": list(self.device_seconds),
            "twins": [twin.document() for twin in self.twins],
            "machine": {"device": self.machine.device, "threads": self.machine.threads,
                "bandwidth": self.machine.bandwidth, "sizes": self.machine.sizes, "flops": self.machine.flops,
                "products": self.machine.products, "cache": self.machine.cache},
            "kernels": [{
                "part": k.part, "name": k.name, "kind": k.kind, "seconds": k.seconds, "noise": round(k.noise, 4),
                "eager_seconds": k.eager, "operators": k.operators, "bytes": k.bytes, "flops": k.flops,
                "bandwidth": round(k.bandwidth, 4), "peak": round(k.peak, 4),
                "file": k.location.file if k.location else None, "line": k.location.line if k.location else None,
                "launched": [{"name": one.name, "count": one.count, "seconds": one.seconds} for one in k.launched],
            } for k in self.kernels],
        }


def measure(case: Case, selector: str) -> Region:
    """Time a case, compiled and in eager, each of its kernels and each of its operators, in the state of the process
    that it was recorded in. Raises ReplayError."""
    with restored(case.state, device=case.device), torch.enable_grad():
        peaks = machine(case.device)
        calls = {"eager": one_step(case, eager_call(case)), "compiled": one_step(case, compiled_call(case))}
        whole = interleaved(calls, case.device)
        try:
            return _in_parts(case, selector, calls, whole, peaks)
        except Exception as error:  # what runs as a whole need not run piece by piece
            why = f"its kernels were not timed: {type(error).__name__}: {error}"
            return Region(selector, _what(case), whole["eager"], whole["compiled"], whole["compiled"].seconds, (), (),
                          peaks, (why,))


def _what(case: Case) -> str:
    return "forward and backward" if case.training else "forward"


def _in_parts(
    case: Case, selector: str, calls: Mapping[str, Callable[[], object]], whole: dict[str, Timing], peaks: Machine
) -> Region:
    on_gpu = case.device.startswith("cuda")
    found = parts(case, case.device)
    captured = graph_module(case.graph, bind_symbols(case.graph, case.inputs.values()), case.trust)
    notes = []
    with stopwatch(case.device) as watch:
        with as_compiled():
            steps = [step for part in found for step in run_steps(part, case.device, watch)]
            for part in found:
                run_nodes(part.work.aten.module, part.inputs, case.device, watch, eager_name(part, ""))
        for name, call in calls.items() if on_gpu else ():
            watch.run(f"whole {name}", call)
        try:
            run_captured(captured, clones(case.inputs.values(), case.device), watch, eager_twin_name(""))
        except Exception as error:
            notes.append(f"the program's operators were not timed one by one: {type(error).__name__}: {error}")
    times = watch.times()
    kernels = [step.kernel(times) for step in steps]
    if not on_gpu:  # what is reached is possible
        seen = [(k.bytes if k.kind == "loops" else 0, k.flops, k.seconds) for k in kernels]
        peaks = raised(peaks, seen)
    kernels = [_of_peaks(k, peaks, on_gpu) for k in kernels]
    pairs = twins(captured, kernels, times)
    overhead = max(whole["compiled"].seconds - sum(k.seconds for k in kernels), 0.0)
    reasons = slower_because(whole["eager"], whole["compiled"], overhead, kernels, pairs)
    device = tuple(times[f"whole {name}"].seconds for name in calls) if on_gpu else ()
    return Region(selector, _what(case), whole["eager"], whole["compiled"], overhead, tuple(kernels), tuple(reasons),
                  peaks, tuple(notes), tuple(pairs), device)


def _of_peaks(k: KernelTime, peaks: Machine, on_gpu: bool) -> KernelTime:
    """With its shares of the peaks. More than a CPU can do was not all in memory; on a GPU the share says so."""
    share = k.bytes / k.seconds / peaks.bandwidth_at(k.bytes)
    known = replace(k, bandwidth=share) if share <= 1 or on_gpu else replace(k, bytes=0)
    return replace(known, peak=k.flops / k.seconds / peaks.peak(k.units))


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
