"""NumPy's functions that make, shape, join and choose arrays, and products of matrices.

What gives a view in NumPy gives a view here; where a function gives a view of a kind that tensors do not have (steps
below zero, memory that must not be written), the graph breaks. To add a function, write a handler with NumPy's
parameters and name the function above it.
"""
from __future__ import annotations

import operator
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from .base import Unsupported, Value
from .constant import constant
from .handlers import handles
from .lists import ListValue
from .ndarrays import (
    OPERATORS,
    ArrayValue,
    NdarrayValue,
    array_of,
    called,
    has_array,
    laid_out,
    on_arrays,
    plain,
    result,
    shape_value,
)
from .numpy_dtypes import asked, computing_dtype, kind_of, named_dtype, sample, torch_dtype
from .numpy_ufuncs import call_ufunc, cast, check_finite, operand
from .operators import apply
from .sequences import SequenceValue, TupleValue
from .tensor import TensorValue

if TYPE_CHECKING:
    from ..interpreter import Interpreter

_CPU = torch.device("cpu")


def method(tx: Interpreter, name: str, *args: Value) -> TensorValue:
    """A method of a tensor as a node."""
    made = tx.graph.call(name, list(args), {}, tx, op="call_method")
    assert isinstance(made, TensorValue)
    return made


def array(value: Value, what: str) -> ArrayValue:
    """The argument, where it is an array (or a number of one)."""
    if not isinstance(value, ArrayValue):
        raise Unsupported("call", f"numpy.{what} of {value.describe()}")
    return value


def view(tx: Interpreter, a: ArrayValue, name: str, *args: Value) -> NdarrayValue:
    """An array by a method of the tensor that gives a view; a number becomes an array of its own."""
    memory = a.tensor if isinstance(a, NdarrayValue) else method(tx, "clone", a.tensor)
    return NdarrayValue(method(tx, name, memory, *args))


# ---- made anew -----------------------------------------------------------------------------------------------------
def _filled(tx: Interpreter, shape: Value, number: Value, dtype: np.dtype[Any]) -> Value:
    sizes = shape if isinstance(shape, SequenceValue) else TupleValue([shape], tuple)
    options = {"dtype": constant(torch_dtype(dtype, "numpy.full")), "device": constant(_CPU)}
    return result(tx, tx.graph.call(torch.full, [TupleValue(sizes.items, tuple), number], options, tx))


def _making(function: Callable[..., Any], number: int) -> None:
    @handles(function)
    def handler(tx: Interpreter, args: Sequence[Value], kwargs: Mapping[str, Value]) -> Value:
        def make(tx: Interpreter, shape: Value, dtype: Value | None = None) -> Value:
            return _filled(tx, shape, constant(number), named_dtype(dtype) or np.dtype(float))

        return called(tx, make, function.__name__, args, kwargs)


_making(np.zeros, 0)
_making(np.ones, 1)


@handles(np.full)
def _full(tx: Interpreter, args: Sequence[Value], kwargs: Mapping[str, Value]) -> Value:
    def make(tx: Interpreter, shape: Value, fill_value: Value, dtype: Value | None = None) -> Value:
        number = plain(fill_value)
        chosen = named_dtype(dtype) or asked(np.asarray, number).dtype
        return _filled(tx, shape, constant(operand_number(number, chosen)), chosen)

    return called(tx, make, "full", args, kwargs)


def operand_number(number: Any, dtype: np.dtype[Any]) -> Any:
    """A number as one of `dtype`, in Python's type."""
    found = asked(np.full, (), number, dtype)
    if found.dtype != dtype or (dtype.kind in "iu" and isinstance(number, float)):
        raise Unsupported("call", f"numpy.full of {number!r}")
    return found.item()


def _like(function: Callable[..., Any], number: int) -> None:
    @on_arrays(function)
    def handler(tx: Interpreter, a: Value, dtype: Value | None = None) -> Value:
        given = array(a, function.__name__)
        chosen = named_dtype(dtype) or given.dtype
        filled = _filled(tx, shape_value(tx, given), constant(number), chosen)
        like = asked(function, sample(given.dtype, given.fake))
        assert isinstance(filled, NdarrayValue)
        return result(tx, laid_out(tx, filled.tensor, like))


