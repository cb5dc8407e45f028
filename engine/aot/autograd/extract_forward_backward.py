"""Splits a partitioned joint graph into forward and backward, and orders the backward.

Recomputation is placed right before its first use in the backward, so that its values are not held for long; everything
else keeps autograd's order.
"""
from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

import sympy
import torch
import torch.fx
from torch.fx._lazy_graph_module import _LazyGraphModule

from ....artifacts.fx_graphs import keep_record
from ....operators.unbacked import needed, unbacked_in
from ...graphs.autograd_graphs import BACKWARD, JointGraph
from ...graphs.functional_graph import AtenGraph, Constant, FromGraph, FromInput, Output
from ...passes.dead_code import must_run
from ...unsupported import EngineUnsupported
from .min_cut import Cut, Node, Region, ancestors, outputs_of


def split(region: Region, cut: Cut) -> tuple[AtenGraph, AtenGraph, dict[str, Any], dict[str, Any]]:
    """(forward, backward, sizes, numbers): the forward returns `cut.saved`, then `sizes`, then `numbers` after its own
    results.

    `sizes` maps names of placeholders of the backward to sizes and numbers that cannot be read off its tensors,
    `numbers` the unbacked ones in the results of the captured graph. Raises EngineUnsupported where a size of the
    backward is known only when it runs.
    """
    joint = region.joint
    backward, sizes = _backward(region, cut)
    numbers = {str(symbol): _number(joint, symbol) for symbol in _told_to_the_program(joint)}
    forward = _forward(region, cut, (*sizes.values(), *numbers.values()))
    return forward, _with_inputs(backward, joint), sizes, numbers


def _forward(region: Region, cut: Cut, numbers: tuple[Any, ...]) -> AtenGraph:
    joint = region.joint
    source = joint.module.graph
    results: Any = source.output_node().args[0]
    returned = results[: joint.forward_outputs]
    copy = _Copy()
    placeholders = list(source.find_nodes(op="placeholder"))
    tangents = placeholders[len(joint.forward.inputs):]
    for node in placeholders[: len(joint.forward.inputs)]:
        copy.node(node)
    effects = [n for n in source.nodes if n.op == "call_function" and must_run(n) and n.meta.get("phase") != BACKWARD]
    roots = [*[n for n in returned if isinstance(n, Node)], *cut.saved, *effects]
    wanted = _with_tellers([n for n in source.nodes if n not in tangents], roots, numbers)
    for node in source.nodes:
        if node in wanted and node.op != "placeholder":
            copy.node(node)
    values = [copy.made.get(n, n) for n in returned]
    first = len(joint.forward.mutations)  # before it: new values of inputs, which the program does not get as such
    outputs: list[Output] = [FromGraph(k) for k in range(first, len(values))]
    inputs = {n: i for i, n in enumerate(placeholders)}
    places = {value: k for k, value in reversed(list(enumerate(values))) if isinstance(value, Node) and k >= first}
    for node in cut.saved:
        if node in inputs:
            outputs.append(FromInput(inputs[node]))
            continue
        made = copy.made[node]
        if made not in places:
            places[made] = len(values)
            values.append(made)
        outputs.append(FromGraph(places[made], saved=True))
    outputs += [Constant(number) for number in numbers]
    copy.graph.output(tuple(values))
    module = _LazyGraphModule(joint.module, copy.graph, "Forward")
    forward = joint.forward
    return AtenGraph(module, forward.inputs, forward.mutations, tuple(outputs), further=forward.further)


def _with_tellers(known: Iterable[Node], nodes: list[Node], numbers: tuple[Any, ...]) -> set[Node]:
    """`nodes`, what they are made of, and who of those `known` tells `numbers` and those that any of these mention:
    `x > zuf0` has the number among its arguments, not the node of the `.item()` that gives it."""
    tellers: dict[sympy.Symbol, Node] = {}
    for node in known:
        value = node.meta.get("val")
        if not isinstance(value, (tuple, list)):  # of several results, the part tells it that has the size
            for symbol in unbacked_in(value):
                tellers.setdefault(symbol, node)
    found = ancestors(nodes)
    returned = unbacked_in(numbers)
    while tellers and (more := {tellers[s] for s in needed(found) | returned if s in tellers} - found):
        found |= ancestors(list(more))
    return found


def _backward(region: Region, cut: Cut) -> tuple[torch.fx.Graph, dict[str, Any]]:
    joint = region.joint
    source = joint.module.graph
    given = dict.fromkeys(cut.saved)
    tangents = list(source.find_nodes(op="placeholder"))[len(joint.forward.inputs):]
    results: Any = source.output_node().args[0]
    gradients = results[joint.forward_outputs :]
    body = list(_in_order(region, given, tangents))
    told = (*given, *(tangents if len(tangents) == 1 else ()))  # one of several tangents may be None when it runs
    sizes = _sizes(joint, told, [*tangents, *body])
    copy = _Copy()
    for node in given:
        copy.placeholder(node)
    for name, size in sizes.items():
        copy.graph.placeholder(name).meta["val"] = size
    for node in (*tangents, *body):
        copy.node(node)
    copy.graph.output(tuple(copy.made[g] if isinstance(g, Node) else g for g in gradients))
    return copy.graph, sizes


