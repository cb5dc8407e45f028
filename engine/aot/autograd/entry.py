"""The callable for a captured graph whose results require grad."""
from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import torch
import torch.fx

from ....artifacts.context import CHANGED_INPUTS
from ....artifacts.fx_graphs import PLAN
from ...graphs.functional_graph import Captured
from ...runtime.entry import Compiled, apart, eager_form, uncounted, without_autocast
from .dependent_results import Leads
from .eager import EagerForm
from .function import AutogradMetadata, CompiledGraph, Differentiable
from .split_autograd_nodes import with_own_edges

_apply = super(torch.autograd.Function, CompiledGraph).apply  # without the checks for functorch's transforms


def training_entry(
    captured: Captured, facts: AutogradMetadata, forward: Compiled, backward: Compiled, outside: Compiled | None
) -> Compiled:
    """The callable for the captured graph: takes its inputs, returns its results, which require grad.

    `backward` returns what `node_gradients` says.
    """
    eager = EagerForm(partial(_run_eager, captured.module), facts.eager, _makes_zeros(captured.module))
    forward = uncounted(without_autocast(forward), facts.uncounted)
    graph = Differentiable(_telling(forward) if facts.changed else forward, backward, eager, facts)

    apply = with_own_edges(_apply, facts)
    if not captured.grad_enabled:  # gradients are on in a part of the graph
        apply = torch.enable_grad()(apply)
    if facts.unreached:
        apply = _without_edges(apply, facts.unreached)

    def with_outside(*inputs: Any) -> Sequence[Any]:
        assert outside is not None
        made = apply(graph, *inputs)
        return outside(inputs, made, Leads(facts, made)) if facts.cuts else outside(inputs, made)

    call = partial(apply, graph) if outside is None else with_outside
    return apart(_marking(call), captured.module, captured.inputs, set(facts.changed)) if facts.changed else call


_OWN_MARKS = "__ptdebug_own_marks__"


def _telling(forward: Compiled) -> Compiled:
    """`forward`, whose errors tell that they are its own: it marks those that come after it has changed inputs."""

    def run(*inputs: Any) -> Sequence[Any]:
        try:
            return forward(*inputs)
        except Exception as error:
            setattr(error, _OWN_MARKS, True)
            raise

    return run


def _marking(call: Compiled) -> Compiled:
    """`call`, where what raises after the forward (a hook of the program that packs what is saved, a copy outside of
    the node) is marked: inputs hold their new values then."""

    def run(*inputs: Any) -> Sequence[Any]:
        try:
            return call(*inputs)
        except Exception as error:
            if not hasattr(error, _OWN_MARKS):
                setattr(error, CHANGED_INPUTS, True)
            raise

    return run


def _without_edges(apply: Callable[..., Any], unreached: tuple[int, ...]) -> Callable[..., Any]:
    """`apply` on inputs of which those in `unreached` are detached: what the program detaches has no edge in eager's
    graph, and along an edge autograd runs the node before even where nothing flows back, which may have been freed."""

    def applied(graph: Differentiable, *inputs: Any) -> Sequence[Any]:
        cut = list(inputs)
        for i in unreached:
            cut[i] = cut[i].detach()
        made: Sequence[Any] = apply(graph, *cut)
        return made

    return applied


def _makes_zeros(module: torch.fx.GraphModule) -> bool:
    """Whether the graph, or one inside it, calls a Function that gets zeros where nothing flows back."""
    graphs = [part.graph for part in module.modules() if isinstance(part, torch.fx.GraphModule)]
    plans = [getattr(node.target, PLAN, None) for graph in graphs for node in graph.nodes]
    return any(plan is not None and plan.materialized for plan in plans)


def _run_eager(module: torch.fx.GraphModule, *inputs: Any) -> Sequence[Any]:
    return eager_form(module)(*inputs)
