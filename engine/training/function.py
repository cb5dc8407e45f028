"""The compiled graph as the program's autograd sees it: one node, whose forward and backward are compiled.

What the node saves goes through `save_for_backward`, so that changing a saved tensor, saved-tensor hooks (offloading,
checkpoints around it), `retain_graph` and a second backward behave as in eager. Views of inputs and new values of
inputs that autograd tracks are made outside of the node, where autograd records them.
"""
from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import torch
from torch._C import _functorch

from ...artifacts.context import CHANGED_INPUTS
from ..entry import Compiled, apart, eager_form, uncounted, without_autocast
from ..functional import Captured
from ..runtime import is_lazy
from .eager import Call, EagerFacts, EagerForm


@dataclass(frozen=True)
class NodeFacts:
    """What the node knows of its graph.

    The forward returns `results` values for the program, then `saved_tensors` tensors, then sizes to save, and last
    `numbers` for the program, which only data tells. `tangents`
    are the positions of the results that have one; `constant` those that autograd does not track. `reached` has, for
    each of the node's `arguments`, the tangents without which it has no gradient. `shared` is the joint graph's.
    `reads` has, for each tangent, the saved tensors that what it leads to is computed with; `alone` the sets of
    tangents that some such computation depends on, and on no others. `changed` are the inputs that the graph writes,
    `unreached` those that require grad and that no tangent leads to, `uncounted` the forward's.
    """

    results: int
    saved_tensors: int
    numbers: int
    tangents: tuple[int, ...]
    constant: tuple[int, ...]
    reached: tuple[frozenset[int], ...]
    shared: tuple[frozenset[int], ...]
    reads: tuple[frozenset[int], ...]
    alone: tuple[frozenset[int], ...]
    arguments: int
    changed: tuple[int, ...]
    unreached: tuple[int, ...]
    eager: EagerFacts
    uncounted: tuple[int, ...] = ()


@dataclass(frozen=True)
class Differentiable:
    """A graph and its derivative: `forward(*inputs)` returns what `facts` says; `backward(values)` takes a list of the
    saved tensors and sizes and of the tangents, which it empties, and returns the gradients of the node's arguments."""

    forward: Callable[..., Sequence[Any]]
    backward: Callable[[list[Any]], Sequence[Any]]
    eager: EagerForm
    facts: NodeFacts


@dataclass(frozen=True)
class Rest:
    """What a node keeps when its backward ran for some of its results only, and others can be differentiated still:
    the tensors that it had saved, their versions then, and the tangents whose own have been `freed`."""

    tensors: tuple[torch.Tensor, ...]
    versions: tuple[int, ...]
    freed: frozenset[int]


class CompiledGraph(torch.autograd.Function):
    """The node. Its first argument is the `Differentiable`, then come the graph's inputs."""

    @staticmethod
    def forward(ctx: Any, graph: Differentiable, *inputs: Any) -> Sequence[Any]:
        """Run the compiled forward, keep what the backward reads."""
        ctx.set_materialize_grads(False)
        ctx.graph = graph
        ctx.rest = None
        ctx.call = graph.eager.remember(inputs)
        values = graph.forward(*inputs)
        facts = graph.facts
        count = facts.results
        last = count + facts.saved_tensors
        ctx.save_for_backward(*values[count:last])
        ctx.layouts = None if _hooks(True) is None else tuple(map(_layout, values[count:last]))
        end = len(values) - facts.numbers
        ctx.sizes = values[last:end]
        results = values[:count]
        if facts.constant:
            ctx.mark_non_differentiable(*[results[i] for i in facts.constant])
        return (*results, *values[end:]) if facts.numbers else results

    @staticmethod
    def backward(ctx: Any, *tangents: Any) -> Sequence[Any]:
        """The gradients of the inputs, from compiled code; in eager where they must be differentiable themselves."""
        graph: Differentiable = ctx.graph
        facts = graph.facts
        given = [tangents[i] for i in facts.tangents]
        missing = frozenset([k for k, tangent in enumerate(given) if tangent is None])
        try:
            values = [*_saved(ctx, facts, missing)]
        except RuntimeError:  # they were freed, or changed in place
            if len(missing) < len(given):
                raise
            return (None,) * facts.arguments  # eager's graph has no edge from the node that led here with nothing
        if torch.is_grad_enabled():
            return _with_history(ctx, tangents, given)
        unknown = any(map(_is_unknown, given))
        call = ctx.call if missing or unknown else None
        if not _keeps_graph():
            _free(ctx, facts, missing, values)
        if len(missing) == len(given):
            return (None,) * facts.arguments
        if unknown:
            return _exact(graph, call, given)
        values += [*ctx.sizes, *given]
        with torch._C._DisableAutocast() if _autocasts() else _nothing:
            gradients = graph.backward(values)
        if call is None:
            return gradients
        if _is_spoiled(facts, missing, gradients) and not graph.eager.is_stale(call):
            return _exact(graph, call, given)
        return tuple(None if needs <= missing else g for needs, g in zip(facts.reached, gradients))


