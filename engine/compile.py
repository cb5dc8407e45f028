"""The engine from top to bottom: the list of its stages, and the one function that runs them.

A graph that some stage cannot compile runs in eager, node by node, with the reason recorded: `compile_graph` never
raises for the program's graph.
"""
from __future__ import annotations

import traceback
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch.fx.experimental.symbolic_shapes import GuardOnDataDependentSymNode

from ..artifacts.context import CompileContext, OverrideError, Stage, ToldByData, run_stages
from ..artifacts.records import AnyRecord, Kernel
from ..artifacts.stages import OF_ENGINE, TRAINING
from . import passes, scheduler
from .aot.aten_graph import needs_gradients, trace
from .aot.autograd import autograd_epilogue
from .aot.autograd.autograd_metadata import node_facts, node_gradients
from .aot.autograd.entry import training_entry
from .aot.autograd.function import NodeFacts
from .aot.autograd.joint import shield_changed_inputs, trace_joint
from .aot.autograd.partition import partition
from .aot.autograd.saved_index_compression import narrow_indices
from .aot.control_flow import compile_around, has_control_flow
from .aot.describe import describe_aten, describe_halves, describe_joint
from .codegen import cpp, wrapper
from .codegen.cpp_wrapper.adding import add_wrapper
from .codegen.cpp_wrapper.load import load as load_native
from .codegen.cpp_wrapper.state import NativeSource
from .codegen.triton import TritonKernel, TritonUnsupported, describe_for_target, kernels_for_plan, warm_up
from .graph_cache.parts import FoldingPart, Half, MakeParts, Parts, half_of
from .graph_cache.values import Uncacheable
from .graphs.autograd_graphs import JointGraph, Partitioned
from .graphs.functional_graph import AtenGraph, Captured
from .graphs.wrapper_source import WrapperSource
from .ir.ir import ExternCall, Group, KernelSignature, Plan, Program
from .kernels import attention, sgemm
from .lowering import LOWERINGS, lower
from .lowering.describe import loops_records
from .passes import extern_kernels, freezing
from .passes.freezing.call import FrozenCall
from .passes.reinplace import reinplace
from .runtime.entry import EntryFacts, eager_form, entry, marking
from .toolchain.cpp_build import Building, BuiltLibrary, CannotBuild
from .unsupported import EngineUnsupported

Compiled = Callable[..., Sequence[Any]]
Keep = Callable[[MakeParts], None]



# ---- what flows between the stages: each adds its part to what was there ---------------------------------------------
@dataclass(frozen=True)
class Traced:
    """After functionalization (and, changed in place, after the passes)."""

    aten: AtenGraph


@dataclass(frozen=True)
class Lowered(Traced):
    """With loop IR."""

    program: Program


@dataclass(frozen=True)
class Scheduled(Lowered):
    """With kernels chosen."""

    plan: Plan


@dataclass(frozen=True)
class Generated(Scheduled):
    """With C++ source for the CPU, in which the wrapper may be too, Triton kernels for a GPU, and the compilers at work
    on both."""

    source: cpp.CppSource | None
    native: NativeSource | None
    building: Building | None
    triton: Mapping[str, TritonKernel]


@dataclass(frozen=True)
class Built(Generated):
    """With kernels that can be called, and their records."""

    kernels: Mapping[str, Callable[..., int]]
    signatures: Mapping[str, KernelSignature]
    library: BuiltLibrary | None
    records: tuple[tuple[str, str, AnyRecord], ...]


@dataclass(frozen=True)
class Wrapped(Built):
    """With the wrapper, which is the compiled graph."""

    wrapper: WrapperSource
    call: Compiled


# ---- the stages ------------------------------------------------------------------------------------------------------
def _aten(captured: Captured, context: CompileContext) -> Traced:
    aten = trace(captured, context, LOWERINGS)
    freezing.mark(aten, captured, context)
    return Traced(aten)


def _passes(work: Traced, context: CompileContext) -> Traced:
    aten = passes.run(work.aten, context)
    freezing.fold(aten, context)
    extern_kernels.choose(aten, context)
    aten = freezing.finish(aten, context)
    names = [n.name for n in aten.module.graph.nodes if n.op == "placeholder"]
    reinplace(aten, context)
    aten.module.meta["mutations"] = {out: names[index] for out, index in aten.mutations.items()}
    return Traced(aten)


def _lowering(work: Traced, context: CompileContext) -> Lowered:
    return Lowered(**vars(work), program=lower(work.aten.module, context))


def _scheduling(work: Lowered, context: CompileContext) -> Scheduled:
    return Scheduled(**vars(work), plan=scheduler.schedule(work.program, context))


