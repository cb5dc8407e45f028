"""NumPy's reductions of arrays: sums, means, extremes, indices of extremes, cumulative sums.

The dtype of the result is the one that NumPy returns for a sample. Results are numbers where no dimension is left.
"""
from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from ...breaks.reasons import Reason
from ...breaks.unsupported import Unsupported
from ..core.base import Value
from ..core.constant import constant
from ..torch.tensor import TensorValue
from .dtypes import asked, computing_dtype, named_dtype, sample
from .ndarrays import METHODS, ArrayValue, called, laid_out, on_arrays, plain, result
from .ufuncs import call_ufunc, cast, check_finite

if TYPE_CHECKING:
    from ..core.base import Translator

Dims = tuple[int, ...]
Compute = Callable[["Translator", TensorValue, Dims, bool, Any], Value]
"""(tx, tensor, dimensions, whether they stay, ddof) -> the reduced tensor."""


@dataclass(frozen=True)
class Reduction:
    """`works_in`: the dtype to compute in, "result" or "own". `warns`: NumPy may. `options`: further parameters."""

    compute: Compute
    works_in: str = "result"
    warns: bool = False
    one_axis: bool = False
    options: tuple[str, ...] = ()


def _over(target: Callable[..., Any]) -> Compute:
    """An operator that takes dimensions."""

    def compute(tx: Translator, tensor: TensorValue, dims: Dims, keep: bool, _: Any) -> Value:
        if not tensor.fake.dim():
            return tx.graph.call("clone", [tensor], {}, tx, op="call_method")
        return tx.graph.call(target, [tensor, constant(dims), constant(keep)], {}, tx)

    return compute


def _truth(target: Callable[..., Any]) -> Compute:
    """any and all: of the truth value of each item."""

    def compute(tx: Translator, tensor: TensorValue, dims: Dims, keep: bool, _: Any) -> Value:
        truths = tx.graph.call("to", [tensor, constant(torch.bool)], {}, tx, op="call_method")
        assert isinstance(truths, TensorValue)
        return _over(target)(tx, truths, dims, keep, None)

    return compute


def _one_by_one(target: Callable[..., Any]) -> Compute:
    """An operator that takes one dimension at a time, the last first."""

    def compute(tx: Translator, tensor: TensorValue, dims: Dims, keep: bool, _: Any) -> Value:
        reduced: Value = tensor
        for dim in sorted(dims, reverse=True):
            reduced = tx.graph.call(target, [reduced, constant(dim), constant(keep)], {}, tx)
        return reduced

    return compute


def _spread(target: Callable[..., Any]) -> Compute:
    def compute(tx: Translator, tensor: TensorValue, dims: Dims, keep: bool, ddof: Any) -> Value:
        options = {"dim": constant(dims), "correction": constant(ddof), "keepdim": constant(keep)}
        return tx.graph.call(target, [tensor], options, tx)

    return compute


def _place(target: Callable[..., Any]) -> Compute:
    """The first index of the extreme: in the flattened array, or along one dimension."""

    def compute(tx: Translator, tensor: TensorValue, dims: Dims, keep: bool, _: Any) -> Value:
        if tensor.fake.dtype is torch.bool:
            tensor = cast(tx, tensor, np.dtype(np.uint8))
        if len(dims) == 1:
            return tx.graph.call(target, [tensor, constant(dims[0]), constant(keep)], {}, tx)
        if keep:
            raise Unsupported(Reason.NUMPY_UNSUPPORTED, detail="numpy's argmax or argmin of all elements with keepdims")
        return tx.graph.call(target, [tensor], {}, tx)

    return compute


REDUCTIONS: dict[str, Reduction] = {
    "sum": Reduction(_over(torch.sum), warns=True, options=("dtype",)),
    "mean": Reduction(_over(torch.mean), warns=True, options=("dtype",)),
    "prod": Reduction(_one_by_one(torch.prod), warns=True, options=("dtype",)),
    "std": Reduction(_spread(torch.std), warns=True, options=("ddof",)),
    "var": Reduction(_spread(torch.var), warns=True, options=("ddof",)),
    "max": Reduction(_over(torch.amax)),
    "min": Reduction(_over(torch.amin)),
    "any": Reduction(_truth(torch.any), works_in="own"),
    "all": Reduction(_truth(torch.all), works_in="own"),
    "argmax": Reduction(_place(torch.argmax), works_in="own", one_axis=True),
    "argmin": Reduction(_place(torch.argmin), works_in="own", one_axis=True),
}
"""By name of the function and of the method."""


def _dims(axis: Any, rank: int, what: str) -> Dims:
    axes = tuple(range(rank)) if axis is None else axis if isinstance(axis, tuple) else (axis,)
    known = all(type(one) is int and -rank <= one < rank for one in axes)
    if not known or len({one % rank for one in axes}) < len(axes):
        raise Unsupported(Reason.NUMPY_UNSUPPORTED, detail=f"{what} along {axis}")
    return tuple(one % rank for one in axes)


