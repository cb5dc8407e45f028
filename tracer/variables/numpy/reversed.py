"""`array[::-1]`: a view with negative steps, which tensors do not have.

Functions that read it and return new memory read a flipped copy of the current items. Everything else (writing to it,
further views, passing it to torch) is left to eager, where the array itself is made by the same expression.
"""
from __future__ import annotations

import operator
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
from torch.fx.experimental.symbolic_shapes import free_unbacked_symbols

from ...breaks.reasons import Reason
from ...breaks.unsupported import Unsupported
from ..containers.lists import ListValue
from ..containers.sequences import SequenceValue, TupleValue
from ..containers.slices import SliceValue
from ..core.base import Value
from ..core.constant import BoundBuiltin, constant
from ..core.handlers import handler_of, handles
from ..core.operators import IN_PLACE, apply
from ..torch.tensor import TensorValue
from . import creation, functions, methods, reductions, shapes  # noqa: F401  (its handlers are looked up here)
from .ndarrays import ATTRIBUTES, INDEXING, ArrayValue, NdarrayValue, result

if TYPE_CHECKING:
    from ..core.base import Codegen, Translator

Args = Sequence[Value]
Kwargs = Mapping[str, Value]

_METADATA = ("shape", "dtype", "ndim", "size", "itemsize", "nbytes")

_METHODS = frozenset(
    "copy astype sum mean prod std var max min any all argmax argmin cumsum cumprod round clip dot flatten"
    " tolist".split()
)
"""Those that return new memory."""

_FUNCTIONS: dict[Any, int] = {
    **dict.fromkeys((
        np.concatenate, np.stack, np.vstack, np.hstack, np.copy, np.ascontiguousarray, np.tile, np.repeat, np.roll,
        np.diff, np.sort, np.round, np.clip, np.sum, np.mean, np.prod, np.std, np.var, np.max, np.min, np.any, np.all,
        np.argmax, np.argmin, np.cumsum, np.cumprod,
    ), 1),
    **dict.fromkeys((np.dot, np.matmul, np.outer), 2),
    np.where: 3,
}  # fmt: skip
"""Functions that return new memory, and how many of their arguments they read."""


class ReversedValue(Value):
    """base[where] with a negative step: the items of `view`, a part of `base`, reversed along `dims`."""

    __slots__ = ("base", "dims", "view", "where")

    def __init__(self, base: NdarrayValue, where: Value, view: NdarrayValue, dims: tuple[int, ...]) -> None:
        super().__init__()
        self.base = base
        self.where = where
        self.view = view
        self.dims = dims

    def python_type(self) -> type:
        """np.ndarray."""
        return np.ndarray

    def now(self, tx: Translator) -> ArrayValue:
        """A copy of the current items."""
        return result(tx, tx.graph.call("flip", [self.view.tensor, constant(self.dims)], {}, tx, op="call_method"))

    def binary(self, tx: Translator, function: Callable[..., Any], left: Value, right: Value) -> Value | None:
        """By the items; nothing writes to them."""
        if function in IN_PLACE and left is self:
            raise Unsupported(Reason.OPERATOR, function, given=(self,))
        return apply(tx, function, _read(tx, left), _read(tx, right))

    def unary(self, tx: Translator, function: Callable[..., Any]) -> Value:
        """By the items."""
        return apply(tx, function, self.now(tx))

    def length(self, tx: Translator) -> Value:
        """Size of the first dimension."""
        return self.view.length(tx)

    def truth(self, tx: Translator) -> bool:
        """Depends on the data."""
        return self.view.truth(tx)

    def key(self) -> Any:
        """Arrays have no hash."""
        return self.view.key()

    def getattr(self, tx: Translator, name: str) -> Value:
        """Attributes shared with the view, and methods that only read."""
        if name in _METADATA:
            return ATTRIBUTES[name](tx, self.view)
        if name in _METHODS:
            return BoundBuiltin(self, name)
        return super().getattr(tx, name)

    def call_method(self, tx: Translator, name: str, args: Args, kwargs: Kwargs) -> Value:
        """Of a copy, where the method only reads."""
        if name not in _METHODS or "out" in kwargs:
            raise Unsupported(Reason.NUMPY_UNSUPPORTED, np.ndarray, name, given=(self,))
        return self.now(tx).call_method(tx, name, args, kwargs)

    def reconstruct(self, codegen: Codegen) -> None:
        """base[where]."""
        codegen.call_const(operator.getitem, [self.base, self.where])

    def describe(self) -> str:
        """For messages."""
        return f"a reversed part of {self.base.describe()}"