_like(np.zeros_like, 0)
_like(np.ones_like, 1)


@handles(np.arange)
def _arange(tx: Interpreter, args: Sequence[Value], kwargs: Mapping[str, Value]) -> Value:
    """Of integers; of floats NumPy's steps are its own."""
    parts = [plain(arg) for arg in args]
    chosen = named_dtype(kwargs.get("dtype"))
    if kwargs.keys() - {"dtype"} or not 1 <= len(parts) <= 3 or any(type(part) is not int for part in parts):
        raise Unsupported("call", "numpy.arange of what are not integers")
    like = asked(np.arange, *parts, dtype=chosen)
    if like.dtype.kind not in "if" or not len(like) or max(abs(like[0]), abs(like[-1])) > 2**24:
        raise Unsupported("call", f"numpy.arange of {like.dtype}")
    options = {"dtype": constant(torch_dtype(like.dtype, "numpy.arange")), "device": constant(_CPU)}
    return result(tx, tx.graph.call(torch.arange, [constant(part) for part in parts], options, tx))


@handles(np.eye, np.identity)
def _eye(tx: Interpreter, args: Sequence[Value], kwargs: Mapping[str, Value]) -> Value:
    if len(args) != 1 or kwargs.keys() - {"dtype"}:
        raise Unsupported("call", "numpy.eye with more than a size")
    chosen = named_dtype(kwargs.get("dtype")) or np.dtype(float)
    options = {"dtype": constant(torch_dtype(chosen, "numpy.eye")), "device": constant(_CPU)}
    return result(tx, tx.graph.call(torch.eye, [args[0]], options, tx))


# ---- from tensors, lists, arrays -----------------------------------------------------------------------------------
def _constants(tx: Interpreter, value: Value, dtype: np.dtype[Any] | None, what: str) -> NdarrayValue:
    """An array of numbers that are known."""
    numbers = value.as_constant() if not isinstance(value, SequenceValue) else _nested(value)
    made = asked(np.array, numbers, dtype=dtype)
    lossy = dtype is not None and dtype.kind in "biu" and np.asarray(numbers).dtype.kind == "f"
    if lossy or made.size > _MOST:
        raise Unsupported("call", f"numpy.{what} of {value.describe()}")
    options = {"dtype": constant(torch_dtype(made.dtype, what)), "device": constant(_CPU)}
    built = tx.graph.call(torch.tensor, [constant(made.tolist())], options, tx)
    assert isinstance(built, TensorValue)
    return NdarrayValue(built)


_MOST = 1000


def _nested(value: Value) -> Any:
    if isinstance(value, SequenceValue):
        return [_nested(item) for item in value.items]
    return value.as_constant()


def _array(tx: Interpreter, a: Value, dtype: np.dtype[Any] | None, copy: bool, what: str) -> Value:
    if isinstance(a, TensorValue):
        if copy:
            raise Unsupported("data-dependent-value", "Tensor.__array__ with a copy, of which NumPy warns")
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


def _stacked(tx: Interpreter, a: SequenceValue, what: str) -> ArrayValue:
    """np.array of a list of arrays: of one dtype and shape."""
    parts = [array(item, what) for item in a.items]
    if len({part.dtype for part in parts}) > 1 or len({tuple(part.fake.shape) for part in parts}) > 1:
        raise Unsupported("call", f"numpy.{what} of arrays of several kinds")
    made = tx.graph.call(torch.stack, [ListValue([part.tensor for part in parts], list)], {}, tx)
    return result(tx, laid_out(tx, made, np.ones((1,) * (parts[0].fake.dim() + 1))))