def _codegen(work: Scheduled, context: CompileContext) -> Generated:
    kinds = _device_kinds(work.plan)
    source = cpp.generate(work.plan, context) if kinds != {"cuda"} else None
    around = None
    if source is not None:
        source, around = add_wrapper(work.aten, work.plan, source, context)
    names = [s.name for s in source.signatures] if source is not None else []
    building = Building(source.text, names) if source is not None and names else None
    there = tuple([item for item in work.plan.items if isinstance(item, Group) and item.device.type != "cpu"])
    triton = kernels_for_plan(replace(work.plan, items=there), context)
    return Generated(**vars(work), source=source, native=around, building=building, triton=triton)


def _kernels(work: Generated, context: CompileContext) -> Built:
    """What both compilers made, each of the groups on its device."""
    signatures = {name: k.signature for name, k in work.triton.items()}
    functions: dict[str, Callable[..., int]] = {}
    records: tuple[tuple[str, str, AnyRecord], ...] = ()
    if context.recording:
        records = tuple(("kernels", name, k.record()) for name, k in work.triton.items())
    built: BuiltLibrary | None = None
    if work.building is not None and work.source is not None:
        built = work.building.wait()
        functions |= built.functions
        signatures |= {s.name: s for s in work.source.signatures}
        if context.recording:
            records += (("kernels", "cpp", _kernel_record(work.source, built)),)
    for name, kernel in work.triton.items():
        kernel.wait()
        functions[name] = kernel.runner()
    for name, own in (("attention", attention), ("product", sgemm)):
        if context.recording and _calls(work.plan, own.OPERATOR):
            records += (("kernels", name, own.KERNEL.record(name)),)
    if context.recording and not (functions or records):
        context.absent("kernels", "every operator of this graph is a library call: there is nothing to generate")
    records += _for_target(work, context)
    return Built(**vars(work), kernels=functions, signatures=signatures, library=built, records=records)


def _for_target(work: Generated, context: CompileContext) -> tuple[tuple[str, str, AnyRecord], ...]:
    """All forms, down to machine code, of the Triton kernels that the target of `--target` would get."""
    return tuple(describe_for_target(work.plan, context.target, context)) if context.target.startswith("cuda") else ()


def _wrapper(work: Built, context: CompileContext) -> Wrapped:
    source = wrapper.generate(work.aten, work.plan, work.kernels, work.signatures)
    call: Compiled = wrapper.load(source, context)
    if work.native is not None and work.library is not None:
        context.record("wrapper", work.native.record, "cpp")
        call = load_native(work.library.path, work.native.native, source.names, call)
    folding = work.aten.folding
    if folding is not None:
        call = FrozenCall(call, wrapper.load(folding.source, context.for_part("folding")), folding.positions)
    return Wrapped(**vars(work), wrapper=source, call=call)


def _kernel_record(source: cpp.CppSource, library: BuiltLibrary) -> Kernel:
    return Kernel(
        "cpp", "cpp", source.lines, tuple(s.name for s in source.signatures), tuple(library.command), library.log,
        library.seconds, library.cached, str(library.path),
    )


def _calls(plan: Plan, operator: Any) -> bool:
    return any(isinstance(item, ExternCall) and item.target is operator for item in plan.items)


def _device_kinds(plan: Plan) -> set[str]:
    """The kinds of devices that the graph's kernels run on. Raises EngineUnsupported for one without kernels."""
    kinds = {item.device.type for item in plan.items if isinstance(item, Group)}
    if kinds - {"cpu", "cuda"}:
        raise EngineUnsupported(f"there are no kernels for the device {', '.join(sorted(kinds - {'cpu', 'cuda'}))}")
    return kinds


def _described(work: object) -> Iterable[tuple[str, str, AnyRecord]]:
    """The stage recorded itself, or leaves nothing of its own."""
    return ()


STAGES: tuple[Stage[Any, Any], ...] = (
    Stage("aten", _aten, lambda work: describe_aten(work.aten), "joint"),
    Stage("passes", _passes, _described, "passes"),
    Stage("lowering", _lowering, lambda work: loops_records(work.program), "lowering"),
    Stage("scheduling", _scheduling, lambda work: scheduler.describe(work.plan), "scheduling"),
    Stage("codegen", _codegen, _described, "codegen"),
    Stage("kernels", _kernels, lambda work: work.records, "kernels"),
    Stage("wrapper", _wrapper, lambda work: [("wrapper", "", work.wrapper.record())], "codegen"),
)


