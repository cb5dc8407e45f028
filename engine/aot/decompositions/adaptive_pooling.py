"""Adaptive pooling where windows neither overlap nor miss anything: blocks of one size. Others are ATen's."""
from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import torch

from .composite import blocks, inner_dims, own

aten = torch.ops.aten
SMALL = 25  # elements of a block that are read one by one, for several results at once; larger ones are reductions


def _block(size: Sequence[Any], out: Sequence[int]) -> list[int] | None:
    """The size of the blocks that make up the last dimensions of `size`, where they fit."""
    shape = blocks(size, out)
    return None if shape is None else [shape[dim] for dim in reversed(inner_dims(len(out)))]


def _mean(rank: int) -> Callable[..., Any]:
    windows = {2: aten.avg_pool2d.default, 3: aten.avg_pool3d.default}[rank]

    def adaptive_avg_pool(x: torch.Tensor, out: Sequence[int]) -> Any:
        """Means of blocks."""
        block = _block(x.shape, out)
        if block is None or not x.is_contiguous():
            return NotImplemented
        if 1 < math.prod(block) <= SMALL:
            return windows(x, block)
        return aten.mean.dim(aten.reshape.default(x, blocks(x.shape, out)), inner_dims(rank))

    return adaptive_avg_pool


def _spread(rank: int) -> Callable[..., Any]:
    def adaptive_avg_pool_backward(grad: torch.Tensor, x: torch.Tensor) -> Any:
        """Each element's share of its block's."""
        shape = blocks(x.shape, grad.shape[-rank:])
        if shape is None or not x.is_contiguous():
            return NotImplemented
        count = x.numel() // max(grad.numel(), 1)
        spread = aten.div.Scalar(grad, count)
        for dim in reversed(range(grad.dim() - rank, grad.dim())):
            spread = aten.unsqueeze.default(spread, dim + 1)
        copy = aten.clone.default(aten.expand.default(spread, shape), memory_format=torch.contiguous_format)
        return aten.reshape.default(copy, list(x.shape))

    return adaptive_avg_pool_backward


def _largest(rank: int) -> Callable[..., Any]:
    windows = {2: aten.max_pool2d_with_indices.default, 3: aten.max_pool3d_with_indices.default}[rank]

    def adaptive_max_pool(x: torch.Tensor, out: Sequence[int]) -> Any:
        """The largest of small blocks, and their places."""
        block = _block(x.shape, out)
        if block is None or not x.is_contiguous() or math.prod(block) > SMALL:
            return NotImplemented
        return windows(x, block)

    return adaptive_max_pool


def _to_the_largest(rank: int) -> Callable[..., Any]:
    windows = {2: aten.max_pool2d_with_indices_backward.default, 3: aten.max_pool3d_with_indices_backward.default}[rank]

    def adaptive_max_pool_backward(grad: torch.Tensor, x: torch.Tensor, indices: torch.Tensor) -> Any:
        """The gradients, each at the place of the largest."""
        block = _block(x.shape, grad.shape[-rank:])
        if block is None or not x.is_contiguous() or math.prod(block) > SMALL:
            return NotImplemented
        return windows(grad, x, block, block, [0] * rank, [1] * rank, False, indices)

    return adaptive_max_pool_backward


for _rank in (2, 3):
    own(getattr(aten, f"_adaptive_avg_pool{_rank}d").default)(_mean(_rank))
    own(getattr(aten, f"_adaptive_avg_pool{_rank}d_backward").default)(_spread(_rank))
    own(getattr(aten, f"adaptive_max_pool{_rank}d").default)(_largest(_rank))
    own(getattr(aten, f"adaptive_max_pool{_rank}d_backward").default)(_to_the_largest(_rank))
