"""What may share the kernel of a matrix product: loops over the elements of its result, which run after it.

Such a kernel computes a tile of the result at a time, so that what follows must need no other elements than its own.
"""
from __future__ import annotations

from collections.abc import Sequence

from ..ir.ir import LoopBody
from .legality import Illegal


def why_apart(first: Sequence[LoopBody], second: Sequence[LoopBody], dependent: bool) -> Illegal | None:
    """Why `second`, which follows `first`, cannot be in one kernel with it if one is a product; None where it may."""
    if any(b.is_product for b in second):
        both = any(b.is_product for b in first)
        why = "each is a matrix product" if both else "what precedes a product is a kernel of its own"
        return Illegal(why, "" if both else "a value that the product reads and computes itself")
    if not dependent and any(b.is_product for b in first):
        return Illegal("the second is not computed from the matrix product")
    return None


def not_in_tile(bodies: Sequence[LoopBody], shared: int) -> Illegal | None:
    """Why bodies, one of which is a product, cannot share a kernel with so many loops in common; None if they can."""
    if not any(b.is_product for b in bodies):
        return None
    if any(len(b.axes) != shared or (b.reduction_axes and not b.is_product) for b in bodies):
        return Illegal("the kernel of a matrix product computes tiles: what follows must be pointwise on its elements",
                       "a kernel of its own")
    return None
