"""How the elements of a tensor lie in memory."""
from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import sympy

from ...ir.ir import Buffer, View


def is_contiguous(tensor: Buffer | View) -> bool:
    """Whether its rows are dense, and lie one after the other."""
    return _are_dense(tensor.size, tensor.stride)


def is_channels_last(images: Buffer | View) -> bool:
    """Whether images (N, C, H, W) are dense, with their channels innermost."""
    order = (0, 2, 3, 1)
    return _are_dense([images.size[d] for d in order], [images.stride[d] for d in order])


def _are_dense(size: Sequence[sympy.Expr], strides: Sequence[sympy.Expr]) -> bool:
    expected: Any = sympy.S.One
    for n, stride in zip(reversed(size), reversed(strides)):
        if n != 1 and stride != expected:
            return False
        expected = expected * n
    return True
