"""The engine's table of contents: the data that flows between stages, the stages, and the two lists of them.

INFERENCE compiles one graph. TRAINING partitions a joint graph into forward and backward, and compiles both with the
stages of INFERENCE. `compile.py` runs them; each stage returns its records with its result.
"""
from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import torch

from ..artifacts.context import CompileContext, FanOut, Stage
from ..artifacts.records import AnyRecord, Kernel
from . import passes, scheduler
from .aot.aten_graph import trace
from .aot.autograd.autograd_metadata import node_gradients
from .aot.autograd.describe import partition_record
from .aot.autograd.joint import shield_changed_inputs
from .aot.autograd.partition import partition
from .aot.autograd.saved_index_compression import narrow_indices
from .aot.describe import describe_aten, describe_halves, describe_joint
from .codegen import cpp, wrapper
from .codegen.cpp_wrapper.adding import add_wrapper
from .codegen.cpp_wrapper.load import load as load_native
from .codegen.cpp_wrapper.state import NativeSource
from .graphs.autograd_graphs import JointGraph, Partitioned
from .graphs.functional_graph import AtenGraph, Captured
from .graphs.wrapper_source import WrapperSource
from .ir.ir import ExternCall, Group, KernelSignature, Plan, Program
from .ir.loop_nest_verifier import verify_nest
from .ir.verifier import verify
from .kernels import attention, sgemm
from .lowering import lower, lowerings
from .lowering.describe import loops_records
from .passes import extern_kernels, freezing
from .passes.reinplace import reinplace
from .passes.rewriting import Rewritten, pass_stage
from .runtime import runtime
from .runtime.cuda_graphs import conditions
from .runtime.cuda_graphs.facts import GraphFacts
from .runtime.frozen_call import FrozenCall
from .runtime.spans import around_kernels, spanned
from .toolchain.cpp_build import Building, BuiltLibrary, said, vector_report
from .unsupported import EngineUnsupported

if TYPE_CHECKING:  # what GPUs need is loaded for them: a tenth of what a process's first, small graph takes
    from .codegen.cpp_wrapper.gpu.launches import GpuWrapper
    from .codegen.triton import InterpretedGroup, TritonKernel

Compiled = Callable[..., Sequence[Any]]

# ---- the data between stages: each stage adds its part ---------------------------------------------------------------
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

    plan: scheduler.ScheduledPlan


@dataclass(frozen=True)
class Generated(Scheduled):
    """With C++ source for the CPU, maybe with the wrapper in it, Triton kernels for a GPU, and the running
    compilers."""

    source: cpp.CppSource | None
    native: NativeSource | None
    building: Building | None
    triton: Mapping[str, TritonKernel | InterpretedGroup]
    gpu: GpuWrapper | None


@dataclass(frozen=True)
class Built(Generated):
    """With callable kernels, and their records."""

    kernels: Mapping[str, Callable[..., int]]
    signatures: Mapping[str, KernelSignature]
    library: BuiltLibrary | None
    records: tuple[tuple[str, str, AnyRecord], ...]


@dataclass(frozen=True)
class Wrapped(Built):
    """With the wrapper, which is the compiled graph, and what CUDA graphs of it must know, if it is captured."""

    wrapper: WrapperSource
    call: Compiled
    graphs: GraphFacts | None


# ---- the stages ------------------------------------------------------------------------------------------------------
def _aten(captured: Captured, context: CompileContext) -> Traced:
    aten = trace(captured, context, lowerings())
    if context.way != "aten":
        freezing.mark(aten, captured, context)
    return Traced(aten)


def _rewriting(work: Traced, context: CompileContext) -> Rewritten:
    return Rewritten(work.aten)


def _rewritten(work: Rewritten, context: CompileContext) -> Traced:
    """The last graph; an output that is the new value of an input names it."""
    aten = work.aten
    names = [n.name for n in aten.module.graph.nodes if n.op == "placeholder"]
    aten.module.meta["mutations"] = {out: names[index] for out, index in aten.mutations.items()}
    return Traced(aten)


def _lowering(work: Traced, context: CompileContext) -> Lowered:
    return Lowered(**vars(work), program=lower(work.aten.module, context))


def _scheduling(work: Lowered, context: CompileContext) -> Scheduled:
    return Scheduled(**vars(work), plan=scheduler.schedule(work.program, context))


