"""The compiled graph as the user's autograd sees it: one node, whose forward and backward are compiled.

What the node saves goes through `save_for_backward`, so that in-place changes of saved tensors, saved-tensor hooks
(offloading, checkpointing around it), `retain_graph` and a second backward behave as in eager. Views of inputs and new
values of inputs that autograd tracks are made outside of the node, where autograd records them.
"""
from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch._C import _functorch
from torch.autograd import forward_ad

from ...runtime.runtime import is_lazy
from .eager import Call, EagerFacts, EagerForm


@dataclass(frozen=True)
class AutogradMetadata:
    """What the autograd node must know of its graph.

    The forward returns `results` values for the program, then `saved_tensors` tensors, then sizes to save, and last
    `numbers`, unbacked symbols that the caller needs. `tangents` are the positions of the results that have one;
    `constant` those that autograd does not track. `reached` has, for each of the node's `arguments`, the tangents
    without which it has no gradient. `shared` is the joint graph's. `reads` has, for each tangent, the saved tensors
    that what it leads to is computed with; `alone` the sets of tangents that some such computation depends on, and on
    no others. `changed` are the inputs that the graph writes, `unreached` those that require grad and that no tangent
    leads to, `uncounted` the forward's, `order` the joint graph's. `cuts` are the results of the captured graph that
    other results depend on (`dependent_results.py`). `written` are results that the program writes in place, each with
    autograd's count of that. `watched_results` and `watched_inputs` are saved so that autograd sees whether they have
    been written since, as in eager, which keeps them: `reads` counts them behind the saved tensors, in this order.
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
    order: tuple[int, ...] = ()
    cuts: tuple[int, ...] = ()
    written: tuple[tuple[int, int], ...] = ()
    watched_results: tuple[int, ...] = ()
    watched_inputs: tuple[int, ...] = ()


@dataclass(frozen=True)
class Differentiable:
    """A graph and its derivative: `forward(*inputs)` returns what `facts` says; `backward(values)` takes a list of the
    saved tensors and sizes and of the tangents, which it empties, and returns the gradients of the node's arguments."""

    forward: Callable[..., Sequence[Any]]
    backward: Callable[[list[Any]], Sequence[Any]]
    eager: EagerForm
    facts: AutogradMetadata


@dataclass(frozen=True)
class Rest:
    """What a node keeps when its backward ran, and some of its results can still be differentiated: the tensors that
    it had saved (of those that no such result needs, the layout), their versions when it did, and the tangents whose
    own have been `freed`."""

    tensors: tuple[torch.Tensor | tuple[Any, ...], ...]
    versions: tuple[int, ...]
    freed: frozenset[int]

    def without(self, freed: frozenset[int], facts: AutogradMetadata) -> Rest:
        """What is left when these tangents are freed, too."""
        freed |= self.freed
        needed = frozenset[int]().union(*[reads for k, reads in enumerate(facts.reads) if k not in freed])
        kept = [t if i in needed or isinstance(t, tuple) else _layout(t) for i, t in enumerate(self.tensors)]
        return Rest(tuple(kept), self.versions, freed)

    def values(self) -> list[torch.Tensor]:
        """The tensors; in place of one that is gone, what only multiplies and divides zeros."""
        return [_placeholder(*t) if isinstance(t, tuple) else t for t in self.tensors]


