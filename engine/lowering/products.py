"""Lowering of the matrix products that generated loops compute: a body that reduces products of two operands.

What is pointwise on an operand is computed where the product reads it, if that reads no more than the operand would
take in memory: int8 weights that become bfloat16, say. Each result is rounded where eager rounds it.
"""
from __future__ import annotations

from typing import TYPE_CHECKING

import torch
import torch.fx

from ..ir.affine import product
from ..kernels import tiled_product
from ..unsupported import NoLowering
from .body import BodyBuilder, compute_dtype
from .lazy_tensors import Index, Value, offset
from .registry import REDUCTION, lowering

if TYPE_CHECKING:
    from .graph import GraphLowering

_STORED = "the product would compute it once for each tile that reads it"


@lowering(tiled_product.OPERATOR, kind=REDUCTION)
def _product(graph: GraphLowering, node: torch.fx.Node, left: Value, right: Value, bias: Value | None = None, *,
             by_rows: bool = False) -> Value:
    if left.dtype is not right.dtype or (bias is not None and left.dtype is torch.int8):
        raise NoLowering("a product of different dtypes")
    for operand in (left, right):
        if not operand.base.buffer and not _is_read_once(graph, operand):
            graph.decide_stored(operand.base, _STORED)
    base = graph.base_of(node.meta["val"], node.name)
    name, wide = graph.new_buffer(base), torch.int32 if left.dtype is torch.int8 else compute_dtype(left.dtype)
    kind = "row_dot" if by_rows else mode(left.dtype, left.device)

    def emit(e: BodyBuilder, index: Index, inner: Index) -> None:
        e.origin = node.name
        *batch, row, column = index
        a = _rounded(e, left, (*batch, row, *inner), wide)
        b = _rounded(e, right, (*batch, *inner, column), wide)
        total = e.reduce(kind, e("mul", a, b), wide)
        if bias is not None:
            total = e("add", total, e.cast(bias.broadcast(e, index), wide))
        e.store(name, offset(index, base.stride), total, base.dtype)

    graph.loops(base.size, base.stride, (left.size[-1],), emit)
    base.buffer = name
    return Value(base, base.size)


def mode(dtype: torch.dtype, device: torch.device) -> str:
    """The kind of the reduction: float32 is rounded to TF32 only where the program allows it."""
    return "dot_tf32" if dtype is torch.float32 and device.type == "cuda" and tiled_product.allows_tf32() else "dot"


def _rounded(e: BodyBuilder, operand: Value, index: Index, wide: torch.dtype) -> str:
    """An element of an operand as eager has it, rounded to the operand's dtype, in that of the sum."""
    return e.cast(e.rounded(operand.load(e, index), operand.dtype), wide)


def _is_read_once(graph: GraphLowering, operand: Value) -> bool:
    """Whether what an operand is computed from takes no more bytes than itself, and little time."""
    own = product(operand.base.size)
    if operand.base.heavy or type(own) is not int:
        return False
    read = 0
    for window in operand.base.windows:
        count, dtype = product(window.size), graph.buffers[window.base.buffer].dtype
        if type(count) is not int:
            return False
        read += count * dtype.itemsize
    return read <= own * operand.dtype.itemsize