def _converting(function: Callable[..., Any], copies: bool) -> None:
    @handles(function)
    def handler(tx: Interpreter, args: Sequence[Value], kwargs: Mapping[str, Value]) -> Value:
        def make(tx: Interpreter, a: Value, dtype: Value | None = None, copy: Value | None = None) -> Value:
            wanted = plain(copy, True if copies else None)
            if wanted is False:
                raise Unsupported("call", f"numpy.{function.__name__} with copy=False")
            return _array(tx, a, named_dtype(dtype), bool(wanted), function.__name__)

        return called(tx, make, function.__name__, args, kwargs)


_converting(np.array, True)
_converting(np.asarray, False)


@on_arrays(np.copy)
def _copy(tx: Interpreter, a: Value) -> Value:
    return _array(tx, array(a, "copy"), None, True, "copy")


@on_arrays(np.ascontiguousarray)
def _ascontiguousarray(tx: Interpreter, a: Value) -> Value:
    given = array(a, "ascontiguousarray")
    if not isinstance(given, NdarrayValue) or not given.fake.dim():
        raise Unsupported("call", "numpy.ascontiguousarray of a number")
    if given.fake.is_contiguous():
        return given
    return result(tx, laid_out(tx, method(tx, "clone", given.tensor), np.ones((1,) * given.fake.dim())))


# ---- shapes --------------------------------------------------------------------------------------------------------
def reshaped(tx: Interpreter, a: ArrayValue, sizes: Value) -> Value:
    """A view where there can be one, else a copy: the rule of both libraries."""
    shape = sizes if isinstance(sizes, SequenceValue) else TupleValue([sizes], tuple)
    return view(tx, a, "reshape", TupleValue(shape.items, tuple))


@on_arrays(np.reshape)
def _reshape(tx: Interpreter, a: Value, shape: Value) -> Value:
    return reshaped(tx, array(a, "reshape"), shape)


@on_arrays(np.ravel)
def _ravel(tx: Interpreter, a: Value) -> Value:
    return raveled(tx, array(a, "ravel"))


def raveled(tx: Interpreter, a: ArrayValue) -> Value:
    """In a row: a view where the array has no holes, else a copy (a row with holes, too)."""
    if not a.fake.is_contiguous():
        return result(tx, method(tx, "reshape", method(tx, "clone", a.tensor), constant(-1)))
    return reshaped(tx, a, constant(-1))


@on_arrays(np.transpose)
def transposed(tx: Interpreter, a: Value, axes: Value | None = None) -> Value:
    """A view with other axes; by default in reverse."""
    given = array(a, "transpose")
    order = plain(axes)
    return view(tx, given, "permute", constant(tuple(reversed(range(given.fake.dim()))) if order is None else order))


@on_arrays(np.swapaxes)
def swapped(tx: Interpreter, a: Value, axis1: Value, axis2: Value) -> Value:
    """A view with two axes exchanged."""
    given = array(a, "swapaxes")
    asked(np.swapaxes, sample(given.dtype, given.fake), plain(axis1), plain(axis2))
    return view(tx, given, "transpose", axis1, axis2)


@on_arrays(np.moveaxis)
def _moveaxis(tx: Interpreter, a: Value, source: Value, destination: Value) -> Value:
    given = array(a, "moveaxis")
    asked(np.moveaxis, sample(given.dtype, given.fake), plain(source), plain(destination))
    return view(tx, given, "movedim", source, destination)


@on_arrays(np.expand_dims)
def _expand_dims(tx: Interpreter, a: Value, axis: Value) -> Value:
    if type(plain(axis)) is not int:
        raise Unsupported("call", "numpy.expand_dims of several axes")
    return view(tx, array(a, "expand_dims"), "unsqueeze", axis)


@on_arrays(np.squeeze)
def squeezed(tx: Interpreter, a: Value, axis: Value | None = None) -> Value:
    """A view without dimensions of size 1 (one that is named must be); the array itself where there are none."""
    given, axes = array(a, "squeeze"), plain(axis)
    if axes is None and all(size != 1 for size in given.fake.shape):
        return given
    if axes is None:
        return view(tx, given, "squeeze")
    for one in axes if isinstance(axes, tuple) else (axes,):
        if not -given.fake.dim() <= one < given.fake.dim() or given.fake.shape[one] != 1:
            raise Unsupported("call", f"numpy.squeeze of axis {one}")
    return view(tx, given, "squeeze", constant(axes))


