"""ATen's fused attention kernels for CUDA devices: what each takes, and its call.

`torch.nn.functional.scaled_dot_product_attention` makes the same calls where it chooses the same kernel
(aten/src/ATen/native/transformers/attention.cpp).
"""
from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

import torch
from torch.fx.experimental.symbolic_shapes import statically_known_true
from torch.torch_version import TorchVersion

from ..real_tensors import without_modes

aten = torch.ops.aten
CUDNN, FLASH, EFFICIENT, MATH = "cudnn", "flash", "efficient", "math"
"""Three kernels, and two matrix products around a softmax."""

ALIGNED = 16  # elements: rows of a bias begin at multiples of that many (`preprocess_mask` in attention.cpp)
LOW = -65504.0 if TorchVersion(torch.__version__) < "2.12" else -math.inf  # pull request 177868 of pytorch
SMALLEST = 16  # size of a head for which filling it pays
PIECE = 16  # bytes: what rows of queries, keys and values begin at multiples of
HEADS_ALIGNED = 8  # elements: what the sizes of heads are multiples of
_NUMBERS = {0: MATH, 1: FLASH, 2: EFFICIENT, 3: CUDNN}  # SDPBackend


@dataclass(frozen=True)
class Attention:
    """The arguments of an attention. `mask` is added to the scores; `grouped`: several heads share a key; `hidden_low`:
    the gradient of a row that sees nothing is NaN or a number, which depends on the kernel."""

    query: torch.Tensor
    key: torch.Tensor
    value: torch.Tensor
    mask: torch.Tensor | None
    dropout: float
    causal: bool
    scale: float | None
    grouped: bool
    hidden_low: bool = False

    @property
    def needs_logsumexp(self) -> bool:
        """Whether the backward will ask for it."""
        tensors = (self.query, self.key, self.value, self.mask)
        return torch.is_grad_enabled() and any(t is not None and t.requires_grad for t in tensors)


def prepared(call: Attention, eager: str) -> Attention:
    """The same with the mask as a bias in the query's dtype, in a layout that fused kernels take.

    A row that sees nothing gets what the kernel gives it that computes it in `eager`: for cuDNN's, torch used to hide
    by a number so low that it hides beside any other, but nothing where all are as low.
    """
    low = LOW if eager == CUDNN else -math.inf
    mask = None if call.mask is None else _bias(call.mask, call.query, call.key.shape[2], low)
    by_number = call.mask is not None and call.mask.dtype == torch.bool and math.isfinite(low)
    return replace(call, mask=mask, hidden_low=by_number and call.needs_logsumexp)


def are_aligned(call: Attention) -> bool:
    """Whether kernels that find query, key and value as they are read them: torch only asks whether elements of a row
    are neighbours, and the memory-efficient kernel raises for other rows."""
    for tensor in (call.query, call.key, call.value):
        step = PIECE // tensor.itemsize
        numbers = (*tensor.stride()[:-1], tensor.storage_offset())
        if not all(statically_known_true(n % step == 0) for n in numbers):
            return False
    return True


def in_other_forms(call: Attention) -> Iterator[Attention]:
    """A prepared call in 16 bits that no fused kernel takes, in forms that one may take. One in 32 bits is eager's."""
    if call.query.dtype not in (torch.float16, torch.bfloat16) or call.query.shape[-1] < SMALLEST:
        return
    odd = call.query.shape[-1] % HEADS_ALIGNED or call.value.shape[-1] % HEADS_ALIGNED
    if odd:
        yield with_wide_heads(call)
    if call.grouped:
        alone = _with_heads_of_their_own(call)
        yield alone
        if odd:
            yield with_wide_heads(alone)


