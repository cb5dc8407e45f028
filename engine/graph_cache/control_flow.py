"""Makes a `Flow` of a graph with torch.cond or while_loop, for a package: what lies between the operators, and their
functions, are compiled as graphs of their own.

`../aot/control_flow.py` does the same for a program that has torch's operators in Python. Here each function has to be
compiled, so what it is given and returns has to be laid out as it was traced.
"""
from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

from ...artifacts.context import CompileContext
from ...dependencies import msgspec
from ...operators.unbacked import unbacked_in
from ..aot.control_flow import groups_of, returning_a_tuple, takes_functions
from ..aot.segments import captured_like, cut, inputs_of, is_data, needed_between, placed, refuse, with_own_sizes
from ..graphs.functional_graph import Captured
from ..runtime.entry import EntryFacts
from ..unsupported import EngineUnsupported
from .flow import COND, GRAPH, MAP, SCAN, WHILE, Call, Flow, Graph, Step, over
from .half import Half
from .parts import MakeParts, Parts
from .values import Uncacheable

Compile = Callable[[Captured, CompileContext, Callable[[MakeParts], None]], Call]
Node = torch.fx.Node


def compile_as_flow(
    captured: Captured, context: CompileContext, compile_graph: Compile, keep: Callable[[MakeParts], None]
) -> Call:
    """Compile the graph; `keep` gets its flow. Raises EngineUnsupported for what has no such form."""
    made = _Flow(captured, context, compile_graph)
    flow = made.flow()
    facts = EntryFacts(tuple(range(len(flow.results))), tuple(sorted(made.written)))
    keep(lambda: Parts(Half("", {}), facts, flow=flow))
    return over(flow, made.calls)


@dataclass
class _Flow:
    """One flow while it is made."""

    captured: Captured
    context: CompileContext
    compile_graph: Compile
    graphs: list[Graph] = field(default_factory=list)
    calls: list[Call] = field(default_factory=list)
    steps: list[Step] = field(default_factory=list)
    written: set[int] = field(default_factory=set)  # inputs
    shared: set[int] = field(default_factory=set)  # values that may be views of others

    def flow(self) -> Flow:
        """All of it."""
        graph = self.captured.module.graph
        groups, inputs = with_own_sizes(graph, groups_of(graph)), placed(graph)
        needed = needed_between(groups)
        refuse(self.captured, needed)
        self.places = {node: place for place, node in enumerate(inputs)}
        for number, nodes in enumerate(groups):
            outputs = [node for node in nodes if node in needed]
            for node in outputs:
                self.places[node] = len(self.places)
            self.steps.append((self._operator if takes_functions(nodes[0]) else self._segment)(number, nodes, outputs))
        final: Any = graph.output_node().args[0]
        if not all(isinstance(value, Node) for value in final):
            raise EngineUnsupported("a graph with control flow returns a constant")
        results = tuple([self.places[value] for value in final])
        return Flow(len(inputs), len(self.places), tuple(self.graphs), tuple(self._with_ends(results)), results)

    def _with_ends(self, results: tuple[int, ...]) -> list[Step]:
        """The steps, each with the values that it is the last to need."""
        found, later = list[Step](), set(results)
        for step in reversed(self.steps):
            here = {place for place in (*step.inputs, *step.places) if place >= 0}
            found.append(msgspec.structs.replace(step, last=tuple(sorted(here - later))))
            later |= here
        return found[::-1]

    # ---- graphs
    def _compiled(self, captured: Captured, context: CompileContext) -> tuple[int, EntryFacts]:
        """The number of a graph, and what is known of it."""
        kept: list[MakeParts] = []
        call = self.compile_graph(captured, context, kept.append)
        if context.fallback or not kept:
            raise EngineUnsupported(context.fallback.partition("\n")[0] or "it is no graph of one device")
        try:
            parts = kept[0]()
        except Uncacheable as reason:
            raise EngineUnsupported(str(reason)) from None
        facts = parts.entry
        if facts is None:
            raise EngineUnsupported("a graph with control flow is trained")
        code = Graph(parts.call, uncounted=facts.uncounted, folding=parts.folding)
        self.graphs.append(code if parts.flow is None else Graph(flow=parts.flow))
        self.calls.append(call)
        return len(self.graphs) - 1, facts

    def _segment(self, number: int, nodes: Sequence[Node], outputs: Sequence[Node]) -> Step:
        """What lies between two operators."""
        inputs = inputs_of(nodes)
        part = self.context.for_part(f"segment_{number}")
        graph, facts = self._compiled(cut(self.captured, nodes, inputs, outputs), part)
        given = [self.places[node] for node in inputs]
        if facts.written and any(place in self.shared for place in given):
            raise EngineUnsupported("a view made before a control-flow operator is read beside a write after it")
        own = len(placed(self.captured.module.graph))
        if any(given[k] >= own for k in facts.written):
            raise EngineUnsupported("what is made before a control-flow operator is written after it")
        self.written |= {given[k] for k in facts.written}
        places = [self.places[node] for node in outputs]
        self.shared |= {place for k, place in enumerate(places) if k not in facts.made}
        return Step(GRAPH, (graph,), tuple(given), tuple(places))

    # ---- operators
    def _operator(self, number: int, nodes: Sequence[Node], outputs: Sequence[Node]) -> Step:
        """A control-flow operator: its functions as graphs."""
        node = nodes[0]
        name = node.target.name()  # type: ignore[union-attr]
        if name not in _READ or any(node.kwargs.values()):
            raise EngineUnsupported(f"a package has no {name}: it can have torch.cond, while_loop, scan and map")
        why = "the wrapper of a package calls the compiled functions"
        self.context.decide("control-flow", f"{name}_{number}", ("compiled",), "compiled", why)
        call = _READ[name](node)
        if not all(isinstance(value, Node) and is_data(value) for value in call.inputs):
            raise EngineUnsupported(f"{name} is given a number or a constant: give it a tensor")
        graphs = tuple([self._function(number, place, node, call) for place in range(len(call.functions))])
        of_result: dict[Any, int] = {output.args[1]: self.places[output] for output in outputs}
        places = [of_result.get(k, -1) for k in range(max(of_result, default=-1) + 1)]
        inputs = [self.places[value] for value in call.inputs]
        return Step(name, graphs, tuple(inputs), tuple(places), carried=call.carried, sliced=call.sliced)

    def _function(self, number: int, place: int, node: Node, call: _Operator) -> int:
        """The number of the graph of one function of an operator."""
        name = node.target.name()  # type: ignore[union-attr]
        function, what = call.functions[place], f"{call.roles[place]} of {node.name}"
        module = getattr(self.captured.module, str(function.target))
        inputs = [n.meta["val"] for n in placed(module.graph)]
        _check_alike(inputs, call.given(), f"{what} is given a tensor")
        _, whole = returning_a_tuple(module)
        returned: Any = whole.graph.output_node().args[0]
        if not all(isinstance(value, Node) for value in returned):
            raise EngineUnsupported(f"{what} returns a constant: return a tensor")
        if name != WHILE or place:
            results = [value.meta["val"] for value in returned]
            wanted = node.meta["val"] if name == COND else call.given()[:call.carried]
            _check_alike(results[:len(wanted)], wanted, f"{what} returns a tensor")
        part = self.context.for_part(f"{name}_{number}_{place}", f"{function.name}.")
        graph, facts = self._compiled(captured_like(self.captured, whole, inputs), part)
        if facts.written:
            raise EngineUnsupported(f"{what} writes to a tensor in place: return the new value")
        rows = placed(whole.graph)[call.carried:call.carried + call.sliced]
        views = [value for k, value in enumerate(returned) if k not in facts.made and value.op != "placeholder"]
        if views or any(value in rows for value in returned[:call.carried]):
            raise EngineUnsupported(f"{what} returns a view of a tensor that it is given: return a clone()")
        return graph


