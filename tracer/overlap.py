"""Writes to tensors of which several elements are one in memory: eager refuses most of them, fake tensors none."""
from __future__ import annotations

import operator
from collections.abc import Mapping
from types import BuiltinFunctionType
from typing import Any

import torch

_IN_PLACE = frozenset((
    operator.iadd, operator.isub, operator.imul, operator.itruediv, operator.ifloordiv, operator.imod, operator.ipow,
    operator.iand, operator.ior, operator.ixor, operator.ilshift, operator.irshift, operator.setitem,
))  # fmt: skip
_ARE_ALLOWED = frozenset((
    "conj_physical_", "fill_", "fill_diagonal_", "index_fill_", "index_put_", "masked_fill_", "tril_", "triu_", "zero_",
    "as_strided_", "detach_", "rename_", "requires_grad_", "resize_", "resize_as_", "set_", "squeeze_", "swapaxes_",
    "swapdims_", "t_", "transpose_", "unsqueeze_",
))  # fmt: skip
"""What eager allows in place where elements share memory: they set all to one number, or write nothing."""


def may_be_refused(op: str, target: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> bool:
    """Whether eager may refuse to write to a tensor that has one element for several indices
    (`assert_no_internal_overlap` in ATen/MemoryOverlap.cpp), which fake tensors do not."""
    written = kwargs.get("out")
    if written is None and args:
        name = target if op == "call_method" else target.__name__ if isinstance(target, BuiltinFunctionType) else ""
        in_place = name.endswith("_") and not name.endswith("__") and name not in _ARE_ALLOWED
        if (
            in_place or target in _IN_PLACE or writes_lists(target)
            or kwargs.get("inplace", _is_at(target, "inplace", args)) is True
        ):  # fmt: skip
            written = args[0]
    ones = written if isinstance(written, (list, tuple)) else (written,)
    return any(isinstance(one, torch.Tensor) and _shares_elements(one) for one in ones)


def _shares_elements(tensor: torch.Tensor) -> bool:
    return tensor.layout is torch.strided and any(
        type(stride) is int and stride == 0 and (type(size) is not int or size > 1)
        for stride, size in zip(tensor.stride(), tensor.shape)
    )


def _is_at(function: Any, name: str, args: tuple[Any, ...]) -> Any:
    """The argument that a Python function of torch (`F.relu`) gets as its parameter `name`, by position; else None."""
    code = getattr(function, "__code__", None)
    names = code.co_varnames[: min(code.co_argcount, len(args))] if code is not None else ()
    return args[names.index(name)] if name in names else None


def writes_lists(target: Any) -> bool:
    """Whether a function changes the tensors of its first argument, a list: `torch._foreach_add_`."""
    name = getattr(target, "__name__", "").partition(".")[0]
    return name.startswith("_foreach_") and name.endswith("_")
