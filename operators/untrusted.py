"""Calls for which a fake kernel, or a rule made of other operators, gives something else than eager, in a way that no
layout can correct. `traits.py` says which operator has which.

Each function returns why eager differs, and "" where it does not.
"""
from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from .layouts import is_expanded, is_one
from .overlap import may_repeat
from .unbacked import unbacked_in

aten = torch.ops.aten

PARTS: dict[Any, Any] = {
    aten.slice_scatter.default: aten.slice.Tensor,
    aten.select_scatter.default: aten.select.int,
}
"""What writes a window into a tensor, and the view that is the window: both take the same numbers."""


# ---- (operator, arguments): before the fake kernel runs
def no_elements(operator: Any, args: Sequence[Any]) -> str:
    """Eager gives a tensor without elements its own shape back; torch's rule computes one."""
    if unbacked_in(args[0]) or 0 in args[0].shape:
        return f"{operator} of no elements has its shape in eager"
    return ""


def always(operator: Any, args: Sequence[Any]) -> str:
    """The fake kernel gives other sizes and dtypes than eager."""
    return f"{operator} has other results than its fake kernel"


def scatters(operator: Any, args: Sequence[Any]) -> str:
    """Eager writes into a copy whose elements share memory, as the original's do; or raises, because there is no such
    part of the copy. The fake kernel does not look."""
    if not is_expanded(args[0]) and may_repeat(args[0]):
        return f"{operator} writes to elements that share memory"
    if operator in PARTS and not unbacked_in(args) and not _has_part(operator, *args):
        return f"{operator} raises in eager: it has no such part"
    return ""


def _has_part(operator: Any, whole: torch.Tensor, part: torch.Tensor, *numbers: Any) -> bool:
    if operator is aten.select_scatter.default:  # which fake tensors do not check
        dim, position = numbers
        if not -whole.shape[dim] <= position < whole.shape[dim]:
            return False
    return bool(PARTS[operator](whole, *numbers).shape == part.shape)


def median_rows(operator: Any, args: Sequence[Any]) -> str:
    """Of rows that are one element, eager's kernel reads those beside it in memory: it takes a step of 0 for one of 1
    (`median_with_indices_impl` in aten/src/ATen/native/Sorting.cpp)."""
    if args[0].device.type == "cpu" and args[0].dim() > 0:
        size, stride = args[0].shape[args[1]], args[0].stride(args[1])
        if type(stride) is int and stride == 0 and not is_one(size):
            return f"{operator} of rows that are one element reads memory around them"
    return ""


# ---- (operator, fake result, arguments)
Wrong = Callable[[Any, Any, Sequence[Any]], str]


def sized_by_data(operator: Any, out: Any, args: Sequence[Any]) -> str:
    """torch before 2.12 takes the size for data of zeros."""
    known = all(type(n) is int for n in out[0].shape)
    return f"the size of the result of {operator} depends on data" if known else ""


def vector_norm(operator: Any, out: Any, args: Sequence[Any]) -> str:
    """torch 2.11 keeps dimensions of size 1; a number has none."""
    if len(args) > 2 and args[2] and not (len(args) > 3 and args[3]) and 0 < args[0].dim() == out.dim():
        return f"the fake result of {operator} keeps the dimensions that it reduces"
    return ""


def dtype_of_the_first(operator: Any, out: Any, args: Sequence[Any]) -> str:
    """The result has the dtype of the first argument whatever the others' are."""
    return f"{operator} gives {args[0].dtype}, its fake kernel {out.dtype}" if out.dtype != args[0].dtype else ""


def batch_norm_statistics(operator: Any, out: Any, args: Sequence[Any]) -> str:
    """Statistics stay in their dtype."""
    if out[3].dtype != args[3].dtype:
        return f"{operator} keeps statistics in {args[3].dtype}, its fake kernel in {out[3].dtype}"
    return ""
