"""Attributes and methods of NumPy's arrays and numbers, and torch's functions that make tensors from arrays."""
from __future__ import annotations

import operator
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from ...breaks.reasons import Reason
from ...breaks.unsupported import Unsupported
from ..containers.sequences import SequenceValue, TupleValue
from ..core.base import Value
from ..core.constant import constant
from ..core.handlers import handler_of, handles
from ..core.operators import apply
from ..python.floats import is_numpys
from ..python.symbolic_numbers import NumberValue
from ..torch.tensor import TensorValue
from ..torch.tensor_constructors import tensor_of_numbers
from ..torch.tensor_methods import METHODS as TENSOR_METHODS
from .dtypes import named_dtype, sample, torch_dtype
from .functions import clipped, dot, rounded, taken
from .ndarrays import (
    ATTRIBUTES,
    METHODS,
    ArrayValue,
    NdarrayValue,
    NumpyNumber,
    called,
    laid_out,
    method,
    plain,
    result,
    shape_value,
    tensor_from,
    written,
)
from .shapes import raveled, repeated, reshaped, squeezed, swapped, transposed
from .ufuncs import cast, operand

if TYPE_CHECKING:
    from ..core.base import Translator

Args = Sequence[Value]
Kwargs = Mapping[str, Value]


# ---- attributes ----------------------------------------------------------------------------------------------------
def _size(tx: Translator, array: ArrayValue) -> Value:
    return array.tensor.call_method(tx, "numel", [], {})


def _nbytes(tx: Translator, array: ArrayValue) -> Value:
    return apply(tx, operator.mul, _size(tx, array), constant(array.dtype.itemsize))


def _strides(tx: Translator, array: ArrayValue) -> Value:
    if any(not isinstance(size, int) or size < 2 for size in array.fake.shape):
        raise Unsupported(Reason.ATTRIBUTE, np.ndarray, "strides")  # of a dimension of 1 the stride may be any number
    return constant(tuple(stride * array.dtype.itemsize for stride in array.fake.stride()))


ATTRIBUTES.update({
    "shape": shape_value,
    "dtype": lambda tx, array: constant(array.dtype),
    "ndim": lambda tx, array: constant(array.fake.dim()),
    "size": _size,
    "itemsize": lambda tx, array: constant(array.dtype.itemsize),
    "nbytes": _nbytes,
    "strides": _strides,
    "real": lambda tx, array: array,
    "T": lambda tx, array: array if isinstance(array, NumpyNumber) else transposed(tx, array),
})  # fmt: skip


# ---- methods -------------------------------------------------------------------------------------------------------
def astype(tx: Translator, array: Value, dtype: Value, copy: Value | None = None) -> Value:
    """A copy in another dtype, with the same layout."""
    assert isinstance(array, ArrayValue)
    wanted = named_dtype(dtype)
    if wanted is None or not plain(copy, True):
        raise Unsupported(Reason.NUMPY_UNSUPPORTED, np.ndarray, "astype", detail="without a copy")
    made = cast(tx, array.tensor, wanted)
    if made is array.tensor:
        made = method(tx, "clone", made)
    if isinstance(array, NumpyNumber):
        return result(tx, made, scalar=True)
    return result(tx, laid_out(tx, made, sample(array.dtype, array.fake).astype(wanted)))


def _copy(tx: Translator, array: Value, order: Value | None = None) -> Value:
    """In C order, unless requested otherwise."""
    assert isinstance(array, ArrayValue)
    if plain(order, "C") != "C":
        raise Unsupported(Reason.NUMPY_UNSUPPORTED, np.ndarray, "copy", detail="in another order")
    if isinstance(array, NumpyNumber):
        return array
    return result(tx, laid_out(tx, method(tx, "clone", array.tensor), np.ones((1,) * array.fake.dim())))


def _flatten(tx: Translator, array: Value) -> Value:
    """A flattened copy."""
    assert isinstance(array, ArrayValue)
    return result(tx, method(tx, "reshape", method(tx, "clone", array.tensor), constant(-1)))