def _with_heads_of_their_own(call: Attention) -> Attention:
    """The same with keys and values repeated for each head of the query, as for two products."""
    heads = call.query.shape[1]
    key, value = [t.repeat_interleave(heads // t.shape[1], 1) for t in (call.key, call.value)]
    return replace(call, key=key, value=value, grouped=False)


def with_wide_heads(call: Attention) -> Attention:
    """The same with heads whose size is a multiple of what all kernels take, filled with zeros: the first elements of
    its result are those of the call's."""
    wide = [_wide(t) for t in (call.query, call.key, call.value)]
    scale = call.scale if call.scale is not None else 1.0 / math.sqrt(call.query.shape[-1])
    return replace(call, query=wide[0], key=wide[1], value=wide[2], scale=scale)


def _wide(tensor: torch.Tensor) -> torch.Tensor:
    return torch.nn.functional.pad(tensor, (0, -tensor.shape[-1] % HEADS_ALIGNED))


def takers(call: Attention) -> list[str]:
    """What can compute a call, in the order in which torch tries it; what a program has turned off cannot."""
    cuda = torch.backends.cuda
    tensors = (call.query, call.key, call.value, call.mask)
    params = cuda.SDPAParams(*tensors, call.dropout, call.causal, call.grouped)
    asked: dict[str, Callable[[], bool]] = {
        CUDNN: lambda: cuda.can_use_cudnn_attention(params, False),
        FLASH: lambda: cuda.can_use_flash_attention(params, False),
        EFFICIENT: lambda: cuda.can_use_efficient_attention(params, False),
        MATH: cuda.math_sdp_enabled,
    }
    return [name for name in _order(call.query.device) if asked[name]()]


def computed(call: Attention, kernel: str) -> torch.Tensor:
    """The result of a prepared call by a kernel, or by two products."""
    return _CALLS[kernel](call)


OWN_PLANS = -0.0
"""The dropout with which cuDNN's kernel is called where nothing is dropped and a gradient will come.

torch 2.11 finds cuDNN's plan for a backward by the bytes of a key (aten/src/ATen/native/cudnn/MHA.cpp), which has this
number, but not the layout of the gradient that comes in: one of another layout than at the plan's first call is
misread. So the plans of compiled graphs are none that the program has made, and their gradients have one layout.
"""


def lay_out_gradient(result: torch.Tensor) -> None:
    """Let the gradient of a dense result come in the result's own layout."""
    steps = [step.node.hint if isinstance(step, torch.SymInt) else step for step in result.stride()]
    order = sorted(range(len(steps)), key=lambda dim: -(steps[dim] or 0))
    back = sorted(range(len(steps)), key=order.__getitem__)
    if result.requires_grad:
        result.register_hook(lambda gradient: gradient.permute(order).contiguous().permute(back))


def _by_cudnn(call: Attention) -> torch.Tensor:
    own = call.needs_logsumexp and not call.dropout
    result: torch.Tensor = aten._scaled_dot_product_cudnn_attention.default(
        call.query, call.key, call.value, call.mask, call.needs_logsumexp, OWN_PLANS if own else call.dropout,
        call.causal, False, scale=call.scale)[0]
    if own:
        lay_out_gradient(result)
    return result


def _by_flash(call: Attention) -> torch.Tensor:
    wide = with_wide_heads(call) if call.query.shape[-1] % HEADS_ALIGNED else call
    result: torch.Tensor = aten._scaled_dot_product_flash_attention.default(
        wide.query, wide.key, wide.value, call.dropout, call.causal, False, scale=wide.scale)[0]
    return result if wide is call else result.narrow(3, 0, call.value.shape[-1])


def _efficiently(call: Attention) -> torch.Tensor:
    result: torch.Tensor = aten._scaled_dot_product_efficient_attention.default(
        call.query, call.key, call.value, call.mask, call.needs_logsumexp, call.dropout, call.causal,
        scale=call.scale)[0]
    return result


def _by_products(call: Attention) -> torch.Tensor:
    result: torch.Tensor = aten._scaled_dot_product_attention_math.default(
        call.query, call.key, call.value, call.mask, call.dropout, call.causal, None, scale=call.scale,
        enable_gqa=call.grouped)[0]
    return result


_CALLS: dict[str, Callable[[Attention], torch.Tensor]] = {
    CUDNN: _by_cudnn, FLASH: _by_flash, EFFICIENT: _efficiently, MATH: _by_products,
}


def _bias(mask: torch.Tensor, query: torch.Tensor, keys: Any, low: float) -> torch.Tensor:
    """A mask as what is added to the scores, with rows that begin aligned. Computed once for what shares it."""
    batch, heads, queries, _ = query.shape
    while mask.dim() < 4:
        mask = mask.unsqueeze(0)
    for dim in range(3):
        if _is_repeated(mask, dim):
            mask = mask.narrow(dim, 0, 1)
    if mask.dtype == torch.bool:
        zero, hidden = [torch.scalar_tensor(x, dtype=query.dtype, device=mask.device) for x in (0.0, low)]
        mask = torch.where(mask, zero, hidden)
    if not _is_aligned(mask, keys):
        mask = mask.expand(*mask.shape[:3], keys).clone(memory_format=torch.contiguous_format)
        if keys % ALIGNED:  # a guard, where sizes vary; zeros, as in eager: kernels may read what fills a row
            filler = mask.new_zeros((*mask.shape[:3], -keys % ALIGNED))
            mask = torch.cat((mask, filler), 3).narrow(3, 0, keys)
    return mask.expand(batch, heads, queries, keys)


def _is_repeated(tensor: torch.Tensor, dim: int) -> bool:
    stride = tensor.stride(dim)
    return type(stride) is int and stride == 0


def _is_aligned(mask: torch.Tensor, keys: Any) -> bool:
    """Whether kernels take a mask as it is; of one whose sizes vary, nothing is known."""
    numbers = (keys, *mask.shape, *mask.stride(), mask.storage_offset())
    if not all(type(n) is int for n in numbers):
        return False
    starts = [mask.storage_offset(), *(stride for n, stride in zip(mask.shape[:3], mask.stride()) if n != 1)]
    return mask.shape[3] == keys and mask.stride(3) == 1 and not any(n % ALIGNED for n in starts)


def _order(device: torch.device) -> list[str]:
    """The kernels in torch's order, which is the device's default until the program sets another."""
    _let_torch_order(device.index or 0)
    return [_NUMBERS[number] for number in torch._C._get_sdp_priority_order() if number in _NUMBERS]


@cache
def _let_torch_order(device: int) -> None:
    """torch sets its order when it is first asked."""
    if torch.cuda.is_available():
        with without_modes():
            some = torch.empty((1, 1, 8, 8), device=f"cuda:{device}", dtype=torch.half)
            torch._fused_sdp_choice(some, some, some)
