"""`array[key]` and `array[key] = value`: views for slices, numbers for indices, copies for index arrays. And
`tensor[array]`.

Negative steps are in `reversed.py`. Left to eager: index arrays mixed with indices, and assignment through index arrays
from an array (with equal indices the last one wins, which torch does not guarantee).
"""
from __future__ import annotations

import operator
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from ...breaks.reasons import Reason
from ...breaks.unsupported import Unsupported
from ..containers.sequences import SequenceValue, TupleValue
from ..containers.slices import SliceValue
from ..core.base import Value
from ..core.constant import constant
from ..core.late import late
from ..python.symbolic_numbers import NumberValue
from ..torch.runtime_asserts import rely_on_rerun
from ..torch.tensor import TensorValue
from ..torch.tensor_constructors import places_of
from .dtypes import asked, sample
from .ndarrays import INDEXING, ArrayValue, NdarrayValue, NumpyNumber, laid_out, plain, result, same_memory, written
from .ufuncs import operand

if TYPE_CHECKING:
    from ..core.base import Translator

_INDEX, _PART, _PLACES = "index", "part", "places"


def _kind(key: Value) -> str:
    """How a part of a key selects. Raises Unsupported for what is left to eager."""
    if isinstance(key, NdarrayValue) or isinstance(key, SequenceValue):
        return _PLACES
    if isinstance(key, SliceValue):
        step = key.parts[2]
        if step.is_constant() and (step.as_constant() is None or step.as_constant() > 0):
            return _PART
    elif isinstance(key, NumberValue) and key.python_type() is int:
        return _INDEX
    elif key.is_constant():
        value = key.as_constant()
        if value is None or value is Ellipsis:
            return _PART
        if isinstance(value, (int, np.integer)) and not isinstance(value, bool):
            return _INDEX
    raise Unsupported(Reason.SUBSCRIPT, detail=f"an array by {key.describe()}")


def _parts(key: Value) -> list[Value]:
    return list(key.items) if isinstance(key, TupleValue) else [key]


def _places(tx: Translator, key: Value, what: str) -> TensorValue:
    """An index array (or list) as a tensor."""
    if isinstance(key, SequenceValue):
        places = np.asarray(plain(key))
        if places.dtype not in (np.int64, np.bool_) or places.ndim != 1:
            raise Unsupported(Reason.SUBSCRIPT, detail=what)
        options = {"device": constant(torch.device("cpu"))}
        made = tx.graph.call(torch.tensor, [constant(places.tolist())], options, tx)
        assert isinstance(made, TensorValue)
        return made
    assert isinstance(key, NdarrayValue)
    if key.dtype.kind not in "bi" or key.fake.dim() == 0:
        raise Unsupported(Reason.SUBSCRIPT, detail=what)
    if key.dtype.kind == "i" and key.dtype != np.int64:
        wide = tx.graph.call("to", [key.tensor, constant(torch.int64)], {}, tx, op="call_method")
        assert isinstance(wide, TensorValue)
        return wide
    return key.tensor


def _index(key: Value) -> Value:
    """An index or a slice as Python integers."""
    if isinstance(key, SliceValue):
        return SliceValue([_index(part) for part in key.parts])
    if key.is_constant() and isinstance(key.as_constant(), np.integer):
        return constant(int(key.as_constant()))
    return key


def _get(tx: Translator, array: ArrayValue, key: Value) -> Value:
    what = f"{array.describe()} by {key.describe()}"
    parts = _parts(key)
    if len(parts) == 1 and isinstance(parts[0], NumpyNumber) and parts[0].dtype.kind == "i" and array.fake.dim() == 1:
        rely_on_rerun(tx, Unsupported(Reason.SUBSCRIPT, detail=what))
        return result(tx, _call(tx, array, [_long(tx, parts[0])]), scalar=True)
    kinds = [_kind(part) for part in parts]
    if _PLACES in kinds:
        return _copy(tx, array, parts, kinds, what)
    found = _call(tx, array, [_index(part) for part in parts])
    if kinds.count(_INDEX) == len(kinds) == array.fake.dim():
        return result(tx, tx.graph.call("clone", [found], {}, tx, op="call_method"), scalar=True)
    if isinstance(array, NumpyNumber):
        raise Unsupported(Reason.SUBSCRIPT, detail=what)
    assert isinstance(found, TensorValue)
    return NdarrayValue(found)


def _call(tx: Translator, array: ArrayValue, parts: Sequence[Value]) -> Value:
    key = TupleValue(parts, tuple) if len(parts) != 1 else parts[0]
    return tx.graph.call(operator.getitem, [array.tensor, key], {}, tx)


def _long(tx: Translator, number: NumpyNumber) -> Value:
    return tx.graph.call("to", [number.tensor, constant(torch.int64)], {}, tx, op="call_method")


