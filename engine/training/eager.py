"""The captured graph run in eager, for a backward that must itself be differentiable (`create_graph=True`).

A compiled backward leaves no history. So the call is repeated in eager, on the inputs that the node remembers and with
the random numbers of the first time, and autograd differentiates that.
"""
from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any

import torch

from ..entry import eager_form
from ..functional import AtenGraph, Captured, FromGraph, ViewOfGraph
from ..passes.dead_code import has_effect
from .graphs import JointGraph


@dataclass(frozen=True)
class Root:
    """Where a tangent's result is after the captured graph ran: `kind` is "result", "base" (of a result that is a view
    of it) or "input" (whose new value it is)."""

    kind: str
    position: int


@dataclass(frozen=True)
class Call:
    """What is remembered of a call: its inputs, and the states of the random number generators if any are used."""

    inputs: tuple[Any, ...]
    random: tuple[Any, ...] = ()


@dataclass(frozen=True)
class EagerForm:
    """The captured graph, and how its results belong to the tangents of the joint graph.

    `assigned` are inputs that get a new history, `changed` all that the graph changes; `read` those whose old value
    the results depend on. `autocast` holds (device type, dtype) for which autocast was on, `random` the devices whose
    generators the graph uses.
    """

    run: Callable[..., Sequence[Any]]
    gradients_of: tuple[int, ...]
    roots: tuple[Root, ...]
    assigned: frozenset[int]
    changed: frozenset[int]
    read: frozenset[int]
    autocast: tuple[tuple[str, torch.dtype], ...]
    random: tuple[torch.device, ...]

    def remember(self, inputs: tuple[Any, ...]) -> Call:
        """Called before the compiled forward: what it changes, and is needed, is copied."""
        if self.assigned or self.read:
            kept = list(inputs)
            with torch.enable_grad():  # a copy keeps the history that the input is about to lose
                for i in self.assigned | self.read:
                    kept[i] = inputs[i].clone()
            inputs = tuple(kept)
        return Call(inputs, tuple(map(_generator_state, self.random)))

    def gradients(self, call: Call, tangents: Sequence[torch.Tensor | None]) -> tuple[torch.Tensor | None, ...]:
        """Gradients of the inputs at `gradients_of`, with history. The inputs are seen through new nodes, so that one
        that depends on another counts as independent of it."""
        inputs = self.fresh(call.inputs)
        wanted = [torch.autograd.graph.get_gradient_edge(inputs[i]) for i in self.gradients_of]
        with self._as_then(call):
            results = self.run(*inputs)
        found = [(self.find(root, results, inputs), t) for root, t in zip(self.roots, tangents) if t is not None]
        if not found:
            return (None,) * len(wanted)
        roots, given = zip(*found)
        return tuple(torch.autograd.grad(roots, wanted, given, create_graph=True, allow_unused=True))

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
        if position in self.changed:
            return value.clone()
        return value.view_as(value) if value.requires_grad else value

    @contextmanager
    def _as_then(self, call: Call) -> Iterator[None]:
        """The random numbers and the autocast of the call."""
        with ExitStack() as stack:
            if self.random:
                stack.enter_context(torch.random.fork_rng([d for d in self.random if d.type != "cpu"]))
                for device, state in zip(self.random, call.random):
                    _set_generator_state(device, state)
            stack.enter_context(torch._C._DisableAutocast())
            for device_type, dtype in self.autocast:
                stack.enter_context(torch.autocast(device_type, dtype))
            yield


def eager_of(captured: Captured, joint: JointGraph) -> EagerForm:
    """How to repeat a call of this graph in eager. The joint graph has not been cut yet."""
    changed = frozenset((*joint.forward.mutations.values(), *joint.assigned.values()))
    return EagerForm(
        eager_form(captured.module), joint.gradients, tuple(_root(k, joint) for k in joint.tangents),
        frozenset(joint.assigned.values()), changed, _read(joint, changed) - frozenset(joint.assigned.values()),
        _autocast(), _random_devices(joint.forward),
    )


def _root(output: int, joint: JointGraph) -> Root:
    if output in joint.assigned:
        return Root("input", joint.assigned[output])
    outputs = joint.forward.outputs
    for kind, wanted in (("result", FromGraph), ("base", ViewOfGraph)):
        for position, place in enumerate(outputs):
            if isinstance(place, wanted) and place.index == output and not getattr(place, "detached", False):
                return Root(kind, position)
    raise AssertionError(f"graph output {output} is no result")


def _read(joint: JointGraph, changed: frozenset[int]) -> frozenset[int]:
    """Changed inputs whose value before the change reaches a result that has a tangent."""
    placeholders = [n for n in joint.module.graph.nodes if n.op == "placeholder"]
    outputs: Any = joint.module.graph.output_node().args[0]
    seen, stack = set(), [outputs[k] for k in joint.tangents]
    while stack:
        node = stack.pop()
        if node not in seen:
            seen.add(node)
            stack += node.all_input_nodes
    return frozenset(i for i in changed if placeholders[i] in seen)


def _autocast() -> tuple[tuple[str, torch.dtype], ...]:
    kinds = ("cpu", "cuda")
    return tuple((kind, torch.get_autocast_dtype(kind)) for kind in kinds if torch.is_autocast_enabled(kind))


def _random_devices(aten: AtenGraph) -> tuple[torch.device, ...]:
    """Devices of the random operators of a graph."""
    found: dict[torch.device, None] = {}
    for node in aten.module.graph.nodes:
        value = node.meta.get("val")
        if node.op == "call_function" and has_effect(node):
            value = value[0] if isinstance(value, (tuple, list)) else value
            if isinstance(value, torch.Tensor):
                found[value.device] = None
    return tuple(found)


def _generator_state(device: torch.device) -> torch.Tensor:
    return torch.get_rng_state() if device.type == "cpu" else torch.cuda.get_rng_state(device)


def _set_generator_state(device: torch.device, state: torch.Tensor) -> None:
    if device.type == "cpu":
        torch.set_rng_state(state)
    else:
        torch.cuda.set_rng_state(state, device)
