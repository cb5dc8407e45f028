"""Which nodes share memory with inputs and outputs of the graph."""
from __future__ import annotations

import operator

import torch
import torch.fx

from ...operators.meta import returns_view
from .autograd_graphs import BACKWARD, FORWARD


def returns_alias(node: torch.fx.Node) -> bool:
    """Whether the node's result may be a view of one of its arguments."""
    if node.target is operator.getitem:
        return True
    target = node.target
    if not isinstance(target, torch._ops.OpOverload):
        return False
    # Other conditional views (contiguous, _to_copy-like) have no alias in their schema but were resolved by now.
    return target is torch.ops.aten.reshape.default or returns_view(target)  # one that copies was decomposed


def outputs_reach(graph: torch.fx.Graph) -> set[torch.fx.Node]:
    """The graph's outputs and every node that an output may be a view of."""
    reached: set[torch.fx.Node] = set()
    pending = list(graph.output_node().all_input_nodes)
    while pending:
        node = pending.pop()
        if node in reached:
            continue
        reached.add(node)
        if returns_alias(node):
            pending.extend(node.all_input_nodes)
    return reached


def inputs_reach(graph: torch.fx.Graph) -> set[torch.fx.Node]:
    """The graph's inputs and constants, and every node that may be a view of one."""
    reached: set[torch.fx.Node] = set()
    for node in graph.nodes:
        if node.op in ("placeholder", "get_attr"):
            reached.add(node)
        elif returns_alias(node) and any(n in reached for n in node.all_input_nodes):
            reached.add(node)
    return reached


def kept(node: torch.fx.Node) -> bool:
    """Whether eager saves the value of a node of the forward: the backward reads it, or a view of it."""
    readers = [node] if node.meta.get("phase") == FORWARD else []
    for reader in readers:
        if any(user.meta.get("phase") == BACKWARD for user in reader.users):
            return True
        readers += [user for user in reader.users if returns_alias(user)]
    return False


def read_by_strides(node: torch.fx.Node) -> bool:
    """Whether a reader of the node, or of a view of it, names elements by where they lie in its memory."""
    views = [user for user in node.users if returns_alias(user)]
    return any(view.target is torch.ops.aten.as_strided.default or read_by_strides(view) for view in views)


def viewed(node: torch.fx.Node) -> torch.fx.Node:
    """What a node is a view of, through views of views; itself for what is no view."""
    while returns_alias(node):
        source = node.all_input_nodes[0]
        if node.target is operator.getitem and not returns_alias(source):
            break
        node = source
    return node
