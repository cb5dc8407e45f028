"""A captured graph as a sequence of parts: each is compiled as a graph of its own, or called; values go from one to the
next. `control_flow.py` cuts at torch's higher-order operators, `ddp_buckets.py` where gradients are sent.
"""
from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from operator import itemgetter
from typing import Any

import torch
import torch.fx
from torch._ops import HigherOrderOperator
from torch.fx._lazy_graph_module import _LazyGraphModule

from ...artifacts.context import CHANGED_INPUTS, CompileContext
from ..graphs.functional_graph import BETWEEN_PARTS, Captured
from ..unsupported import EngineUnsupported

Compiled = Callable[..., Sequence[Any]]
Compile = Callable[[Captured, CompileContext], Compiled]
Node = torch.fx.Node


@dataclass(frozen=True)
class Step:
    """`outputs` are the values of `call` on `inputs`; nobody needs those of `last` after it. `prints`: so that it must
    not run again."""

    inputs: tuple[Node, ...]
    outputs: tuple[Node, ...]
    call: Compiled
    last: tuple[Node, ...]
    prints: bool


CallOf = Callable[[int, Sequence[Node], tuple[Node, ...], tuple[Node, ...]], Compiled]
"""Gives what runs a part: of its number, its nodes, the values that it needs and those that it gives."""


def in_parts(
    captured: Captured, groups: Sequence[Sequence[Node]], call_of: CallOf,
    prints: Callable[[Sequence[Node]], bool] = lambda nodes: False,
) -> Compiled:
    """The graph as the sequence of its `groups`. Raises EngineUnsupported for one that cannot be cut there."""
    groups = with_own_sizes(captured.module.graph, groups)
    needed, steps = needed_between(groups), []
    refuse(captured, needed)
    for number, nodes in enumerate(groups):
        inputs, outputs = inputs_of(nodes), tuple([node for node in nodes if node in needed])
        steps.append((inputs, outputs, call_of(number, nodes, inputs, outputs), prints(nodes)))
    output = captured.module.graph.output_node()
    final: Any = output.args[0]
    return sequence(placed(captured.module.graph), tuple(with_ends(steps, set(output.all_input_nodes))), final)


def placed(graph: torch.fx.Graph) -> list[Node]:
    return [node for node in graph.nodes if node.op == "placeholder"]


def is_data(node: Node) -> bool:
    return node.op != "get_attr"


def inputs_of(nodes: Sequence[Node]) -> tuple[Node, ...]:
    """The values that a group needs from before."""
    own = set(nodes)
    needed = [given for node in nodes for given in node.all_input_nodes if given not in own and is_data(given)]
    return tuple(dict.fromkeys(needed))


def needed_between(groups: Sequence[Sequence[Node]]) -> set[Node]:
    """The values that one group computes and another, or the caller, needs."""
    group = {node: number for number, nodes in enumerate(groups) for node in nodes}
    return {node for node in group if any(group.get(user, -1) != group[node] for user in node.users)}


def with_own_sizes(graph: torch.fx.Graph, groups: Sequence[Sequence[Node]]) -> list[list[Node]]:
    """The groups, where each computes for itself the numbers that it needs of sizes; not so an operator that takes
    functions, which comes first in its group."""
    home = {node: number for number, nodes in enumerate(groups) for node in nodes}
    found = []
    for number, nodes in enumerate(groups):
        copies: dict[Node, Node] = {}
        if nodes and not isinstance(nodes[0].target, HigherOrderOperator):
            for node in nodes:
                for given in node.all_input_nodes:
                    own = _own_number(given, number, home, copies, nodes[0])
                    if own is not given:
                        node.replace_input_with(given, own)
        found.append([*copies.values(), *nodes])
    return found


def _own_number(node: Node, group: int, home: dict[Node, int], copies: dict[Node, Node], first: Node) -> Node:
    """What represents `node` in a group: a copy before its `first` node of a number that another group computes."""
    if home.get(node, group) == group or not _is_of_sizes(node):
        return node
    if node not in copies:
        given = {each: _own_number(each, group, home, copies, first) for each in node.all_input_nodes}
        with first.graph.inserting_before(first):
            copies[node] = first.graph.node_copy(node, given.__getitem__)
    return copies[node]


def _is_of_sizes(node: Node) -> bool:
    """Whether a node computes a number from sizes, or from such numbers."""
    if isinstance(node.meta.get("val"), torch.Tensor) or node.op != "call_function":
        return False
    return node.target in _READING_SIZES or getattr(node.target, "__module__", "") in _OF_NUMBERS


