"""NumPy's functions that reshape, join and split arrays.

What is a view in NumPy is a view here; where a function returns a kind of view that tensors do not have (negative
steps, read-only memory), the graph breaks.
"""
from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from ...breaks.reasons import Reason
from ...breaks.unsupported import Unsupported
from ..containers.lists import ListValue
from ..containers.sequences import SequenceValue, TupleValue
from ..core.base import Value
from ..core.constant import constant
from ..torch.tensor import TensorValue
from .dtypes import asked, computing_dtype, sample
from .ndarrays import (
    ArrayValue,
    NdarrayValue,
    array,
    laid_out,
    method,
    on_arrays,
    plain,
    result,
    view,
)
from .ufuncs import cast

if TYPE_CHECKING:
    from ..core.base import Translator


# ---- shapes --------------------------------------------------------------------------------------------------------
def reshaped(tx: Translator, a: ArrayValue, sizes: Value) -> Value:
    """A view where possible, else a copy: the rule of both libraries."""
    shape = sizes if isinstance(sizes, SequenceValue) else TupleValue([sizes], tuple)
    return view(tx, a, "reshape", TupleValue(shape.items, tuple))


@on_arrays(np.reshape)
def _reshape(tx: Translator, a: Value, shape: Value) -> Value:
    return reshaped(tx, array(a, "reshape"), shape)


@on_arrays(np.ravel)
def _ravel(tx: Translator, a: Value) -> Value:
    return raveled(tx, array(a, "ravel"))


def raveled(tx: Translator, a: ArrayValue) -> Value:
    """Flattened: a view where the array has no holes, else a copy (also of a one-dimensional array with holes)."""
    if not a.fake.is_contiguous():
        return result(tx, method(tx, "reshape", method(tx, "clone", a.tensor), constant(-1)))
    return reshaped(tx, a, constant(-1))


@on_arrays(np.transpose)
def transposed(tx: Translator, a: Value, axes: Value | None = None) -> Value:
    """A view with permuted axes; reversed by default."""
    given = array(a, "transpose")
    order = plain(axes)
    return view(tx, given, "permute", constant(tuple(reversed(range(given.fake.dim()))) if order is None else order))


@on_arrays(np.swapaxes)
def swapped(tx: Translator, a: Value, axis1: Value, axis2: Value) -> Value:
    """A view with two axes exchanged."""
    given = array(a, "swapaxes")
    asked(np.swapaxes, sample(given.dtype, given.fake), plain(axis1), plain(axis2))
    return view(tx, given, "transpose", axis1, axis2)


@on_arrays(np.moveaxis)
def _moveaxis(tx: Translator, a: Value, source: Value, destination: Value) -> Value:
    given = array(a, "moveaxis")
    asked(np.moveaxis, sample(given.dtype, given.fake), plain(source), plain(destination))
    return view(tx, given, "movedim", source, destination)


@on_arrays(np.expand_dims)
def _expand_dims(tx: Translator, a: Value, axis: Value) -> Value:
    if type(plain(axis)) is not int:
        raise Unsupported(Reason.NUMPY_UNSUPPORTED, np.expand_dims, detail="of several axes")
    return view(tx, array(a, "expand_dims"), "unsqueeze", axis)


@on_arrays(np.squeeze)
def squeezed(tx: Translator, a: Value, axis: Value | None = None) -> Value:
    """A view without dimensions of size 1 (named ones must be); the array itself where there are none."""
    given, axes = array(a, "squeeze"), plain(axis)
    if axes is None and all(size != 1 for size in given.fake.shape):
        return given
    if axes is None:
        return view(tx, given, "squeeze")
    for one in axes if isinstance(axes, tuple) else (axes,):
        if not -given.fake.dim() <= one < given.fake.dim() or given.fake.shape[one] != 1:
            raise Unsupported(Reason.NUMPY_UNSUPPORTED, np.squeeze, detail=f"of axis {one}")
    return view(tx, given, "squeeze", constant(axes))