def _read(tx: Translator, value: Value) -> Value:
    """The items of a reversed array, also inside a list."""
    if isinstance(value, ReversedValue):
        return value.now(tx)
    if isinstance(value, SequenceValue) and any(isinstance(item, ReversedValue) for item in value.items):
        items = [_read(tx, item) for item in value.items]
        return TupleValue(items, tuple) if isinstance(value, TupleValue) else ListValue(items, list)
    return value


def _reads(function: Any, count: int) -> None:
    others = handler_of(function)
    assert others is not None

    @handles(function)
    def handler(tx: Translator, args: Args, kwargs: Kwargs) -> Value:
        return others(tx, [*[_read(tx, arg) for arg in args[:count]], *args[count:]], kwargs)


for _function, _count in _FUNCTIONS.items():
    if handler_of(_function) is not None:
        _reads(_function, _count)
for _ufunc in (found for found in vars(np).values() if isinstance(found, np.ufunc)):
    if handler_of(_ufunc) is not None and _ufunc not in _FUNCTIONS:
        _reads(_ufunc, _ufunc.nin)


# ---- array[key] ------------------------------------------------------------------------------------------------------
_get_forward = INDEXING["get"]


def _get(tx: Translator, array: ArrayValue, key: Value) -> Value:
    """A reversed part where a step is negative. A dimension of 1 has no direction: left to eager."""
    parts = list(key.items) if isinstance(key, TupleValue) else [key]
    if not isinstance(array, NdarrayValue) or not any(_is_backward(part) for part in parts):
        return _get_forward(tx, array, key)
    refused = partial(Unsupported, Reason.SUBSCRIPT, array, detail=f"by {key.describe()}")
    sizes = array.fake.shape
    if not all(map(_is_plain, parts)):
        raise refused()
    given = [part for part in parts if isinstance(part, SliceValue)]
    after = next((len(parts) - i - 1 for i, part in enumerate(parts) if not isinstance(part, SliceValue)), 0)
    places = [*range(len(given) - after), *range(len(sizes) - after, len(sizes))]
    if len(parts) - len(given) > 1 or len(given) > len(sizes):
        raise refused()
    forward, dims = [constant(slice(None)) for _ in sizes], []
    for dim, part in zip(places, given):
        asked = part.as_constant()
        if asked.step is not None and asked.step < 0:
            dims.append(dim)
        if type(sizes[dim]) is int:
            asked = _forward(range(sizes[dim])[asked])
        elif asked == slice(None, None, -1) and not free_unbacked_symbols(sizes[dim]):  # which is 2 or more
            asked = slice(None)
        elif asked != slice(None):
            raise refused()
        forward[dim] = constant(asked)
    if any(type(size) is int and size < 2 for size in sizes):
        raise refused()
    slices = [SliceValue([constant(getattr(f.value, name)) for name in ("start", "stop", "step")]) for f in forward]
    view = _get_forward(tx, array, TupleValue(slices, tuple))
    assert isinstance(view, NdarrayValue) and isinstance(view.tensor, TensorValue)
    if any(type(view.fake.shape[dim]) is int and view.fake.shape[dim] < 2 for dim in dims):
        raise refused()
    return ReversedValue(array, key, view, tuple(dims))


def _forward(taken: range) -> slice:
    """The slice of the same indices in ascending order."""
    ascending = taken[::-1] if taken.step < 0 else taken
    return slice(ascending.start, ascending.stop, ascending.step)


def _is_backward(part: Value) -> bool:
    if not isinstance(part, SliceValue) or not part.parts[2].is_constant():
        return False
    step = part.parts[2].as_constant()
    return type(step) is int and step < 0


def _is_plain(part: Value) -> bool:
    """A slice of constants, or an ellipsis."""
    return part.is_constant() and (isinstance(part, SliceValue) or part.as_constant() is Ellipsis)


INDEXING["get"] = _get