_apply = super(torch.autograd.Function, CompiledGraph).apply  # without the checks for functorch's transforms
_autocasts = torch._C._is_any_autocast_enabled
_keeps_graph = torch._C._autograd._get_current_graph_task_keep_graph
_hooks: Any = torch._C._autograd._top_saved_tensors_default_hooks
_nothing = nullcontext()


def _saved(ctx: Any, facts: NodeFacts, missing: frozenset[int]) -> Sequence[torch.Tensor]:
    """What the forward has saved. Raises RuntimeError, as autograd does, where what the tangents that are not `missing`
    need of it was freed by an earlier backward, or changed in place."""
    rest: Rest | None = ctx.rest
    if rest is None or not rest.freed <= missing:
        saved: Sequence[torch.Tensor] = ctx.saved_tensors
        return saved if ctx.layouts is None else tuple(map(_laid_out, saved, ctx.layouts))
    for k, reads in enumerate(facts.reads):
        if k not in missing and any(rest.tensors[i]._version != rest.versions[i] for i in reads):
            raise RuntimeError(_CHANGED)
    return rest.tensors


def _layout(tensor: torch.Tensor) -> tuple[Any, ...]:
    return tensor.shape, tensor.stride(), tensor.dtype, tensor.device


def _laid_out(tensor: torch.Tensor, layout: tuple[Any, ...]) -> torch.Tensor:
    """What the program's hooks made of a saved tensor, in the layout that the compiled backward reads."""
    shape, strides, dtype, device = layout
    if tensor.layout is torch.strided and _layout(tensor) == layout and not is_lazy(tensor):
        return tensor
    if tensor.shape != shape:
        raise RuntimeError(f"a hook made a tensor of shape {tuple(tensor.shape)} of a saved one of {tuple(shape)}")
    kept = [1 if stride == 0 else size for size, stride in zip(shape, strides)]
    memory = torch.empty_strided(kept, strides, dtype=dtype, device=device)
    with torch.no_grad():
        memory.copy_(tensor.as_strided(kept, tensor.stride()) if tensor.layout is torch.strided else tensor)
    return memory.expand(shape)


def _free(ctx: Any, facts: NodeFacts, missing: frozenset[int], saved: Sequence[torch.Tensor]) -> None:
    """A backward without retain_graph has begun: its tangents need nothing any more, nor can those that share with
    them; autograd forgets what the node saved, so what the others may need is kept here."""
    freed = frozenset[int]().union(*[shared for k, shared in enumerate(facts.shared) if k not in missing])
    freed = freed if ctx.rest is None else freed | ctx.rest.freed
    if len(freed) == len(facts.shared):
        ctx.maybe_clear_saved_tensors()
        ctx.call = ctx.rest = None
    elif ctx.rest is None:
        own = tuple([tensor.detach() for tensor in saved])  # a result would hold its own node
        ctx.rest = Rest(own, tuple([tensor._version for tensor in own]), freed)
    else:
        ctx.rest = replace(ctx.rest, freed=freed)