def _reshape(tx: Translator, array: Value, *sizes: Value) -> Value:
    assert isinstance(array, ArrayValue)
    return reshaped(tx, array, sizes[0] if len(sizes) == 1 else TupleValue(sizes, tuple))


def _ravel(tx: Translator, array: Value) -> Value:
    assert isinstance(array, ArrayValue)
    return raveled(tx, array)


def _transpose(tx: Translator, array: Value, *axes: Value) -> Value:
    return transposed(tx, array, axes[0] if len(axes) == 1 else TupleValue(axes, tuple) if axes else None)


def _item(tx: Translator, array: Value, *index: Value) -> Value:
    assert isinstance(array, ArrayValue)
    if len(index) > 1:
        index = (TupleValue(index, tuple),)
    found = array.getitem(tx, index[0]) if index else array
    assert isinstance(found, ArrayValue)
    return found.item(tx)


def _tolist(tx: Translator, array: Value) -> Value:
    assert isinstance(array, ArrayValue)
    return array.tensor.call_method(tx, "tolist", [], {})


def _fill(tx: Translator, array: Value, value: Value) -> Value:
    if not isinstance(array, NdarrayValue):
        raise Unsupported(Reason.NUMPY_UNSUPPORTED, detail="fill of a NumPy scalar")
    number = operand(tx, value, array.dtype, unsafe=True)
    written(tx, array)
    method(tx, "copy_", array.tensor, number)
    return constant(None)


def _number(kind: type) -> Callable[[Translator, Value], Value]:
    """float(array), int(array)."""

    def convert(tx: Translator, array: Value) -> Value:
        assert isinstance(array, ArrayValue)
        if array.fake.dim():
            raise Unsupported(Reason.DATA_DEPENDENT_VALUE, kind, given=(array,))
        number = array.item(tx)
        return number.converted(tx, kind) if isinstance(number, NumberValue) else constant(kind(number.as_constant()))

    return convert


def _index(tx: Translator, array: Value) -> Value:
    assert isinstance(array, ArrayValue)
    if array.dtype.kind not in "iu" or array.fake.dim():
        raise Unsupported(Reason.NUMPY_UNSUPPORTED, detail=f"an index of {array.describe()}")
    return array.item(tx)


_METHODS: dict[str, Callable[..., Value]] = {
    "astype": astype, "copy": _copy, "__copy__": _copy, "flatten": _flatten, "reshape": _reshape, "ravel": _ravel,
    "transpose": _transpose, "swapaxes": swapped, "squeeze": squeezed, "item": _item, "tolist": _tolist,
    "fill": _fill, "clip": clipped, "round": rounded, "dot": dot, "take": taken, "repeat": repeated,
    "__float__": _number(float), "__int__": _number(int), "__index__": _index,
    "__len__": lambda tx, array: array.length(tx), "__iter__": lambda tx, array: array.iter(tx),
    "__getitem__": lambda tx, array, key: array.getitem(tx, key),
}  # fmt: skip


def _bind(name: str, function: Callable[..., Value]) -> None:
    METHODS[name] = lambda tx, array, args, kwargs: called(tx, function, f"ndarray.{name}", [array, *args], kwargs)


for _name, _function in _METHODS.items():
    _bind(_name, _function)


def _kinds(kind: type) -> None:
    """np.float32(number): a number of another type."""
    others = handler_of(kind)

    @handles(kind)
    def handler(tx: Translator, args: Args, kwargs: Kwargs) -> Value:
        if len(args) == 1 and not kwargs and isinstance(args[0], ArrayValue):
            if args[0].fake.dim():
                return astype(tx, args[0], constant(np.dtype(kind)))
            return result(tx, method(tx, "clone", cast(tx, args[0].tensor, np.dtype(kind))), scalar=True)
        if others is None:
            raise Unsupported(Reason.NUMPY_UNSUPPORTED, kind)
        return others(tx, args, kwargs)


for _kind in (np.float16, np.float32, np.float64, np.int8, np.int16, np.int32, np.int64, np.uint8, np.bool_):
    _kinds(_kind)


