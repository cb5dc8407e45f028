"""The callable for a captured graph with wrapper subclasses: flattens its inputs, runs the plain graph, and unflattens
the results."""
from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from ....artifacts.context import CompileContext
from ...graphs.functional_graph import Captured
from ...runtime.entry import eager_form
from .inputs import taken
from .layout import below_overrides, is_wrapper
from .node import training_call
from .results import put_together
from .trace import PlainGraph, has_wrappers, trace_plain, values_of
from .views import only_views, with_views

Compiled = Callable[..., Sequence[Any]]
Compile = Callable[[Captured, CompileContext], Compiled]


def compile_apart(captured: Captured, context: CompileContext, compile_graph: Compile) -> Compiled:
    """The captured graph, compiled. Raises EngineUnsupported for what plain graphs cannot express."""
    tracked = torch.is_grad_enabled()
    with torch.inference_mode(False), torch.set_grad_enabled(tracked):
        return _compile(captured, context, compile_graph)


def _compile(captured: Captured, context: CompileContext, compile_graph: Compile) -> Compiled:
    plain = trace_plain(captured, context)
    if isinstance(plain, PlainGraph):
        call = _inference_call(plain, compile_graph(plain.captured, context.for_part("plain")))
        return _with_views(call, captured, plain.views)
    forward = compile_graph(plain.forward.captured, context.for_part("plain"))
    backward = compile_graph(plain.backward, context.for_part("plain_backward"))
    call = training_call(plain, forward, backward, in_eager(captured, eager_form(captured.module)))
    return _with_views(call, captured, plain.forward.views)


def _with_views(call: Compiled, captured: Captured, positions: tuple[int, ...]) -> Compiled:
    if not positions:
        return call
    return with_views(call, in_eager(captured, only_views(captured, positions)), positions)


def in_eager(captured: Captured, call: Compiled) -> Compiled:
    """`call` of the captured graph in eager: its operators ask no `__torch_function__`, as the tracer did."""
    if not has_wrappers(captured):
        return call
    kinds = [value for value in values_of(captured) if is_wrapper(value)]

    def run(*inputs: Any) -> Sequence[Any]:
        with below_overrides(kinds):
            return call(*inputs)

    return run


def _inference_call(plain: PlainGraph, compiled: Compiled) -> Compiled:
    def call(*inputs: Any) -> Sequence[Any]:
        with torch.no_grad():
            values = compiled(*taken(inputs, plain.takes))
            results = put_together(plain.results, inputs, values)
        if plain.written:
            torch.autograd.graph.increment_version([inputs[i] for i in plain.written])
        return results

    return call
