"""Peak memory of a graph, predicted before it is scheduled.

Counted is what the graph computes and the saved values it was given (each is freed after its last use), but not its
inputs and not workspaces of library calls. Values that are inlined into their readers take none.
"""
from __future__ import annotations

import operator
from collections import defaultdict
from collections.abc import Iterable, Mapping

import torch.fx

from ...graphs.autograd_graphs import BACKWARD, JointGraph, Partitioned
from ...lowering.realization import kinds_of, leaving, scattered
from ...lowering.registry import COMPOSITE, REDUCTION
from .costs import bytes_of
from .min_cut import Node, is_view, outputs_of, root


class _Sizes:
    """The bytes of nodes' values, each counted once: a copy of a node has its value. `known` are those of some."""

    def __init__(self, known: Mapping[Node, int]) -> None:
        self._known = {id(node.meta.get("val")): size for node, size in known.items()}

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
    sizes = _Sizes(halves.bytes)
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
    inlined = {n for n, kind in kinds_of(nodes).items() if kind not in (None, REDUCTION, COMPOSITE)}
    counted = {n for n in nodes if n.op == "call_function" and (n not in inlined or n.name in stored)}
    names = set(held)
    given = {n for n in nodes if n.op == "placeholder" and n.name in names}
    return _peak(nodes, counted, given, set(graph.output_node().all_input_nodes), sizes)


def _eager_peak(joint: JointGraph, sizes: _Sizes) -> int:
    """The peak of a step without fusion, with everything saved that a node of the backward reads."""
    nodes = list(joint.module.graph.nodes)
    counted = {n for n in nodes if n.op == "call_function"}
    returned, gradients = outputs_of(joint)
    return _peak(nodes, counted, set(), {*returned, *gradients}, sizes)


def _eager_saved(joint: JointGraph, sizes: _Sizes) -> int:
    """Bytes of what nodes of the backward read of the forward, inputs not counted."""
    backward = {n for n in joint.module.graph.nodes if n.meta.get("phase") == BACKWARD}
    saved = {
        root(n) for n in joint.module.graph.nodes if n not in backward and not backward.isdisjoint(n.users)}
    return sum(sizes.of(n) for n in saved if n.op == "call_function")


def _peak(nodes: list[Node], counted: set[Node], given: set[Node], ends: set[Node], sizes: _Sizes) -> int:
    """Bytes alive at once: `counted` from where they are made, `given` from the start, to the last use of any view."""
    views = _views(nodes)
    roots: dict[Node, Node] = {}
    last: dict[Node, int] = {}
    for position, node in enumerate(nodes):
        inputs = node.all_input_nodes
        roots[node] = roots[inputs[0]] if node in views else node
        for used in inputs:
            last[roots[used]] = position
    for node in ends:
        last[roots[node]] = len(nodes)
    freed: dict[int, int] = defaultdict(int)
    now = 0
    for node in given:
        size = sizes.of(node)
        now += size
        freed[last.get(node, 0)] += size
    highest = now
    for position, node in enumerate(nodes):
        if node in counted and node not in views and not isinstance(node.meta.get("val"), (tuple, list)):
            size = sizes.of(node)
            now += size
            freed[last.get(node, position)] += size
            highest = max(highest, now)
        now -= freed[position]
    return highest


def _views(nodes: Iterable[Node]) -> set[Node]:
    """The nodes for which `is_view` holds."""
    known: dict[int, bool] = {}
    views = set()
    for node in nodes:
        if node.target is operator.getitem:
            holds = node.args[0] in views
        else:
            target = id(node.target)
            if target not in known:
                known[target] = is_view(node)
            holds = known[target]
        if holds:
            views.add(node)
    return views
