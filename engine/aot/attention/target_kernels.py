"""Which fused kernels take an attention on a GPU that is not there, as torch's conditions say (aten/src/ATen/native/
transformers/cuda/sdp_utils.cpp) that depend on the compute capability and the arguments alone."""
from __future__ import annotations

from collections.abc import Sequence

import torch

from .kernels import EFFICIENT, FLASH, HEADS_ALIGNED, MATH, Attention

AMPERE = 80
WIDEST = 256  # elements of a head that the flash kernel takes
HALVES = (torch.float16, torch.bfloat16)


def takers_there(call: Attention, capabilities: Sequence[int]) -> list[str]:
    """What can compute a call on each of these GPUs, in the order in which torch tries it. cuDNN's kernel is none of
    them: whether it takes a call depends on its version there."""
    found = [FLASH] if _fits_flash(call, min(capabilities)) else []
    return [*found, *([EFFICIENT] if _fits_efficient(call, min(capabilities)) else []), MATH]


def _fits_flash(call: Attention, capability: int) -> bool:
    heads = {tensor.shape[3] for tensor in (call.query, call.key, call.value)}
    if capability < AMPERE or call.query.dtype not in HALVES or call.mask is not None or call.dropout:
        return False
    if len(heads) > 1 or not _is_multiple(call, HEADS_ALIGNED) or call.query.shape[3] > WIDEST:
        return False
    square = type(call.query.shape[2]) is int and call.query.shape[2] == call.key.shape[2]
    return _is_dense(call) and (square or not call.causal) and (call.grouped or _has_equal_heads(call))


def _fits_efficient(call: Attention, capability: int) -> bool:
    dtypes = (torch.float32, *HALVES) if capability >= AMPERE else (torch.float32, torch.float16)
    if call.query.dtype not in dtypes or call.grouped or call.dropout or not _has_equal_heads(call):
        return False
    return _is_dense(call) and _is_multiple(call, 16 // call.query.itemsize)


def _has_equal_heads(call: Attention) -> bool:
    return call.query.shape[1] == call.key.shape[1] == call.value.shape[1]


def _is_multiple(call: Attention, step: int) -> bool:
    sizes = [tensor.shape[3] for tensor in (call.query, call.key, call.value)]
    return all(type(n) is int and n % step == 0 for n in sizes)


def _is_dense(call: Attention) -> bool:
    tensors = [call.query, call.key, call.value, *([] if call.mask is None else [call.mask])]
    return all(tensor.stride(-1) == 1 for tensor in tensors)
