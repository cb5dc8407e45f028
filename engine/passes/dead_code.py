"""Dead code elimination: nodes without users or side effects that do not raise in eager."""
from __future__ import annotations

import torch
import torch.fx

from ...artifacts.records import RuleMatch
from ...operators import effects
from ...operators.unbacked import needed, unbacked_in
from ..graphs.data_dependent_errors import raises_by_value
from ..graphs.functional_graph import AtenGraph, Constant
from .choices import May, always


def has_effect(node: torch.fx.Node) -> bool:
    """Whether running the node matters beyond its result: it samples random numbers, asserts, or calls foreign code."""
    if node.op in ("placeholder", "output"):
        return True
    return isinstance(node.target, torch._ops.OpOverload) and effects.has_effect(node.target)


def must_run(node: torch.fx.Node) -> bool:
    """Whether eager runs the node for more than its result: it has an effect, or may raise."""
    return has_effect(node) or raises_by_value(node)


def remove_dead_code(aten: AtenGraph, may: May = always) -> list[RuleMatch]:
    """Erase dead nodes from the end to the start; definitions of unbacked symbols that others use are not dead."""
    removed = []
    graph = aten.module.graph
    told = needed(graph.nodes) | unbacked_in([o.value for o in aten.outputs if isinstance(o, Constant)])
    for node in reversed(graph.nodes):
        unused = not node.users and not must_run(node) and not unbacked_in(node.meta.get("val")) & told
        if unused and may(node):
            removed.append(node.name)
            graph.erase_node(node)
    return [RuleMatch("dead-code", tuple(reversed(removed)), (), "nobody reads the result")] if removed else []
