"""Which kernel computes a float32 matrix product of row-major or column-major matrices: MKL's, oneDNN's or ptdebug's.

All take the weight as it is; a frozen row-major one, as in `nn.Linear`, is also offered to MKL prepacked, which helps
most for few rows. Which is fastest depends on the CPU's vendor and on the shape. oneDNN's fused epilogues (an
activation, a sum) are not used: a generated loop takes about the time that the library loses by them, and fuses more.
"""
from __future__ import annotations

from dataclasses import dataclass
from typing import Any, cast

import torch
import torch.fx

from ....artifacts.context import CompileContext
from ....artifacts.records import RuleMatch
from ...graphs.functional_graph import AtenGraph
from ...kernels import sgemm
from ...runtime.runtime import callable_of
from ...toolchain.benchmarking import TOO_BUSY, Call, costs, timed_options, verdict
from ..freezing.parameters import frozen_nodes

aten = torch.ops.aten

MKL, ONEDNN, PACKED, OWN = "mkl", "onednn", "mkl-packed", "ptdebug"
WORTH = {MKL: 1.0, ONEDNN: 1.0, PACKED: 0.9, OWN: 1.05}
"""Share of MKL's time below which a kernel is chosen: packing takes memory; results of ptdebug's kernel depend on
neither threads nor other rows."""
_HOLDS = "a packed weight takes memory, for which it has to save 10 %"
OTHERWISE = {
    MKL: _HOLDS, ONEDNN: _HOLDS, PACKED: "",
    OWN: "its results depend neither on the number of threads nor on other rows, for which it may take 5 % more",
}
"""The reason for a kernel that is not the fastest."""
LONGEST = 1024  # terms: oneDNN's accumulation chains are longer than MKL's, beyond this with over twice the error
SMALL = 1 << 20  # multiplications: below, the overhead of a call decides, and MKL's is the smallest
SMALL_PACKED = 1 << 16  # the same where the weight may be packed


@dataclass(frozen=True)
class Product:
    """`rows @ weight.T (+ bias)` in float32: `rows` (m, k), where m may vary, `weight` (n, k). `by_rows`: how the
    weight lies; `turned`: the rows lie by columns. `packs`: the weight is known when the product runs for the first
    time."""

    node: torch.fx.Node
    shape: tuple[int, int, int]
    bias: bool
    by_rows: bool
    turned: bool
    packs: bool

    def describe(self) -> str:
        """All that the time depends on, besides the machine."""
        layout = f"{' turned' if self.turned else ''}{'' if self.by_rows else ' by columns'}"
        return f"product {self.shape} {self.bias} {self.ways}{layout}"

    @property
    def ways(self) -> tuple[str, ...]:
        """The names of the ways."""
        small = self.shape[0] * self.shape[1] * self.shape[2] < SMALL
        libraries = not self.turned and torch.backends.mkldnn.is_available()
        offered = {ONEDNN: libraries and self.shape[2] <= LONGEST, PACKED: libraries and self.packs,
                   OWN: not small and sgemm.KERNEL.available}
        return (MKL, *[way for way, there in offered.items() if there])

    def calls(self) -> dict[str, Call]:
        """Each way, on made-up data."""
        m, n, k = self.shape
        rows = torch.full((k, m), 0.5).t() if self.turned else torch.full((m, k), 0.5)
        weight = torch.full((n, k), 0.5) if self.by_rows else torch.full((k, n), 0.5).t()
        bias = torch.full((n,), 0.5) if self.bias else None
        calls: dict[str, Call] = {MKL: lambda: torch.mm(rows, weight.t())}
        if bias is not None:
            calls[MKL] = lambda: torch.addmm(bias, rows, weight.t())
        calls[ONEDNN] = lambda: onednn(rows, weight, bias)
        calls[OWN] = lambda: sgemm.product(rows, weight.t(), bias)
        if PACKED in self.ways:
            packed, by_packed = torch.ops.mkl._mkl_reorder_linear_weight(weight, m), callable_of(_packed_product())
            calls[PACKED] = lambda: by_packed(rows, packed, weight, bias, m)
        return {way: calls[way] for way in self.ways}


def onednn(rows: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None = None) -> object:
    """The product by oneDNN, called as a wrapper calls it."""
    return callable_of(_onednn())(rows, weight, bias, "none", [], "")


def choose_products(graph: AtenGraph, context: CompileContext) -> list[RuleMatch]:
    """Choose the kernel of each product, decisions of kind "matmul"."""
    matches = []
    available = torch.backends.mkl.is_available()
    frozen = frozen_nodes(graph.module.graph) if available else frozenset()
    for node in list(graph.module.graph.nodes) if available else ():
        found = _recognize(node, frozen)
        if found is None:
            continue
        known = costs(found.describe(), found.calls)
        default = min(known, key=lambda way: known[way] / WORTH[way], default=MKL)
        where = f"for {found.shape[0]} rows of {found.shape[2]} to {found.shape[1]}"
        why = verdict(known, default, where, OTHERWISE[default]) if known else TOO_BUSY
        options = timed_options(known, found.ways)
        origins = (f"forward#{node.name}",)
        chosen = context.decide("matmul", node.name, options, default, why, origins=origins)
        if chosen == MKL:
            continue
        call = {ONEDNN: _with_onednn, PACKED: _packed, OWN: _own}[chosen](found)
        matches.append(RuleMatch(chosen, (node.name,), (call.name,), why))
        node.replace_all_uses_with(call)
        node.graph.erase_node(node)
    return matches


