"""Graphs with torch.cond, while_loop, scan, map, print: torch's own operators run, around graphs that are compiled.

The captured graph is split at each higher-order operator. What lies in between is compiled as separate graphs, and so
are the operator's functions where no gradients flow through it; which of them runs, and how often, is left to the
operator's dense implementation (torch/_higher_order_ops), called with compiled functions.
"""
from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.fx
from torch._ops import HigherOrderOperator
from torch.fx._lazy_graph_module import _LazyGraphModule

from ...artifacts.context import CompileContext
from ..graphs.functional_graph import Captured
from .segments import (
    Compile,
    Compiled,
    Node,
    captured_like,
    cut,
    in_parts,
    is_data,
    placed,
)

_FUNCTIONS = {"cond": 2, "while_loop": 2, "scan": 1, "map_impl": 1}
"""Operators whose functions may be any callables where no gradients flow, and how many functions they take."""


def takes_functions(node: Node) -> bool:
    """Whether the node is the call of such an operator."""
    return node.op == "call_function" and isinstance(node.target, HigherOrderOperator)


def _prints(nodes: Sequence[Node]) -> bool:
    node = nodes[0]
    return takes_functions(node) and node.target.name() == "print"  # type: ignore[union-attr]


def has_control_flow(captured: Captured) -> bool:
    """Whether the graph is to be cut."""
    return any(takes_functions(node) for node in captured.module.graph.nodes)


def compile_around(captured: Captured, context: CompileContext, compile_graph: Compile) -> Compiled:
    """The graph as a sequence of compiled parts and operators. Raises EngineUnsupported for one that cannot be cut."""

    def call_of(number: int, nodes: Sequence[Node], inputs: tuple[Node, ...], outputs: tuple[Node, ...]) -> Compiled:
        if takes_functions(nodes[0]):
            return _operator_call(captured, nodes[0], inputs, outputs, context, compile_graph, number)
        return compile_graph(cut(captured, nodes, inputs, outputs), context.for_part(f"segment_{number}"))

    return in_parts(captured, groups_of(captured.module.graph), call_of, _prints)


def groups_of(graph: torch.fx.Graph) -> list[list[Node]]:
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
    for place, function in enumerate([n for n in node.all_input_nodes if not is_data(n)]):
        module = getattr(captured.module, str(function.target))
        functions[function] = module
        if choice == "compiled" and not tracked:
            part = context.for_part(f"{name}_{number}_{place}", f"{function.name}.")
            functions[function] = _function(captured, module, part, compile_graph)
    results = [(output.args[1], _layout(output.meta["val"])) for output in outputs]

    def call(*given: Any) -> Sequence[Any]:
        values = {**functions, **dict(zip(inputs, given))}
        args, kwargs = torch.fx.node.map_arg((node.args, node.kwargs), values.__getitem__)
        if tracked:
            found = target(*args, **kwargs)
        else:
            with torch._C._AutoDispatchBelowAutograd():
                found = target(*args, **kwargs)
        return [as_traced(found[position]) for position, as_traced in results]

    return call


def _layout(traced: Any) -> Callable[[Any], Any]:
    """Gives a result of an operator the strides that it was traced with, which the graphs after it read it by: torch's
    rules for fake tensors need not know those of its dense implementation."""
    if not isinstance(traced, torch.Tensor) or traced.layout is not torch.strided:
        return lambda result: result
    hints = [step.node.hint if isinstance(step, torch.SymInt) else step for step in traced.stride()]
    order = sorted(range(traced.dim()), key=lambda dim: -(hints[dim] or 0))
    back = sorted(range(traced.dim()), key=order.__getitem__)
    fixed = all(type(number) is int for number in (*traced.shape, *traced.stride()))
    strides = traced.stride() if fixed else ()

    def as_traced(result: Any) -> Any:
        if fixed and result.shape == traced.shape:
            if all(n == 1 or step == own for n, step, own in zip(result.shape, strides, result.stride())):
                return result
            made = torch.empty_strided(result.shape, strides, dtype=result.dtype, device=result.device)
            return made.copy_(result)
        turned = result.permute(order)
        return result if turned.is_contiguous() else turned.contiguous().permute(back)

    return as_traced


def _function(captured: Captured, module: Any, context: CompileContext, compile_graph: Compile) -> Callable[..., Any]:
    """A function of the operator, compiled for tensors like those that it was traced with; others it takes in eager."""
    inputs = [node.meta["val"] for node in placed(module.graph)]
    sizes = [(*v.shape, *v.stride()) if isinstance(v, torch.Tensor) else (v,) for v in inputs]
    if any(type(n) is not int for size in sizes for n in size) or not all(isinstance(v, torch.Tensor) for v in inputs):
        return module
    one, whole = returning_a_tuple(module)
    compiled = compile_graph(captured_like(captured, whole, inputs), context)
    expected = [(v.shape, v.stride(), v.dtype) for v in inputs]

    def call(*given: Any) -> Any:
        if [(v.shape, v.stride(), v.dtype) for v in given] != expected:
            return module(*given)
        results = compiled(*given)
        return results[0] if one else tuple(results)

    return call


def returning_a_tuple(module: torch.fx.GraphModule) -> tuple[bool, torch.fx.GraphModule]:
    """(whether the graph returns one value as it is, the graph returning a tuple)."""
    result = module.graph.output_node().args[0]
    if not isinstance(result, Node):
        return False, module
    graph, copies = torch.fx.Graph(), dict[Node, Node]()
    copied = graph.graph_copy(module.graph, copies)
    graph.output((copied,))
    return True, _LazyGraphModule(dict(module.named_children()), graph)
