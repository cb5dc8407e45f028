"""Calls of ptdebug's attention kernel (`../../kernels/attention.py`), by address like torch's functions."""
from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import sympy
import torch

from ...ir.ir import Buffer, ExternCall, View
from ...unsupported import NoCppWrapper
from ..cpp.indices import c_expression

NAMES = ("query", "key", "value", "dropout_p", "is_causal")


def operands(call: ExternCall) -> list[View | None]:
    """Query, key, value and mask. Raises NoCppWrapper for rows that are not dense, which have to be copied first."""
    given = _given(call)
    tensors: list[View] = [given[name] for name in NAMES[:3]]
    if any(view.stride[3] != 1 or 0 in view.size for view in tensors):
        raise NoCppWrapper("attention on rows that have to be copied, or empty ones")
    return [*tensors, given.get("attn_mask")]


def task(call: ExternCall, results: list[Buffer | None]) -> str:
    """The C++ of what the kernel is told of sizes and strides; of `results`, only the second may not be wanted."""
    query, key, value, mask = operands(call)
    assert query is not None and key is not None and value is not None
    out, logs = results
    if out is None or out.stride[3] != 1:
        raise NoCppWrapper("attention with other result strides")
    if out.dtype != torch.float32:
        raise NoCppWrapper("attention in 16 bits")
    causal = _given(call).get("is_causal", False)
    numbers = [*query.size[:3], key.size[2], query.size[3], sympy.Integer(int(causal))]
    for view in (query, key, value):
        numbers += view.stride[:3]
    numbers += _spread(mask) + [*out.stride[:3], *(logs.stride if logs is not None else _none(3))]
    return ", ".join([c_expression(n) for n in numbers])


def scale(call: ExternCall, size: sympy.Expr) -> str:
    """The C++ of the factor of the scores."""
    given = _given(call).get("scale")
    return f"1.0 / __builtin_sqrt({c_expression(size)})" if given is None else float(given).hex()


def _given(call: ExternCall) -> Mapping[str, Any]:
    return {**dict(zip(NAMES, call.args)), **call.kwargs}


def _spread(mask: View | None) -> list[sympy.Expr]:
    """A mask's strides, 0 where it is the same along a dimension."""
    if mask is None:
        return _none(4)
    strides = [sympy.S.Zero if n == 1 else stride for n, stride in zip(mask.size, mask.stride)]
    return _none(4 - len(strides)) + strides


def _none(count: int) -> list[sympy.Expr]:
    return [sympy.S.Zero] * count
