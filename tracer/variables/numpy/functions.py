"""NumPy's functions that select, order and round items of arrays, and matrix products.

To add a function, write a handler with NumPy's parameters and name the function above it.
"""
from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from ...breaks.reasons import Reason
from ...breaks.unsupported import Unsupported
from ..containers.sequences import SequenceValue, TupleValue
from ..core.base import Value
from ..core.constant import constant
from ..core.operators import apply
from ..torch.tensor import TensorValue
from .dtypes import asked, computing_dtype, kind_of, sample
from .ndarrays import (
    OPERATORS,
    ArrayValue,
    NdarrayValue,
    array,
    laid_out,
    method,
    on_arrays,
    plain,
    result,
)
from .shapes import reshaped
from .ufuncs import call_ufunc, cast, check_finite, operand

if TYPE_CHECKING:
    from ..core.base import Translator


# ---- selection -----------------------------------------------------------------------------------------------------
@on_arrays(np.where)
def _where(tx: Translator, condition: Value, x: Value, y: Value) -> Value:
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
def clipped(tx: Translator, a: Value, a_min: Value | None = None, a_max: Value | None = None) -> Value:
    """The larger of the array and the lower limit, and the smaller of that and the upper one."""
    given: Value = array(a, "clip")
    limits = ((np.maximum, a_min), (np.minimum, a_max))
    known = [(ufunc, limit) for ufunc, limit in limits if limit is not None and not _is_none(limit)]
    if len(known) < 2:
        raise Unsupported(Reason.NUMPY_UNSUPPORTED, np.clip, detail="with one limit")
    kinds = [kind_of(value) for value in (given, a_min, a_max) if value is not None]
    dtype = _ufunc_clip().resolve_dtypes((*kinds, None))[-1]
    for ufunc, limit in known:
        given = call_ufunc(tx, ufunc, [given, limit])
    if not isinstance(given, ArrayValue) or given.dtype != dtype:
        raise Unsupported(Reason.NUMPY_UNSUPPORTED, np.clip, detail="to another dtype")
    return given


def _ufunc_clip() -> np.ufunc:
    found: np.ufunc = np._core.umath.clip  # type: ignore[attr-defined]
    return found


def _is_none(value: Value) -> bool:
    return value.is_constant() and value.as_constant() is None


@on_arrays(np.take)
def taken(tx: Translator, a: Value, indices: Value, axis: Value | None = None) -> Value:
    """As indexing: of the flattened array, or along the first axis."""
    given, where = array(a, "take"), plain(axis)
    if not isinstance(indices, NdarrayValue | SequenceValue) or where not in (None, 0):
        raise Unsupported(Reason.NUMPY_UNSUPPORTED, np.take, detail="along another axis")
    flat = given if where == 0 or given.fake.dim() == 1 else reshaped(tx, given, constant(-1))
    found = flat.getitem(tx, indices)
    assert isinstance(found, NdarrayValue)
    return result(tx, laid_out(tx, found.tensor, np.ones((1,) * found.fake.dim())))


@on_arrays(np.diff)
def _diff(tx: Translator, a: Value) -> Value:
    """Along the last axis."""
    given = array(a, "diff")
    if given.dtype.kind not in "if" or not given.fake.dim():
        raise Unsupported(Reason.NUMPY_UNSUPPORTED, np.diff, detail=f"of {given.dtype}")
    size = method(tx, "narrow", given.tensor, constant(-1), constant(1), _less_one(tx, given))
    before = method(tx, "narrow", given.tensor, constant(-1), constant(0), _less_one(tx, given))
    return call_ufunc(tx, np.subtract, [NdarrayValue(size), NdarrayValue(before)])


def _less_one(tx: Translator, given: ArrayValue) -> Value:
    return apply(tx, operator.sub, given.tensor.sizes(tx).items[-1], constant(1))


@on_arrays(np.sort)
def _sort(tx: Translator, a: Value, axis: Value | None = None) -> Value:
    """Values only: the order of equal ones is not observable, except for zeros of two signs."""
    given = array(a, "sort")
    if not given.fake.is_contiguous():
        raise Unsupported(Reason.NUMPY_UNSUPPORTED, np.sort, detail="of an array that is not contiguous")
    computing_dtype(asked(np.sort, sample(given.dtype, given.fake), plain(axis, -1)).dtype, "numpy.sort")
    made = tx.graph.call(torch.sort, [given.tensor, constant(plain(axis, -1))], {}, tx)
    return result(tx, made.iterate(tx)[0])


@on_arrays(np.round, np.around)
def rounded(tx: Translator, a: Value, decimals: Value | None = None) -> Value:
    """To even; with decimals as NumPy does it: multiply, round, divide."""
    given, digits = array(a, "round"), plain(decimals, 0)
    if type(digits) is int and digits >= 0 and given.dtype.kind in "iu":
        return call_ufunc(tx, np.positive, [given])  # a copy
    if type(digits) is not int or digits < 0 or given.dtype.kind != "f":
        raise Unsupported(Reason.NUMPY_UNSUPPORTED, np.round, detail=f"of {given.dtype} to {digits} decimals")
    if digits == 0:
        return call_ufunc(tx, np.rint, [given])
    power = constant(float(10**digits))
    up = call_ufunc(tx, np.multiply, [given, power])
    return call_ufunc(tx, np.divide, [call_ufunc(tx, np.rint, [up]), power])


# ---- products ------------------------------------------------------------------------------------------------------
def _product(tx: Translator, function: Callable[..., Any], a: Value, b: Value) -> Value:
    """Of vectors and matrices."""
    name = function.__name__
    left, right = array(a, name), array(b, name)
    ranks = left.fake.dim(), right.fake.dim()
    if 0 in ranks or max(ranks) > (2 if function is np.dot else 3) or torch.is_autocast_enabled("cpu"):
        raise Unsupported(Reason.NUMPY_UNSUPPORTED, np, name, detail="of such arrays")
    ones = [np.ones((1,) * rank, one.dtype) for rank, one in zip(ranks, (left, right))]
    like = asked(function, *ones)
    computing_dtype(like.dtype, name)
    if like.dtype.kind == "b":
        raise Unsupported(Reason.NUMPY_UNSUPPORTED, np, name, detail="of bool arrays")
    made = tx.graph.call(torch.matmul, [cast(tx, one.tensor, like.dtype) for one in (left, right)], {}, tx)
    if like.dtype.kind == "f":
        check_finite(tx, made)
    return result(tx, laid_out(tx, made, like), scalar=like.ndim == 0)


@on_arrays(np.matmul)
def multiplied(tx: Translator, a: Value, b: Value) -> Value:
    """The product of matrices."""
    return _product(tx, np.matmul, a, b)


@on_arrays(np.dot)
def dot(tx: Translator, a: Value, b: Value) -> Value:
    """Of vectors and matrices."""
    return _product(tx, np.dot, a, b)


@on_arrays(np.outer)
def _outer(tx: Translator, a: Value, b: Value) -> Value:
    left = reshaped(tx, array(a, "outer"), TupleValue([constant(-1), constant(1)], tuple))
    right = reshaped(tx, array(b, "outer"), TupleValue([constant(1), constant(-1)], tuple))
    return call_ufunc(tx, np.multiply, [left, right])


def _matmul_operator(tx: Translator, args: Sequence[Value], out: NdarrayValue | None) -> Value:
    if out is not None:
        raise Unsupported(Reason.OPERATOR, detail="@= to an array")
    return _product(tx, np.matmul, *args)


OPERATORS[operator.matmul] = _matmul_operator