def _with_inputs(graph: torch.fx.Graph, joint: JointGraph) -> AtenGraph:
    """The backward as an AtenGraph of its own, whose results are the gradients (None where there is none)."""
    inputs = tuple(n.meta["val"] for n in graph.find_nodes(op="placeholder"))
    gradients: Any = graph.output_node().args[0]
    made: dict[Node, Output] = {}  # one node is one tensor: autograd must know that two inputs get the same one
    outputs: list[Output] = []
    values: list[Node] = []
    for gradient in gradients:
        if not isinstance(gradient, Node):
            outputs.append(Constant(gradient))
            continue
        if gradient not in made:
            made[gradient] = FromGraph(len(values))
            values.append(gradient)
        outputs.append(made[gradient])
    graph.output_node().args = (tuple(values),)
    module = _LazyGraphModule(joint.module, graph, "Backward")
    return AtenGraph(module, inputs, {}, tuple(outputs), len(inputs) - len(joint.tangents))


class _Copy:
    """A graph that is being copied from another; names and metadata stay."""

    def __init__(self) -> None:
        self.graph = torch.fx.Graph()
        self.made: dict[Node, Node] = {}
        self._same_names = True  # so far

    def node(self, node: Node) -> None:
        """Copy one node, whose arguments are there."""
        made = self.graph.create_node(node.op, node.target, name=node.name)
        load: Callable[[Node], Node] = self.made.__getitem__
        # Set afterwards: torch warns of SymInts among the arguments of a new node. Here they are sizes.
        made.args, made.kwargs = torch.fx.node.map_arg(node.args, load), torch.fx.node.map_arg(node.kwargs, load)
        made.meta = dict(node.meta)
        self.made[node] = made
        if self._same_names and made.name == node.name:
            keep_record(node, made)
        else:
            self._same_names = False

    def placeholder(self, node: Node) -> None:
        """A placeholder for the value of `node`."""
        made = self.graph.placeholder(node.name)
        made.meta = {k: v for k, v in node.meta.items() if k != "record"}
        self.made[node] = made
        self._same_names &= made.name == node.name


def _in_order(region: Region, given: Iterable[Node], tangents: list[Node]) -> Iterator[Node]:
    """The nodes of the backward: each as late as its first reader allows, those that read a tangent in order."""
    done = {*given, *tangents}
    _, gradients = outputs_of(region.joint)
    ends = [n for n in region.joint.module.graph.nodes if n in region.backward and n not in done]
    for end in (*ends, *gradients):
        stack = [end]
        while stack:
            node = stack[-1]
            waiting = [n for n in node.all_input_nodes if n not in done]
            if node in done:
                stack.pop()
            elif waiting:
                stack += reversed(waiting)
            else:
                stack.pop()
                done.add(node)
                yield node


# ---- sizes that vary -------------------------------------------------------------------------------------------------
def _sizes(joint: JointGraph, inputs: tuple[Node, ...], body: list[Node]) -> dict[str, Any]:
    """Sizes that the backward uses and that cannot be read off its tensors: name -> SymInt."""
    told = any(unbacked_in(node.meta.get("val")) for node in joint.module.graph.nodes)
    if not told and not any(True for _ in _expressions(joint.forward.inputs)):
        return {}
    known: set[sympy.Symbol] = set()
    for node in inputs:
        known.update(e for e in _expressions(node.meta.get("val")) if isinstance(e, sympy.Symbol))
    used: dict[sympy.Symbol, None] = {}
    for node in (*inputs, *body):
        for value in (node.meta.get("val"), node.args, node.kwargs):
            for expression in _expressions(value):
                used.update(dict.fromkeys(sorted(expression.free_symbols, key=str)))
    missing = [s for s in used if s not in known]
    return {str(symbol): _number(joint, symbol) for symbol in missing}


def _number(joint: JointGraph, symbol: sympy.Symbol) -> Any:
    """The SymInt or SymFloat of a symbol, as the forward's inputs have it, or what the forward computes."""
    made = [node.meta.get("val") for node in joint.module.graph.nodes if node.meta.get("phase") != BACKWARD]
    for value in (*joint.forward.inputs, *made):
        numbers = (*value.shape, *value.stride()) if _is_strided(value) else (value,)
        for number in numbers:
            if isinstance(number, (torch.SymInt, torch.SymFloat)) and number.node.expr == symbol:
                return number
            if isinstance(number, torch.SymBool) and symbol in number.node.expr.free_symbols:  # u0 == 1
                return number.node.shape_env.create_symintnode(symbol, hint=None)
    raise EngineUnsupported(f"the size {symbol} in the backward is known only when the backward runs")


def _told_to_the_program(joint: JointGraph) -> list[sympy.Symbol]:
    """The unbacked symbols in the results of the captured graph, but for sizes of what the graph returns."""
    wanted = unbacked_in([list(vars(output).values()) for output in joint.forward.outputs])
    returned: Any = joint.module.graph.output_node().args[0]
    for node in returned[len(joint.forward.mutations) : joint.forward_outputs]:
        value = node.meta.get("val") if isinstance(node, Node) else None
        wanted.difference_update(_expressions(tuple(value.shape)) if isinstance(value, torch.Tensor) else ())
    return sorted(wanted, key=str)


def _is_strided(value: Any) -> bool:
    return isinstance(value, torch.Tensor) and value.layout is torch.strided


def _expressions(value: Any) -> Iterator[Any]:
    """The expressions in a tree of arguments, or in the metadata of tensors."""
    if isinstance(value, (torch.SymInt, torch.SymFloat, torch.SymBool)):
        yield value.node.expr
    elif isinstance(value, torch.Tensor):
        if value.layout is torch.strided:
            yield from _expressions((*value.shape, *value.stride()))
    elif isinstance(value, (tuple, list)):
        for item in value:
            yield from _expressions(item)
    elif isinstance(value, dict):
        yield from _expressions(tuple(value.values()))
