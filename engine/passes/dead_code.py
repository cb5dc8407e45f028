"""Dead code elimination: nodes without users or side effects that do not raise in eager."""
from __future__ import annotations

from functools import cache

import torch
import torch.fx

from ...artifacts.records import RuleMatch
from ..graphs.data_dependent_errors import raises_by_value
from ..graphs.functional_graph import AtenGraph, Constant
from ..graphs.unbacked import needed, unbacked_in


def has_effect(node: torch.fx.Node) -> bool:
    """Whether running the node matters beyond its result: it draws random numbers, asserts, or calls foreign code."""
    if node.op in ("placeholder", "output"):
        return True
    return isinstance(node.target, torch._ops.OpOverload) and _operator_has_effect(node.target)


@cache
def _operator_has_effect(operator: torch._ops.OpOverload) -> bool:
    if torch.Tag.nondeterministic_seeded in operator.tags or operator._schema.is_mutable:
        return True
    return operator.namespace not in ("aten", "prims") or not operator._schema.returns  # only there to raise


def must_run(node: torch.fx.Node) -> bool:
    """Whether eager runs the node for more than its result: it has an effect, or may raise."""
    return has_effect(node) or raises_by_value(node)


def remove_dead_code(aten: AtenGraph) -> list[RuleMatch]:
    """Erase dead nodes from the end to the start; definitions of unbacked symbols that others use are not dead."""
    removed = []
    graph = aten.module.graph
    told = needed(graph.nodes) | unbacked_in([o.value for o in aten.outputs if isinstance(o, Constant)])
    for node in reversed(graph.nodes):
        if not node.users and not must_run(node) and not unbacked_in(node.meta.get("val")) & told:
            removed.append(node.name)
            graph.erase_node(node)
    return [RuleMatch("dead-code", tuple(reversed(removed)), (), "nobody reads the result")] if removed else []
