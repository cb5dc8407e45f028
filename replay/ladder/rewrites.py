"""Which rewrite of a pass is to blame for a wrong node: one that removed what the node was computed from."""
from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from typing import Any

from ...artifacts.records import Graph, Node, NodeRef, Pass, RuleMatch


def blamed(rewritten: Pass, before: Graph, wrong: str) -> tuple[RuleMatch, Node] | None:
    """The match that removed the nearest node behind `wrong`, and that node of the graph `before`; None where `wrong`
    was added by the pass itself, or nothing behind it was removed."""
    removed = {name: match for match in rewritten.matches for name in match.removed}
    if any(wrong in match.added for match in rewritten.matches):
        return None
    nodes = {node.id: node for node in before.nodes}
    queue, met = deque([wrong]), {wrong}
    while queue:
        node = nodes.get(queue.popleft())
        if node is None:
            continue
        if node.id in removed:
            return removed[node.id], node
        for name in _references((node.args, node.kwargs)):
            if name not in met:
                met.add(name)
                queue.append(name)
    return None


def _references(tree: Any) -> Iterator[str]:
    if isinstance(tree, NodeRef):
        yield tree.node
    elif isinstance(tree, dict):
        for value in tree.values():
            yield from _references(value)
    elif isinstance(tree, (list, tuple)):
        for value in tree:
            yield from _references(value)
