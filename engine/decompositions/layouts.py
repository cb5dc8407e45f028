"""Strides that eager's CPU kernels give, for operators whose fake results promise others.

A program that reads strides, or takes a view where eager copies, would see the difference. To add an operator, add it
to the row of `LAYOUTS` that says what its kernel does.
"""
from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch._prims_common import compute_elementwise_output_strides, make_contiguous_strides_for

aten = torch.ops.aten

Strides = tuple[int, ...]


def as_elements(args: Sequence[Any], result: torch.Tensor) -> Strides:
    """As TensorIterator lays out the result of tensors that broadcast together; a rule made of several may not.

    What has another dtype than they compute in is copied to that first, and the copy has no expanded dimensions.
    """
    tensors = [a for a in args if isinstance(a, torch.Tensor)]
    common = result.dtype
    if common is torch.bool:
        for tensor in tensors:
            common = torch.promote_types(common, tensor.dtype)
    cast = [a if a.dtype is common else torch.empty_like(a, dtype=common) for a in tensors]
    return tuple(compute_elementwise_output_strides(*[a.expand(result.shape) for a in cast]))


def row_major(args: Sequence[Any], result: torch.Tensor) -> Strides:
    """Row-major whatever the input's layout."""
    return tuple(make_contiguous_strides_for(result.shape))


def row_major_or_channels_last(args: Sequence[Any], result: torch.Tensor) -> Strides:
    """Row-major, but channels last where the input is."""
    formats = {4: torch.channels_last, 5: torch.channels_last_3d}
    rank = result.dim()
    if rank in formats and not args[0].is_contiguous() and args[0].is_contiguous(memory_format=formats[rank]):
        return tuple(args[0].stride())
    return row_major(args, result)


def like_the_first(args: Sequence[Any], result: torch.Tensor) -> Strides:
    """As `empty_like` of the first argument, where the result is not reduced."""
    return tuple(torch.empty_like(args[0]).stride()) if args[0].shape == result.shape else row_major(args, result)


LAYOUTS: dict[Any, Callable[[Sequence[Any], torch.Tensor], Strides]] = {
    **dict.fromkeys((
        aten.copysign.Tensor, aten.floor_divide.default, aten.div.Tensor_mode, aten.xlogy.Tensor,
        aten.special_xlog1py.default, aten.sub.Tensor, aten.add.Tensor, aten.ldexp.Tensor, aten.heaviside.default,
        aten.logaddexp.default, aten.logaddexp2.default, aten.clamp.Tensor, aten.logical_and.default,
        aten.logical_or.default, aten.logical_xor.default,
    ), as_elements),
    aten.huber_loss.default: like_the_first,
    **dict.fromkeys((
        aten.log_sigmoid_forward.default, aten.im2col.default, aten.upsample_nearest1d.default,
        aten._upsample_nearest_exact1d.default,
    ), row_major),
    **dict.fromkeys((
        aten.native_batch_norm.default, aten._native_batch_norm_legit.default,
        aten._native_batch_norm_legit.no_stats, aten._native_batch_norm_legit_functional.default,
        aten._native_batch_norm_legit_no_training.default, aten._batch_norm_with_update_functional.default,
        aten._batch_norm_no_update.default,
    ), row_major_or_channels_last),
}


def promised(operator: Any, args: Sequence[Any], result: torch.Tensor) -> Strides | None:
    """The strides that eager gives `result`; None where the fake tensor's are right or sizes vary."""
    rule = LAYOUTS.get(operator)
    if operator is aten.angle.default and args[0].dtype.is_complex:
        rule = row_major
    if rule is None or result.device.type != "cpu":
        return None
    tensors = [result, *[a for a in args if isinstance(a, torch.Tensor)]]
    if any(type(n) is not int for t in tensors for n in (*t.shape, *t.stride())):
        return None
    strides = rule(args, result)
    same = all(n == 1 or a == b for n, a, b in zip(result.shape, strides, result.stride()))
    return None if same else strides


def max_pool1d(x: torch.Tensor, *args: Any, **kwargs: Any) -> Any:
    """`torch.nn.functional.max_pool1d`, whose CPU kernel for what needs no gradients gives row-major results."""
    result = F.max_pool1d(x, *args, **kwargs)
    needs_gradients = torch.is_grad_enabled() and x.requires_grad
    if x.device.type != "cpu" or needs_gradients or not isinstance(result, torch.Tensor):
        return result
    return result.contiguous()
