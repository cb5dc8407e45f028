"""Folds a batched product with one shared matrix into a single `mm`: `bmm` would read that matrix again for each batch.

A linear layer over a batch of rows that are not contiguous (`x.transpose(0, 1)`) is such a `bmm`: ATen's `matmul` would
have to copy the input to see one matrix in it (`should_fold` in aten/src/ATen/native/LinearAlgebra.cpp), and expands
the weight instead. With few rows that takes many times as long as the copy.
"""
from __future__ import annotations

from typing import Any

import torch
import torch.fx

from ....artifacts.context import CompileContext
from ....artifacts.records import Option, RuleMatch
from ...graphs.functional_graph import AtenGraph

aten = torch.ops.aten

FEW_ROWS = 256
"""Rows of one product, above which reading the matrix again costs no more than a copy of the input; most often what
computes the input stores it in the order of the copy."""
FEW_COLUMNS = 16
"""Columns of the matrix, below which a product reads its input about as often as a copy does."""
VIEWS = frozenset((aten.view.default, aten.expand.default, aten.unsqueeze.default, aten._unsafe_view.default))


def join_batches(graph: AtenGraph, context: CompileContext) -> list[RuleMatch]:
    """Replace `bmm(a, b)` by `mm` of all rows of `a` where `b` is one matrix for all."""
    nodes = graph.module.graph
    matches = []
    for node in [n for n in nodes.nodes if n.target is aten.bmm.default and _is_worth(n)]:
        why = "the second matrix is the same for the whole batch: a single mm reads it once"
        options = (Option("mm"), Option("bmm"))
        if context.decide("bmm-to-mm", node.name, options, "mm", why, origins=(f"forward#{node.name}",)) == "bmm":
            continue
        made = _joined(nodes, node)
        matches.append(RuleMatch("one-matrix", (node.name,), tuple(n.name for n in made), why))
        node.replace_all_uses_with(made[-1])
        nodes.erase_node(node)
    return matches


def _is_worth(node: torch.fx.Node) -> bool:
    left, right = (arg.meta["val"] for arg in node.all_input_nodes) if len(node.all_input_nodes) == 2 else (None, None)
    if not isinstance(left, torch.Tensor) or not isinstance(right, torch.Tensor) or left.device.type != "cpu":
        return False
    batch, rows, _ = left.shape
    if type(batch) is not int or batch < 2 or type(right.stride(0)) is not int or right.stride(0) != 0:
        return False
    columns = right.shape[2]
    few = type(rows) is type(columns) is int and rows <= FEW_ROWS and columns >= FEW_COLUMNS
    return few or _lie_together(left)


def _lie_together(left: torch.Tensor) -> bool:
    """Whether the matrices of a batch are contiguous, so that their rows are one matrix."""
    step, rows = left.stride(0), left.shape[1]
    return type(step) is type(rows) is type(left.stride(1)) is int and step == rows * left.stride(1)


def _joined(nodes: torch.fx.Graph, node: torch.fx.Node) -> list[torch.fx.Node]:
    """The nodes instead of the batch; the last one is its result."""
    left, right = node.args
    assert isinstance(left, torch.fx.Node) and isinstance(right, torch.fx.Node)
    made: list[torch.fx.Node] = []

    def call(target: torch._ops.OpOverload, *args: Any, **kwargs: Any) -> torch.fx.Node:
        new = nodes.call_function(target, args, kwargs)
        new.meta.update(node.meta)
        new.meta["val"] = target(*torch.fx.node.map_arg(args, lambda n: n.meta["val"]), **kwargs)
        made.append(new)
        return new

    batch, rows, inner = left.meta["val"].shape
    with nodes.inserting_before(node):
        if not _lie_together(left.meta["val"]):
            left = call(aten.clone.default, left, memory_format=torch.contiguous_format)
        flat = call(aten.view.default, left, [batch * rows, inner])
        matrix = _matrix(right) or call(aten.select.int, right, 0, 0)
        product = call(aten.mm.default, flat, matrix)
        call(aten.view.default, product, list(node.meta["val"].shape))
    made[-1].meta["val"] = node.meta["val"]  # whose memory views of it have
    product.meta["val"] = node.meta["val"].view(product.meta["val"].shape)
    return made


def _matrix(right: torch.fx.Node) -> torch.fx.Node | None:
    """The matrix that was expanded, if a node has it."""
    wanted = right.meta["val"]
    node = right
    while node.target in VIEWS and isinstance(node.args[0], torch.fx.Node):
        node = node.args[0]
        found = node.meta["val"]
        if found.shape == wanted.shape[1:] and found.stride() == wanted.stride()[1:]:
            return node
    return None
