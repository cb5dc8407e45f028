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
from ..aot.control_flow import groups_of, returning_a_tuple, takes_functions
from ..aot.segments import captured_like, cut, inputs_of, is_data, needed_between, placed, refuse
from ..graphs.functional_graph import Captured
from ..runtime.entry import EntryFacts
from ..unsupported import EngineUnsupported
from .flow import COND, GRAPH, WHILE, Call, Flow, Graph, Step, over
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
        groups, inputs = groups_of(graph), placed(graph)
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
            found.append(Step(step.kind, step.graphs, step.inputs, step.places, tuple(sorted(here - later)),
                              step.carried))
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
        if facts is None or parts.folding is not None:
            raise EngineUnsupported("a graph with control flow is trained, or has weights that are packed")
        self.graphs.append(Graph(flow=parts.flow) if parts.flow else Graph(parts.call, uncounted=facts.uncounted))
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
            raise EngineUnsupported(f"a package has no {name}: it can have torch.cond and while_loop")
        why = "the wrapper of a package calls the compiled functions"
        self.context.decide("control-flow", f"{name}_{number}", ("compiled",), "compiled", why)
        functions, inputs, carried = _READ[name](node)
        if not all(isinstance(value, Node) and is_data(value) for value in inputs):
            raise EngineUnsupported(f"{name} is given a number or a constant: give it a tensor")
        graphs = tuple(self._function(number, place, node, function, [n.meta["val"] for n in inputs[name == COND:]],
                                      carried) for place, function in enumerate(functions))
        of_result: dict[Any, int] = {output.args[1]: self.places[output] for output in outputs}
        places = [of_result.get(k, -1) for k in range(max(of_result, default=-1) + 1)]
        return Step(name, graphs, tuple(self.places[n] for n in inputs), tuple(places), carried=carried)

    def _function(
        self, number: int, place: int, node: Node, function: Node, given: list[Any], carried: int
    ) -> int:
        """The number of the graph of one function of an operator."""
        name = f"{node.target.name()}_{number}_{place}"  # type: ignore[union-attr]
        module = getattr(self.captured.module, str(function.target))
        inputs = [n.meta["val"] for n in placed(module.graph)]
        what = f"{_ROLES[node.target.name(), place]} of {node.name}"  # type: ignore[union-attr]
        _check_alike(inputs, given, f"{what} is given a tensor")
        _, whole = returning_a_tuple(module)
        returned: Any = whole.graph.output_node().args[0]
        if not all(isinstance(value, Node) for value in returned):
            raise EngineUnsupported(f"{what} returns a constant: return a tensor")
        results = [value.meta["val"] for value in returned]
        if carried and place:
            _check_alike(results, given[:carried], f"{what} returns a tensor")
        elif not carried:
            _check_alike(results, node.meta["val"], f"{what} returns a tensor")
        part = self.context.for_part(name, f"{function.name}.")
        graph, facts = self._compiled(captured_like(self.captured, whole, inputs), part)
        if facts.written:
            raise EngineUnsupported(f"{what} writes to a tensor in place: return the new value")
        views = [k for k, value in enumerate(returned) if k not in facts.made and value.op != "placeholder"]
        if views:
            raise EngineUnsupported(f"{what} returns a view of a tensor that it is given: return a clone()")
        return graph


def _cond(node: Node) -> tuple[list[Node], list[Any], int]:
    """(functions, values, number of those that are carried)."""
    predicate, one, other, operands = node.args
    value = getattr(predicate, "meta", {}).get("val")
    if not isinstance(value, torch.Tensor) or value.dtype is not torch.bool:
        raise EngineUnsupported("the predicate of torch.cond is no tensor of dtype bool")
    return [one, other], [predicate, *operands], 0  # type: ignore[list-item, misc]


def _while(node: Node) -> tuple[list[Node], list[Any], int]:
    test, body, carried, rest = node.args
    return [test, body], [*carried, *rest], len(carried)  # type: ignore[list-item, misc, arg-type]


_READ = {COND: _cond, WHILE: _while}
_ROLES = {(COND, 0): "the true branch", (COND, 1): "the false branch", (WHILE, 0): "the condition",
          (WHILE, 1): "the body"}


def _check_alike(values: Sequence[Any], wanted: Sequence[Any], what: str) -> None:
    """Raise EngineUnsupported where one has another layout than it was traced with: graphs read memory by it."""
    for value, other in zip(values, wanted, strict=True):
        if isinstance(value, torch.Tensor) != isinstance(other, torch.Tensor):
            raise EngineUnsupported(f"{what} where another one is a number")
        if isinstance(value, torch.Tensor) and _layout(value) != _layout(other):
            raise EngineUnsupported(f"{what} of size {_shown(value.shape)} and strides {_shown(value.stride())}, not "
                                    f"{_shown(other.shape)} and {_shown(other.stride())}: use contiguous()")


def _layout(tensor: torch.Tensor) -> tuple[Any, ...]:
    return tensor.dtype, _shown(tensor.shape), _shown(tensor.stride())


def _shown(numbers: Sequence[Any]) -> str:
    return f"[{', '.join(map(str, numbers))}]"
