"""Common subexpression elimination: the same operator on the same arguments is computed once."""
from __future__ import annotations

from typing import Any

import torch
import torch.fx

from ...artifacts.records import RuleMatch
from ...operators.unbacked import unbacked_in
from ..graphs.aliasing import kept, outputs_reach
from ..graphs.functional_graph import AtenGraph
from .choices import May, always
from .dead_code import has_effect


def merge_common_subexpressions(aten: AtenGraph, may: May = always) -> list[RuleMatch]:
    """Let later nodes use the first of their kind.

    Nodes whose memory is visible to the caller (results, through views) are left alone: two results that are separate
    tensors must stay separate. So must a result, which the caller may change, and what is saved for the backward.
    """
    matches = []
    seen: dict[Any, torch.fx.Node] = {}
    visible = outputs_reach(aten.module.graph)
    for node in list(aten.module.graph.nodes):
        if node.op not in ("call_function", "get_attr") or has_effect(node) or unbacked_in(node.meta.get("val")):
            continue
        key = _key(node)
        if key is None:
            continue
        first = seen.setdefault(key, node)
        if first is node:
            continue
        if node in visible and first in visible:
            continue
        if node in visible:  # keep the visible one as itself; earlier users are fine with theirs
            continue
        if (first in visible and kept(node)) or not may(node):
            continue
        first.meta["origins"] = tuple(dict.fromkeys(first.meta.get("origins", ()) + node.meta.get("origins", ())))
        if "explicit" in node.meta:
            first.meta["explicit"] = True
        node.replace_all_uses_with(first)
        aten.module.graph.erase_node(node)
        matches.append(RuleMatch("same-computation", (node.name,), (first.name,), f"{node.name} repeats {first.name}"))
    return matches


def _key(node: torch.fx.Node) -> Any:
    try:
        key = (node.op, node.target, _hashable(node.args), _hashable(node.kwargs))
        hash(key)
    except TypeError:
        return None
    return key


def _hashable(value: Any) -> Any:
    if isinstance(value, (tuple, list)):
        return (type(value), *(_hashable(v) for v in value))
    if isinstance(value, dict):
        return tuple((k, _hashable(v)) for k, v in sorted(value.items()))
    if isinstance(value, (torch.SymInt, torch.SymFloat, torch.SymBool)):
        return ("symbol", value.node.expr)
    # 1, 1.0 and True are equal but not the same argument; 0.0 and -0.0 neither.
    return (type(value), repr(value)) if isinstance(value, (bool, int, float, complex)) else value
