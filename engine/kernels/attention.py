"""Attention on the CPU by ptdebug's kernel in place of ATen's: same arguments, results and layouts.

ATen's kernel multiplies blocks by calling a BLAS, which packs its operands on each call, and computes the whole matrix
of causal scores where it fits one block. `attention_template.py` has the C++ that does neither, and
`passes/extern_kernels/attention.py` chooses between the two. The backward gets what ATen's does: the logsumexp of each
row. 16-bit inputs are computed in float32 and rounded once; ATen's kernel also rounds the attention weights.
"""
from __future__ import annotations

import ctypes
import math
from struct import pack
from typing import Any

import torch

from .attention_template import ENTRY, SOURCE
from .custom_kernel import OwnKernel

_LIBRARY = torch.library.Library("ptdebug", "FRAGMENT")
_LIBRARY.define("attention(Tensor query, Tensor key, Tensor value, float dropout_p=0.0, bool is_causal=False, *, "
                "Tensor? attn_mask=None, float? scale=None) -> (Tensor output, Tensor logsumexp)")

PARAMETERS = ("const int64_t* task, const void* query, const void* key, const void* value, const void* mask, "
              "void* out, void* logs, double scale")
"""What the C++ function ENTRY takes: sizes and strides as `Task` has them, and addresses."""

ATEN = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu.default
"""The ATen operator that it replaces."""

KERNEL = OwnKernel(SOURCE, ENTRY, (*[ctypes.c_void_p] * 7, ctypes.c_double))


def attention(
    query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, dropout_p: float = 0.0, is_causal: bool = False, *,
    attn_mask: torch.Tensor | None = None, scale: float | None = None,
) -> tuple[torch.Tensor, torch.Tensor]:
    """What `ATEN` returns for tensors (batch, heads, rows, size) of 16 or 32 bits, no dropout and a positive scale.

    Raises BuildFailed or CannotBuild where the kernel cannot be built, MemoryError where there is none left.
    """
    if query.dtype != torch.float32:
        return _of_16_bits(query, key, value, is_causal, attn_mask, scale)
    batch, heads, queries, size = query.shape
    keys = key.shape[2]
    out, logs = _results(query)
    if not (batch and heads and queries and keys and size):  # where ATen's kernel may divide by zero
        return out.zero_(), logs.zero_()
    query, key, value = [t if t.stride(3) == 1 else t.contiguous() for t in (query, key, value)]
    mask = None if attn_mask is None else attn_mask.expand(batch, heads, queries, keys)
    task = pack("25q", batch, heads, queries, keys, size, is_causal, *query.stride()[:3], *key.stride()[:3],
                *value.stride()[:3], *((0, 0, 0, 0) if mask is None else mask.stride()), *out.stride()[:3],
                *logs.stride())
    failed = KERNEL.function(
        task, query.data_ptr(), key.data_ptr(), value.data_ptr(), None if mask is None else mask.data_ptr(),
        out.data_ptr(), logs.data_ptr(), 1.0 / math.sqrt(size) if scale is None else scale)
    if failed:
        raise MemoryError("no memory for attention")
    return out, logs


def _of_16_bits(
    query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, is_causal: bool, mask: torch.Tensor | None,
    scale: float | None,
) -> tuple[torch.Tensor, torch.Tensor]:
    """The same of tensors in 16 bits. Where a row has a score that is infinite or NaN, by `ATEN`, whose exponential for
    16 bits makes numbers of some NaN (`exp_u20` in aten/src/ATen/cpu/vec/vec512/vec512_float.h)."""
    single = None if mask is None else mask.float()
    out, logs = attention(query.float(), key.float(), value.float(), 0.0, is_causal, attn_mask=single, scale=scale)
    if not math.isfinite(logs.sum()):
        return ATEN(query, key, value, 0.0, is_causal, attn_mask=mask, scale=scale)
    return out.to(query.dtype), logs


def _results(query: torch.Tensor, *_: Any, **__: Any) -> tuple[torch.Tensor, torch.Tensor]:
    batch, heads, queries, _size = query.shape
    return torch.empty_like(query), query.new_empty((batch, queries, heads), dtype=torch.float32).transpose(1, 2)


_LIBRARY.impl("attention", attention, "CPU")
_LIBRARY.impl("attention", _results, "Meta")

OPERATOR = torch.ops.ptdebug.attention.default
"""The operator by which graphs call it."""