def _copy(tx: Translator, array: ArrayValue, parts: list[Value], kinds: list[str], what: str) -> Value:
    """The elements at index arrays: those alone, or with whole dimensions."""
    whole = [kind == _PLACES or _is_whole(part) for part, kind in zip(parts, kinds)]
    if not all(whole):
        raise Unsupported(Reason.SUBSCRIPT, detail=what)
    selectors: list[Any] = []
    taken = _selected(tx, array, parts, kinds, what)
    for places in taken:
        if not isinstance(places, TensorValue):
            selectors.append(slice(None))
            continue
        dtype = np.dtype(bool) if places.fake.dtype is torch.bool else np.dtype(np.int64)
        ones = sample(dtype, places.fake)
        selectors.append(ones if dtype.kind == "b" else np.zeros_like(ones))
    found = _call(tx, array, taken)
    like = asked(operator.getitem, sample(array.dtype, array.fake), tuple(selectors))
    return result(tx, laid_out(tx, found, like) if 1 not in like.shape else _around_ones(tx, found, like))


def _around_ones(tx: Translator, found: Value, like: np.ndarray[Any, Any]) -> Value:
    """As `laid_out`; NumPy makes the indexed dimensions the outermost in memory, which gives dimensions of size one
    other strides."""
    order = sorted(range(like.ndim), key=lambda dim: (-like.strides[dim], -like.shape[dim]))
    if order == sorted(order) or 0 in like.shape:
        return laid_out(tx, found, like)
    back = [order.index(dim) for dim in range(len(order))]
    moved = tx.graph.call("permute", [found, constant(tuple(order))], {}, tx, op="call_method")
    options = {"memory_format": constant(torch.contiguous_format)}
    dense = tx.graph.call("clone", [moved], options, tx, op="call_method")
    return tx.graph.call("permute", [dense, constant(tuple(back))], {}, tx, op="call_method")


def _selected(
    tx: Translator, array: ArrayValue, parts: list[Value], kinds: list[str], what: str
) -> list[Value]:
    """The parts for torch; index arrays as tensors. Whether indices are in range is known when the graph runs: NumPy's
    error then comes from the rerun in eager. Masks must have the shape of what they select from."""
    taken: list[Value] = []
    dim = 0
    for part, kind in zip(parts, kinds):
        if kind != _PLACES:
            taken.append(_index(part))
            dim += 1
            continue
        places = _places(tx, part, what)
        if places.fake.dtype is torch.bool:
            if tuple(places.fake.shape) != tuple(array.fake.shape[dim : dim + places.fake.dim()]):
                raise Unsupported(Reason.SUBSCRIPT, detail=what)
            dim += places.fake.dim()
        else:
            rely_on_rerun(tx, Unsupported(Reason.SUBSCRIPT, detail=what))
            dim += 1
        taken.append(places)
    return taken


def _is_whole(part: Value) -> bool:
    return isinstance(part, SliceValue) and all(p.is_constant() and p.as_constant() is None for p in part.parts)


def _set(tx: Translator, array: NdarrayValue, key: Value, value: Value) -> None:
    what = f"{array.describe()} by {key.describe()}"
    parts = _parts(key)
    kinds = [_kind(part) for part in parts]
    whole = all(kind == _PLACES or _is_whole(part) for part, kind in zip(parts, kinds))
    if _PLACES in kinds and not whole:
        raise Unsupported(Reason.SET_ITEM, detail=what)
    taken = _selected(tx, array, parts, kinds, what) if whole else [_index(part) for part in parts]
    single = not isinstance(value, ArrayValue) or value.fake.dim() == 0
    if _PLACES in kinds and not (single and (len(parts) == 1 or kinds.count(_PLACES) == len(kinds))):
        raise Unsupported(Reason.SET_ITEM, detail=what)
    number = operand(tx, value, array.dtype, unsafe=True)
    written(tx, array)
    if not single:  # it may alias the memory
        number = tx.graph.call("clone", [number], {}, tx, op="call_method")
    where = TupleValue(taken, tuple) if len(taken) != 1 else taken[0]
    tx.graph.call(operator.setitem, [array.tensor, where, number], {}, tx)


def arrays_as_places(tx: Translator, key: Value) -> Value:
    """The key of a tensor with tensors in place of arrays, and of lists that contain tensors among their integers:
    torch takes integers as indices, an array of bool as a mask (`sequenceToVariable` in
    torch/csrc/autograd/python_variable_indexing.cpp)."""
    if isinstance(key, NdarrayValue):
        return _as_places(tx, key)
    if isinstance(key, TupleValue) and any(isinstance(part, (NdarrayValue, SequenceValue)) for part in key.items):
        parts = [_as_places(tx, part) if isinstance(part, NdarrayValue) else places_of(tx, part) for part in key.items]
        return TupleValue(parts, tuple)
    return key


def _as_places(tx: Translator, array: NdarrayValue) -> Value:
    if array.dtype.kind not in "bi" or array.fake.dim() == 0:
        raise Unsupported(Reason.SUBSCRIPT, detail=f"a tensor by {array.describe()}")
    if array.dtype in (np.bool_, np.int64):
        return same_memory(tx, array.tensor)
    return tx.graph.call("to", [array.tensor, constant(torch.int64)], {}, tx, op="call_method")


late.arrays_as_places = arrays_as_places
INDEXING["get"] = _get
INDEXING["set"] = _set
