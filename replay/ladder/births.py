"""Where NaNs and infinities are born: in the captured graph, or in the first stage that has some of its own."""
from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

import torch

from ...artifacts.fx_graphs import target_name
from ...artifacts.records import Location
from ..verdicts.nonfinite import Birth, births, kind_of
from .rungs import Execution


def graph_births(
    module: torch.fx.GraphModule, ran: Execution, exact: Execution | None, inputs: tuple[Any, ...], stage: str,
    lines: Mapping[str, Location | None], names: Mapping[str, str],
) -> list[Birth]:
    """The births among the nodes of a graph that ran on `inputs`; `names` are those of inputs in words."""
    placeholders = [node.name for node in module.graph.nodes if node.op == "placeholder"]
    values = dict(ran.values) | dict(zip(placeholders, inputs))
    wide = dict(exact.values) if exact is not None else {}
    nodes = list(_nodes(module))
    found = births(nodes, values, stage, wide, lines)
    return [_named(birth, names) for birth in found]


def _nodes(module: torch.fx.GraphModule) -> Iterator[tuple[str, str, list[str]]]:
    for node in module.graph.nodes:
        if node.op == "placeholder":
            yield node.name, "an input", []
        elif node.op in ("call_function", "call_method"):
            yield node.name, target_name(node.target), [n.name for n in node.all_input_nodes]


def _named(birth: Birth, names: Mapping[str, str]) -> Birth:

    operands = tuple(replace(o, name=names.get(o.name, o.name)) for o in birth.operands)
    return replace(birth, node=names.get(birth.node, birth.node), operands=operands)


def differs(ran: Execution, eager: Execution) -> bool:
    """Whether results hold NaNs or infinities in one run and not in the other."""
    return [kind_of(value) for value in ran.observed()] != [kind_of(value) for value in eager.observed()]
