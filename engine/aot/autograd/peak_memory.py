"""Peak memory of a graph, predicted before it is scheduled.

Counted is what the graph computes and the saved values it was given (each is freed after its last use), but not its
inputs and not workspaces of library calls. Values that are inlined into their readers take none.
"""
from __future__ import annotations

from collections.abc import Iterable

import torch.fx

from ...graphs.autograd_graphs import BACKWARD, JointGraph, Partitioned
from ...lowering.realization import leaving, scattered
from ...lowering.registry import COMPOSITE, LOWERINGS, REDUCTION
from .costs import bytes_of
from .min_cut import Node, is_view, outputs_of, root


def compiled_peak(graph: torch.fx.Graph, held: Iterable[str] = ()) -> int:
    """The peak of a half, compiled; `held` names the placeholders whose memory counts."""
    inlined = {
        n for n in graph.nodes
        if n.op == "call_function" and (known := LOWERINGS.get(n.target)) is not None
        and known.kind not in (REDUCTION, COMPOSITE)
    }
    stored = leaving(graph) | scattered(graph)
    ends = list(graph.output_node().all_input_nodes)
    counted = {n for n in graph.nodes if n.op == "call_function" and (n not in inlined or n.name in stored)}
    names = set(held)
    given = {n for n in graph.nodes if n.op == "placeholder" and n.name in names}
    return _peak(list(graph.nodes), counted, given, set(ends))


def predicted(halves: Partitioned) -> dict[str, int]:
    """Bytes, sizes that vary counted as `costs.SIZE_HINT`: "forward" and "backward", the highest number in use in each;
    "eager", that of a step in eager; "saved" and "eager_saved", what is held for the backward besides inputs."""
    held = [s.node for s in halves.saved if s.kind in ("tensor", "output")]
    values = {n.name: n.meta.get("val") for n in halves.joint.module.graph.nodes}
    return {
        "forward": compiled_peak(halves.forward.module.graph),
        "backward": compiled_peak(halves.backward.module.graph, held),
        "eager": eager_peak(halves.joint),
        "saved": sum(bytes_of(values[name]) for name in held),
        "eager_saved": eager_saved(halves.joint),
    }


def eager_peak(joint: JointGraph) -> int:
    """The peak of a step without fusion, with everything saved that a node of the backward reads."""
    graph = joint.module.graph
    counted = {n for n in graph.nodes if n.op == "call_function"}
    returned, gradients = outputs_of(joint)
    return _peak(list(graph.nodes), counted, set(), {*returned, *gradients})


def eager_saved(joint: JointGraph) -> int:
    """Bytes of what nodes of the backward read of the forward, inputs not counted."""
    saved = {
        root(n) for n in joint.module.graph.nodes
        if n.meta.get("phase") != BACKWARD and any(u.meta.get("phase") == BACKWARD for u in n.users)
    }
    return sum(bytes_of(n.meta.get("val")) for n in saved if n.op == "call_function")


def _peak(nodes: list[Node], counted: set[Node], given: set[Node], ends: set[Node]) -> int:
    """Bytes alive at once: `counted` from where they are made, `given` from the start, to the last use of any view."""
    roots: dict[Node, Node] = {}
    last: dict[Node, int] = {}
    for position, node in enumerate(nodes):
        inputs = node.all_input_nodes
        roots[node] = roots[inputs[0]] if is_view(node) else node
        for used in inputs:
            last[roots[used]] = position
    for node in ends:
        last[roots[node]] = len(nodes)
    freed: dict[int, int] = {}
    now = 0
    for node in given:
        size = bytes_of(node.meta.get("val"))
        now += size
        freed[last.get(node, 0)] = freed.get(last.get(node, 0), 0) + size
    highest = now
    for position, node in enumerate(nodes):
        if node in counted and roots[node] is node and not isinstance(node.meta.get("val"), (tuple, list)):
            size = bytes_of(node.meta.get("val"))
            now += size
            end = last.get(node, position)
            freed[end] = freed.get(end, 0) + size
        if now > highest:
            highest = now
        now -= freed.get(position, 0)
    return highest