def reduced(
    tx: Translator, name: str, a: Value, axis: Value | None = None, keepdims: Value | None = None,
    dtype: Value | None = None, ddof: Value | None = None,
) -> Value:  # fmt: skip
    """np.name(a, axis=axis, ...) of one array."""
    rule, what = REDUCTIONS[name], f"numpy.{name}"
    if not isinstance(a, ArrayValue):
        raise Unsupported(Reason.NUMPY_UNSUPPORTED, detail=f"{what} of {a.describe()}")
    given = {"dtype": named_dtype(dtype), "ddof": plain(ddof, 0)}
    if any(given[option] not in (None, 0) for option in given.keys() - set(rule.options)):
        raise Unsupported(Reason.NUMPY_UNSUPPORTED, detail=f"{what} with {', '.join(given)}")
    axes, keep = plain(axis), bool(plain(keepdims, False))
    dims = _dims(axes, a.fake.dim(), what)
    if rule.one_axis and isinstance(axes, tuple):
        raise Unsupported(Reason.NUMPY_UNSUPPORTED, detail=f"{what} along {axes}")
    typed = {"dtype": given["dtype"]} if given["dtype"] is not None else {}
    like = asked(getattr(np, name), sample(a.dtype, a.fake), axis=axes, keepdims=keep, **typed)
    computing_dtype(a.dtype, what)
    computing_dtype(like.dtype, what)
    tensor = cast(tx, a.tensor, like.dtype) if rule.works_in == "result" else a.tensor
    computed = rule.compute(tx, tensor, dims, keep, given["ddof"])
    assert isinstance(computed, TensorValue)
    if rule.warns and like.dtype.kind == "f":
        check_finite(tx, computed)
    return result(tx, laid_out(tx, cast(tx, computed, like.dtype), like), scalar=computed.fake.dim() == 0)


def _register(name: str) -> None:
    def function(
        tx: Translator, a: Value, axis: Value | None = None, dtype: Value | None = None, out: Value | None = None,
        keepdims: Value | None = None, ddof: Value | None = None,
    ) -> Value:  # fmt: skip
        if plain(out) is not None:
            raise Unsupported(Reason.NUMPY_UNSUPPORTED, np, name, detail="with out=")
        return reduced(tx, name, a, axis, keepdims, dtype, ddof)

    def without_dtype(
        tx: Translator, a: Value, axis: Value | None = None, out: Value | None = None, keepdims: Value | None = None
    ) -> Value:
        return function(tx, a, axis, None, out, keepdims)

    handler = function if REDUCTIONS[name].options else without_dtype
    aliases = {"max": ("amax",), "min": ("amin",)}
    on_arrays(*{id(f): f for f in (getattr(np, alias) for alias in (name, *aliases.get(name, ())))}.values())(handler)
    METHODS[name] = lambda tx, array, args, kwargs: called(tx, handler, name, [array, *args], kwargs)


for _name in REDUCTIONS:
    _register(_name)


def _running(name: str, target: Callable[..., Any]) -> None:
    @on_arrays(getattr(np, name))
    def function(
        tx: Translator, a: Value, axis: Value | None = None, dtype: Value | None = None, out: Value | None = None
    ) -> Value:
        if not isinstance(a, ArrayValue) or plain(out) is not None:
            raise Unsupported(Reason.NUMPY_UNSUPPORTED, np, name, given=(a,))
        axes, chosen = plain(axis), named_dtype(dtype)
        like = asked(getattr(np, name), sample(a.dtype, a.fake), axis=axes, dtype=chosen)
        computing_dtype(a.dtype, name)
        computing_dtype(like.dtype, name)
        tensor: Value = cast(tx, a.tensor, like.dtype)
        if axes is None:
            tensor = tx.graph.call("reshape", [tensor, constant(-1)], {}, tx, op="call_method")
        computed = tx.graph.call(target, [tensor, constant(0 if axes is None else axes)], {}, tx)
        if like.dtype.kind == "f":
            check_finite(tx, computed)
        return result(tx, laid_out(tx, computed, like))

    METHODS[name] = lambda tx, array, args, kwargs: called(tx, function, name, [array, *args], kwargs)


_running("cumsum", torch.cumsum)
_running("cumprod", torch.cumprod)


@on_arrays(np.linalg.norm)
def _norm(tx: Translator, x: Value, *, axis: Value | None = None, keepdims: Value | None = None) -> Value:
    """The root of the sum of squares."""
    if not isinstance(x, ArrayValue) or x.dtype.kind != "f":
        raise Unsupported(Reason.NUMPY_UNSUPPORTED, np.linalg.norm, given=(x,))
    squares = call_ufunc(tx, np.multiply, [x, x])
    return call_ufunc(tx, np.sqrt, [reduced(tx, "sum", squares, axis, keepdims)])


@on_arrays(np.count_nonzero)
def _count_nonzero(
    tx: Translator, a: Value, axis: Value | None = None, *, keepdims: Value | None = None
) -> Value:
    """Without an axis it is Python's int, which would be read out of the graph."""
    if not isinstance(a, ArrayValue) or plain(axis) is None:
        raise Unsupported(Reason.NUMPY_UNSUPPORTED, np.count_nonzero, detail="of all items")
    truths = tx.graph.call("to", [a.tensor, constant(torch.bool)], {}, tx, op="call_method")
    assert isinstance(truths, TensorValue)
    return reduced(tx, "sum", result(tx, truths), axis, keepdims)
