"""The captured graph rerun in eager, for a backward that must itself be differentiable (`create_graph=True`), or that
is batched (`is_grads_batched=True`).

A compiled backward records no history, and its kernels need dense memory. So the call is repeated in eager, on the
inputs that the node remembers and with the same random numbers, and autograd differentiates that.
"""
from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch._functorch.pyfunctorch import temporarily_clear_interpreter_stack


@dataclass(frozen=True)
class Root:
    """Where a tangent's result is after the captured graph ran: `kind` is "result", "base" (of a result that is a view
    of it) or "input" (whose new value it is)."""

    kind: str
    position: int


class Call(NamedTuple):
    """What is remembered of a call: its inputs, the states of the random number generators if any are used, and how
    often the inputs that only an eager run reads again had been written."""

    inputs: tuple[Any, ...]
    random: tuple[Any, ...] = ()
    versions: tuple[int, ...] = ()


@dataclass(frozen=True)
class EagerFacts:
    """How the results of a captured graph belong to the tangents of the joint graph, and what repeating a call takes.

    `assigned` are inputs that get a new history, `changed` all that the graph changes; `read` those whose old value
    the results depend on. `unsaved` are inputs that the graph reads, and neither changes nor saves: autograd does not
    look whether they have been written since. `autocast` holds (device type, dtype) for which autocast was on, `random`
    the devices whose generators the graph uses.
    """

    gradients_of: tuple[int, ...]
    roots: tuple[Root, ...]
    assigned: frozenset[int]
    changed: frozenset[int]
    read: frozenset[int]
    unsaved: tuple[int, ...]
    autocast: tuple[tuple[str, torch.dtype], ...]
    random: tuple[torch.device, ...]


@dataclass(frozen=True)
class EagerForm:
    """The captured graph, and what is known of it. `makes_zeros`: Functions of the program are in it that run on zeros
    where nothing flows back."""

    run: Callable[..., Sequence[Any]]
    facts: EagerFacts
    makes_zeros: bool = False

    def remember(self, inputs: tuple[Any, ...]) -> Call:
        """Called before the compiled forward: what it changes, and is needed, is copied."""
        facts = self.facts
        versions = tuple([inputs[i]._version for i in facts.unsaved])
        if facts.assigned or facts.read:
            kept = list(inputs)
            with torch.enable_grad():  # a copy keeps the history that the input is about to lose
                for i in facts.assigned | facts.read:
                    kept[i] = inputs[i].clone()
            inputs = tuple(kept)
        return Call(inputs, tuple(map(_generator_state, facts.random)) if facts.random else (), versions)

    def is_stale(self, call: Call) -> bool:
        """Whether the program has written to inputs since, so that the call cannot be repeated: eager has not saved
        them, and differentiates all the same."""
        return any(call.inputs[i]._version != then for i, then in zip(self.facts.unsaved, call.versions))

    def gradients(
        self, call: Call, tangents: Sequence[torch.Tensor | None], history: bool = True
    ) -> tuple[torch.Tensor | None, ...]:
        """Gradients of the inputs at `gradients_of`, with `history` or without. The inputs are seen through new nodes,
        so that one that depends on another counts as independent of it. Where nothing flows back, there are zeros for
        those that get them from whichever result autograd came."""
        with temporarily_clear_interpreter_stack():  # transforms of torch.func began after the call
            inputs = self.fresh(call.inputs)
            wanted = [torch.autograd.graph.get_gradient_edge(inputs[i]) for i in self.facts.gradients_of]
            with self.as_then(call):
                results = self.run(*inputs)
            roots = [self.find(root, results, inputs) for root in self.facts.roots]
        found = [(root, tangent) for root, tangent in zip(roots, tangents) if tangent is not None]
        if not found:
            each = [_of_nothing(root, wanted) for root in roots]
            return tuple([None if any(g is None for g in same) else same[0] for same in zip(*each)])
        reached, given = zip(*found)
        return tuple(torch.autograd.grad(reached, wanted, given, create_graph=history, allow_unused=True))

    def fresh(self, inputs: Sequence[Any]) -> tuple[Any, ...]:
        """The inputs as nodes of their own in autograd's graph; copies of those that the graph changes."""
        return tuple(self._fresh(i, value) for i, value in enumerate(inputs))

    def find(self, root: Root, results: Sequence[Any], inputs: Sequence[Any]) -> torch.Tensor:
        """The tensor that a tangent belongs to, after the captured graph ran."""
        if root.kind == "input":
            changed: torch.Tensor = inputs[root.position]
            return changed
        value: torch.Tensor = results[root.position]
        return value if root.kind == "result" or value._base is None else value._base

    def _fresh(self, position: int, value: Any) -> Any:
        if not isinstance(value, torch.Tensor):
            return value
        if position in self.facts.changed:
            return value.clone()
        return value.view_as(value) if value.requires_grad else value

    @contextmanager
    def as_then(self, call: Call) -> Iterator[None]:
        """The random numbers and the autocast of the call."""
        with ExitStack() as stack:
            if self.facts.random:
                stack.enter_context(torch.random.fork_rng([d for d in self.facts.random if d.type != "cpu"]))
                for device, state in zip(self.facts.random, call.random):
                    _set_generator_state(device, state)
            stack.enter_context(torch._C._DisableAutocast())
            for device_type, dtype in self.facts.autocast:
                stack.enter_context(torch.autocast(device_type, dtype))
            yield


def _of_nothing(root: torch.Tensor, wanted: Sequence[Any]) -> tuple[torch.Tensor | None, ...]:
    """What arrives where autograd visits the node of `root` with None."""
    nothing: torch.Tensor = _Nothing.apply(root)
    empty = torch.empty_like(nothing)
    return tuple(torch.autograd.grad(nothing, wanted, empty, retain_graph=True, allow_unused=True))


class _Nothing(torch.autograd.Function):
    """A tensor through which nothing flows back."""

    @staticmethod
    def forward(ctx: Any, tensor: torch.Tensor) -> torch.Tensor:
        """A tensor without elements."""
        return tensor.new_empty(0)

    @staticmethod
    def backward(ctx: Any, *_: Any) -> None:
        """None."""


def _generator_state(device: torch.device) -> torch.Tensor:
    return torch.get_rng_state() if device.type == "cpu" else torch.cuda.get_rng_state(device)


def _set_generator_state(device: torch.device, state: torch.Tensor) -> None:
    if device.type == "cpu":
        torch.set_rng_state(state)
    else:
        torch.cuda.set_rng_state(state, device)
