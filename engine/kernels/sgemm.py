"""A float32 matrix product on the CPU by ptdebug's kernel (`sgemm_template.py`).

A library has to be good at all sizes, and reaches three quarters of peak at the sizes of models' layers.
`passes/extern_kernels/matmul.py` chooses between the libraries and this kernel by benchmarking.
"""
from __future__ import annotations

import ctypes
from struct import pack

import torch

from .custom_kernel import OwnKernel
from .sgemm_template import ENTRY, SOURCE

_LIBRARY = torch.library.Library("ptdebug", "FRAGMENT")
_LIBRARY.define("product(Tensor left, Tensor right, Tensor? bias=None) -> Tensor")

PARAMETERS = "const int64_t* task, const void* left, const void* right, const void* bias, void* out"
"""What the C++ function ENTRY takes: sizes and strides as `Task` has them, and addresses."""

KERNEL = OwnKernel(SOURCE, ENTRY, (ctypes.c_void_p,) * 5)


def product(left: torch.Tensor, right: torch.Tensor, bias: torch.Tensor | None = None) -> torch.Tensor:
    """`left @ right (+ bias)` of float32 matrices that lie by rows or by columns, and a dense bias; rows may be none.

    Raises BuildFailed or CannotBuild where the kernel cannot be built, MemoryError where there is none left.
    """
    (rows, depth), columns = left.shape, right.shape[1]
    out = left.new_empty((rows, columns))
    task = pack("7q", rows, columns, depth, *left.stride(), *right.stride())
    given = None if bias is None else bias.data_ptr()
    if KERNEL.function(task, left.data_ptr(), right.data_ptr(), given, out.data_ptr()):
        raise MemoryError("no memory for a product")
    return out


def _result(left: torch.Tensor, right: torch.Tensor, bias: torch.Tensor | None = None) -> torch.Tensor:
    return left.new_empty((left.shape[0], right.shape[1]))


_LIBRARY.impl("product", product, "CPU")
_LIBRARY.impl("product", _result, "Meta")

OPERATOR = torch.ops.ptdebug.product.default
"""The operator by which graphs call it."""
