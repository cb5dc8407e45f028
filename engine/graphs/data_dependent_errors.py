"""Operators that raise for some values of their inputs: an index out of range, a zero divisor, a singular matrix.

They must run even when nobody uses their result, since eager would have raised.
"""
from __future__ import annotations

from typing import Any

import torch
import torch.fx

from .autograd_graphs import BACKWARD

RAISING = (
    "index", "gather", "scatter", "take", "embedding", "nll_loss", "_linalg", "linalg", "cholesky", "_assert",
    "multinomial", "bernoulli", "normal", "poisson", "floor_divide", "remainder", "fmod", "div", "_local_scalar_dense",
)
"""Beginnings of the names of more library calls that may raise for some data; whether they must run is decided
elsewhere."""

LOOKUPS = frozenset("index index_put".split())
DIVISIONS = frozenset("div floor_divide remainder fmod".split())
BY_VALUE = frozenset(
    """
    index_select index_add index_copy index_fill index_reduce gather scatter scatter_add scatter_reduce take put
    embedding _embedding_bag _embedding_bag_forward_only nll_loss_forward nll_loss2d_forward multi_margin_loss
    multilabel_margin_loss_forward binary_cross_entropy masked_scatter max_unpool2d max_unpool3d
    bincount repeat_interleave histc histogram _histogramdd_bin_edges _histogramdd_from_bin_cts segment_reduce _ctc_loss
    cholesky_inverse lu_unpack _linalg_svd _linalg_eigh _linalg_eigvals linalg_eig linalg_lstsq linalg_pinv
    """.split()
)
"""By name: each raises for some values of its arguments, on a CPU, and returns something for others."""


def may_raise(name: str) -> bool:
    """Whether a library call, by the name of its operator, may raise for some data: before it, no input may change."""
    return name in BY_VALUE or name.startswith(RAISING)


def raises_by_value(node: torch.fx.Node) -> bool:
    """Whether an ATen call raises for some values of its arguments, as far as known; what only asserts is not meant. A
    backward raises nothing that its forward did not."""
    packet = getattr(node.target, "overloadpacket", None)
    if packet is None or node.target.namespace != "aten" or node.meta.get("phase") == BACKWARD:  # type: ignore[union-attr]
        return False
    name = packet.__name__
    if name in LOOKUPS:
        indices: Any = node.args[1]
        return any(i.meta["val"].dtype not in (torch.bool, torch.uint8) for i in indices if i is not None)
    if name in DIVISIONS:
        result, divisor = node.meta["val"], node.args[1]
        known = isinstance(divisor, (int, float)) and divisor != 0
        return not (known or result.is_floating_point() or result.is_complex())
    return name in BY_VALUE
