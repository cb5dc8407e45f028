"""What the autograd node and its eager form must know of a joint graph, as plain data."""
from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import torch

from ....operators import effects
from ...graphs.autograd_graphs import JointGraph, Partitioned
from ...graphs.functional_graph import AtenGraph, Constant, FromGraph, Output, ViewOfGraph
from ...passes.dead_code import has_effect
from .eager import EagerFacts, Root
from .function import AutogradMetadata


def autograd_metadata_of(halves: Partitioned) -> AutogradMetadata:
    """Those of the autograd node that runs these halves."""
    joint = halves.joint
    inside = len(joint.forward.mutations)
    results = joint.forward_outputs - inside
    tangents = tuple(k - inside for k in joint.tangents)
    changed = set(joint.forward.mutations.values()) | set(joint.assigned.values())
    unreached = tuple(i for i, needs in zip(joint.gradients, joint.reached) if not needs)
    watched = _watched(halves)
    return AutogradMetadata(
        results, sum(s.kind != "size" for s in halves.saved), len(halves.numbers), tangents,
        tuple(i for i in range(results) if i not in tangents), _reached(joint), joint.shared, *_reads(halves, watched),
        len(joint.forward.inputs) + 1, tuple(sorted(changed)), unreached,
        eager_facts(joint, frozenset(s.node for s in halves.saved)), joint.forward.uncounted,
        joint.order, joint.cuts, tuple((k - inside, count) for k, count in joint.written.items()),
        tuple(k - inside for k in watched[0]), watched[1],
    )


def node_gradients(halves: Partitioned) -> AtenGraph:
    """The backward with a gradient, or None, for each argument of the autograd node: the graph, then its inputs."""
    none = Constant(None)
    outputs: list[Output] = [none] * (len(halves.joint.forward.inputs) + 1)
    for i, output in zip(halves.joint.gradients, halves.backward.outputs):
        outputs[i + 1] = output
    return replace(halves.backward, outputs=tuple(outputs))


def _reached(joint: JointGraph) -> tuple[frozenset[int], ...]:
    """For each argument of the autograd node, the tangents that lead to it."""
    found: list[frozenset[int]] = [frozenset()] * (len(joint.forward.inputs) + 1)
    for i, tangents in zip(joint.gradients, joint.reached):
        found[i + 1] = tangents
    return tuple(found)


def _watched(halves: Partitioned) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """The graph outputs and the inputs that eager keeps and these halves do not save themselves."""
    joint = halves.joint
    outputs: Any = joint.module.graph.output_node().args[0]
    saved = {s.node for s in halves.saved}
    inputs = [n.name for n in joint.module.graph.find_nodes(op="placeholder")]
    results = tuple(k for k in joint.kept_results if outputs[k].name not in saved)
    return results, tuple(i for i in joint.kept_inputs if inputs[i] not in saved)


def _reads(
    halves: Partitioned, watched: tuple[tuple[int, ...], tuple[int, ...]]
) -> tuple[tuple[frozenset[int], ...], tuple[frozenset[int], ...]]:
    """(`reads`, `alone`) of the node: for each tangent the saved tensors that are read with what it leads to, and the
    sets of tangents that lead, alone, to where that is done or to a number that makes NaN of zeros."""
    joint = halves.joint
    count = sum(s.kind != "size" for s in halves.saved)
    kept = [*(joint.kept_results[k] for k in watched[0]), *(joint.kept_inputs[i] for i in watched[1])]
    tangents = len(joint.tangents)
    if tangents == 1:  # it is there, or nothing is computed
        return (frozenset(range(count + len(kept))),), ()
    placeholders = list(halves.backward.module.graph.find_nodes(op="placeholder"))
    none = frozenset[int]()
    saved = {node: frozenset((i,)) for i, node in enumerate(placeholders[:count])}
    leads = {node: frozenset((k,)) for k, node in enumerate(placeholders[-tangents:])}
    reads = [{count + j for j, needed in enumerate(kept) if k in needed} for k in range(tangents)]
    alone: dict[frozenset[int], None] = {}
    for node in halves.backward.module.graph.nodes:
        if node.op in ("placeholder", "output"):
            continue
        given = node.all_input_nodes
        leads[node] = none.union(*(leads.get(n, none) for n in given))
        kept = [n for n in given if not leads.get(n, none)]
        if not leads[node]:
            saved[node] = none.union(*(saved.get(n, none) for n in kept))
        elif kept or _spoils_zeros(node):
            alone[leads[node]] = None
            for k in leads[node]:
                reads[k].update(*(saved.get(n, none) for n in kept))
    return tuple(map(frozenset, reads)), tuple(alone)


def _spoils_zeros(node: torch.fx.Node) -> bool:
    """Whether a number among its arguments makes NaN of a zero: one that is not finite, or a zero that divides."""
    numbers = [a for a in node.args if isinstance(a, (int, float))]
    return not all(map(math.isfinite, numbers)) or (node.target in _QUOTIENTS and 0 in numbers)


_QUOTIENTS = (torch.ops.aten.div.Tensor, torch.ops.aten.div.Scalar)


def eager_facts(joint: JointGraph, saved: frozenset[str] = frozenset()) -> EagerFacts:
    """How to repeat a call of this graph in eager; `saved` names what the forward saves."""
    changed = frozenset((*joint.forward.mutations.values(), *joint.assigned.values()))
    return EagerFacts(
        tuple(i for i, needs in zip(joint.gradients, joint.reached) if needs),
        tuple(_root(k, joint) for k in joint.tangents),
        frozenset(joint.assigned.values()), changed, _read(joint, changed) - frozenset(joint.assigned.values()),
        _unsaved(joint, saved, changed), _autocast(), _random_devices(joint.forward),
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


def _unsaved(joint: JointGraph, saved: frozenset[str], changed: frozenset[int]) -> tuple[int, ...]:
    """The inputs that a repeated call reads, but for those that are saved (autograd looks after them) or copied."""
    inputs = joint.forward.inputs
    names = [n.name for n in joint.module.graph.find_nodes(op="placeholder")]
    counted = {i for i, v in enumerate(inputs) if isinstance(v, torch.Tensor) and not v.is_inference()} - changed
    return tuple(sorted(i for i in _read(joint, frozenset(counted)) if names[i] not in saved))


def _read(joint: JointGraph, asked: frozenset[int]) -> frozenset[int]:
    """Those of the inputs `asked` whose value when the graph begins reaches a result that has a tangent."""
    placeholders = [n for n in joint.module.graph.nodes if n.op == "placeholder"]
    outputs: Any = joint.module.graph.output_node().args[0]
    seen, stack = set(), [outputs[k] for k in joint.tangents]
    while stack:
        node = stack.pop()
        if node not in seen:
            seen.add(node)
            stack += node.all_input_nodes
    return frozenset(i for i in asked if placeholders[i] in seen)


def _autocast() -> tuple[tuple[str, torch.dtype], ...]:
    kinds = ("cpu", "cuda")
    return tuple((kind, torch.get_autocast_dtype(kind)) for kind in kinds if torch.is_autocast_enabled(kind))


def _random_devices(aten: AtenGraph) -> tuple[torch.device, ...]:
    """Devices of the random operators of a graph."""
    found: dict[torch.device, None] = {}
    for node in aten.module.graph.nodes:
        value = node.meta.get("val")
        if node.op == "call_function" and has_effect(node) and not effects.drops_nothing(node):
            value = value[0] if isinstance(value, (tuple, list)) else value
            if isinstance(value, torch.Tensor):
                found[value.device] = None
    return tuple(found)
