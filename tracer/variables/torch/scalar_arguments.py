"""Tensors with one integer in place of a size: `x.view(n, -1)` where `n` is a tensor. Python reads the integer."""
from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from ..containers.lists import ListValue
from ..containers.sequences import TupleValue
from ..core.base import Value
from .tensor import TensorValue

if TYPE_CHECKING:
    from ..core.base import Translator

TAKE_SIZES = frozenset(
    "view reshape expand repeat tile unflatten narrow new_zeros new_ones new_empty new_full zeros ones empty full eye"
    .split()
)
"""Operators whose arguments besides the tensor itself are numbers (of those that fill: the first)."""


def with_numbers(tx: Translator, name: str, is_method: bool, args: Sequence[Value]) -> Sequence[Value]:
    """The positional arguments with `tensor.item()` for each tensor in place of a number."""
    start = int(is_method or name in ("reshape", "narrow", "tile", "unflatten"))
    end = start + 1 if name in ("new_full", "full") else len(args)
    return [_number(tx, arg) if start <= i < end else arg for i, arg in enumerate(args)]


def _number(tx: Translator, value: Value) -> Value:
    if isinstance(value, TensorValue):
        whole = not (value.fake.is_floating_point() or value.fake.is_complex())
        return value.call_method(tx, "item", [], {}) if value.fake.dim() == 0 and whole else value
    if type(value) is ListValue or (type(value) is TupleValue and value.kind is tuple):
        items: Any = value.items
        if any(isinstance(item, TensorValue) for item in items):
            return TupleValue([_number(tx, item) for item in items], tuple)
    return value