def _recognize(node: torch.fx.Node, frozen: frozenset[torch.fx.Node]) -> Product | None:
    if node.target not in (aten.mm.default, aten.addmm.default) or node.kwargs:
        return None
    *bias, rows, columns = [cast(torch.fx.Node, n).meta["val"] for n in node.args]
    tensors = (*bias, rows, columns)
    if any(v.dtype != torch.float32 or v.device.type != "cpu" for v in tensors):
        return None
    fixed = _is_static(rows)
    count = _rows_as_first_seen(rows)
    if count is None or not all(_is_static(v) for v in (*bias, columns)):
        return None
    m, k, n = count, rows.shape[1], columns.shape[1]
    by_rows = _is_column_major(columns)
    turned = fixed and not rows.is_contiguous()
    packs = by_rows and fixed and not turned and node.args[-1] in frozen
    if m * n * k < (SMALL_PACKED if packs else SMALL) or 1 in (m, n, k)[packs:]:
        return None
    if (turned and not _is_column_major(rows)) or not (by_rows or columns.is_contiguous()):
        return None
    if any(tuple(v.shape) != (n,) or not v.is_contiguous() for v in bias):
        return None
    found = Product(node, (m, n, k), bool(bias), by_rows, turned, packs)
    return found if len(found.ways) > 1 else None


def _is_static(value: torch.Tensor) -> bool:
    return all(isinstance(size, int) for size in (*value.shape, *value.stride()))


def _is_column_major(matrix: torch.Tensor) -> bool:
    """Whether the transpose of a matrix of known size is contiguous. (Taking it would be a call of an operator.)"""
    (rows, columns), (down, across) = matrix.shape, matrix.stride()
    return 0 in (rows, columns) or ((rows == 1 or down == 1) and (columns == 1 or across == rows))


def _rows_as_first_seen(rows: torch.Tensor) -> int | None:
    """The number of rows, a dynamic one as it was while tracing; None where it is data-dependent, or rows have gaps."""
    count: Any = rows.shape[0]
    if isinstance(count, int):
        return count if _is_static(rows) else None
    dense = all(isinstance(n, int) for n in (rows.shape[1], *rows.stride())) and rows.stride() == (rows.shape[1], 1)
    return count.node.hint if dense else None


def _with_onednn(found: Product) -> torch.fx.Node:
    *bias, rows, _ = found.node.args
    graph, weight = found.node.graph, _weight(found.node)
    with graph.inserting_before(found.node):
        arguments: tuple[Any, ...] = (rows, weight, bias[0] if bias else None, "none", [], "")
        call = graph.call_function(_onednn(), arguments)
    call.meta.update(found.node.meta)
    return call


def _own(found: Product) -> torch.fx.Node:
    *bias, rows, columns = found.node.args
    with found.node.graph.inserting_before(found.node):
        call = found.node.graph.call_function(sgemm.OPERATOR, (rows, columns, *bias))
    call.meta.update(found.node.meta)
    return call


def _packed(found: Product) -> torch.fx.Node:
    *bias, rows, _ = found.node.args
    graph, weight, count = found.node.graph, _weight(found.node), found.shape[0]
    with graph.inserting_before(found.node):
        packed = graph.call_function(torch.ops.mkl._mkl_reorder_linear_weight.default, (weight, count))
        arguments = (rows, packed, weight, bias[0] if bias else None, count)
        call = graph.call_function(_packed_product(), arguments)
    packed.meta.update(found.node.meta)
    packed.meta.update(val=weight.meta["val"], packed=True)
    call.meta.update(found.node.meta)
    return call


def _weight(product: torch.fx.Node) -> torch.fx.Node:
    """The weight as it is stored, by rows of outputs: what the product's operand is the transpose of."""
    columns = cast(torch.fx.Node, product.args[-1])
    turned = columns.target is aten.t.default or (columns.target is aten.permute.default and columns.args[1] == [1, 0])
    if turned:
        return columns.all_input_nodes[0]
    with product.graph.inserting_before(product):
        weight = product.graph.call_function(aten.permute.default, (columns, [1, 0]))
    weight.meta.update(product.meta)
    weight.meta["val"] = columns.meta["val"].t()
    return weight


def _onednn() -> Any:
    return torch.ops.mkldnn._linear_pointwise.default


def _packed_product() -> Any:
    return torch.ops.mkl._mkl_linear.default
