"""NumPy's dtypes: their torch counterparts, as constants, and NumPy's own promotion rules.

NumPy itself decides the dtype of a result: `resolve_dtypes` of a ufunc, or the function called on a sample, a small
array of the same dtype and order of strides. So promotion is that of the installed NumPy (NEP 50).
"""
from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from ...breaks.reasons import Reason
from ...breaks.unsupported import Unsupported
from ...sources.source import Source
from ..core.base import Value
from ..core.constant import ConstantValue
from ..core.handlers import pure
from ..core.registry import OPAQUE_CONSTANTS, builds
from ..python.symbolic_numbers import NumberValue

if TYPE_CHECKING:
    from ..core.base import Translator

TORCH_DTYPES: dict[np.dtype[Any], torch.dtype] = {
    np.dtype(np.bool_): torch.bool, np.dtype(np.uint8): torch.uint8, np.dtype(np.int8): torch.int8,
    np.dtype(np.int16): torch.int16, np.dtype(np.int32): torch.int32, np.dtype(np.int64): torch.int64,
    np.dtype(np.float16): torch.float16, np.dtype(np.float32): torch.float32, np.dtype(np.float64): torch.float64,
}  # fmt: skip
"""Dtypes of arrays that a graph holds. For arithmetic float16 is left out: NumPy rounds every step."""

NUMPY_DTYPES = {dtype: name for name, dtype in TORCH_DTYPES.items()}


@builds(np.dtype)
def build_dtype(tx: Translator, obj: np.dtype[Any], source: Source | None) -> Value:
    """An immutable constant."""
    if source is not None:
        tx.guards.add(source, "EQUALS_MATCH", obj)
    return ConstantValue(obj, source)


OPAQUE_CONSTANTS.update((np.iinfo, np.finfo, *(type(dtype) for dtype in TORCH_DTYPES)))
pure(np.dtype, np.iinfo, np.finfo)


def torch_dtype(dtype: np.dtype[Any], what: str) -> torch.dtype:
    """The torch dtype of arrays of `dtype`. Raises Unsupported where there is none that a graph computes with."""
    found = TORCH_DTYPES.get(dtype) if dtype.isnative else None
    if found is None:
        raise Unsupported(Reason.NUMPY_UNSUPPORTED, detail=f"{what} of {dtype} arrays")
    return found


def computing_dtype(dtype: np.dtype[Any], what: str) -> torch.dtype:
    """As `torch_dtype`, for arithmetic."""
    if dtype == np.float16:
        raise Unsupported(Reason.NUMPY_UNSUPPORTED, detail=f"{what} of float16 arrays")
    return torch_dtype(dtype, what)


def named_dtype(value: Value | None) -> np.dtype[Any] | None:
    """The dtype that an argument `dtype=` names; None for None. Raises Unsupported for what is not a NumPy dtype."""
    if value is None or (value.is_constant() and value.as_constant() is None):
        return None
    try:
        return np.dtype(value.as_constant())
    except TypeError as error:
        raise Unsupported(Reason.NUMPY_UNSUPPORTED, detail=f"numpy with dtype {value.describe()}") from error


Kind = Any
"""How an operand takes part in promotion: a NumPy dtype, or int or float for Python's numbers, which are weakly
typed."""


def kind_of(value: Value) -> Kind:
    """The operand's part in promotion. Raises Unsupported for what is neither an array nor a number."""
    dtype = getattr(value, "dtype", None)
    if isinstance(dtype, np.dtype):
        return dtype
    if isinstance(value, NumberValue):
        python = value.python_type()
        return np.dtype(bool) if python is bool else python
    constant = value.as_constant() if value.is_constant() else None
    if isinstance(constant, np.generic):
        return constant.dtype
    if isinstance(constant, (bool, int, float)):
        return np.dtype(bool) if isinstance(constant, bool) else type(constant)
    raise Unsupported(Reason.NUMPY_UNSUPPORTED, detail=f"numpy on {value.describe()}")


def converted(value: Any, dtype: np.dtype[Any]) -> Any:
    """A Python or NumPy number as a Python number after conversion to `dtype`.

    Raises Unsupported where NumPy raises or warns: a number out of range, a fraction that becomes infinite.
    """
    with np.errstate(all="raise"):
        try:
            return dtype.type(value).item()
        except Exception as error:
            raise Unsupported(Reason.NUMPY_UNSUPPORTED, detail=f"numpy with {value!r} as {dtype}") from error


def loop_dtypes(ufunc: np.ufunc, kinds: Sequence[Kind], out: np.dtype[Any] | None = None) -> tuple[np.dtype[Any], ...]:
    """The dtypes of the ufunc's loop for operands and results. Raises Unsupported where NumPy has no loop, or none
    whose result may be stored in `out`."""
    try:
        return tuple(ufunc.resolve_dtypes((*kinds, out)))
    except Exception as error:
        raise Unsupported(Reason.NUMPY_UNSUPPORTED, ufunc, detail=f"of {', '.join(map(str, kinds))}") from error


# ---- samples -------------------------------------------------------------------------------------------------------
def sample(dtype: np.dtype[Any], fake: torch.Tensor) -> np.ndarray[Any, Any]:
    """An array of ones with the number of dimensions and order of strides of `fake`, and at most 2 in each."""
    sizes = [size if isinstance(size, int) and size < 2 else 2 for size in fake.shape]
    order = _order(fake)
    base = np.ones([sizes[dim] for dim in order], dtype)
    made = base.transpose(np.argsort(order)) if order else base
    spread = [dim for dim, stride in enumerate(fake.stride()) if isinstance(stride, int) and stride == 0]
    if any(sizes[dim] > 1 for dim in spread):
        first = made[tuple(slice(0, 1) if dim in spread else slice(None) for dim in range(fake.dim()))]
        made = np.broadcast_to(first, sizes)
    return made


def _order(fake: torch.Tensor) -> list[int]:
    """The dimensions from the outermost in memory to the innermost."""
    if all(isinstance(stride, int) for stride in fake.stride()) and not fake.is_contiguous():
        return sorted(range(fake.dim()), key=fake.stride().__getitem__, reverse=True)
    if fake.is_contiguous():
        return list(range(fake.dim()))
    raise Unsupported(Reason.NUMPY_UNSUPPORTED, detail="numpy on an array whose strides vary")


def order_of(array: np.ndarray[Any, Any]) -> list[int]:
    """The memory order of a NumPy result: the dimensions from the outermost to the innermost; C order where several
    orders fit."""
    if array.flags.c_contiguous:
        return list(range(array.ndim))
    return sorted(range(array.ndim), key=array.strides.__getitem__, reverse=True)


def asked(function: Callable[..., Any], *args: Any, **kwargs: Any) -> np.ndarray[Any, Any]:
    """The result of NumPy for samples. Raises Unsupported where it raises."""
    with np.errstate(all="ignore"):
        try:
            return np.asarray(function(*args, **kwargs))
        except Exception as error:
            raise Unsupported(Reason.NUMPY_UNSUPPORTED, function, detail=f": {error}") from error