@on_arrays(np.atleast_1d, np.atleast_2d)
def _at_least(tx: Interpreter, a: Value) -> Value:
    given = array(a, "atleast_1d")
    if not isinstance(given, NdarrayValue) or given.fake.dim() < 2:
        raise Unsupported("call", "numpy.atleast_1d of few dimensions")
    return given


# ---- joined and cut ------------------------------------------------------------------------------------------------
def _joined(tx: Interpreter, function: Callable[..., Any], arrays: Value, **options: Any) -> Value:
    """As NumPy joins samples: their dtype, order and number of dimensions."""
    if not isinstance(arrays, SequenceValue):
        raise Unsupported("call", f"numpy.{function.__name__} of {arrays.describe()}")
    parts = [array(item, function.__name__) for item in arrays.items]
    samples = [sample(part.dtype, part.fake) for part in parts]
    equal = [np.ones((1,) * one.ndim, one.dtype) for one in samples]
    dtype = asked(function, equal, **options).dtype
    computing_dtype(dtype, function.__name__)
    like = equal if any(0 in one.shape for one in samples) else samples
    order = np.ones((1,) * asked(function, equal, **options).ndim)
    if not all(part.fake.is_contiguous() for part in parts):
        order = asked(function, like, **options)
    tensors: list[Value] = [cast(tx, part.tensor, dtype) for part in parts]
    target = getattr(torch, function.__name__)
    arguments = {"dim": constant(options["axis"])} if "axis" in options else {}
    return result(tx, laid_out(tx, tx.graph.call(target, [ListValue(tensors, list)], arguments, tx), order))


def _joining(function: Callable[..., Any], takes_axis: bool) -> None:
    @on_arrays(function)
    def handler(tx: Interpreter, arrays: Value, axis: Value | None = None) -> Value:
        if not takes_axis and axis is not None:
            raise Unsupported("call", f"numpy.{function.__name__} with an axis")
        where = plain(axis, 0)
        if takes_axis and type(where) is not int:
            raise Unsupported("call", f"numpy.{function.__name__} along {where}")
        return _joined(tx, function, arrays, **({"axis": where} if takes_axis else {}))


for _name in ("concatenate", "stack", "vstack", "hstack", "dstack", "column_stack"):
    _joining(getattr(np, _name), _name in ("concatenate", "stack"))


@on_arrays(np.split)
def _split(tx: Interpreter, ary: Value, indices_or_sections: Value, axis: Value | None = None) -> Value:
    """Views, of equal size or between places."""
    given, sections, where = array(ary, "split"), plain(indices_or_sections), plain(axis, 0)
    if type(sections) is int and (sections < 1 or given.fake.shape[where] % sections):
        raise Unsupported("call", "numpy.split into parts that are not equal")
    cut = constant(sections)
    parts = tx.graph.call("tensor_split", [given.tensor, cut, constant(where)], {}, tx, op="call_method")
    found = [NdarrayValue(part) for part in parts.iterate(tx) if isinstance(part, TensorValue)]
    return ListValue(found, list)


@on_arrays(np.tile)
def _tile(tx: Interpreter, a: Value, reps: Value) -> Value:
    given, counts = array(a, "tile"), plain(reps)
    made = method(tx, "tile", given.tensor, constant(counts if isinstance(counts, tuple) else (counts,)))
    return result(tx, laid_out(tx, made, np.ones((1,) * made.fake.dim())))


@on_arrays(np.repeat)
def repeated(tx: Interpreter, a: Value, repeats: Value, axis: Value | None = None) -> Value:
    """Each item several times."""
    given, count = array(a, "repeat"), plain(repeats)
    if type(count) is not int or not given.fake.is_contiguous():
        raise Unsupported("call", "numpy.repeat by an array")
    where = plain(axis)
    made = tx.graph.call(torch.repeat_interleave, [given.tensor, constant(count), constant(where)], {}, tx)
    return result(tx, made)


