"""Depthwise 1-d convolutions with short filters (the causal ones of state-space models): a sum of few products.

The library's call is bound by memory. As generated loops the products fuse with the padding before and the activation
after.
"""
from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

aten = torch.ops.aten

MOST = 8  # elements of a filter
_WIDE = {torch.float16: torch.float32, torch.bfloat16: torch.float32}


def filters_rows(x: torch.Tensor, weight: torch.Tensor, padding: Sequence[int], transposed: bool, groups: Any) -> bool:
    """Whether a convolution on the CPU has one short filter for each row of `x`, which lies along memory, or is copied
    there with its padding."""
    if x.device.type != "cpu" or transposed or x.dim() != 3 or not x.is_floating_point() or x.dtype != weight.dtype:
        return False
    sizes = (*weight.shape, x.shape[1], groups)
    if not (x.stride(-1) == 1 or padding[0]) or not all(type(n) is int for n in sizes) or x.device != weight.device:
        return False
    channels, each, taps = weight.shape
    if weight.stride(1) == 1:  # to the library its channels are innermost, and so are those of the result
        return False
    return bool(channels == groups == x.shape[1] > 1 and each == 1 and 1 < taps <= MOST)


def filtered_rows(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None, stride: Sequence[int],
                  padding: Sequence[int], dilation: Sequence[int]) -> torch.Tensor:
    """The rows (batch, channels, places) of such a convolution, contiguous, added up in float32 at least."""
    wide = _WIDE.get(x.dtype, x.dtype)
    taps, step, apart = weight.shape[-1], stride[0], dilation[0]
    rows = aten.constant_pad_nd.default(x, [padding[0], padding[0]], 0.0) if padding[0] else x
    reach = rows.shape[-1] - (taps - 1) * apart
    total = None
    for k in range(taps):
        part = aten.slice.Tensor(rows, 2, k * apart, k * apart + reach, step).to(wide)
        product = part * weight[:, 0, k].to(wide)[None, :, None]
        total = product if total is None else total + product
    assert total is not None
    total = total if bias is None else total + bias.to(wide)[None, :, None]
    return aten.clone.default(total.to(x.dtype), memory_format=torch.contiguous_format)
