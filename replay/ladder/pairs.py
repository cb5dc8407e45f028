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

    @property
    def expected(self) -> Any:
        """What it should be."""
        return self.reference.part_like(self.value, self.node)(self.reference.eager)


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


def seen_node(graph: torch.fx.Graph, role: str, position: int, results: int) -> str:
    """The captured node behind what the program sees at a position of a rung's values: the result, or of an input the
    last node that may have written to it; "" for none."""
    returned: Any = graph.output_node().args[0]
    found: Any = None
    if role == "result" and isinstance(returned, (tuple, list)) and position < len(returned):
        found = returned[position]
    elif role == "input":
        placeholder = list(graph.find_nodes(op="placeholder"))[position - results]
        users = list(placeholder.users)
        written = [user for user in users if _writes(user)]
        found = (written or users or [None])[-1]
    return found.name if isinstance(found, torch.fx.Node) else ""


def _writes(node: torch.fx.Node) -> bool:
    """Whether a call writes to its first argument, by its name."""
    name = node.target if isinstance(node.target, str) else getattr(node.target, "__name__", "")
    return name in ("setitem", "__setitem__") or (name.endswith("_") and not name.endswith("__"))


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


def sources_of(record: Graph) -> dict[str, str]:
    """For each ATen node of a graph the captured node that it comes from."""
    return {node.id: node.origins[0].rpartition("#")[2].rpartition(".")[2] for node in record.nodes if node.origins}
