"""What a graph calls that one device alone has, for its replay on another device: attention kernels by products of
matrices, ptdebug's own kernels for a CPU by ATen."""
from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch

from ...engine.kernels import attention, depthwise, sgemm
from ...engine.runtime.runtime import CALLED

aten = torch.ops.aten
_PADDED = 32  # queries: the statistics of the memory-efficient kernel have a multiple of that many


@contextmanager
def kernels_elsewhere(device: str) -> Iterator[None]:
    """While it lasts, the other device's kernels are computed by operators that both have."""
    calls = _OF_GPU if device.startswith("cpu") else _OF_CPU
    before = {operator: CALLED.get(operator) for operator in calls}
    CALLED.update(calls)
    try:
        yield
    finally:
        for operator, call in before.items():
            CALLED.pop(operator) if call is None else CALLED.update({operator: call})


def _weights(
    query: torch.Tensor, key: torch.Tensor, bias: torch.Tensor | None, causal: bool, scale: float | None,
    statistics: torch.Tensor | None = None,
) -> tuple[torch.Tensor, torch.Tensor, float]:
    """The weights of the values, what their logarithms were lessened by, and the scale of the scores."""
    factor = 1 / math.sqrt(query.shape[-1]) if scale is None else scale
    wide = torch.float64 if query.dtype == torch.float64 else torch.float32
    scores = (query.to(wide) @ key.to(wide).transpose(-2, -1)) * factor
    if bias is not None:
        scores = scores + bias.to(wide)
    if causal:
        scores = scores.masked_fill(~torch.ones_like(scores, dtype=torch.bool).tril(), -math.inf)
    total = scores.logsumexp(-1) if statistics is None else statistics[..., : query.shape[2]].to(wide)
    nothing = total == -math.inf  # of all keys masked: what is NaN otherwise stays so
    return (scores - total.unsqueeze(-1)).exp().masked_fill(nothing.unsqueeze(-1), 0.0), total, factor


def _laid_out(tensor: torch.Tensor, like: torch.Tensor) -> torch.Tensor:
    """In the dtype of the argument, and in the layout of a GPU's kernels and of all gradients: a row has all heads."""
    return tensor.to(like.dtype).transpose(1, 2).contiguous().transpose(1, 2)


def _forward(
    query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, bias: Any, dropout: float, causal: bool, scale: Any
) -> tuple[torch.Tensor, torch.Tensor]:
    if dropout:
        raise RuntimeError("an attention with dropout draws the random numbers of its device")
    weights, total, _ = _weights(query, key, bias, causal, scale)
    return _laid_out(weights @ value.to(weights.dtype), query), total


def _backward(
    gradient: torch.Tensor, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, bias: Any, out: torch.Tensor,
    statistics: torch.Tensor, causal: bool, scale: Any,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
    """Of query, key, value and scores."""
    weights, _, factor = _weights(query, key, bias, causal, scale, statistics)
    wide = [t.to(weights.dtype) for t in (gradient, query, key, value, out)]
    gradient, wide_query, wide_key, wide_value, out = wide
    along = (gradient * out).sum(-1, keepdim=True)
    scores = weights * (gradient @ wide_value.transpose(-2, -1) - along)
    of_query, of_key = scores @ wide_key * factor, scores.transpose(-2, -1) @ wide_query * factor
    of_value = weights.transpose(-2, -1) @ gradient
    return _laid_out(of_query, query), _laid_out(of_key, key), _laid_out(of_value, value), scores


def _no_state(query: torch.Tensor) -> torch.Tensor:
    return torch.zeros((), dtype=torch.int64, device=query.device)


def _efficient(query: Any, key: Any, value: Any, bias: Any, statistics: bool, dropout: float = 0.0,
               causal: bool = False, *, scale: float | None = None) -> tuple[torch.Tensor, ...]:
    out, total = _forward(query, key, value, bias, dropout, causal, scale)
    padded = torch.nn.functional.pad(total, (0, -total.shape[-1] % _PADDED), value=math.inf)
    return out, padded if statistics else total[..., :0], _no_state(query), _no_state(query)


def _efficient_backward(gradient: Any, query: Any, key: Any, value: Any, bias: Any, out: Any, statistics: Any,
                        seed: Any, offset: Any, dropout: float, wanted: Any, causal: bool = False, *,
                        scale: float | None = None) -> tuple[Any, ...]:
    made = _backward(gradient, query, key, value, bias, out, statistics, causal, scale)
    of_bias = None if bias is None or not wanted[3] else made[3].sum_to_size(bias.shape).to(bias.dtype)
    return (*made[:3], of_bias)


def _flash_on_cpu(query: Any, key: Any, value: Any, dropout: float = 0.0, causal: bool = False, *,
                  attn_mask: Any = None, scale: float | None = None) -> tuple[torch.Tensor, ...]:
    out, total = _forward(query, key, value, attn_mask, dropout, causal, scale)
    return torch.empty_like(query).copy_(out), total  # in the query's layout


def _flash_on_cpu_backward(gradient: Any, query: Any, key: Any, value: Any, out: Any, statistics: Any, dropout: float,
                           causal: bool, *, attn_mask: Any = None, scale: float | None = None) -> tuple[Any, ...]:
    return _backward(gradient, query, key, value, attn_mask, out, statistics, causal, scale)[:3]


def _product(left: torch.Tensor, right: torch.Tensor, bias: torch.Tensor | None = None) -> torch.Tensor:
    return left @ right if bias is None else torch.addmm(bias, left, right)


def _depthwise_weight_gradient(gradient: torch.Tensor, image: torch.Tensor, kernel: Any, *sizes: Any) -> torch.Tensor:
    weight = image.new_empty((image.shape[1], 1, *kernel))
    made = aten.convolution_backward(
        gradient, image, weight, None, *sizes, False, [0, 0], image.shape[1], [False, True, False])
    return made[1].contiguous()


_OF_GPU: dict[Any, Callable[..., Any]] = {
    aten._scaled_dot_product_efficient_attention.default: _efficient,
    aten._scaled_dot_product_efficient_attention_backward.default: _efficient_backward,
}
_OF_CPU: dict[Any, Callable[..., Any]] = {
    aten._scaled_dot_product_flash_attention_for_cpu.default: _flash_on_cpu,
    aten._scaled_dot_product_flash_attention_for_cpu_backward.default: _flash_on_cpu_backward,
    attention.OPERATOR: _flash_on_cpu, sgemm.OPERATOR: _product, depthwise.OPERATOR: _depthwise_weight_gradient,
}
