"""The engine's entry point: takes one captured graph through the stages of `stages.py` and returns a callable.

A graph that some stage cannot compile runs in eager, node by node, with the reason recorded: `compile_graph` never
raises because of the user's graph.
"""
from __future__ import annotations

import traceback
from collections.abc import Callable

import torch
from torch.fx.experimental.symbolic_shapes import GuardOnDataDependentSymNode

from ..artifacts.context import CompileContext, DataDependentError, OverrideError, run_stages
from ..artifacts.external_exceptions import came_from_outside
from ..artifacts.stages import OF_ENGINE, TRAINING as OF_TRAINING
from .aot.aten_graph import needs_gradients
from .aot.autograd import autograd_epilogue
from .aot.autograd.autograd_metadata import autograd_metadata_of
from .aot.autograd.entry import training_entry
from .aot.autograd.function import AutogradMetadata
from .aot.autograd.joint import trace_joint
from .aot.control_flow import compile_around, has_control_flow
from .aot.ddp_buckets import bucket_groups, compile_in_buckets
from .aot.subclasses.call import compile_apart, in_eager
from .aot.subclasses.trace import has_wrappers
from .codegen import wrapper
from .failure_origin import origin_of
from .graph_cache.control_flow import compile_as_flow
from .graph_cache.half import FoldingPart, Half, half_of
from .graph_cache.parts import MakeParts, Parts
from .graphs.functional_graph import AtenGraph, Captured
from .graphs.wrapper_source import WrapperSource
from .lowering import lowerings
from .runtime.eager_twin import never_slower
from .runtime.entry import EntryFacts, eager_form, entry, marking
from .stages import INFERENCE, TRAINING, Compiled, Trained, Wrapped
from .toolchain.cpp_build import CannotBuild
from .unsupported import EngineUnsupported

Keep = Callable[[MakeParts], None]

WAYS = {"kernels": "by kernels", "aten": "as ATen operators, called one by one", "eager": "as captured, in eager"}
"""How a graph can run: the options of the decision `compile:graph`."""

AS_ASKED = "the backend asked for runs captured graphs in eager"


def compile_graph(
    captured: Captured, context: CompileContext, keep: Keep | None = None
) -> Compiled:
    """Compile `captured` for the device of its inputs; the result takes the graph's inputs and returns its outputs.

    `keep` receives what was compiled, as data (see `graph_cache`); what runs in eager is not kept.
    When a stage raises, the captured graph runs in eager, with the reason recorded as a decision of kind "engine".
    KeyboardInterrupt and SystemExit pass through, and so does DataDependentError, where the frame can break instead.
    """
    training = needs_gradients(captured)
    kind = "training graph" if training else "inference graph"
    asked = "" if context.way == "kernels" else f"; the backend asked for runs graphs {WAYS[context.way]}"
    wanted = context.way
    context.way = context.decide("compile", "graph", tuple(WAYS), wanted, f"{kind}{asked}")
    if context.way == "eager":
        return _eager(captured, context, "forced by an override" if wanted != "eager" else AS_ASKED)
    if any(isinstance(value, torch.Tensor) and value.device.type == "cuda" for value in captured.inputs):
        from .codegen.triton import warm_up

        warm_up()
    try:
        if has_wrappers(captured):
            return compile_apart(captured, context, compile_graph)
        if has_control_flow(captured) and keep is not None and context.without_python:
            return compile_as_flow(captured, context, compile_graph, keep)
        if has_control_flow(captured):
            return compile_around(captured, context, compile_graph)
        buckets = context.buckets if training and not context.part else None
        groups = bucket_groups(captured, *buckets, context) if buckets is not None else []
        if len(groups) > 1:
            return compile_in_buckets(captured, groups, context, compile_graph)
        compiled = _train(captured, context, keep) if training else None
        return _infer(captured, context, keep) if compiled is None else compiled
    except CannotBuild as reason:
        return _eager(captured, context, str(reason))
    except (EngineUnsupported, OverrideError) as unsupported:
        return _eager(captured, context, str(unsupported))
    except GuardOnDataDependentSymNode as error:
        why = f"an operator requires a data-dependent value: {error.cond}"
        if context.breakable:
            raise DataDependentError(why) from error
        return _eager(captured, context, why)
    except Exception as error:
        if came_from_outside(error):
            raise
        detail = f"{origin_of(error)}\n{''.join(traceback.format_exception(error))}"
        return _eager(captured, context, f"internal error in the engine: {type(error).__name__}: {error}", detail)


