"""The partition as a record."""
from __future__ import annotations

from ....artifacts.fx_graphs import value_record
from ....artifacts.records import Location, Partition, RecomputedValue, SavedValue, ref
from ...graphs.autograd_graphs import Partitioned
from .min_cut import Node
from .peak_memory import predicted


def partition_record(halves: Partitioned) -> Partition:
    """Stage `partition`: each value that is saved or computed again, with the lines of the program behind it."""
    nodes: dict[str, Node] = {n.name: n for n in halves.joint.module.graph.nodes}
    saved = []
    for s in halves.saved:
        node, reader = nodes.get(s.node), nodes.get(s.reader)
        value = value_record(node.meta.get("val")) if node is not None else None
        origins = (ref("joint", s.node),) if node is not None else ()
        saved.append(SavedValue(s.node, s.kind, s.bytes, s.why, value, _line(node), s.reader, _line(reader), origins))
    recomputed = tuple(
        RecomputedValue(r.node, r.bytes, r.flops, r.why, _line(nodes[r.node]), (ref("joint", r.node),))
        for r in halves.recomputed
    )
    return Partition(tuple(saved), recomputed, predicted(halves), halves.budget)


def _line(node: Node | None) -> Location | None:
    """The innermost line of the program that a node belongs to."""
    stack = node.meta.get("stack") if node is not None else None
    return stack[-1] if stack else None
