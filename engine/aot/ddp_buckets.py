"""A training graph of DistributedDataParallel, cut where a bucket of gradients is full.

DDP sums the gradients of a bucket over all processes as soon as autograd has them. Of a graph that is one autograd node
it has all of them at once, when the whole backward has run. So the graph is cut, from its end, where the parameters
that its nodes read fill a bucket (Li et al., "PyTorch Distributed", VLDB 2020, section 4.2; what
torch/_dynamo/backends/distributed.py does for Dynamo): each part is an autograd node, and its gradients are sent while
the backward of the parts before it runs.
"""
from __future__ import annotations

from collections.abc import Collection, Sequence

import torch
import torch.fx

from ...artifacts.context import CompileContext
from ..graphs.ddp import Buckets
from ..graphs.functional_graph import Captured
from .segments import Compile, Compiled, Node, cut, in_parts, placed


def bucket_groups(captured: Captured, buckets: Buckets, context: CompileContext) -> list[list[Node]]:
    """The computed nodes in order, cut where a bucket is full: decisions of kind "ddp-bucket"."""
    graph, groups = captured.module.graph, [list[Node]()]
    parameters = _parameters(captured)
    left = set(parameters)  # which no node after the current one reads
    bytes_there, limit = 0, buckets.first
    for node in reversed(graph.nodes):
        if node.op in ("placeholder", "get_attr", "output"):
            continue
        if bytes_there >= limit and left:
            why = (f"{bytes_there:,} bytes of gradients after it fill a bucket of {limit:,}: they are summed over all "
                   "processes while the backward before it runs")
            options, origins = ("cut", "whole"), (f"capture#{node.name}",)
            if context.decide("ddp-bucket", node.name, options, "cut", why, origins=origins) == "cut":
                groups.insert(0, [])
                bytes_there, limit = 0, buckets.others
        groups[0].insert(0, node)
        new = left.intersection(node.all_input_nodes)
        left -= new
        bytes_there += sum(parameters[given] for given in new)
    return groups


def groups_at(captured: Captured, cuts: Collection[str]) -> list[list[Node]]:
    """The same, cut after the nodes of these names."""
    groups: list[list[Node]] = [[]]
    for node in captured.module.graph.nodes:
        if node.op not in ("placeholder", "get_attr", "output"):
            groups[-1].append(node)
            if node.name in cuts:
                groups.append([])
    return groups


def _parameters(captured: Captured) -> dict[Node, int]:
    """The inputs that are trained parameters of modules, and the bytes of their gradients."""
    named = zip(placed(captured.module.graph), captured.input_names, captured.inputs)
    return {node: value.numel() * value.element_size() for node, name, value in named
            if "._parameters[" in name and isinstance(value, torch.Tensor) and value.requires_grad}


def compile_in_buckets(
    captured: Captured, groups: Sequence[Sequence[Node]], context: CompileContext, compile_graph: Compile
) -> Compiled:
    """The graph as a sequence of compiled parts. Raises EngineUnsupported for one that cannot be cut."""

    def call_of(number: int, nodes: Sequence[Node], inputs: tuple[Node, ...], outputs: tuple[Node, ...]) -> Compiled:
        return compile_graph(cut(captured, nodes, inputs, outputs), context.for_part(f"segment_{number}"))

    return in_parts(captured, groups, call_of)