def _infer(captured: Captured, context: CompileContext, keep: Keep | None) -> Compiled:
    work: Wrapped = run_stages(INFERENCE, captured, context)
    facts = EntryFacts.of(work.aten)
    for stage in OF_TRAINING:
        context.absent(stage, "inference: no result needs gradients")
    context.restartable = True
    compiled = never_slower(entry(work.call, facts, captured), captured, facts.written, context)
    if keep is not None:
        keep(lambda: Parts(_kept(work), facts, folding=_kept_folding(work.aten)))
    return compiled


def _train(captured: Captured, context: CompileContext, keep: Keep | None) -> Compiled | None:
    """Forward and backward as one autograd node; None if no result needs a gradient after all."""
    with context.timed("joint"):
        joint = trace_joint(captured, context, lowerings())
    if joint is None:
        return None
    trained: Trained = run_stages(TRAINING, joint, context)
    around = autograd_epilogue.generate(trained.halves, trained.forward.plan)
    if around is not None:
        context.record("wrapper", around.record, "outside")
    call = None if around is None else wrapper.load(around, context.for_part("outside"))
    facts = autograd_metadata_of(trained.halves)
    context.restartable = True
    if keep is not None:
        keep(lambda: _trained_parts(trained, around, facts))
    compiled = training_entry(captured, facts, trained.forward.call, trained.backward.call, call)
    return never_slower(compiled, captured, facts.changed, context, trains=True)


def _trained_parts(trained: Trained, around: WrapperSource | None, facts: AutogradMetadata) -> Parts:
    outside = None if around is None else half_of(around)
    return Parts(_kept(trained.forward), None, _kept(trained.backward), outside, facts)


def _kept(work: Wrapped) -> Half:
    """The wrapper and the kernels of a graph as data. Raises Uncacheable for what has no such form."""
    source = work.source
    names = tuple(s.name for s in source.signatures) if source is not None else ()
    if work.triton or work.gpu is not None:
        return _kept_on_a_gpu(work, source.text if source is not None else "", names)
    around = None if work.native is None else work.native.native
    if source is None or not (names or around):
        return half_of(work.wrapper, graphs=work.graphs)
    return half_of(work.wrapper, source.text, names, around, work.graphs)


def _kept_on_a_gpu(work: Wrapped, source: str, names: tuple[str, ...]) -> Half:
    from .graph_cache.gpu import data_of, launches_of

    triton, gpu = [data_of(kernel) for kernel in work.triton.values()], work.gpu
    if gpu is None:
        return half_of(work.wrapper, source, names, None, work.graphs, triton)
    return half_of(work.wrapper, gpu.building.source, (), gpu.native.native, work.graphs, triton, launches_of(gpu),
                   half_of(gpu.functions))


def _kept_folding(aten: AtenGraph) -> FoldingPart | None:
    return None if aten.folding is None else FoldingPart(half_of(aten.folding.source), aten.folding.positions)


def _eager(captured: Captured, context: CompileContext, why: str, detail: str = "") -> Compiled:
    context.fallback = why
    context.decide("engine", "graph", ["compile", "eager"], "eager", f"{why}\n{detail}" if detail else why)
    for stage in OF_ENGINE:
        context.absent(stage, why)
    context.marks_changes = True
    return marking(in_eager(captured, eager_form(captured.module)))
