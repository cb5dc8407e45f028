"""A graph with control flow as data: graphs that are compiled, and the steps that call them on numbered values.

What Python does with it is here, what programs without Python do in `../package/native/ptdebug_graphs.h`. As in torch,
no result of an operator is one of the tensors that it was given.
"""
from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch

from ...dependencies import msgspec
from .half import FoldingPart, Half

Call = Callable[..., Sequence[Any]]

GRAPH, COND, WHILE, SCAN, MAP = "graph", "cond", "while_loop", "scan", "map_impl"


class Step(msgspec.Struct, frozen=True):
    """Calls of `graphs` (by number) on the values `inputs`; result `k` of `places[k]` becomes that value (-1: nobody
    needs it). Nothing needs the values `last` after it.

    A GRAPH is called on all of them; COND reads the first, and calls its first or second graph on the others; of a
    WHILE the first `carried` are what the second graph gives anew for as long as the first says so; SCAN and MAP call
    theirs for each row of the `sliced` that follow, and stack what it gives besides.
    """

    kind: str
    graphs: tuple[int, ...]
    inputs: tuple[int, ...]
    places: tuple[int, ...]
    last: tuple[int, ...] = ()
    carried: int = 0
    sliced: int = 0


class Graph(msgspec.Struct, frozen=True):
    """One graph of a flow: a wrapper with its kernels, or a flow of its own. `uncounted`: the inputs whose writes
    autograd does not count. `folding` makes further inputs of some (packed weights)."""

    half: Half | None = None
    flow: Flow | None = None
    uncounted: tuple[int, ...] = ()
    folding: FoldingPart | None = None


class Flow(msgspec.Struct, frozen=True):
    """The first of `values` are the graph's `inputs`; `results` are those that it returns."""

    inputs: int
    values: int
    graphs: tuple[Graph, ...]
    steps: tuple[Step, ...]
    results: tuple[int, ...]


def halves(flow: Flow) -> Iterator[Graph]:
    """Its graphs that are code, those inside of others in their place."""
    for graph in flow.graphs:
        if graph.flow is not None:
            yield from halves(graph.flow)
        else:
            yield graph


def with_halves(flow: Flow, change: Callable[[Half], Half]) -> Flow:
    """The flow with `change` of all its code, in the order of `halves`."""
    return msgspec.structs.replace(flow, graphs=tuple([
        msgspec.structs.replace(each, half=each.half and change(each.half),
                                flow=each.flow and with_halves(each.flow, change)) for each in flow.graphs]))


def callable_flow(flow: Flow, codes: Iterator[Call]) -> Call:
    """The flow as a function; `codes` are those of `halves`, in order."""
    return over(flow, [callable_flow(each.flow, codes) if each.flow is not None else next(codes)
                       for each in flow.graphs])


def over(flow: Flow, calls: Sequence[Call]) -> Call:
    """The flow as a function; `calls` are its graphs."""
    steps = [(_KINDS[step.kind], step, [calls[k] for k in step.graphs]) for step in flow.steps]

    def run(*inputs: Any) -> Sequence[Any]:
        values = [*inputs, *[None] * (flow.values - flow.inputs)]
        for call, step, graphs in steps:
            for place, result in zip(step.places, call(step, graphs, [values[k] for k in step.inputs])):
                if place >= 0:
                    values[place] = result
            for place in step.last:
                values[place] = None
        return [values[k] for k in flow.results]

    return run


def _graph(step: Step, graphs: Sequence[Call], given: list[Any]) -> Sequence[Any]:
    return graphs[0](*given)


def _cond(step: Step, graphs: Sequence[Call], given: list[Any]) -> Sequence[Any]:
    predicate, *operands = given
    return _of_its_own(graphs[0 if predicate else 1](*operands), operands)


def _while(step: Step, graphs: Sequence[Call], given: list[Any]) -> Sequence[Any]:
    carried: Sequence[Any] = given[:step.carried]
    rest = given[step.carried:]
    while graphs[0](*carried, *rest)[0]:
        carried = graphs[1](*carried, *rest)
    return _of_its_own(carried, given)


def _scan(step: Step, graphs: Sequence[Call], given: list[Any]) -> Sequence[Any]:
    end = step.carried + step.sliced
    carried: Sequence[Any] = given[:step.carried]
    count = len(given[step.carried])
    if not count:
        raise RuntimeError(f"a tensor without rows is given to {step.kind}")
    stacks: list[torch.Tensor] = []
    for row in range(count):
        results = graphs[0](*carried, *[value[row] for value in given[step.carried:end]], *given[end:])
        carried, rows = results[:step.carried], results[step.carried:]
        stacks = stacks or [value.new_empty((count, *value.shape)) for value in rows]
        for stack, value in zip(stacks, rows):
            stack[row].copy_(value)
    return [*_of_its_own(carried, given), *stacks]


def _of_its_own(results: Sequence[Any], given: Sequence[Any]) -> Sequence[Any]:
    """Copies of those results that were given, others as they are."""
    return [torch.empty_strided(value.shape, value.stride(), dtype=value.dtype, device=value.device).copy_(value)
            if any(value is each for each in given) else value for value in results]


_KINDS: dict[str, Callable[[Step, Sequence[Call], list[Any]], Sequence[Any]]] = {
    GRAPH: _graph, COND: _cond, WHILE: _while, SCAN: _scan, MAP: _scan}
