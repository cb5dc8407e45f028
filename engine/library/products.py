"""The library of a matrix product with a weight stored by rows of outputs, as `nn.Linear` keeps it: MKL or oneDNN.

Both take the weight as it is. Which is faster depends on the processor's maker and on the shape. What oneDNN could add
in the same call (an activation, a sum) is not asked for: a loop kernel does it in about the time that the library loses
by it, and does more.
"""
from __future__ import annotations

from dataclasses import dataclass
from typing import Any, cast

import torch
import torch.fx

from ...artifacts.context import CompileContext
from ...artifacts.records import Option, RuleMatch
from ..functional import AtenGraph
from .measure import Call, costs

aten = torch.ops.aten

MKL, ONEDNN = "mkl", "onednn"
WORTH = 0.9  # of MKL's time, below which oneDNN is taken
SMALL = 1 << 20  # multiplications: below, the overhead of a call decides, and MKL's is the smaller


@dataclass(frozen=True)
class Product:
    """`rows @ weight.T (+ bias)` in float32: `rows` (m, k), `weight` (n, k), all of static sizes."""

    node: torch.fx.Node
    shape: tuple[int, int, int]
    bias: bool

    def calls(self) -> dict[str, Call]:
        """Each way, on made-up data."""
        m, n, k = self.shape
        rows, weight = torch.full((m, k), 0.5), torch.full((n, k), 0.5)
        bias = torch.full((n,), 0.5) if self.bias else None
        plain: Call = lambda: aten.mm.default(rows, weight.t())
        if bias is not None:
            plain = lambda: aten.addmm.default(bias, rows, weight.t())
        return {MKL: plain, ONEDNN: lambda: _onednn()(rows, weight, bias, "none", [], "")}


def choose_products(graph: AtenGraph, context: CompileContext) -> list[RuleMatch]:
    """Send each product to the library that is faster here, a decision of kind "library"."""
    matches = []
    available = torch.backends.mkldnn.is_available() and torch.backends.mkl.is_available()
    for node in list(graph.module.graph.nodes) if available else ():
        found = _recognize(node)
        if found is None:
            continue
        known = costs(f"product {found.shape} {found.bias}", found.calls)
        default = ONEDNN if known[ONEDNN] < WORTH * known[MKL] else MKL
        why = f"{default} is the faster for {found.shape[0]} rows of {found.shape[2]} to {found.shape[1]} here"
        options = [Option(name, -seconds * 1e6) for name, seconds in known.items()]
        origins = (f"forward#{node.name}",)
        if context.decide("library", f"product-{node.name}", options, default, why, origins=origins) == MKL:
            continue
        call = _with_onednn(found)
        matches.append(RuleMatch("onednn", (node.name,), (call.name,), why))
        node.replace_all_uses_with(call)
        node.graph.erase_node(node)
    return matches


def _recognize(node: torch.fx.Node) -> Product | None:
    if node.target not in (aten.mm.default, aten.addmm.default) or node.kwargs:
        return None
    *bias, rows, columns = [cast(torch.fx.Node, n).meta["val"] for n in node.args]
    tensors = (*bias, rows, columns)
    if any(v.dtype != torch.float32 or v.device.type != "cpu" for v in tensors):
        return None
    if not all(isinstance(size, int) for v in tensors for size in (*v.shape, *v.stride())):
        return None
    (m, k), n = rows.shape, columns.shape[1]
    if m * n * k < SMALL or not rows.is_contiguous() or not columns.t().is_contiguous() or 1 in (m, n, k):
        return None
    if any(tuple(v.shape) != (n,) or not v.is_contiguous() for v in bias):
        return None
    return Product(node, (m, n, k), bool(bias))


def _with_onednn(found: Product) -> torch.fx.Node:
    *bias, rows, columns = found.node.args
    graph = found.node.graph
    with graph.inserting_before(found.node):
        weight = graph.call_function(aten.permute.default, (columns, [1, 0]))
        arguments: tuple[Any, ...] = (rows, weight, bias[0] if bias else None, "none", [], "")
        call = graph.call_function(_onednn(), arguments)
    weight.meta.update(found.node.meta)
    weight.meta["val"] = cast(torch.fx.Node, columns).meta["val"].t()
    call.meta.update(found.node.meta)
    return call


def _onednn() -> Any:
    return torch.ops.mkldnn._linear_pointwise.default