@on_arrays(np.roll)
def _roll(tx: Interpreter, a: Value, shift: Value, axis: Value | None = None) -> Value:
    given = array(a, "roll")
    if not given.fake.is_contiguous():
        raise Unsupported("call", "numpy.roll of an array that is not contiguous")
    arguments = [given.tensor, shift] if axis is None or plain(axis) is None else [given.tensor, shift, axis]
    return result(tx, tx.graph.call(torch.roll, arguments, {}, tx))


def _triangle(function: Callable[..., Any]) -> None:
    @on_arrays(function)
    def handler(tx: Interpreter, m: Value, k: Value | None = None) -> Value:
        given = array(m, function.__name__)
        if given.fake.dim() < 2 or not given.fake.is_contiguous():
            raise Unsupported("call", f"numpy.{function.__name__} of such an array")
        target = getattr(torch, function.__name__)
        return result(tx, tx.graph.call(target, [given.tensor, constant(plain(k, 0))], {}, tx))


_triangle(np.tril)
_triangle(np.triu)


# ---- chosen --------------------------------------------------------------------------------------------------------
@on_arrays(np.where)
def _where(tx: Interpreter, condition: Value, x: Value, y: Value) -> Value:
    given = array(condition, "where")
    kinds = [kind_of(value) for value in (x, y)]
    samples = [
        sample(value.dtype, value.fake) if isinstance(value, ArrayValue)
        else kind.type(0) if isinstance(kind, np.dtype) else kind(0)
        for value, kind in zip((x, y), kinds)
    ]  # fmt: skip
    like = asked(np.where, sample(given.dtype, given.fake), *samples)
    holds = given.tensor
    if given.dtype != np.bool_:
        holds = method(tx, "to", holds, constant(torch.bool))
    chosen = tx.graph.call(torch.where, [holds, operand(tx, x, like.dtype), operand(tx, y, like.dtype)], {}, tx)
    assert isinstance(chosen, TensorValue)
    return result(tx, laid_out(tx, chosen, like))


@on_arrays(np.clip)
def clipped(tx: Interpreter, a: Value, a_min: Value | None = None, a_max: Value | None = None) -> Value:
    """The larger of the array and the lower limit, and the smaller of that and the upper one."""
    given: Value = array(a, "clip")
    limits = ((np.maximum, a_min), (np.minimum, a_max))
    known = [(ufunc, limit) for ufunc, limit in limits if limit is not None and not _is_none(limit)]
    if len(known) < 2:
        raise Unsupported("call", "numpy.clip with one limit")
    kinds = [kind_of(value) for value in (given, a_min, a_max) if value is not None]
    dtype = _ufunc_clip().resolve_dtypes((*kinds, None))[-1]
    for ufunc, limit in known:
        given = call_ufunc(tx, ufunc, [given, limit])
    if not isinstance(given, ArrayValue) or given.dtype != dtype:
        raise Unsupported("call", "numpy.clip to another dtype")
    return given


def _ufunc_clip() -> np.ufunc:
    found: np.ufunc = np._core.umath.clip  # type: ignore[attr-defined]
    return found


def _is_none(value: Value) -> bool:
    return value.is_constant() and value.as_constant() is None


@on_arrays(np.take)
def taken(tx: Interpreter, a: Value, indices: Value, axis: Value | None = None) -> Value:
    """As indexing: of all items in a row, or along the first axis."""
    given, where = array(a, "take"), plain(axis)
    if not isinstance(indices, NdarrayValue | SequenceValue) or where not in (None, 0):
        raise Unsupported("call", "numpy.take along another axis")
    flat = given if where == 0 or given.fake.dim() == 1 else reshaped(tx, given, constant(-1))
    found = flat.getitem(tx, indices)
    assert isinstance(found, NdarrayValue)
    return result(tx, laid_out(tx, found.tensor, np.ones((1,) * found.fake.dim())))


