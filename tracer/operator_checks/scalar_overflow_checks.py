"""Numbers that vary, where eager converts them to a dtype of few bits and refuses those that do not fit.

A constant that does not fit fails in eager's kernel when the graph runs; a number that varies would be cut off by
kernels of ours. It is compared with the limits of the dtype here, which guards the answer.
"""
from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch.fx.experimental.symbolic_shapes import free_unbacked_symbols

_aten = torch.ops.aten
_NARROW = (torch.int8, torch.uint8, torch.int16, torch.int32)

_CONVERTING = frozenset((
    _aten.fill.Scalar, _aten.fill_.Scalar, _aten.masked_fill.Scalar, _aten.masked_fill_.Scalar,
    _aten.index_fill.int_Scalar, _aten.index_fill_.int_Scalar, _aten.scatter.value, _aten.scatter_.value,
    _aten.full.default, _aten.full_like.default, _aten.new_full.default, _aten.scalar_tensor.default,
    _aten.clamp.default, _aten.clamp_.default, _aten.clamp_min.default, _aten.clamp_min_.default,
    _aten.clamp_max.default, _aten.clamp_max_.default, _aten.hardtanh.default, _aten.hardtanh_.default,
    _aten.threshold.default, _aten.threshold_.default, _aten.constant_pad_nd.default, _aten.where.Scalar,
    _aten.where.ScalarOther, _aten.where.ScalarSelf, _aten.pow.Tensor_Scalar, _aten.pow_.Scalar,
    _aten.addcmul.default, _aten.addcmul_.default,
))  # fmt: skip
"""Of the arguments of these, numbers that are no part of a list are converted to the dtype of the result."""

_WITH_ALPHA = frozenset((_aten.add.Tensor, _aten.add_.Tensor, _aten.sub.Tensor, _aten.sub_.Tensor))
"""Of these, `alpha` alone: a number that is added is a tensor of 64 bits first, which wraps around."""


def refuse_what_does_not_fit(operator: Any, args: Sequence[Any], kwargs: Mapping[str, Any], result: Any) -> None:
    """Raise RuntimeError, as eager does, where a number that varies does not fit into the dtype of `result`."""
    numbers = _numbers(operator, args, kwargs)
    if not numbers or not isinstance(result, torch.Tensor) or result.dtype not in _NARROW:
        return
    limits = torch.iinfo(result.dtype)
    lowest = limits.min or -limits.max  # eager wraps negative numbers around, but where it pads
    if operator is _aten.constant_pad_nd.default:
        lowest = limits.min
    for number in numbers:
        if not lowest <= number <= limits.max:
            raise RuntimeError(f"{operator}: {number} in a tensor of {result.dtype}")


def _numbers(operator: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> list[Any]:
    converted = (*args, *kwargs.values()) if operator in _CONVERTING else ()
    if operator in _WITH_ALPHA:
        converted = (kwargs.get("alpha"),)
    return [it for it in converted if isinstance(it, torch.SymInt) and not free_unbacked_symbols(it)]
