"""NumPy's functions that make arrays: of a shape, of a range, from tensors, lists and other arrays."""
from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from ...breaks.reasons import Reason
from ...breaks.unsupported import Unsupported
from ..containers.lists import ListValue
from ..containers.sequences import SequenceValue, TupleValue
from ..core.base import Value
from ..core.constant import constant
from ..core.handlers import handles
from ..torch.tensor import TensorValue
from .dtypes import asked, named_dtype, sample, torch_dtype
from .ndarrays import (
    ArrayValue,
    NdarrayValue,
    array,
    array_of,
    called,
    has_array,
    laid_out,
    method,
    on_arrays,
    plain,
    result,
    shape_value,
)
from .ufuncs import cast

if TYPE_CHECKING:
    from ..core.base import Translator

_CPU = torch.device("cpu")


# ---- new arrays ----------------------------------------------------------------------------------------------------
def _filled(tx: Translator, shape: Value, number: Value, dtype: np.dtype[Any]) -> Value:
    sizes = shape if isinstance(shape, SequenceValue) else TupleValue([shape], tuple)
    options = {"dtype": constant(torch_dtype(dtype, "numpy.full")), "device": constant(_CPU)}
    return result(tx, tx.graph.call(torch.full, [TupleValue(sizes.items, tuple), number], options, tx))


def _making(function: Callable[..., Any], number: int) -> None:
    @handles(function)
    def handler(tx: Translator, args: Sequence[Value], kwargs: Mapping[str, Value]) -> Value:
        def make(tx: Translator, shape: Value, dtype: Value | None = None) -> Value:
            return _filled(tx, shape, constant(number), named_dtype(dtype) or np.dtype(float))

        return called(tx, make, function.__name__, args, kwargs)


_making(np.zeros, 0)
_making(np.ones, 1)


@handles(np.full)
def _full(tx: Translator, args: Sequence[Value], kwargs: Mapping[str, Value]) -> Value:
    def make(tx: Translator, shape: Value, fill_value: Value, dtype: Value | None = None) -> Value:
        number = plain(fill_value)
        chosen = named_dtype(dtype) or asked(np.asarray, number).dtype
        return _filled(tx, shape, constant(operand_number(number, chosen)), chosen)

    return called(tx, make, "full", args, kwargs)


def operand_number(number: Any, dtype: np.dtype[Any]) -> Any:
    """A number converted to `dtype`, as a Python number."""
    found = asked(np.full, (), number, dtype)
    if found.dtype != dtype or (dtype.kind in "iu" and isinstance(number, float)):
        raise Unsupported(Reason.NUMPY_UNSUPPORTED, np.full, detail=f"of {number!r}")
    return found.item()


def _like(function: Callable[..., Any], number: int) -> None:
    @on_arrays(function)
    def handler(tx: Translator, a: Value, dtype: Value | None = None) -> Value:
        given = array(a, function.__name__)
        chosen = named_dtype(dtype) or given.dtype
        filled = _filled(tx, shape_value(tx, given), constant(number), chosen)
        like = asked(function, sample(given.dtype, given.fake))
        assert isinstance(filled, NdarrayValue)
        return result(tx, laid_out(tx, filled.tensor, like))


_like(np.zeros_like, 0)
_like(np.ones_like, 1)


@handles(np.arange)
def _arange(tx: Translator, args: Sequence[Value], kwargs: Mapping[str, Value]) -> Value:
    """Of integers; for floats NumPy computes the steps in its own way."""
    parts = [plain(arg) for arg in args]
    chosen = named_dtype(kwargs.get("dtype"))
    if kwargs.keys() - {"dtype"} or not 1 <= len(parts) <= 3 or any(type(part) is not int for part in parts):
        raise Unsupported(Reason.NUMPY_UNSUPPORTED, np.arange, detail="of what are not integers")
    like = asked(np.arange, *parts, dtype=chosen)
    if like.dtype.kind not in "if" or not len(like) or max(abs(like[0]), abs(like[-1])) > 2**24:
        raise Unsupported(Reason.NUMPY_UNSUPPORTED, np.arange, detail=f"of {like.dtype}")
    options = {"dtype": constant(torch_dtype(like.dtype, "numpy.arange")), "device": constant(_CPU)}
    return result(tx, tx.graph.call(torch.arange, [constant(part) for part in parts], options, tx))


@handles(np.linspace)
def _linspace(tx: Translator, args: Sequence[Value], kwargs: Mapping[str, Value]) -> Value:
    """Of known numbers; NumPy computes it, since torch's steps round differently."""

    def make(
        tx: Translator, start: Value, stop: Value, num: Value | None = None, endpoint: Value | None = None,
        *, dtype: Value | None = None,
    ) -> Value:  # fmt: skip
        limits = plain(start), plain(stop)
        if not all(type(limit) in (int, float) for limit in limits):
            raise Unsupported(Reason.NUMPY_UNSUPPORTED, np.linspace, detail="between what are not Python's numbers")
        count, last = plain(num, 50), plain(endpoint, True)
        return _known(tx, asked(np.linspace, *limits, count, last, dtype=named_dtype(dtype)), "linspace")

    return called(tx, make, "linspace", args, kwargs)


