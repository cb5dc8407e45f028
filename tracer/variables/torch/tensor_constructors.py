"""torch.tensor of varying numbers, alone or in lists, and of lists with tensors in place of numbers: torch's own result
is right for one call only.

The numbers become tensors in the widest dtype of their kind and are converted there, as `store_scalar` in
torch/csrc/utils/tensor_new.cpp does with Python's: what is too large for a float32 is infinite.
"""
from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import torch
from torch._C._functorch import is_functorch_wrapped_tensor

from ...breaks.reasons import Reason
from ...breaks.unsupported import Unsupported
from ..containers.lists import make_list
from ..containers.sequences import SequenceValue
from ..core.base import Value
from ..core.constant import constant
from ..python.symbolic_numbers import NumberValue
from .tensor import TensorValue

if TYPE_CHECKING:
    from ..core.base import Translator

_INTEGERS = frozenset((torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64))
_WIDEST = {torch.int64: torch.int64, torch.float32: torch.float64, torch.float64: torch.float64}
"""By the dtype of the result; other dtypes refuse some numbers."""


def tensor_of_numbers(tx: Translator, args: Sequence[Value], kwargs: Mapping[str, Value]) -> Value | None:
    """torch.tensor(numbers, dtype=, device=); None where no number varies, or torch's conversion is not modeled."""
    shape = _shape(args[0]) if len(args) == 1 and kwargs.keys() <= {"dtype", "device"} else None
    if shape is None or isinstance(args[0], TensorValue):
        return None
    numbers = _flat(args[0])
    kinds = [_dtype(number) for number in numbers]
    asked = kwargs["dtype"].as_constant() if "dtype" in kwargs else None
    dtype = asked or functools.reduce(torch.promote_types, kinds)
    widest = _WIDEST.get(dtype)
    if widest is None or (widest is torch.int64 and not _INTEGERS.issuperset(kinds)):
        return None
    if not any(isinstance(number, (NumberValue, TensorValue)) for number in numbers):
        return None
    options = {**kwargs, "dtype": constant(widest)}
    made = [_converted(tx, number, options) for number in numbers]
    result = made[0]
    if shape:
        stacked = tx.graph.call(torch.stack, [make_list(tx, made)], {}, tx)
        result = tx.graph.call("view", [stacked, constant(shape)], {}, tx, op="call_method")
    return result if dtype is widest else tx.graph.call("to", [result, constant(dtype)], {}, tx, op="call_method")


def places_of(tx: Translator, part: Value) -> Value:
    """A part of an index: a list with tensors among its integers as one tensor."""
    if not isinstance(part, SequenceValue) or _shape(part) is None:
        return part
    if not {_dtype(number) for number in _flat(part)} <= _INTEGERS - {torch.uint8}:
        return part
    options = {"dtype": constant(torch.int64), "device": constant(torch.device("cpu"))}
    return tensor_of_numbers(tx, [part], options) or part


def _dtype(number: Value) -> torch.dtype:
    """The dtype that torch infers for a number, or for a tensor that represents one."""
    if isinstance(number, TensorValue):
        return number.fake.dtype
    return torch.get_default_dtype() if number.python_type() is float else torch.int64


def _converted(tx: Translator, number: Value, options: Mapping[str, Value]) -> Value:
    """A tensor of one number, without gradient: `torch.tensor` takes its value."""
    if not isinstance(number, TensorValue):
        return tx.graph.call(torch.scalar_tensor, [number], options, tx)
    value = tx.graph.call("detach", [number], {}, tx, op="call_method")
    if number.fake.requires_grad:
        warned_of_history(tx)
    return tx.graph.call("to", [value], options, tx, op="call_method")


def warned_of_history(tx: Translator) -> None:
    """A tensor that requires grad becomes a float: torch warns about it once per process, at the first line that does
    it."""
    try:
        tx.graph.called(float, (_WITH_HISTORY,), {})
    except Warning as error:
        raise Unsupported(
            Reason.UNSUPPORTED_BUILTIN, float, detail="of a tensor that requires grad, which is warned of"
        ) from error


_WITH_HISTORY = torch.ones((), requires_grad=True)


def _shape(value: Value) -> tuple[int, ...] | None:
    """The lengths of nested lists of numbers, as far as these are equal; None for anything else."""
    if isinstance(value, TensorValue):
        fake = value.fake
        plain = type(value) is TensorValue and fake.device.type == "cpu" and not is_functorch_wrapped_tensor(fake)
        return () if plain and fake.dim() == 0 and not fake.is_complex() else None
    if isinstance(value, NumberValue) or (value.is_constant() and type(value.as_constant()) in (int, float)):
        return ()
    if not isinstance(value, SequenceValue) or not value.items:
        return None
    inner = {_shape(item) for item in value.items}
    first = inner.pop()
    return None if inner or first is None else (len(value.items), *first)


def _flat(value: Value) -> list[Value]:
    return [number for item in value.items for number in _flat(item)] if isinstance(value, SequenceValue) else [value]
