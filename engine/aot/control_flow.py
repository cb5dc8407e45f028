"""Graphs with torch.cond, while_loop, scan, map, print: torch's own operators run, around graphs that are compiled.

The captured graph is split at each higher-order operator. What lies in between is compiled as separate graphs, and so
are the operator's functions where no gradients flow through it; which of them runs, and how often, is left to the
operator's dense implementation (torch/_higher_order_ops), called with compiled functions.
"""
from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
import torch.fx
from torch._ops import HigherOrderOperator
from torch.fx._lazy_graph_module import _LazyGraphModule

from ...artifacts.context import CHANGED_INPUTS, CompileContext
from ..graphs.functional_graph import Captured
from ..unsupported import EngineUnsupported

Compiled = Callable[..., Sequence[Any]]
Compile = Callable[[Captured, CompileContext], Compiled]
Node = torch.fx.Node

_FUNCTIONS = {"cond": 2, "while_loop": 2, "scan": 1, "map_impl": 1}
"""Operators whose functions may be any callables where no gradients flow, and how many functions they take."""


def takes_functions(node: Node) -> bool:
    """Whether the node is the call of such an operator."""
    return node.op == "call_function" and isinstance(node.target, HigherOrderOperator)


def _prints(node: Node) -> bool:
    return takes_functions(node) and node.target.name() == "print"  # type: ignore[union-attr]


def has_control_flow(captured: Captured) -> bool:
    """Whether the graph is to be cut."""
    return any(takes_functions(node) for node in captured.module.graph.nodes)


@dataclass(frozen=True)
class Step:
    """`outputs` are the values of `call` on `inputs`; nobody needs those of `last` after it. `prints`: so that it must
    not run again."""

    inputs: tuple[Node, ...]
    outputs: tuple[Node, ...]
    call: Compiled
    last: tuple[Node, ...]
    prints: bool


def compile_around(captured: Captured, context: CompileContext, compile_graph: Compile) -> Compiled:
    """The graph as a sequence of compiled parts and operators. Raises EngineUnsupported for one that cannot be cut."""
    graph = captured.module.graph
    groups = _groups(graph)
    needed = _needed(groups)
    _refuse(captured, needed)
    steps = []
    for number, nodes in enumerate(groups):
        inputs = _inputs(nodes)
        outputs = tuple([node for node in nodes if node in needed])
        if takes_functions(nodes[0]):
            call = _operator_call(captured, nodes[0], inputs, outputs, context, compile_graph, number)
        else:
            part = _cut(captured, nodes, inputs, outputs)
            call = compile_graph(part, context.for_part(f"segment_{number}"))
        steps.append((inputs, outputs, call, _prints(nodes[0])))
    final: Any = graph.output_node().args[0]
    return _sequence(_placed(graph), tuple(_with_ends(steps, set(graph.output_node().all_input_nodes))), final)


# ---- cutting ---------------------------------------------------------------------------------------------------------
def _placed(graph: torch.fx.Graph) -> list[Node]:
    return [node for node in graph.nodes if node.op == "placeholder"]


def _is_data(node: Node) -> bool:
    return node.op != "get_attr"


def _groups(graph: torch.fx.Graph) -> list[list[Node]]:
    """The nodes that are computed, in order: each operator that takes functions, with its results, and runs of others.
    """
    groups: list[list[Node]] = []
    of_operator: dict[Node, list[Node]] = {}
    open_group: list[Node] = []
    for node in graph.nodes:
        if node.op in ("placeholder", "get_attr", "output"):
            continue
        if takes_functions(node):
            groups += [open_group] if open_group else []
            open_group = []
            of_operator[node] = [node]
            groups.append(of_operator[node])
        elif node.target is operator.getitem and node.args[0] in of_operator:
            of_operator[node.args[0]].append(node)
        else:
            open_group.append(node)
    return [*groups, open_group] if open_group else groups


def _inputs(nodes: Sequence[Node]) -> tuple[Node, ...]:
    """The values that a group needs from before."""
    own = set(nodes)
    needed = [given for node in nodes for given in node.all_input_nodes if given not in own and _is_data(given)]
    return tuple(dict.fromkeys(needed))


def _needed(groups: Sequence[Sequence[Node]]) -> set[Node]:
    """The values that one group computes and another, or the caller, needs."""
    group = {node: number for number, nodes in enumerate(groups) for node in nodes}
    return {node for node in group if any(group.get(user, -1) != group[node] for user in node.users)}


def _refuse(captured: Captured, needed: set[Node]) -> None:
    for node in captured.module.graph.nodes:
        value = node.meta.get("val")
        if node.op == "placeholder":
            known = node.meta.get("autograd")
            if isinstance(value, torch.Tensor) and known is not None and known[0] != value.requires_grad:
                raise EngineUnsupported("autograd tracks an in-place write to an input of a graph with control flow")
        elif node.op == "output" or not _is_data(node):
            continue
        elif "val" not in node.meta or "checkpoint" in node.meta:
            raise EngineUnsupported("modes or checkpointed functions in a graph with control flow")
        elif node in needed and not isinstance(value, torch.Tensor):
            raise EngineUnsupported(f"{node.name}, which is not a tensor, is used across a control-flow operator")
        elif node in needed and (value.is_inference() or value._version):
            raise EngineUnsupported(f"{node.name}, which is changed in place, is used across a control-flow operator")