def _is_spoiled(facts: NodeFacts, missing: frozenset[int], gradients: Sequence[Any]) -> bool:
    """Whether a gradient that missing tangents lead to as well has become NaN: they are zeros, and zero times an
    infinity that was saved is NaN, where eager leaves out what has no tangent."""
    if not any(tangents <= missing for tangents in facts.alone):
        return False
    mixed = [g for needs, g in zip(facts.reached, gradients) if needs & missing and not needs <= missing]
    return any(g is not None and bool(g.isnan().any()) for g in mixed)


_CHANGED = "one of the variables needed for gradient computation has been modified by an inplace operation"


def _is_unknown(tangent: Any) -> bool:
    """Whether kernels do not know a tangent's like: it stands for many (`is_grads_batched`, a vmap around the
    backward), or it is sparse, as an embedding's gradient may be."""
    return tangent is not None and (
        tangent.layout is not torch.strided
        or _functorch.is_legacy_batchedtensor(tangent) or _functorch.is_batchedtensor(tangent)
    )


def _exact(graph: Differentiable, call: Any, given: list[Any]) -> tuple[Any, ...]:
    """The gradients as eager computes them."""
    if graph.eager.is_stale(call):
        raise RuntimeError(_CHANGED)
    with torch.enable_grad():
        return _eager_gradients(graph, call, given, history=False)


def _with_history(ctx: Any, tangents: Sequence[Any], given: list[Any]) -> Sequence[Any]:
    """Gradients that can be differentiated. Where the call cannot be repeated, those of the compiled backward, which
    raise when they are."""
    graph, call = ctx.graph, ctx.call
    if not graph.eager.is_stale(call):
        return _eager_gradients(graph, call, given)
    with torch.no_grad():
        gradients = CompiledGraph.backward(ctx, *tangents)
    sources = [v for v in (*call.inputs, *given) if isinstance(v, torch.Tensor) and v.requires_grad]
    ended: Sequence[Any] = _Ended.apply(gradients, *sources)
    return ended


class _Ended(torch.autograd.Function):
    """Gradients whose history is lost."""

    @staticmethod
    def forward(ctx: Any, gradients: Sequence[Any], *sources: torch.Tensor) -> Sequence[Any]:
        """The gradients, as functions of `sources`."""
        return tuple(gradients)

    @staticmethod
    def backward(ctx: Any, *_: Any) -> Any:
        """Raises RuntimeError."""
        raise RuntimeError(_CHANGED)


def _eager_gradients(
    graph: Differentiable, call: Call, tangents: list[Any], history: bool = True
) -> tuple[Any, ...]:
    found: list[Any] = [None] * graph.facts.arguments
    for i, gradient in zip(graph.facts.eager.gradients_of, graph.eager.gradients(call, tangents, history)):
        found[i + 1] = gradient
    return tuple(found)


def training_entry(
    captured: Captured, facts: NodeFacts, forward: Compiled, backward: Compiled, outside: Compiled | None
) -> Compiled:
    """The callable that stands for the captured graph: takes its inputs, returns its results, which require grad.

    `backward` returns what `node_gradients` says.
    """
    eager = EagerForm(partial(_run_eager, captured.module), facts.eager)
    forward = uncounted(without_autocast(forward), facts.uncounted)
    graph = Differentiable(_telling(forward) if facts.changed else forward, backward, eager, facts)

    apply = _apply if captured.grad_enabled else torch.enable_grad()(_apply)  # gradients are on in a part of the graph
    if facts.unreached:
        apply = _without_edges(apply, facts.unreached)

    def call(*inputs: Any) -> Sequence[Any]:
        made = apply(graph, *inputs)
        return made if outside is None else outside(inputs, made)

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


def _run_eager(module: torch.fx.GraphModule, *inputs: Any) -> Sequence[Any]:
    return eager_form(module)(*inputs)