@on_arrays(np.diff)
def _diff(tx: Interpreter, a: Value) -> Value:
    """Along the last axis."""
    given = array(a, "diff")
    if given.dtype.kind not in "if" or not given.fake.dim():
        raise Unsupported("call", f"numpy.diff of {given.dtype}")
    size = method(tx, "narrow", given.tensor, constant(-1), constant(1), _less_one(tx, given))
    before = method(tx, "narrow", given.tensor, constant(-1), constant(0), _less_one(tx, given))
    return call_ufunc(tx, np.subtract, [NdarrayValue(size), NdarrayValue(before)])


def _less_one(tx: Interpreter, given: ArrayValue) -> Value:
    return apply(tx, operator.sub, given.tensor.sizes(tx).items[-1], constant(1))


@on_arrays(np.sort)
def _sort(tx: Interpreter, a: Value, axis: Value | None = None) -> Value:
    """Values only: where equal ones stand shows in nothing, but for zeros of two signs."""
    given = array(a, "sort")
    if not given.fake.is_contiguous():
        raise Unsupported("call", "numpy.sort of an array that is not contiguous")
    computing_dtype(asked(np.sort, sample(given.dtype, given.fake), plain(axis, -1)).dtype, "numpy.sort")
    made = tx.graph.call(torch.sort, [given.tensor, constant(plain(axis, -1))], {}, tx)
    return result(tx, made.iterate(tx)[0])


@on_arrays(np.round, np.around)
def rounded(tx: Interpreter, a: Value, decimals: Value | None = None) -> Value:
    """To even; with decimals as NumPy does it: multiply, round, divide."""
    given, digits = array(a, "round"), plain(decimals, 0)
    if type(digits) is not int or digits < 0 or given.dtype.kind != "f":
        raise Unsupported("call", f"numpy.round of {given.dtype} to {digits} decimals")
    if digits == 0:
        return call_ufunc(tx, np.rint, [given])
    power = constant(float(10**digits))
    up = call_ufunc(tx, np.multiply, [given, power])
    return call_ufunc(tx, np.divide, [call_ufunc(tx, np.rint, [up]), power])


# ---- products ------------------------------------------------------------------------------------------------------
def _product(tx: Interpreter, function: Callable[..., Any], a: Value, b: Value) -> Value:
    """Of vectors and matrices."""
    name = function.__name__
    left, right = array(a, name), array(b, name)
    ranks = left.fake.dim(), right.fake.dim()
    if 0 in ranks or max(ranks) > (2 if function is np.dot else 3) or torch.is_autocast_enabled("cpu"):
        raise Unsupported("call", f"numpy.{name} of such arrays")
    ones = [np.ones((1,) * rank, one.dtype) for rank, one in zip(ranks, (left, right))]
    like = asked(function, *ones)
    computing_dtype(like.dtype, name)
    if like.dtype.kind == "b":
        raise Unsupported("call", f"numpy.{name} of bool arrays")
    made = tx.graph.call(torch.matmul, [cast(tx, one.tensor, like.dtype) for one in (left, right)], {}, tx)
    if like.dtype.kind == "f":
        check_finite(tx, made)
    return result(tx, laid_out(tx, made, like), scalar=like.ndim == 0)


@on_arrays(np.matmul)
def multiplied(tx: Interpreter, a: Value, b: Value) -> Value:
    """The product of matrices."""
    return _product(tx, np.matmul, a, b)


@on_arrays(np.dot)
def dot(tx: Interpreter, a: Value, b: Value) -> Value:
    """Of vectors and matrices."""
    return _product(tx, np.dot, a, b)


@on_arrays(np.outer)
def _outer(tx: Interpreter, a: Value, b: Value) -> Value:
    left = reshaped(tx, array(a, "outer"), TupleValue([constant(-1), constant(1)], tuple))
    right = reshaped(tx, array(b, "outer"), TupleValue([constant(1), constant(-1)], tuple))
    return call_ufunc(tx, np.multiply, [left, right])


def _matmul_operator(tx: Interpreter, args: Sequence[Value], out: NdarrayValue | None) -> Value:
    if out is not None:
        raise Unsupported("operator", "@= to an array")
    return _product(tx, np.matmul, *args)


OPERATORS[operator.matmul] = _matmul_operator