def _codegen(work: Scheduled, context: CompileContext) -> Generated:
    kinds = _device_kinds(work.plan)
    if context.without_python and not kinds:  # library calls alone, whose wrapper is for where their tensors are
        kinds = {buffer.device.type for buffer in work.program.buffers.values()}
    source = cpp.generate(work.plan, context.without_python) if kinds != {"cuda"} else None
    around = None
    if source is not None:
        source, around = add_wrapper(work.aten, work.plan, source, context)
    names = [s.name for s in source.signatures] if source is not None else []
    building = Building(source.text, names, context.recording) if source is not None and (names or around) else None
    there = tuple([item for item in work.plan.items
                   if isinstance(item, Group) and (source is None or item.device.type != "cpu")])
    triton, gpu = _for_gpu(work, there, source is None, context) if there or source is None else ({}, None)
    return Generated(**vars(work), source=source, native=around, building=building, triton=triton, gpu=gpu)


def _for_gpu(
    work: Scheduled, groups: tuple[Group, ...], alone: bool, context: CompileContext
) -> tuple[Mapping[str, TritonKernel | InterpretedGroup], GpuWrapper | None]:
    """The kernels of a GPU, and, where there are no others, the wrapper in C++."""
    from .codegen.cpp_wrapper.gpu import launches
    from .codegen.triton import kernels_for_plan

    triton = kernels_for_plan(replace(work.plan, items=groups), context)
    return triton, launches.begin(work.aten, work.plan, triton, context) if alone else None


def _finished(
    work: Generated, context: CompileContext
) -> tuple[Mapping[str, TritonKernel | InterpretedGroup], tuple[tuple[str, str, AnyRecord], ...]]:
    """The kernels of a GPU, compiled, and their records."""
    if not work.triton:
        return {}, ()
    from .codegen.triton import TritonKernel, finished

    triton = finished(work.triton, work.plan, context)
    made = [(name, kernel) for name, kernel in triton.items() if context.recording and isinstance(kernel, TritonKernel)]
    return triton, tuple([("kernels", name, kernel.record()) for name, kernel in made])


def _kernels(work: Generated, context: CompileContext) -> Built:
    """What both compilers made, each of the groups on its device."""
    signatures: dict[str, KernelSignature] = {}
    functions: dict[str, Callable[..., int]] = {}
    records: tuple[tuple[str, str, AnyRecord], ...] = ()
    built: BuiltLibrary | None = None
    if work.building is not None and work.source is not None:
        built = work.building.wait()
        functions |= built.functions
        signatures |= {s.name: s for s in work.source.signatures}
        if context.recording:
            records += (("kernels", "cpp", _kernel_record(work.source, built)),)
    triton, described = _finished(work, context)
    records += described
    for name, kernel in triton.items():
        signatures[name], functions[name] = kernel.signature, kernel.runner()
    for name, own in (("attention", attention), ("product", sgemm)):
        if context.recording and _calls(work.plan, own.OPERATOR):
            records += (("kernels", name, own.KERNEL.record(name)),)
    if context.recording and not (functions or records):
        context.absent("kernels", "every operator of this graph is an extern kernel: there is nothing to generate")
    records += _for_target(work, context)
    context.progress("")
    made = Generated(**{**vars(work), "triton": triton})
    return Built(**vars(made), kernels=functions, signatures=signatures, library=built, records=records)


def _for_target(work: Generated, context: CompileContext) -> tuple[tuple[str, str, AnyRecord], ...]:
    """All forms, down to machine code, of the Triton kernels that the target of `--target` would get."""
    if not context.target.startswith("cuda"):
        return ()
    from .codegen.triton import describe_for_target

    return tuple(describe_for_target(work.plan, context.target, context))


def _wrapper(work: Built, context: CompileContext) -> Wrapped:
    graphs = conditions.chosen(work.aten, work.plan, context)
    kernels = around_kernels(work.kernels, str(context.id), context.part) if context.profiled else work.kernels
    source = wrapper.generate(work.aten, work.plan, kernels, work.signatures, graphs is not None)
    load = lambda: wrapper.load(source, context)
    in_cpp = work.gpu if graphs is None and not context.profiled else None
    in_python: Compiled = load() if in_cpp is None else runtime.later(load)
    call = in_python
    if work.native is not None and work.library is not None and not context.profiled:
        call = load_native(work.library.path, work.native.native, source.names, call)
    if in_cpp is not None:
        call = in_cpp.load(source, work.triton, call, context)
    work = replace(work, gpu=in_cpp if call is not in_python else None)
    if graphs is not None:
        from .runtime.cuda_graphs.runner import with_graphs

        call = with_graphs(call, graphs, context)
    if context.profiled:
        call = spanned(call, str(context.id), context.part)
    folding = work.aten.folding
    if folding is not None:
        call = FrozenCall(call, wrapper.load(folding.source, context.for_part("folding")), folding.positions)
    return Wrapped(**vars(work), wrapper=source, call=call, graphs=graphs)


