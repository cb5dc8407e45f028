"""Results that depend on each other: in `h, loss = f(x)` the loss is computed from h, and the gradient at h would lack
the path through loss if a single autograd node returned both.

Autograd therefore gets an edge from loss to h: a node (`Lead`) above the compiled one. Ordinarily nothing flows along
it, since the compiled backward computes the gradients of the inputs from all that arrives at the results at once. Where
the gradient at h is requested (by a hook, `retain_grad`, `autograd.grad(loss, h)`, which cannot be distinguished from
`autograd.grad(loss, w)`), that backward runs in eager instead, in parts: the call is repeated and cut behind h, so that
what flows from loss to h goes along the edge, and the gradients of the inputs are those of what arrived at the results.
"""
from __future__ import annotations

import functools
import weakref
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import torch
from torch._functorch.pyfunctorch import temporarily_clear_interpreter_stack

from .eager import Call, EagerForm

if TYPE_CHECKING:
    from .function import AutogradMetadata

_task: Callable[[], int] = torch._C._current_graph_task_id
_runs: Callable[[Any], bool] = torch._C._will_engine_execute_node


# ---- the call once more, in parts ------------------------------------------------------------------------------------
class _Repeat:
    """The call of a node repeated in eager for one backward of the program's, with `history` or without. Hooks of the
    results at the cuts, there while something is differentiated, keep what flows to them from flowing on."""

    def __init__(self, node: Any, history: bool) -> None:
        form: EagerForm = node.graph.eager
        call: Call = node.call
        self.history = history
        self.count = len(call.inputs) + 1
        self.positions = form.facts.gradients_of
        with temporarily_clear_interpreter_stack(), torch.enable_grad():
            inputs = form.fresh(call.inputs)
            self.wanted = [torch.autograd.graph.get_gradient_edge(inputs[i]) for i in self.positions]
            with form.as_then(call):
                results = form.run(*inputs)
            self.roots = [form.find(root, results, inputs) for root in form.facts.roots]
        self.cuts: list[torch.Tensor] = [results[position] for position in node.graph.facts.cuts]

    def partials(self, number: int, tangent: torch.Tensor, cuts: Sequence[int]) -> Sequence[Any]:
        """What flows from result `number` to those at `cuts`, and past no other."""
        root, found = self.roots[number], dict[int, torch.Tensor]()

        def stop(cut: int, gradient: torch.Tensor | None) -> torch.Tensor | None:
            if gradient is None:
                return None
            found[cut] = gradient
            return torch.zeros_like(gradient)

        hooks = {i: partial(stop, i) for i, cut in enumerate(self.cuts) if cut is not root}
        self._derive([root], [tangent], [self.cuts[i] for i in cuts], hooks)
        return [found.get(i) for i in cuts]

    def gradients(self, tangents: Sequence[Any]) -> Sequence[Any]:
        """Those of the node's arguments, where what arrives at a result includes what flows to it from the others."""
        given = [(root, tangent) for root, tangent in zip(self.roots, tangents) if tangent is not None]
        found: list[Any] = [None] * self.count
        arrived = {id(root): tangent for root, tangent in given}

        def replace(cut: torch.Tensor, gradient: torch.Tensor | None) -> torch.Tensor | None:
            return None if gradient is None else arrived.get(id(cut), torch.zeros_like(gradient))

        if given:
            hooks = {i: partial(replace, cut) for i, cut in enumerate(self.cuts)}
            roots, arriving = zip(*given)
            gradients = self._derive(roots, arriving, self.wanted, hooks)
            for i, gradient in zip(self.positions, gradients):
                found[i + 1] = gradient
        return tuple(found)

    def _derive(
        self, roots: Sequence[Any], tangents: Sequence[Any], wanted: Sequence[Any],
        hooks: Mapping[int, Callable[[Any], Any]],
    ) -> Sequence[Any]:
        handles = [self.cuts[i].register_hook(hook) for i, hook in hooks.items()]
        try:
            return torch.autograd.grad(
                roots, wanted, tangents, retain_graph=True, create_graph=self.history, allow_unused=True
            )
        finally:
            for handle in handles:
                handle.remove()