class CompiledGraph(torch.autograd.Function):
    """The node. Its first argument is the `Differentiable`, then come the graph's inputs."""

    @staticmethod
    def forward(ctx: Any, graph: Differentiable, *inputs: Any) -> Sequence[Any]:
        """Run the compiled forward, save what the backward reads."""
        ctx.set_materialize_grads(False)
        ctx.graph = graph
        ctx.call = graph.eager.remember(inputs)
        values = graph.forward(*inputs)
        facts = graph.facts
        if facts.written:
            counted, counts = zip(*facts.written)
            torch._C._autograd._unsafe_set_version_counter(tuple([values[k] for k in counted]), counts)
        count = facts.results
        last = count + facts.saved_tensors
        saved = values[count:last]
        if _hooks(True) is not None:  # autograd looks for no writes then
            ctx.layouts = tuple(map(_layout, saved))
        elif facts.watched_results or facts.watched_inputs:
            made = [values[k] for k in facts.watched_results]
            saved = (*saved, *made, *[inputs[i] for i in facts.watched_inputs])
        ctx.save_for_backward(*saved)
        if len(facts.tangents) > 1:
            ctx.versions = tuple([tensor._version for tensor in saved])
        end = len(values) - facts.numbers
        ctx.sizes = values[last:end]
        results = values[:count]
        if facts.constant:
            ctx.mark_non_differentiable(*[results[i] for i in facts.constant])
        return (*results, *values[end:]) if facts.numbers else results

    @staticmethod
    def backward(ctx: Any, *tangents: Any) -> Sequence[Any]:
        """The gradients of the inputs, from compiled code; in eager where they must be differentiable themselves."""
        return gradients(ctx, [tangents[i] for i in ctx.graph.facts.tangents], free)


class CompiledGraphBackward(CompiledGraph._backward_cls):  # type: ignore[name-defined]
    """What autograd's graph holds: the `ctx` of the functions above. It finds here what few calls change, and what
    autograd calls is known, which torch looks up at each call."""

    rest: Rest | None = None
    watch: Any = None
    layouts: tuple[Any, ...] | None = None
    versions: tuple[int, ...] = ()
    apply = CompiledGraph.backward


CompiledGraph._backward_cls = CompiledGraphBackward


def gradients(ctx: Any, given: list[Any], free: Callable[..., None]) -> Sequence[Any]:
    """Those of the arguments of the node `ctx`, for tangents of which some are None. `free` is called (like the
    function of that name) where the program does not retain the graph."""
    graph: Differentiable = ctx.graph
    facts = graph.facts
    missing = frozenset([k for k, tangent in enumerate(given) if tangent is None])
    try:
        values = list(_saved(ctx, facts, missing))
    except RuntimeError:  # they were freed, or changed in place
        if len(missing) < len(given):
            raise
        return (None,) * facts.arguments  # eager's graph has no edge from the node that led here with nothing
    if ctx.watch is not None and (repeat := ctx.watch.running()) is not None:
        if not _keeps_graph():
            free(ctx, facts, missing, values)
        return repeat.gradients(given)
    if torch.is_grad_enabled():
        return _with_history(ctx, given)
    unknown = any(map(_is_unknown, given)) or _innermost_transform() is not None or forward_ad._current_level >= 0
    call = ctx.call if missing or unknown else None
    if not _keeps_graph():
        free(ctx, facts, missing, values)
    if len(missing) == len(given):
        zeros = graph.eager.makes_zeros and call is not None and not graph.eager.is_stale(call)
        return _exact(graph, call, given) if zeros else (None,) * facts.arguments
    if unknown:
        return _exact(graph, call, given)
    values[facts.saved_tensors:] = [*ctx.sizes, *given]
    if _autocasts():
        with torch._C._DisableAutocast():
            found = graph.backward(values)
    else:
        found = graph.backward(values)
    if call is None:
        return found
    if _is_spoiled(facts, missing, found) and not graph.eager.is_stale(call):
        return _exact(graph, call, given)
    return tuple(None if needs <= missing else g for needs, g in zip(facts.reached, found))


_innermost_transform = _functorch.peek_interpreter_stack
_autocasts = torch._C._is_any_autocast_enabled
_keeps_graph = torch._C._autograd._get_current_graph_task_keep_graph
_hooks: Any = torch._C._autograd._top_saved_tensors_default_hooks


def _saved(ctx: Any, facts: AutogradMetadata, missing: frozenset[int]) -> Sequence[torch.Tensor]:
    """What the forward has saved. Raises RuntimeError, as autograd does, where what the tangents that are not `missing`
    need of it was freed by an earlier backward, or changed in place."""
    rest: Rest | None = ctx.rest
    if rest is not None and rest.freed <= missing:
        kept = rest.values()
        if _has_changed(facts, missing, kept, rest.versions):
            raise RuntimeError(_CHANGED)
        return kept
    try:
        saved: Sequence[torch.Tensor] = ctx.saved_tensors
    except RuntimeError:  # also where only what the missing tangents need has changed, or inputs that are left out
        some = bool(ctx.versions) and _is_for_some(ctx)
        if not (missing or some) or ctx.layouts is not None:
            raise
        saved = tuple([raw.data for raw in ctx._raw_saved_tensors])
        if _has_changed(facts, missing, saved[:facts.saved_tensors] if some else saved, ctx.versions):
            raise
    return saved if ctx.layouts is None else tuple(map(_laid_out, saved, ctx.layouts))