@handles(np.eye, np.identity)
def _eye(tx: Translator, args: Sequence[Value], kwargs: Mapping[str, Value]) -> Value:
    if len(args) != 1 or kwargs.keys() - {"dtype"}:
        raise Unsupported(Reason.NUMPY_UNSUPPORTED, np.eye, detail="with more than a size")
    chosen = named_dtype(kwargs.get("dtype")) or np.dtype(float)
    options = {"dtype": constant(torch_dtype(chosen, "numpy.eye")), "device": constant(_CPU)}
    return result(tx, tx.graph.call(torch.eye, [args[0]], options, tx))


# ---- from tensors, lists, arrays -----------------------------------------------------------------------------------
def _constants(tx: Translator, value: Value, dtype: np.dtype[Any] | None, what: str) -> NdarrayValue:
    """An array of known numbers."""
    numbers = value.as_constant() if not isinstance(value, SequenceValue) else _nested(value)
    made = asked(np.array, numbers, dtype=dtype)
    lossy = dtype is not None and dtype.kind in "biu" and np.asarray(numbers).dtype.kind == "f"
    if lossy:
        raise Unsupported(Reason.NUMPY_UNSUPPORTED, np, what, given=(value,))
    return _known(tx, made, what)


def _known(tx: Translator, made: np.ndarray[Any, Any], what: str) -> NdarrayValue:
    """An array whose numbers are constants of the graph."""
    if made.size > _MOST:
        raise Unsupported(Reason.NUMPY_UNSUPPORTED, np, what, detail=f"of more than {_MOST} numbers")
    options = {"dtype": constant(torch_dtype(made.dtype, what)), "device": constant(_CPU)}
    built = tx.graph.call(torch.tensor, [constant(made.tolist())], options, tx)
    assert isinstance(built, TensorValue)
    return NdarrayValue(built)


_MOST = 1000


def _nested(value: Value) -> Any:
    if isinstance(value, SequenceValue):
        return [_nested(item) for item in value.items]
    return value.as_constant()


def _array(tx: Translator, a: Value, dtype: np.dtype[Any] | None, copy: bool, what: str) -> Value:
    if isinstance(a, TensorValue):
        if copy:
            raise Unsupported(
                Reason.DATA_DEPENDENT_VALUE, torch.Tensor, "__array__", detail="with a copy, of which NumPy warns"
            )
        if a.python_type() not in (torch.Tensor, torch.nn.Parameter):
            raise Unsupported(Reason.DATA_DEPENDENT_VALUE, torch.Tensor, "__array__", detail="of a subclass")
        made: ArrayValue = array_of(tx, a, "Tensor.__array__")
    elif isinstance(a, ArrayValue):
        made = a
    elif isinstance(a, SequenceValue) and has_array(a.items):
        made = _stacked(tx, a, what)
        copy = False
    else:
        made, copy = _constants(tx, a, dtype, what), False
    if dtype is not None and dtype != made.dtype:
        return result(tx, laid_out(tx, cast(tx, made.tensor, dtype), sample(made.dtype, made.fake).astype(dtype)))
    if copy or not isinstance(made, NdarrayValue):
        copied = method(tx, "clone", made.tensor)
        return result(tx, laid_out(tx, copied, sample(made.dtype, made.fake).copy("K")))
    return made


def _stacked(tx: Translator, a: SequenceValue, what: str) -> ArrayValue:
    """np.array of a list of arrays: of one dtype and shape."""
    parts = [array(item, what) for item in a.items]
    if len({part.dtype for part in parts}) > 1 or len({tuple(part.fake.shape) for part in parts}) > 1:
        raise Unsupported(Reason.NUMPY_UNSUPPORTED, np, what, detail="of arrays of several kinds")
    made = tx.graph.call(torch.stack, [ListValue([part.tensor for part in parts], list)], {}, tx)
    return result(tx, laid_out(tx, made, np.ones((1,) * (parts[0].fake.dim() + 1))))


def _converting(function: Callable[..., Any], copies: bool) -> None:
    @handles(function)
    def handler(tx: Translator, args: Sequence[Value], kwargs: Mapping[str, Value]) -> Value:
        def make(tx: Translator, a: Value, dtype: Value | None = None, copy: Value | None = None) -> Value:
            wanted = plain(copy, True if copies else None)
            if wanted is False:
                raise Unsupported(Reason.NUMPY_UNSUPPORTED, function, detail="with copy=False")
            return _array(tx, a, named_dtype(dtype), bool(wanted), function.__name__)

        return called(tx, make, function.__name__, args, kwargs)


_converting(np.array, True)
_converting(np.asarray, False)


@on_arrays(np.copy)
def _copy(tx: Translator, a: Value) -> Value:
    return _array(tx, array(a, "copy"), None, True, "copy")


@on_arrays(np.ascontiguousarray)
def _ascontiguousarray(tx: Translator, a: Value) -> Value:
    given = array(a, "ascontiguousarray")
    if not isinstance(given, NdarrayValue) or not given.fake.dim():
        raise Unsupported(Reason.NUMPY_UNSUPPORTED, np.ascontiguousarray, detail="of a number")
    if given.fake.is_contiguous():
        return given
    return result(tx, laid_out(tx, method(tx, "clone", given.tensor), np.ones((1,) * given.fake.dim())))