_READING_SIZES = (torch.ops.aten.sym_size.int, torch.ops.aten.sym_stride.int, torch.ops.aten.sym_numel.default)
_OF_NUMBERS = ("_operator", "math", "torch.fx.experimental.symbolic_shapes")


def refuse(captured: Captured, needed: set[Node]) -> None:
    """Raise EngineUnsupported for what cannot go from one group to another."""
    for node in captured.module.graph.nodes:
        value = node.meta.get("val")
        if node.op == "placeholder":
            known = node.meta.get("autograd")
            if isinstance(value, torch.Tensor) and known is not None and known[0] != value.requires_grad:
                raise EngineUnsupported("autograd tracks an in-place write to an input of a graph with control flow")
        elif node.op == "output" or not is_data(node):
            continue
        elif "val" not in node.meta or "checkpoint" in node.meta:
            raise EngineUnsupported("modes or checkpointed functions in a graph with control flow")
        elif node in needed and not isinstance(value, torch.Tensor):
            if _is_of_sizes(node) and isinstance(value, (int, torch.SymInt)):
                continue  # others than operators that take functions, and the caller, have their own
            raise EngineUnsupported(f"{node.name}, which is not a tensor, is used across a control-flow operator")
        elif node in needed and (value.is_inference() or value._version):
            raise EngineUnsupported(f"{node.name}, which is changed in place, is used across a control-flow operator")


def cut(captured: Captured, nodes: Sequence[Node], inputs: Sequence[Node], outputs: Sequence[Node]) -> Captured:
    """A run of nodes as a graph of its own; it says which of its results only other parts get."""
    graph = torch.fx.Graph()
    copies: dict[Node, Node] = {}
    for node in inputs:
        copies[node] = own = graph.placeholder(node.name)
        own.meta = dict(node.meta)
        value = node.meta["val"]
        if node.op != "placeholder" and isinstance(value, torch.Tensor):
            own.meta["autograd"] = value.requires_grad, value.is_leaf
    modules: dict[str, Any] = {}
    for node in nodes:
        for function in node.all_input_nodes:
            if not is_data(function):
                modules[str(function.target)] = getattr(captured.module, str(function.target))
                copies[function] = graph.node_copy(function)
        copies[node] = graph.node_copy(node, copies.__getitem__)
    graph.output(tuple([copies[node] for node in outputs]))
    given_out = set(captured.module.graph.output_node().all_input_nodes)
    graph.output_node().meta[BETWEEN_PARTS] = frozenset([k for k, n in enumerate(outputs) if n not in given_out])
    return captured_like(captured, _LazyGraphModule(modules, graph), [node.meta["val"] for node in inputs])


def captured_like(around: Captured, module: torch.fx.GraphModule, inputs: Sequence[Any]) -> Captured:
    names = tuple([node.name for node in placed(module.graph)])
    return replace(around, module=module, inputs=tuple(inputs), input_names=names)  # type: ignore[type-var]


def with_ends(steps: Sequence[tuple[Any, Any, Compiled, bool]], kept: set[Node]) -> list[Step]:
    """The steps, each with the values that it is the last to need."""
    found: list[Step] = []
    later = set(kept)
    for inputs, outputs, call, prints in reversed(steps):
        found.append(Step(inputs, outputs, call, tuple([n for n in (*inputs, *outputs) if n not in later]), prints))
        later.update(inputs)
    return found[::-1]


def sequence(placed: Sequence[Node], steps: Sequence[Step], final: Any) -> Compiled:
    """A function of the values of `placed` that takes the steps and returns `final`."""
    made = [node for step in steps for node in step.outputs]
    at = {node: position for position, node in enumerate((*placed, *made))}
    plan = [(_taking([at[node] for node in step.inputs]), [at[node] for node in step.outputs], step.call,
             [at[node] for node in step.last], step.prints) for step in steps]

    def run(*inputs: Any) -> Sequence[Any]:
        values, printed = [*inputs, *[None] * len(made)], False
        del inputs
        for take, outputs, call, last, prints in plan:
            try:
                results = call(*take(values))
            except Exception as error:
                if printed:
                    setattr(error, CHANGED_INPUTS, True)
                raise
            printed = printed or prints
            for position, result in zip(outputs, results):
                values[position] = result
            del results
            for position in last:
                values[position] = None
        return torch.fx.node.map_arg(final, lambda node: values[at[node]])

    return run


def _taking(positions: Sequence[int]) -> Callable[[Sequence[Any]], tuple[Any, ...]]:
    """What takes the values at these positions out of a list."""
    if len(positions) < 2:
        return lambda values: tuple([values[position] for position in positions])
    return itemgetter(*positions)
