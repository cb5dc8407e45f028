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


class _Sizes:
    """The bytes of nodes' values, each counted once: a copy of a node has its value."""

    def __init__(self) -> None:
        self._known: dict[int, int] = {}

    def of(self, node: Node) -> int:
        value = node.meta.get("val")
        key = id(value)
        if key not in self._known:
            self._known[key] = bytes_of(value)
        return self._known[key]


def predicted(halves: Partitioned) -> dict[str, int]:
    """Bytes, sizes that vary counted as `costs.SIZE_HINT`: "forward" and "backward", the highest number in use in each;
    "eager", that of a step in eager; "saved" and "eager_saved", what is held for the backward besides inputs."""
    held = [s.node for s in halves.saved if s.kind in ("tensor", "output")]
    nodes = {n.name: n for n in halves.joint.module.graph.nodes}
    sizes = _Sizes()
    return {
        "forward": _compiled_peak(halves.forward.module.graph, (), sizes),
        "backward": _compiled_peak(halves.backward.module.graph, held, sizes),
        "eager": _eager_peak(halves.joint, sizes),
        "saved": sum(sizes.of(nodes[name]) for name in held),
        "eager_saved": _eager_saved(halves.joint, sizes),
    }


def _compiled_peak(graph: torch.fx.Graph, held: Iterable[str], sizes: _Sizes) -> int:
    """The peak of a half, compiled; `held` names the placeholders whose memory counts."""
    nodes = list(graph.nodes)
    stored = leaving(graph) | scattered(graph)
    counted = {n for n in nodes if n.op == "call_function" and (n.name in stored or not _is_inlined(n))}
    names = set(held)
    given = {n for n in nodes if n.op == "placeholder" and n.name in names}
    return _peak(nodes, counted, given, set(graph.output_node().all_input_nodes), sizes)


def _is_inlined(node: Node) -> bool:
    """Whether loops compute the value where it is read, if it has one reader."""
    lowering = LOWERINGS.get(node.target)
    return lowering is not None and lowering.kind not in (REDUCTION, COMPOSITE)


def _eager_peak(joint: JointGraph, sizes: _Sizes) -> int:
    """The peak of a step without fusion, with everything saved that a node of the backward reads."""
    nodes = list(joint.module.graph.nodes)
    counted = {n for n in nodes if n.op == "call_function"}
    returned, gradients = outputs_of(joint)
    return _peak(nodes, counted, set(), {*returned, *gradients}, sizes)


def _eager_saved(joint: JointGraph, sizes: _Sizes) -> int:
    """Bytes of what nodes of the backward read of the forward, inputs not counted."""
    saved = {
        root(n) for n in joint.module.graph.nodes
        if n.meta.get("phase") != BACKWARD and any(u.meta.get("phase") == BACKWARD for u in n.users)
    }
    return sum(sizes.of(n) for n in saved if n.op == "call_function")


def _peak(nodes: list[Node], counted: set[Node], given: set[Node], ends: set[Node], sizes: _Sizes) -> int:
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
    made = {n for n in counted if roots[n] is n and not isinstance(n.meta.get("val"), (tuple, list))}
    freed: dict[int, int] = {}
    now = 0
    for node in given:
        size = sizes.of(node)
        now += size
        freed[last.get(node, 0)] = freed.get(last.get(node, 0), 0) + size
    highest = now
    for position, node in enumerate(nodes):
        if node in made:
            size = sizes.of(node)
            now += size
            end = last.get(node, position)
            freed[end] = freed.get(end, 0) + size
        if now > highest:
            highest = now
        now -= freed.get(position, 0)
    return highest
