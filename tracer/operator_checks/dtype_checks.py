"""Operators whose tensors have dtypes that do not go together: eager raises, and torch's fake kernels do not.

A node that only fails when it runs would fail too late, or never, where nothing uses its result.
"""
from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations
from typing import Any

import torch

_aten = torch.ops.aten
_REDUCED = (torch.float16, torch.bfloat16)
_WITHOUT_PROMOTION = (torch.uint16, torch.uint32, torch.uint64)

ALIKE: dict[Any, tuple[int, ...]] = {
    _aten.mm.default: (0, 1), _aten.bmm.default: (0, 1), _aten.mv.default: (0, 1),
    _aten.addmm.default: (0, 1, 2), _aten.addmv.default: (0, 1, 2),
    _aten.addbmm.default: (0, 1, 2), _aten.baddbmm.default: (0, 1, 2),
    _aten.convolution.default: (0, 1, 2),
    _aten.index_add.default: (0, 3), _aten.index_add_.default: (0, 3),
    _aten.index_copy.default: (0, 3), _aten.index_copy_.default: (0, 3),
    _aten.index_put.default: (0, 2), _aten.index_put_.default: (0, 2),
    _aten.put.default: (0, 2), _aten.put_.default: (0, 2),
    _aten.linalg_cross.default: (0, 1), _aten.heaviside.default: (0, 1),
    _aten.polar.default: (0, 1), _aten.complex.default: (0, 1),
    _aten.nll_loss_forward.default: (0, 2), _aten.binary_cross_entropy.default: (0, 1, 2),
    _aten.grid_sampler_2d.default: (0, 1), _aten.grid_sampler_3d.default: (0, 1),
}  # fmt: skip
"""The places of the arguments that must agree. Only tensors at these places count: there may be none (a bias)."""

NORMS: dict[Any, tuple[int, ...]] = {
    _aten.native_layer_norm.default: (0, 2, 3), _aten.native_group_norm.default: (0, 1, 2),
    _aten.native_batch_norm.default: (0, 1, 2, 3, 4), _aten.cudnn_batch_norm.default: (0, 1, 2, 3, 4),
}  # fmt: skip
"""Their parameters and statistics may be float32 where the first tensor is float16 or bfloat16."""


def refuse_mixed_dtypes(operator: Any, args: Sequence[Any]) -> None:
    """Raise RuntimeError, as eager does, where the tensors of `operator` have several dtypes and may not."""
    norm = operator not in ALIKE
    places = NORMS.get(operator) if norm else ALIKE[operator]
    if places is None:
        return
    dtypes = [args[i].dtype for i in places if i < len(args) and isinstance(args[i], torch.Tensor)]
    if norm and dtypes[0] in _REDUCED:
        dtypes = [dtype for dtype in dtypes if dtype is not torch.float32]
    if len(set(dtypes)) > 1:
        raise RuntimeError(f"{operator}: tensors of the dtypes {', '.join(str(dtype) for dtype in dtypes)}")


def refuse_without_promotion(operator: Any, args: Sequence[Any]) -> None:
    """Raise RuntimeError, as eager does, where an element is computed of dtypes that torch has no common dtype for."""
    tensors = [arg for arg in args if isinstance(arg, torch.Tensor)]
    if operator is _aten.cat.default:
        tensors = args[0]
    elif len(tensors) < 2 or torch.Tag.pointwise not in getattr(operator, "tags", ()):
        return
    if any(tensor.dtype in _WITHOUT_PROMOTION for tensor in tensors):
        for one, other in combinations(tensors, 2):
            torch.result_type(one, other)