def _is_for_some(ctx: Any) -> bool:
    """Whether autograd wants the gradients of some inputs only (`inputs=`): eager's nodes of the others do not run, so
    what these keep may have changed."""
    return not all(_runs(node) for node, _ in ctx.next_functions if node is not None)


def _runs(node: Any) -> bool:
    try:
        return bool(torch._C._will_engine_execute_node(node))
    except RuntimeError:  # a leaf whose gradient is asked for
        return True


def _has_changed(
    facts: AutogradMetadata, missing: frozenset[int], saved: Sequence[torch.Tensor], versions: tuple[int, ...]
) -> bool:
    """Whether what the tangents that are not `missing` need was written after the forward."""
    reads = [reads for k, reads in enumerate(facts.reads) if k not in missing]
    return any(saved[i]._version != versions[i] for i in frozenset[int]().union(*reads) if i < len(saved))


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


def _placeholder(shape: Any, strides: Any, dtype: torch.dtype, device: torch.device) -> torch.Tensor:
    """A tensor without a value of its own: an index is 0, a number 1."""
    memory = torch.empty_strided(shape, strides, dtype=dtype, device=device)
    return memory.fill_(dtype.is_floating_point or dtype.is_complex)


def free(ctx: Any, facts: AutogradMetadata, missing: frozenset[int], saved: Sequence[torch.Tensor]) -> None:
    """A backward without retain_graph has begun: its tangents need nothing any more, nor can those that share with
    them. Autograd forgets what the node saved, so what others may need is kept here: a result whose nodes save nothing
    in eager can be differentiated again."""
    if not missing and all(facts.shared):
        ctx.maybe_clear_saved_tensors()
        ctx.call = ctx.rest = None
        return
    freed = frozenset[int]().union(*[shared for k, shared in enumerate(facts.shared) if k not in missing])
    rest: Rest | None = ctx.rest
    if rest is None:
        own = tuple([tensor.detach() for tensor in saved])  # a result would hold its own node
        known = ctx.versions and ctx.layouts is None
        rest = Rest(own, ctx.versions if known else tuple([tensor._version for tensor in own]), frozenset())
    rest = rest.without(freed, facts)
    ctx.maybe_clear_saved_tensors()
    if len(rest.freed) == len(facts.shared):
        ctx.call = ctx.rest = None
    else:
        ctx.rest = rest


def _is_spoiled(facts: AutogradMetadata, missing: frozenset[int], gradients: Sequence[Any]) -> bool:
    """Whether a gradient that missing tangents lead to as well has become NaN: they are zeros, and zero times an
    infinity that was saved is NaN, where eager leaves out what has no tangent."""
    if not any(tangents <= missing for tangents in facts.alone):
        return False
    mixed = [g for needs, g in zip(facts.reached, gradients) if needs & missing and not needs <= missing]
    return any(g is not None and bool(g.isnan().any()) for g in mixed)


_CHANGED = "one of the variables needed for gradient computation has been modified by an inplace operation"


def _is_unknown(tangent: Any) -> bool:
    """Whether kernels cannot read a tangent: it is batched (`is_grads_batched`, a vmap around the backward), or sparse,
    as an embedding's gradient may be."""
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


def _with_history(ctx: Any, given: list[Any]) -> Sequence[Any]:
    """Gradients that can be differentiated. Where the call cannot be repeated, those of the compiled backward, which
    raise when they are."""
    graph, call = ctx.graph, ctx.call
    if not graph.eager.is_stale(call):
        return _eager_gradients(graph, call, given)
    with torch.no_grad():
        found = gradients(ctx, given, free)
    sources = [v for v in (*call.inputs, *given) if isinstance(v, torch.Tensor) and v.requires_grad]
    ended: Sequence[Any] = _Ended.apply(found, *sources)
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
