"""The two halves of a recorded training graph, run as they are: what the backward reads is found by its name.

They need nothing of the halves that are made again, whose cut is another one where other values are cheaper to keep:
on another device.
"""
from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ...artifacts.records import Graph, NodeRef
from ..recorded.graphs import ReplayError, graph_module
from ..recorded.inputs import bind_symbols
from ..recorded.state import as_compiled
from .rungs import Execution, Symbols, run_graph
from .unbacked import bind_unbacked


@dataclass(frozen=True)
class Half:
    """One half as it was cut, whose names are those of the joint graph, and in the form that runs: that, or what a pass
    made of it."""

    cut: Graph
    form: Graph


@as_compiled()
def run_half(half: Half, inputs: tuple[Any, ...], symbols: Symbols, trust: bool) -> tuple[Execution, Symbols]:
    """A half on its inputs, and the values of all symbols."""
    if len(_inputs(half.form)) != len(inputs) or len(_returned(half.form)) != len(_returned(half.cut)):
        raise ReplayError("a pass has changed what the recorded half takes or returns")
    known = bind_unbacked(half.form, {**symbols, **bind_symbols(half.form, inputs)}, inputs, trust)
    return run_graph(graph_module(half.form, known, trust), inputs), known


def read_by(
    backward: Half, forward: Half, inputs: tuple[Any, ...], ran: Execution, tangents: Sequence[Any],
    symbols: Mapping[str, Any],
) -> tuple[Any, ...]:
    """The inputs of a backward: inputs and results of the forward that `ran`, sizes, tangents."""
    kept = {**symbols, **dict(zip(_inputs(forward.cut), inputs)), **dict(zip(_returned(forward.cut), ran.outputs))}
    names = _inputs(backward.cut)
    own = names[: len(names) - len(tangents)]
    missing = [name for name in own if name not in kept]
    if missing:
        raise ReplayError(f"the recorded backward reads {', '.join(missing)}, which its forward does not return")
    return (*(kept[name] for name in own), *tangents)


def gradients_of(joint: Graph, results: int, ran: Execution) -> Iterator[Any]:
    """What a backward returns for each gradient of the joint graph, whose first `results` outputs are the forward's: a
    node comes once, None not at all."""
    places: dict[str, int] = {}
    for name in _returned(joint)[results:]:
        yield ran.outputs[places.setdefault(name, len(places))] if name else None


def _inputs(graph: Graph) -> list[str]:
    return [node.id for node in graph.nodes if node.op == "placeholder"]


def _returned(graph: Graph) -> list[str]:
    """The nodes that a graph returns; "" for what is none."""
    returned = graph.nodes[-1].args[0]
    return [value.node if isinstance(value, NodeRef) else "" for value in returned]