@dataclass(frozen=True)
class _Operator:
    """The call of an operator: its functions with their roles, its values, and how many of them are as in `Step`."""

    functions: list[Any]
    roles: tuple[str, ...]
    inputs: list[Any]
    carried: int = 0
    sliced: int = 0
    apart: int = 0  # of the values, those that the functions do not get

    def given(self) -> list[Any]:
        """The fake values that its functions are called with."""
        values, end = [node.meta["val"] for node in self.inputs[self.apart:]], self.carried + self.sliced
        return [*values[:self.carried], *[v.select(0, 0) for v in values[self.carried:end]], *values[end:]]


def _cond(node: Node) -> _Operator:
    predicate, one, other, operands = node.args
    value = getattr(predicate, "meta", {}).get("val")
    if not isinstance(value, torch.Tensor) or value.dtype is not torch.bool:
        raise EngineUnsupported("the predicate of torch.cond is no tensor of dtype bool")
    values: Any = operands
    return _Operator([one, other], ("the true branch", "the false branch"), [predicate, *values], apart=1)


def _while(node: Node) -> _Operator:
    arguments: Any = node.args
    test, body, carried, rest = arguments
    return _Operator([test, body], ("the condition", "the body"), [*carried, *rest], len(carried))


def _scan(node: Node) -> _Operator:
    arguments: Any = node.args
    function, carried, rows, rest = arguments
    return _Operator([function], ("the function",), [*carried, *rows, *rest], len(carried), len(rows))


def _map(node: Node) -> _Operator:
    arguments: Any = node.args
    function, rows, rest = arguments
    return _Operator([function], ("the function",), [*rows, *rest], 0, len(rows))


_READ = {COND: _cond, WHILE: _while, SCAN: _scan, MAP: _map}


def _check_alike(values: Sequence[Any], wanted: Sequence[Any], what: str) -> None:
    """Raise EngineUnsupported where one has another layout than it was traced with: graphs read memory by it."""
    for value, other in zip(values, wanted, strict=True):
        if isinstance(value, torch.Tensor) != isinstance(other, torch.Tensor):
            raise EngineUnsupported(f"{what} where another one is a number")
        if isinstance(value, torch.Tensor) and not _is_alike(value, other):
            shape, stride = map(_shown, (value.shape, value.stride()))
            raise EngineUnsupported(f"{what} of {value.dtype}, size {shape} and strides {stride}, not {other.dtype}, "
                                    f"{_shown(other.shape)} and {_shown(other.stride())}: use contiguous()")


def _is_alike(tensor: torch.Tensor, other: torch.Tensor) -> bool:
    """Whether the first has the layout of the other, as far as that does not depend on data."""
    pairs = zip((*tensor.shape, *tensor.stride()), (*other.shape, *other.stride()))
    same = tensor.dtype is other.dtype and tensor.dim() == other.dim()
    return same and all(str(a) == str(b) or unbacked_in(b) for a, b in pairs)


def _shown(numbers: Sequence[Any]) -> str:
    return f"[{', '.join(map(str, numbers))}]"