@on_arrays(np.atleast_1d, np.atleast_2d)
def _at_least(tx: Translator, a: Value) -> Value:
    given = array(a, "atleast_1d")
    if not isinstance(given, NdarrayValue) or given.fake.dim() < 2:
        raise Unsupported(Reason.NUMPY_UNSUPPORTED, np.atleast_1d, detail="of few dimensions")
    return given


# ---- join and split ------------------------------------------------------------------------------------------------
def _joined(tx: Translator, function: Callable[..., Any], arrays: Value, **options: Any) -> Value:
    """As NumPy joins samples: their dtype, memory order and number of dimensions."""
    if not isinstance(arrays, SequenceValue):
        raise Unsupported(Reason.NUMPY_UNSUPPORTED, function, given=(arrays,))
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
    def handler(tx: Translator, arrays: Value, axis: Value | None = None) -> Value:
        if not takes_axis and axis is not None:
            raise Unsupported(Reason.NUMPY_UNSUPPORTED, function, detail="with an axis")
        where = plain(axis, 0)
        if takes_axis and type(where) is not int:
            raise Unsupported(Reason.NUMPY_UNSUPPORTED, function, detail=f"along {where}")
        return _joined(tx, function, arrays, **({"axis": where} if takes_axis else {}))


for _name in ("concatenate", "stack", "vstack", "hstack", "dstack", "column_stack"):
    _joining(getattr(np, _name), _name in ("concatenate", "stack"))


@on_arrays(np.split)
def _split(tx: Translator, ary: Value, indices_or_sections: Value, axis: Value | None = None) -> Value:
    """Views, of equal size or between indices."""
    given, sections, where = array(ary, "split"), plain(indices_or_sections), plain(axis, 0)
    if type(sections) is int and (sections < 1 or given.fake.shape[where] % sections):
        raise Unsupported(Reason.NUMPY_UNSUPPORTED, np.split, detail="into parts that are not equal")
    cut = constant(sections)
    parts = tx.graph.call("tensor_split", [given.tensor, cut, constant(where)], {}, tx, op="call_method")
    found = [NdarrayValue(part) for part in parts.iterate(tx) if isinstance(part, TensorValue)]
    return ListValue(found, list)


@on_arrays(np.tile)
def _tile(tx: Translator, a: Value, reps: Value) -> Value:
    given, counts = array(a, "tile"), plain(reps)
    made = method(tx, "tile", given.tensor, constant(counts if isinstance(counts, tuple) else (counts,)))
    return result(tx, laid_out(tx, made, np.ones((1,) * made.fake.dim())))


@on_arrays(np.repeat)
def repeated(tx: Translator, a: Value, repeats: Value, axis: Value | None = None) -> Value:
    """Each item several times."""
    given, count = array(a, "repeat"), plain(repeats)
    if type(count) is not int or not given.fake.is_contiguous():
        raise Unsupported(Reason.NUMPY_UNSUPPORTED, np.repeat, detail="by an array")
    where = plain(axis)
    made = tx.graph.call(torch.repeat_interleave, [given.tensor, constant(count), constant(where)], {}, tx)
    return result(tx, made)


@on_arrays(np.roll)
def _roll(tx: Translator, a: Value, shift: Value, axis: Value | None = None) -> Value:
    given = array(a, "roll")
    if not given.fake.is_contiguous():
        raise Unsupported(Reason.NUMPY_UNSUPPORTED, np.roll, detail="of an array that is not contiguous")
    arguments = [given.tensor, shift] if axis is None or plain(axis) is None else [given.tensor, shift, axis]
    return result(tx, tx.graph.call(torch.roll, arguments, {}, tx))


def _triangle(function: Callable[..., Any]) -> None:
    @on_arrays(function)
    def handler(tx: Translator, m: Value, k: Value | None = None) -> Value:
        given = array(m, function.__name__)
        if given.fake.dim() < 2 or not given.fake.is_contiguous():
            raise Unsupported(Reason.NUMPY_UNSUPPORTED, function, detail="of such an array")
        target = getattr(torch, function.__name__)
        return result(tx, tx.graph.call(target, [given.tensor, constant(plain(k, 0))], {}, tx))


_triangle(np.tril)
_triangle(np.triu)