# ---- who asks --------------------------------------------------------------------------------------------------------
class Watch:
    """Of one call: who may ask for gradients at which cut (the table in which torch puts the hooks of the result, which
    outlive it, and the result), and the repeated calls of the backwards that are running, by autograd's task."""

    __slots__ = ("observers", "quiet", "repeats")

    def __init__(self) -> None:
        self.observers: dict[int, tuple[dict[int, Any], weakref.ref[torch.Tensor]]] = {}
        self.repeats: dict[int, _Repeat] = {}
        self.quiet = -1  # the last backward in which nobody asked

    def observe(self, cut: int, result: torch.Tensor) -> None:
        """Know of all hooks of a result from now on."""
        if cut not in self.observers:
            hooks: Any = result._backward_hooks
            if hooks is None:
                hooks = result._backward_hooks = OrderedDict()
                result.grad_fn._register_hook_dict(result)  # type: ignore[union-attr]
            self.observers[cut] = hooks, weakref.ref(result)

    def repeat(self, node: Any, beacon: Any) -> _Repeat | None:
        """The call of `node` repeated, where somebody asks in the backward that is running."""
        task = _task()
        if task == self.quiet:
            return None
        if self.repeats and (found := self.repeats.get(task)) is not None:
            return found
        if _runs(beacon) and not self._is_observed():
            self.quiet = task
            return None
        if node.call is None:
            node.saved_tensors  # noqa: B018  # which were freed: raises
        if node.graph.eager.is_stale(node.call):
            raise RuntimeError("a tensor that a compiled graph reads has been modified by an inplace operation")
        made = self.repeats[task] = _Repeat(node, torch.is_grad_enabled())
        torch.autograd.Variable._execution_engine.queue_callback(partial(self._forget, task))
        return made

    def _forget(self, task: int) -> None:
        self.repeats.pop(task, None)

    def running(self) -> _Repeat | None:
        """The repeated call of this backward, if a result needs it."""
        return self.repeats.get(_task()) if self.repeats else None

    def _is_observed(self) -> bool:
        for hooks, reference in self.observers.values():
            if hooks or ((result := reference()) is not None and result.retains_grad):
                return True
        return False


@functools.cache
def _beacon(device: torch.device) -> tuple[torch.Tensor, Any]:
    """A leaf that each `Lead` is a function of, and nobody knows, with its node: that runs in the backward of all
    leaves, and in no `autograd.grad` or backward with `inputs`, which ask for gradients at some edges only."""
    leaf = torch.zeros((), device=device, requires_grad=True)
    return leaf, torch.autograd.graph.get_gradient_edge(leaf).node


# ---- the edges -------------------------------------------------------------------------------------------------------
class Lead(torch.autograd.Function):
    """The node of a result that depends on others."""

    @staticmethod
    def forward(
        ctx: Any, of: tuple[Any, ...], value: tuple[torch.Tensor], beacon: torch.Tensor, *results: torch.Tensor
    ) -> Any:
        """The result, as a function of the beacon, of what the compiled node gave and of the results that it depends
        on."""
        ctx.set_materialize_grads(False)
        ctx.of = of
        return value[0]

    @staticmethod
    def backward(ctx: Any, tangent: Any) -> Sequence[Any]:
        """The tangent goes to the compiled node, which knows what becomes of it; nothing to the others, unless asked.
        """
        node, number, cuts, beacon = ctx.of
        partials: Sequence[Any] = (None,) * len(cuts)
        if tangent is not None and (repeat := node.watch.repeat(node, beacon)) is not None:
            partials = repeat.partials(number, tangent, cuts)
        return (None, None, None, tangent, *partials)


_lead = super(torch.autograd.Function, Lead).apply  # without the checks for functorch's transforms


class Leads:
    """Makes the edges of one call, around what its node has `made`."""

    __slots__ = ("node", "watch")

    def __init__(self, facts: AutogradMetadata, made: Sequence[Any]) -> None:
        node: Any = made[facts.tangents[0]].grad_fn
        self.node = node.joined.node if hasattr(node, "joined") else node
        self.watch = self.node.watch = Watch()

    def lead(self, number: int, cuts: tuple[int, ...], value: torch.Tensor, *results: torch.Tensor) -> torch.Tensor:
        """The value of the node's tangent `number`, which depends on the results that stand before the cuts."""
        for cut, result in zip(cuts, results):
            self.watch.observe(cut, result)
        leaf, beacon = _beacon(value.device)
        given = ((self.node, number, cuts, beacon), (value.detach(),), leaf, value, *results)
        if torch.is_grad_enabled():  # to ask is cheaper than to enter a block
            led: torch.Tensor = _lead(*given)
        else:
            led = torch.enable_grad()(_lead)(*given)
        return led