def _cut(captured: Captured, nodes: Sequence[Node], inputs: Sequence[Node], outputs: Sequence[Node]) -> Captured:
    """A run of nodes as a graph of its own."""
    graph = torch.fx.Graph()
    copies: dict[Node, Node] = {}
    for node in inputs:
        copies[node] = own = graph.placeholder(node.name)
        own.meta = dict(node.meta)
        value = node.meta["val"]
        if node.op != "placeholder":
            own.meta["autograd"] = value.requires_grad, value.is_leaf
    modules: dict[str, Any] = {}
    for node in nodes:
        for function in node.all_input_nodes:
            if not _is_data(function):
                modules[str(function.target)] = getattr(captured.module, str(function.target))
                copies[function] = graph.node_copy(function)
        copies[node] = graph.node_copy(node, copies.__getitem__)
    graph.output(tuple([copies[node] for node in outputs]))
    return _captured(captured, _LazyGraphModule(modules, graph), [node.meta["val"] for node in inputs])


def _captured(around: Captured, module: torch.fx.GraphModule, inputs: Sequence[Any]) -> Captured:
    names = tuple([node.name for node in _placed(module.graph)])
    return replace(around, module=module, inputs=tuple(inputs), input_names=names)  # type: ignore[type-var]


# ---- running ---------------------------------------------------------------------------------------------------------
def _with_ends(steps: Sequence[tuple[Any, Any, Compiled, bool]], kept: set[Node]) -> list[Step]:
    """The steps, each with the values that it is the last to need."""
    found: list[Step] = []
    later = set(kept)
    for inputs, outputs, call, prints in reversed(steps):
        found.append(Step(inputs, outputs, call, tuple([n for n in (*inputs, *outputs) if n not in later]), prints))
        later.update(inputs)
    return found[::-1]


def _sequence(placed: Sequence[Node], steps: Sequence[Step], final: Any) -> Compiled:
    def run(*inputs: Any) -> Sequence[Any]:
        values, printed = dict(zip(placed, inputs)), False
        del inputs
        for step in steps:
            try:
                results = step.call(*[values[node] for node in step.inputs])
            except Exception as error:
                if printed:
                    setattr(error, CHANGED_INPUTS, True)
                raise
            printed = printed or step.prints
            values.update(zip(step.outputs, results))
            del results
            for node in step.last:
                values.pop(node, None)
        return torch.fx.node.map_arg(final, values.__getitem__)

    return run


def _operator_call(
    captured: Captured, node: Node, inputs: tuple[Node, ...], outputs: tuple[Node, ...], context: CompileContext,
    compile_graph: Compile, number: int,
) -> Compiled:
    """The operator on the values of its inputs, with compiled functions where it has no gradients to pass on."""
    target: Any = node.target
    name = target.name()
    tracked = any(isinstance(v, torch.Tensor) and v.requires_grad for v in (n.meta["val"] for n in inputs))
    why = "gradients flow through it" if tracked else "torch's dense implementation calls the compiled functions"
    default = "eager" if tracked or name not in _FUNCTIONS else "compiled"
    choice = context.decide("control-flow", f"{name}_{number}", ("compiled", "eager"), default, why)
    functions: dict[Node, Any] = {}
    for place, function in enumerate([n for n in node.all_input_nodes if not _is_data(n)]):
        module = getattr(captured.module, str(function.target))
        functions[function] = module
        if choice == "compiled" and not tracked:
            part = context.for_part(f"{name}_{number}_{place}", f"{function.name}.")
            functions[function] = _function(captured, module, part, compile_graph)
    positions = [output.args[1] for output in outputs]

    def call(*given: Any) -> Sequence[Any]:
        values = {**functions, **dict(zip(inputs, given))}
        args, kwargs = torch.fx.node.map_arg((node.args, node.kwargs), values.__getitem__)
        if tracked:
            found = target(*args, **kwargs)
        else:
            with torch._C._AutoDispatchBelowAutograd():
                found = target(*args, **kwargs)
        return [found[position] for position in positions]

    return call


def _function(captured: Captured, module: Any, context: CompileContext, compile_graph: Compile) -> Callable[..., Any]:
    """A function of the operator, compiled for tensors like those that it was traced with; others it takes in eager."""
    inputs = [node.meta["val"] for node in _placed(module.graph)]
    sizes = [(*v.shape, *v.stride()) if isinstance(v, torch.Tensor) else (v,) for v in inputs]
    if any(type(n) is not int for size in sizes for n in size) or not all(isinstance(v, torch.Tensor) for v in inputs):
        return module
    one, whole = _returning_a_tuple(module)
    compiled = compile_graph(_captured(captured, whole, inputs), context)
    expected = [(v.shape, v.stride(), v.dtype) for v in inputs]

    def call(*given: Any) -> Any:
        if [(v.shape, v.stride(), v.dtype) for v in given] != expected:
            return module(*given)
        results = compiled(*given)
        return results[0] if one else tuple(results)

    return call


def _returning_a_tuple(module: torch.fx.GraphModule) -> tuple[bool, torch.fx.GraphModule]:
    """(whether the graph returns one value as it is, the graph returning a tuple)."""
    result = module.graph.output_node().args[0]
    if not isinstance(result, Node):
        return False, module
    graph, copies = torch.fx.Graph(), dict[Node, Node]()
    copied = graph.graph_copy(module.graph, copies)
    graph.output((copied,))
    return True, _LazyGraphModule(dict(module.named_children()), graph)
