"""Which value of a stage is that of which captured node: the last node or buffer derived from it."""
from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, TypeGuard

import torch

from ...artifacts.records import Graph, Node, Pass
from ...engine.ir.ir import LoopBody
from ...engine.stages import Wrapped
from ..verdicts.compare import Comparison, compare
from .rungs import Execution, written


def graph_pairs(record: Graph | Pass, ran: Execution) -> Iterator[tuple[str, Any, str]]:
    """(ATen node, its value, the captured node whose last piece it is)."""
    graph = record if isinstance(record, Graph) else record.graph
    origins = {node.id: _captured_names(node) for node in graph.nodes}
    last = {name: node for node, names in origins.items() for name in names}
    for node, names in origins.items():
        yield from ((node, ran.values[node], name) for name in names if last[name] == node and node in ran.values)


def _captured_names(node: Node) -> list[str]:
    """The captured nodes that it is derived from, as they are called in their graph."""
    return [origin.rpartition("#")[2].rpartition(".")[2] for origin in node.origins]


def buffer_pairs(work: Wrapped, stage: str, ran: Execution) -> Iterator[tuple[str, Any, str]]:
    """(buffer, its value, the captured node whose last piece it is)."""
    steps: Sequence[Any] = work.program.steps if stage == "loop_ir" else work.plan.items
    nodes = {n.name: n for n in work.aten.module.graph.nodes}
    last = {origin: name for name, n in nodes.items() for origin in n.meta.get("origins", ())}
    for step in steps:
        makers = dict(makers_of(step))
        for name in written(step):
            for maker in makers.get(name, ())[:1]:
                for origin in nodes[maker].meta.get("origins", ()) if maker in nodes else ():
                    if name in ran.values and last[origin] == maker:
                        yield name, ran.values[name], origin


def difference(value: Any, expected: Any, wide: Any = None) -> Comparison | None:
    """How two values of one node differ; None if they do not or cannot be compared."""
    if not _comparable(value, expected):
        return None
    found = compare(_like(value, expected), expected, wide)
    return found if found.verdict == "different" else None


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


def _comparable(value: Any, expected: Any) -> TypeGuard[torch.Tensor]:
    return (
        isinstance(value, torch.Tensor) and isinstance(expected, torch.Tensor)
        and value.dtype == expected.dtype and value.numel() == expected.numel()
        and [s for s in value.shape if s != 1] == [s for s in expected.shape if s != 1]
    )


def _like(value: torch.Tensor, expected: torch.Tensor) -> torch.Tensor:
    """`value` with the shape and strides of `expected`: inner layouts may differ between stages."""
    result = torch.empty_strided(expected.shape, expected.stride(), dtype=value.dtype, device=value.device)
    return result.copy_(value.reshape(expected.shape))
