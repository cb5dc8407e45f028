"""A matrix product that generated loops compute: on a GPU a Triton kernel, tile by tile, with what is fused into it.

Graphs call this operator instead of `mm`, `addmm`, `bmm` or `_int_mm` where
`../passes/extern_kernels/tiled_products.py` says so; its lowering is `../lowering/products.py`. Called as an operator,
it calls the one that it stands for.
"""
from __future__ import annotations

import torch

_LIBRARY = torch.library.Library("ptdebug", "FRAGMENT")
_LIBRARY.define("tiled_product(Tensor left, Tensor right, Tensor? bias=None, *, bool by_rows=False) -> Tensor")


def tiled_product(
    left: torch.Tensor, right: torch.Tensor, bias: torch.Tensor | None = None, *, by_rows: bool = False
) -> torch.Tensor:
    """`left @ right (+ bias)` of matrices, or of two batches of them; of int8 in int32. The result is dense.

    `by_rows`: the loops add up one row of a matrix at a time, and use no tensor cores: for a product with a vector.
    """
    if left.dtype is torch.int8:
        return torch._int_mm(left, right)
    if left.dim() == 3:
        return torch.bmm(left, right)
    return torch.mm(left, right) if bias is None else torch.addmm(bias, left, right)


def allows_tf32() -> bool:
    """Whether the program lets products of float32 on a GPU round their operands to TF32, by whichever setting."""
    settings = torch.backends.cuda.matmul
    try:
        return bool(settings.allow_tf32)
    except RuntimeError:  # set by the newer interface, which the older one does not read
        return str(getattr(settings, "fp32_precision", "")) == "tf32"


def _result(
    left: torch.Tensor, right: torch.Tensor, bias: torch.Tensor | None = None, *, by_rows: bool = False
) -> torch.Tensor:
    dtype = torch.int32 if left.dtype is torch.int8 else left.dtype
    return left.new_empty((*left.shape[:-1], right.shape[-1]), dtype=dtype)


_LIBRARY.impl("tiled_product", tiled_product, "CompositeExplicitAutograd")
_LIBRARY.impl("tiled_product", _result, "Meta")

OPERATOR = torch.ops.ptdebug.tiled_product.default
"""The operator by which graphs call it."""