# ---- tensors from arrays -------------------------------------------------------------------------------------------
def _on_array(*functions: Any) -> Callable[[Callable[..., Value]], Callable[..., Value]]:
    """Calls of torch's functions whose first argument is an array; others are unaffected."""

    def register(handler: Callable[..., Value]) -> Callable[..., Value]:
        for function in functions:
            _intercept(function, handler)
        return handler

    return register


def _intercept(function: Any, handler: Callable[..., Value]) -> None:
    @handles(function)
    def chosen(tx: Translator, args: Args, kwargs: Kwargs) -> Value:
        if args and isinstance(args[0], ArrayValue):
            return called(tx, handler, function.__name__, args, kwargs)
        if len(args) == 1 and is_numpys(args[0]) and "dtype" not in kwargs:  # Python's is float32
            dtype = np.dtype(args[0].python_type())
            kwargs = {**kwargs, "dtype": constant(torch_dtype(dtype, function.__name__))}
        if args and _has_numpy_numbers(args[0]):
            raise Unsupported(Reason.UNSUPPORTED_TORCH_FUNCTION, function, detail="of a list of NumPy scalars")
        if function is not torch.from_numpy and (made := tensor_of_numbers(tx, args, kwargs)) is not None:
            return made
        return tx.graph.call(function, args, kwargs, tx)


def _has_numpy_numbers(value: Value) -> bool:
    items = value.items if isinstance(value, SequenceValue) else ()
    return any(is_numpys(item) or _has_numpy_numbers(item) for item in items)


@_on_array(torch.from_numpy)
def _from_numpy(tx: Translator, array: Value) -> Value:
    if not isinstance(array, NdarrayValue):
        raise Unsupported(Reason.NUMPY_UNSUPPORTED, torch.from_numpy, detail="of a number")
    return tensor_from(tx, array)


def _converted(tx: Translator, array: Value, dtype: Value | None, device: Value | None) -> TensorValue:
    """The array as a tensor of a dtype on the CPU, sharing its memory where it already has that dtype."""
    assert isinstance(array, ArrayValue)
    place = torch.get_default_device() if plain(device) is None else torch.device(plain(device))
    if place.type != "cpu":
        raise Unsupported(Reason.NUMPY_UNSUPPORTED, detail="a tensor of an array on another device")
    made = tensor_from(tx, array) if isinstance(array, NdarrayValue) else method(tx, "clone", array.tensor)
    wanted = plain(dtype)
    return made if wanted in (None, made.fake.dtype) else method(tx, "to", made, constant(wanted))


@_on_array(torch.as_tensor, torch.asarray)
def _as_tensor(
    tx: Translator, array: Value, dtype: Value | None = None, device: Value | None = None
) -> Value:
    return _converted(tx, array, dtype, device)


@_on_array(torch.tensor)
def _tensor(
    tx: Translator, array: Value, *, dtype: Value | None = None, device: Value | None = None,
    requires_grad: Value | None = None,
) -> Value:  # fmt: skip
    """A copy with the same layout."""
    if plain(requires_grad, False):
        raise Unsupported(Reason.NUMPY_UNSUPPORTED, torch.tensor, detail="(requires_grad=True)")
    made = _converted(tx, array, dtype, device)
    return method(tx, "clone", made)


def _new_tensor(tx: Translator, tensor: TensorValue, args: Args, kwargs: Kwargs) -> Value | None:
    """`Tensor.new_tensor` of an array: a copy in the tensor's dtype, unless another is given."""
    if not args or not isinstance(args[0], ArrayValue):
        return None
    if tensor.fake.device.type != "cpu" and "device" not in kwargs:
        raise Unsupported(Reason.NUMPY_UNSUPPORTED, detail="a tensor of an array on another device")
    asked = plain(kwargs.get("dtype"))
    dtype = tensor.fake.dtype if asked is None else asked
    return called(tx, _tensor, "new_tensor", args, {**kwargs, "dtype": constant(dtype)})


TENSOR_METHODS["new_tensor"] = _new_tensor