def compile_graph(
    captured: Captured, context: CompileContext, keep: Keep | None = None
) -> Compiled:
    """Compile `captured` for the device of its inputs; the result takes the graph's inputs and returns its outputs.

    What was compiled, as data, is handed to `keep` (see `graph_cache`); what runs in eager is not.
    Falls back to running the captured graph in eager, with the reason recorded as a decision of kind "compile", when a
    stage raises. KeyboardInterrupt and SystemExit pass, and ToldByData, where the frame can break instead.
    """
    training = needs_gradients(captured)
    why = "training graph" if training else "inference graph"
    if context.decide("compile", "graph", ["kernels", "eager"], "kernels", why) == "eager":
        return _eager(captured, context, "forced by an override")
    if any(isinstance(value, torch.Tensor) and value.is_cuda for value in captured.inputs):
        warm_up()
    try:
        if has_control_flow(captured):
            return compile_around(captured, context, compile_graph)
        compiled = _train(captured, context, keep) if training else None
        return _infer(captured, context, keep) if compiled is None else compiled
    except CannotBuild as reason:
        return _eager(captured, context, str(reason))
    except (EngineUnsupported, TritonUnsupported, OverrideError) as unsupported:
        return _eager(captured, context, str(unsupported))
    except GuardOnDataDependentSymNode as error:
        why = f"an operator asks for what only data tells: {error.cond}"
        if context.breakable:
            raise ToldByData(why) from error
        return _eager(captured, context, why)
    except Exception as error:
        detail = "".join(traceback.format_exception(error))
        return _eager(captured, context, f"internal error in the engine: {type(error).__name__}: {error}", detail)


def _infer(captured: Captured, context: CompileContext, keep: Keep | None) -> Compiled:
    work: Wrapped = run_stages(STAGES, captured, context)
    facts = EntryFacts.of(work.aten)
    for stage in TRAINING:
        context.absent(stage, "inference: no result needs gradients")
    context.restartable = True
    compiled = entry(work.call, facts, captured)
    if keep is not None:
        keep(lambda: Parts(_kept(work), facts, folding=_kept_folding(work.aten)))
    return compiled


def _train(captured: Captured, context: CompileContext, keep: Keep | None) -> Compiled | None:
    """Forward and backward as one autograd node; None where no result needs a gradient after all."""
    with context.timed("joint"):
        joint = trace_joint(captured, context, LOWERINGS)
    if joint is None:
        return None
    trained = compile_halves(joint, context)
    around = autograd_epilogue.generate(trained.halves, trained.forward.plan)
    if around is not None:
        context.record("wrapper", around.record, "outside")
    call = None if around is None else wrapper.load(around, context.for_part("outside"))
    facts = node_facts(trained.halves)
    context.restartable = True
    if keep is not None:
        keep(lambda: _trained_parts(trained, around, facts))
    return training_entry(captured, facts, trained.forward.call, trained.backward.call, call)


def _trained_parts(trained: Trained, around: WrapperSource | None, facts: NodeFacts) -> Parts:
    outside = None if around is None else half_of(around)
    return Parts(_kept(trained.forward), None, _kept(trained.backward), outside, facts)


def _kept(work: Wrapped) -> Half:
    """The wrapper and the kernels of a graph as data. Raises Uncacheable for what has no such form."""
    if work.triton:
        raise Uncacheable("kernels for a GPU")
    source = work.source
    if source is None or not source.signatures:
        return half_of(work.wrapper)
    around = None if work.native is None else work.native.native
    return half_of(work.wrapper, source.text, tuple(s.name for s in source.signatures), around)


def _kept_folding(aten: AtenGraph) -> FoldingPart | None:
    return None if aten.folding is None else FoldingPart(half_of(aten.folding.source), aten.folding.positions)


@dataclass(frozen=True)
class Trained:
    """Both halves of a joint graph, compiled."""

    halves: Partitioned
    forward: Wrapped
    backward: Wrapped


def compile_halves(joint: JointGraph, context: CompileContext) -> Trained:
    """Cut a joint graph in two and compile both. The forward's kernels are built while the backward is lowered."""
    for stage, name, record in describe_joint(joint) if context.recording else ():
        context.record(stage, lambda record=record: record, name)  # type: ignore[misc]
    with context.timed("joint"):
        passes.run(joint.forward, context.for_part("joint"))
        extern_kernels.lay_out(joint.forward, context.for_part("joint"))
        narrow_indices(joint, context)
        shield_changed_inputs(joint)
        halves = partition(joint, context)
    for stage, name, record in describe_halves(halves) if context.recording else ():
        context.record(stage, lambda record=record: record, name)  # type: ignore[misc]
    parts = context, context.for_part("backward")
    traced = Traced(halves.forward), Traced(node_gradients(halves))
    half = [s.name for s in STAGES].index("kernels")
    generated = [run_stages(STAGES[1:half], work, part) for work, part in zip(traced, parts)]
    forward, backward = [run_stages(STAGES[half:], work, part) for work, part in zip(generated, parts)]
    return Trained(halves, forward, backward)


def _eager(captured: Captured, context: CompileContext, why: str, detail: str = "") -> Compiled:
    context.fallback = why
    context.decide("engine", "graph", ["compile", "eager"], "eager", f"{why}\n{detail}" if detail else why)
    for stage in OF_ENGINE:
        context.absent(stage, why)
    context.marks_changes = True
    return marking(eager_form(captured.module))
