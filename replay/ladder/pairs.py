"""Which value of a stage is that of which node: the last node or buffer derived from it."""
from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from ...artifacts.records import Graph, Node, Pass
from ...engine.ir.ir import LoopBody
from ...engine.stages import Wrapped
from .reference import Reference
from .rungs import Execution
from .steps import written


@dataclass(frozen=True)
class Pair:
    """One value of a rung, `name`d there, and the node of `reference` that it is the value of. `source` is the captured
    node behind it."""

    name: str
    value: Any
    node: str
    reference: Reference
    source: str
    label: str = ""  # the part's name, in front of the node's


@dataclass(frozen=True)
class LoweredPart:
    """A graph that was lowered on its own, and what it was given. `prefix` is in front of the names of its values and
    kernels, `label` of its nodes; `sources` are the captured nodes behind its nodes."""

    prefix: str
    work: Wrapped
    inputs: tuple[Any, ...]
    sources: Mapping[str, str]
    label: str = ""


def graph_pairs(record: Graph | Pass, ran: Execution, reference: Reference) -> Iterator[Pair]:
    """ATen nodes beside the captured nodes whose last pieces they are."""
    graph = record if isinstance(record, Graph) else record.graph
    origins = {node.id: _captured_names(node) for node in graph.nodes}
    last = {name: node for node, names in origins.items() for name in names}
    for node, names in origins.items():
        if node in ran.values:
            yield from (Pair(node, ran.values[node], name, reference, name) for name in names if last[name] == node)


def _captured_names(node: Node) -> list[str]:
    """The captured nodes that it is derived from, as they are called in their graph."""
    return [origin.rpartition("#")[2].rpartition(".")[2] for origin in node.origins]


def buffer_pairs(
    steps: Sequence[Any], values: Mapping[str, Any], reference: Reference, sources: Mapping[str, str], prefix: str = ""
) -> Iterator[Pair]:
    """Buffers beside the ATen nodes whose values they hold, in the order in which they are written: of the buffers that
    are made for one node, the last."""
    makers = {name: nodes[0] for step in steps for name, nodes in makers_of(step) if nodes}
    written_last = {name: step for step in steps for name in written(step)}
    final = {makers[name]: name for name in written_last if name in makers}
    for step in steps:
        for name in dict.fromkeys(written(step)):
            node = makers.get(name, "")
            if final.get(node) == name and written_last[name] is step and prefix + name in values:
                yield Pair(prefix + name, values[prefix + name], node, reference, sources.get(node, ""))


def makers_of(step: Any) -> Iterator[tuple[str, tuple[str, ...]]]:
    """For each buffer that a step writes, the ATen nodes of the value stored, last one first."""
    if isinstance(step, LoopBody):
        for statement in step.statements:
            if statement.op == "store":
                yield statement.buffer, tuple(reversed(statement.origins))
    elif hasattr(step, "bodies"):
        for body in step.bodies:
            yield from makers_of(body)
    elif step.target is not torch.ops.aten.empty_strided.default:  # memory that a later step fills has no value yet
        yield from ((name, tuple(reversed(step.origins))) for name in step.outputs if name)
