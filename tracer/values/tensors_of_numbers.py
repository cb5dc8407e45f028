"""torch.tensor of numbers that vary, alone or in lists: what torch's own reads is right for one call only.

The numbers become tensors in the widest dtype of their kind and are converted there, as `store_scalar` in
torch/csrc/utils/tensor_new.cpp does with Python's: what is too large for a float32 is infinite.
"""
from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import torch

from .base import Value
from .constant import constant
from .lists import make_list
from .number import NumberValue
from .sequences import SequenceValue

if TYPE_CHECKING:
    from ..interpreter import Interpreter

_WIDEST = {torch.int64: torch.int64, torch.float32: torch.float64, torch.float64: torch.float64}
"""By the dtype of the result; other dtypes refuse some numbers."""


def tensor_of_numbers(tx: Interpreter, args: Sequence[Value], kwargs: Mapping[str, Value]) -> Value | None:
    """torch.tensor(numbers, dtype=, device=); None where no number varies, or it is not known how torch converts it."""
    shape = _shape(args[0]) if len(args) == 1 and kwargs.keys() <= {"dtype", "device"} else None
    if shape is None:
        return None
    numbers = _flat(args[0])
    kinds = {number.python_type() for number in numbers}
    asked = kwargs["dtype"].as_constant() if "dtype" in kwargs else None
    dtype = asked or (torch.get_default_dtype() if float in kinds else torch.int64)
    widest = _WIDEST.get(dtype)
    if widest is None or not kinds <= ({int} if widest is torch.int64 else {int, float}):
        return None
    if not any(isinstance(number, NumberValue) for number in numbers):
        return None
    options = {**kwargs, "dtype": constant(widest)}
    made = [tx.graph.call(torch.scalar_tensor, [number], options, tx) for number in numbers]
    result = made[0]
    if shape:
        stacked = tx.graph.call(torch.stack, [make_list(tx, made)], {}, tx)
        result = tx.graph.call("view", [stacked, constant(shape)], {}, tx, op="call_method")
    return result if dtype is widest else tx.graph.call("to", [result, constant(dtype)], {}, tx, op="call_method")


def _shape(value: Value) -> tuple[int, ...] | None:
    """The lengths of nested lists of numbers, as far as these are equal; None for anything else."""
    if isinstance(value, NumberValue) or (value.is_constant() and type(value.as_constant()) in (int, float)):
        return ()
    if not isinstance(value, SequenceValue) or not value.items:
        return None
    inner = {_shape(item) for item in value.items}
    first = inner.pop()
    return None if inner or first is None else (len(value.items), *first)


def _flat(value: Value) -> list[Value]:
    return [number for item in value.items for number in _flat(item)] if isinstance(value, SequenceValue) else [value]