def _kernel_record(source: cpp.CppSource, library: BuiltLibrary) -> Kernel:
    report = vector_report(library.log)
    return Kernel(
        "cpp", "cpp", source.lines, tuple(s.name for s in source.signatures), tuple(library.command), said(library.log),
        library.seconds, library.cached, str(library.path), outputs={"vectors": report} if report else {},
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
    """The stage recorded itself, or has no record."""
    return ()


def _describe_wrapper(work: Wrapped) -> Iterable[tuple[str, str, AnyRecord]]:
    yield "wrapper", "", work.wrapper.record()
    if work.native is not None and work.library is not None:
        yield "wrapper", "cpp", work.native.record()
    if work.gpu is not None:
        yield "wrapper", "cpp", work.gpu.native.record()
    if work.aten.folding is not None:
        yield "wrapper", "folding", work.aten.folding.source.record()


def _lint(work: Traced | Rewritten) -> None:
    """The graph is well formed: each node comes after its arguments."""
    work.aten.module.graph.lint()


def _check_plan(work: Scheduled) -> None:
    """The plan's bodies and loop nests are well formed."""
    verify(work.plan)
    for nest in work.plan.nests.values():
        verify_nest(nest)


def _aside(*stages: Stage[Any, Any]) -> tuple[Stage[Any, Any], ...]:
    """These stages with what they make for themselves on the CPU: a default device is the program's, which the graph
    was traced with."""

    def made(stage: Stage[Any, Any]) -> Stage[Any, Any]:
        def run(value: Any, context: CompileContext) -> Any:
            if not torch._C._len_torch_function_stack():  # no mode, so no default device
                return stage.run(value, context)
            with torch.device("cpu"):
                return stage.run(value, context)

        return replace(stage, run=run)

    return tuple(map(made, stages))


_PASSES: tuple[Stage[Any, Any], ...] = (
    Stage("passes", _rewriting, _described, "passes"),
    *passes.STANDARD,
    pass_stage("freezing", freezing.fold),
    pass_stage("extern-kernels", extern_kernels.choose),
    pass_stage("runtime-folding", freezing.finish),
    pass_stage("write-parts", reinplace),
    Stage("passes", _rewritten, _described, "passes", _lint),
)
_TO_SOURCE = _aside(
    *_PASSES,
    Stage("lowering", _lowering, lambda w: loops_records(w.program), "lowering", lambda w: verify(w.program)),
    Stage("scheduling", _scheduling, lambda w: scheduler.describe(w.plan), "scheduling", _check_plan),
    Stage("codegen", _codegen, _described, "codegen"),
)
_TO_CALL = _aside(
    Stage("kernels", _kernels, lambda work: work.records, "kernels"),
    Stage("wrapper", _wrapper, _describe_wrapper, "codegen"),
)

INFERENCE: tuple[Stage[Any, Any], ...] = (
    Stage("forward", _aten, lambda work: describe_aten(work.aten), "joint", _lint),
    *_TO_SOURCE,
    *_TO_CALL,
)
"""From a captured graph without gradients to a callable."""


# ---- training --------------------------------------------------------------------------------------------------------
@dataclass(frozen=True)
class Trained:
    """Both halves of a joint graph, compiled."""

    halves: Partitioned
    forward: Wrapped
    backward: Wrapped


def _joint(joint: JointGraph, context: CompileContext) -> JointGraph:
    """Already traced: only tracing shows whether a graph trains at all (`compile.py`)."""
    return joint


def _joint_graph(joint: JointGraph) -> Sequence[tuple[str, Rewritten]]:
    """The graph that the passes change in place, before the partitioner asks what its values cost."""
    return (("joint", Rewritten(joint.forward)),)


_JOINT_PASSES = _aside(*passes.STANDARD, pass_stage("extern-kernels", extern_kernels.lay_out))


def _partition(joint: JointGraph, context: CompileContext) -> Partitioned:
    if context.way != "aten":
        narrow_indices(joint, context)
    shield_changed_inputs(joint)
    return partition(joint, context)


def _halves(halves: Partitioned) -> Sequence[tuple[str, Traced]]:
    return ("", Traced(halves.forward)), ("backward", Traced(node_gradients(halves)))


def _describe_partition(halves: Partitioned) -> Iterable[tuple[str, str, AnyRecord]]:
    yield "partition", "", partition_record(halves)
    yield from describe_halves(halves)


TRAINING: tuple[Stage[Any, Any] | FanOut, ...] = (
    Stage("joint", _joint, describe_joint, "joint", lambda joint: joint.module.graph.lint()),
    FanOut(_joint_graph, (_JOINT_PASSES,), lambda joint, rewritten: joint),
    *_aside(Stage("partition", _partition, _describe_partition, "joint")),
    FanOut(_halves, (_TO_SOURCE, _TO_CALL), lambda halves, compiled: Trained(halves, *compiled)),
)
"""From a joint graph (`aot/autograd/joint.py` traces it) to a forward and a backward."""
