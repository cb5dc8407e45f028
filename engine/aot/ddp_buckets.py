"""A graph under DistributedDataParallel, cut where a bucket of DDP ends: its all-reduce starts when the gradients
of its parameters are there, while the backward of the graphs before it still runs.

Buckets fill in the order of the backward, last parameters first, as DDP's own do.
"""
from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
import torch.fx

from ...artifacts.context import CompileContext
from ..graphs.functional_graph import Captured
from ..unsupported import EngineUnsupported
from .control_flow import Compile, Compiled, Node, compile_groups

MEGA = 1 << 20


@dataclass
class Bucket:
    """The nodes of one graph, in the order of the program, and the parameters whose gradients it completes."""

    nodes: list[Node]
    parameters: list[Node]

    @property
    def bytes(self) -> int:
        """The size of their gradients."""
        return sum(int(p.meta["val"].numel()) * p.meta["val"].itemsize for p in self.parameters)


def buckets_of(captured: Captured, context: CompileContext) -> list[Bucket]:
    """The graph in pieces: a decision of kind "ddp-bucket" for each cut. One piece where nothing is to be cut."""
    first, cap = context.buckets or (0, 0)
    found = [Bucket([], [])]
    seen: set[Node] = set()
    for node in reversed(captured.module.graph.nodes):
        if node.op in ("placeholder", "get_attr", "output"):
            continue
        bucket, limit = found[-1], first if len(found) == 1 else cap
        mine = [n for n in node.all_input_nodes if _is_parameter(n) and n not in seen]
        if mine and bucket.bytes >= limit:
            why = (f"a bucket of DDP is full: {bucket.bytes / MEGA:.2f} MB of gradients ({len(bucket.parameters)} "
                   f"parameters, limit {limit / MEGA:.2f} MB); their all-reduce starts while the backward goes on")
            subject, origins = bucket.nodes[-1].name, (f"capture#{bucket.nodes[-1].name}",)
            if context.decide("ddp-bucket", subject, ("cut", "join"), "cut", why, origins=origins) == "cut":
                found.append(Bucket([], []))
        found[-1].nodes.append(node)
        found[-1].parameters += mine
        seen.update(mine)
    return [Bucket(bucket.nodes[::-1], bucket.parameters) for bucket in reversed(found)]


def compile_buckets(captured: Captured, context: CompileContext, compile_graph: Compile) -> Compiled | None:
    """The graph as a sequence of compiled pieces, each an autograd node of its own; None where it stays whole."""
    pieces = buckets_of(captured, context)
    if len(pieces) < 2:
        return None
    try:
        return compile_groups(captured, [piece.nodes for piece in pieces], context, compile_graph)
    except EngineUnsupported as reason:  # a value that no piece can hand to the next
        context.decide("ddp-bucket", "graph", ("join",), "join", f"the graph stays whole: {reason}")
        return None


def _is_parameter(node: Node) -> bool:
    value: Any = node.meta.get("val")
    return node.op == "placeholder" and isinstance(value, torch.nn.Parameter) and value.requires_grad
