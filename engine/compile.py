"""The engine from top to bottom: the list of its stages, and the one function that runs them.

A graph that some stage cannot compile runs in eager, node by node, with the reason recorded: `compile_graph` never
raises for the program's graph.
"""
from __future__ import annotations

import traceback
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from ..artifacts.context import CompileContext, Stage, run_stages
from ..artifacts.records import AnyRecord, Kernel
from . import cpp, passes, scheduler, wrapper
from .aten import AtenGraph, Captured, EngineUnsupported, trace
from .build import BuiltLibrary, CompilerMissing, build
from .describe import describe_aten
from .ir import Group, KernelSignature, Plan, Program
from .lowering import LOWERINGS, lower
from .lowering.describe import loops_records
from .triton import TritonUnsupported, describe_for_target, kernels_for_plan

Compiled = Callable[..., Sequence[Any]]

ENGINE_STAGES = (
    "joint", "forward", "backward", "partition", "passes", "loops", "fusion", "schedule", "kernels", "wrapper",
)


@dataclass(frozen=True)
class Work:
    """A graph on its way through the stages: each fills in its part."""

    captured: Captured
    aten: AtenGraph | None = None
    program: Program | None = None
    plan: Plan | None = None
    source: cpp.CppSource | None = None
    library: BuiltLibrary | None = None
    kernels: Mapping[str, Callable[..., int]] | None = None
    signatures: Mapping[str, KernelSignature] | None = None
    wrapper: wrapper.WrapperSource | None = None
    records: tuple[tuple[str, str, AnyRecord], ...] = ()  # of the stage that ran last, where it makes them itself
    call: Compiled | None = None


def _aten(work: Work, context: CompileContext) -> Work:
    return replace(work, aten=trace(work.captured, context, LOWERINGS))


def _passes(work: Work, context: CompileContext) -> Work:
    aten = passes.run(work.aten, context)
    names = [n.name for n in aten.module.graph.nodes if n.op == "placeholder"]
    aten.module.meta["mutations"] = {out: names[index] for out, index in aten.mutations.items()}
    return replace(work, aten=aten)


def _lowering(work: Work, context: CompileContext) -> Work:
    return replace(work, program=lower(work.aten.module, context))


def _scheduling(work: Work, context: CompileContext) -> Work:
    return replace(work, plan=scheduler.schedule(work.program, context))


def _codegen(work: Work, context: CompileContext) -> Work:
    if _device_type(work.plan) != "cpu":
        return work
    return replace(work, source=cpp.generate(work.plan, context))


def _kernels(work: Work, context: CompileContext) -> Work:
    if work.source is None:
        kernels = kernels_for_plan(work.plan, context)
        made = tuple(("kernels", name, k.record()) for name, k in kernels.items()) if context.recording else ()
        signatures = {name: k.signature for name, k in kernels.items()}
        return replace(work, kernels=kernels, signatures=signatures, records=made)
    signatures = {s.name: s for s in work.source.signatures}
    records: tuple[tuple[str, str, AnyRecord], ...] = ()
    functions: Mapping[str, Callable[..., int]] = {}
    if signatures:
        library = build(work.source.text, names=list(signatures))
        functions = library.functions
        if context.recording:
            records = (("kernels", "cpp", _kernel_record(work.source, library)),)
    elif context.recording:
        context.absent("kernels", "every operator of this graph is a library call: there is nothing to generate")
    if context.target.startswith("cuda"):
        records += tuple(describe_for_target(work.plan, context.target, context))
    return replace(work, kernels=functions, signatures=signatures, records=records)


def _wrapper(work: Work, context: CompileContext) -> Work:
    source = wrapper.generate(work.aten, work.plan, work.kernels, work.signatures)
    return replace(work, wrapper=source, call=wrapper.load(source, context))


def _kernel_record(source: cpp.CppSource, library: BuiltLibrary) -> Kernel:
    return Kernel(
        "cpp", "cpp", source.lines, tuple(s.name for s in source.signatures), tuple(library.command), library.log,
        library.seconds, library.cached, str(library.path),
    )


def _device_type(plan: Plan) -> str:
    for item in plan.items:
        if isinstance(item, Group):
            return item.device.type
    return "cpu"


def _nothing(work: Work) -> Iterable[tuple[str, str, AnyRecord]]:
    return ()


STAGES: tuple[Stage[Work, Work], ...] = (
    Stage("aten", _aten, lambda w: describe_aten(w.aten), "joint"),
    Stage("passes", _passes, _nothing, "passes"),  # each pass that changed the graph records itself
    Stage("lowering", _lowering, lambda w: loops_records(w.program), "lowering"),
    Stage("scheduling", _scheduling, lambda w: scheduler.describe(w.plan), "scheduling"),
    Stage("codegen", _codegen, _nothing, "codegen"),
    Stage("kernels", _kernels, lambda w: w.records, "kernels"),
    Stage("wrapper", _wrapper, lambda w: [("wrapper", "", w.wrapper.record())], "codegen"),
)


def compile_graph(captured: Captured, context: CompileContext) -> Compiled:
    """Compile `captured` for the device of its inputs; the result takes the graph's inputs and returns its outputs.

    Falls back to running the captured graph in eager, with the reason recorded as a decision of kind "compile", when a
    stage raises. KeyboardInterrupt and SystemExit pass.
    """
    why = "inference graph"
    if context.decide("compile", "graph", ["kernels", "eager"], "kernels", why) == "eager":
        return _eager(captured, context, "forced by an override")
    try:
        work = run_stages(STAGES, Work(captured), context)
    except CompilerMissing as missing:
        return _eager(captured, context, str(missing))
    except (EngineUnsupported, TritonUnsupported) as unsupported:
        return _eager(captured, context, str(unsupported))
    except Exception as error:
        detail = "".join(traceback.format_exception(error))
        return _eager(captured, context, f"internal error in the engine: {type(error).__name__}: {error}", detail)
    for stage in ("joint", "backward", "partition"):
        context.absent(stage, "inference: no result needs gradients")
    assert work.call is not None
    return work.call


def _eager(captured: Captured, context: CompileContext, why: str, detail: str = "") -> Compiled:
    context.fallback = why
    context.decide("engine", "graph", ["compile", "eager"], "eager", f"{why}\n{detail}" if detail else why)
    for stage in ENGINE_STAGES:
        context.absent(stage, why)
    return captured.module.forward
