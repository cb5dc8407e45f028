"""Arguments that eager refuses and torch's fake kernels let pass: dimensions, dtypes of indices, shapes.

A node that only fails when it runs would fail too late, or never: kernels of ours would compute something. To add an
operator, add an entry to `CHECKS`. Sizes that vary are guarded to be equal; of those that data tells nothing is known.
"""
from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cache, partial
from typing import Any

import torch

from .dtype_checks import refuse_mixed_dtypes, refuse_without_promotion

_aten = torch.ops.aten
Args = Sequence[Any]
Check = Callable[[Args, Mapping[str, Any]], str]
"""(arguments, keyword arguments) -> what is wrong with them; "" where nothing is."""


def refuse(operator: Any, args: Args, kwargs: Mapping[str, Any] | None) -> None:
    """Raise RuntimeError where eager raises for these arguments of an ATen operator."""
    refuse_mixed_dtypes(operator, args)
    refuse_without_promotion(operator, args)
    check = CHECKS.get(operator)
    if check is None:
        computed = _elementwise_in_place(operator)
        if computed is None:
            return
        check = partial(_fits, computed)
    if why := check(args, kwargs or {}):
        raise RuntimeError(f"{operator}: {why}")


def _dimension(args: Args, kwargs: Mapping[str, Any]) -> str:
    dim = args[1] if len(args) > 1 else kwargs.get("dim", -1)
    ranks = max(args[0].dim(), 1)
    return "" if -ranks <= dim < ranks else f"dimension {dim} of a tensor of {args[0].dim()}"


def _not_empty(args: Args, kwargs: Mapping[str, Any]) -> str:
    if why := _dimension(args, kwargs):
        return why
    dim = args[1] if len(args) > 1 else kwargs.get("dim", -1)
    size = args[0].shape[dim] if args[0].dim() else 1
    return "a dimension without elements" if type(size) is int and size == 0 else ""


def _has_elements(args: Args, kwargs: Mapping[str, Any]) -> str:
    return "no elements" if any(type(size) is int and size == 0 for size in args[0].shape) else ""


def _is_of(place: int, *dtypes: torch.dtype) -> Check:
    def check(args: Args, kwargs: Mapping[str, Any]) -> str:
        dtype = args[place].dtype
        return "" if dtype in dtypes else f"an argument of the dtype {dtype}"

    return check


def _boundaries(args: Args, kwargs: Mapping[str, Any]) -> str:
    return "" if args[1].dim() == 1 else "boundaries that are no vector"


def _selects(args: Args, kwargs: Mapping[str, Any]) -> str:
    if args[2].dim() > 1:
        return "an index that is no vector"
    return _dimension(args, kwargs) or _is_of(2, torch.int32, torch.int64)(args, kwargs)


def _adds(args: Args, kwargs: Mapping[str, Any]) -> str:
    if why := _dimension(args, kwargs) or _is_of(2, torch.int32, torch.int64)(args, kwargs):
        return why
    whole, dim, source = args[0], args[1], args[3]
    if whole.dim() and whole.dim() == source.dim():
        pairs = list(zip(whole.shape, source.shape))
        del pairs[dim]
        if not all(map(_may_be_equal, pairs)):
            return "a source of another shape"
    return ""


def _copies(args: Args, kwargs: Mapping[str, Any]) -> str:
    return _dimension(args, kwargs) or _is_of(2, torch.int64)(args, kwargs)


def _diagonal(args: Args, kwargs: Mapping[str, Any]) -> str:
    part, source = _aten.diagonal.default(args[0], *args[2:], **kwargs), args[1]
    fits = part.dim() == source.dim() and all(map(_may_be_equal, zip(part.shape, source.shape)))
    return "" if fits else "a source of another shape"


def _puts(args: Args, kwargs: Mapping[str, Any]) -> str:
    whole, indices, values = args[:3]
    if any(index is not None and index.dtype in (torch.bool, torch.uint8) for index in indices):
        return ""
    return "" if _broadcasts(values, _aten.index.Tensor(whole, indices)) else "values of another shape"


def _alpha(args: Args, kwargs: Mapping[str, Any]) -> str:
    alpha = args[1] if len(args) > 1 else kwargs.get("alpha", 1.0)
    return "alpha is 0" if isinstance(alpha, (int, float)) and alpha == 0 else ""


def _scaled(args: Args, kwargs: Mapping[str, Any]) -> str:
    of_bools = all(getattr(arg, "dtype", None) is torch.bool for arg in args[:2])
    return "bools times a float" if of_bools and isinstance(kwargs.get("alpha"), float) else ""


def _fits(computed: Any, args: Args, kwargs: Mapping[str, Any]) -> str:
    """Of an operator that writes what `computed` gives to its first argument, element by element."""
    written, others = args[0], [*args[1:], *kwargs.values()]
    tensors = [other for other in others if isinstance(other, torch.Tensor)]
    if not all(_broadcasts(tensor, written) for tensor in tensors):
        return "the result has another shape than the tensor that is written"
    if written.is_complex():
        return ""
    if written.is_floating_point():
        is_complex = any(isinstance(it, complex) for it in others) or any(tensor.is_complex() for tensor in tensors)
        return "a complex result in a tensor of real numbers" if is_complex else ""
    result = computed(*args, **kwargs)
    return "" if torch.can_cast(result.dtype, written.dtype) else f"a {result.dtype} in a tensor of {written.dtype}"


def _broadcasts(tensor: torch.Tensor, to: torch.Tensor) -> bool:
    if tensor.dim() > to.dim():
        return False
    pairs = zip(tensor.shape[::-1], to.shape[::-1])
    return all((type(size) is int and size == 1) or _may_be_equal((size, wanted)) for size, wanted in pairs)


def _may_be_equal(sizes: tuple[Any, Any]) -> bool:
    if any(isinstance(size, torch.SymInt) and not size.node.has_hint() for size in sizes):
        return True
    return bool(sizes[0] == sizes[1])


@cache
def _elementwise_in_place(operator: Any) -> Any:
    """Of `add_`, `lt_`, ... what computes the elements: `add`, `lt`, as `torch.Tag.pointwise` tells; None of others."""
    if not isinstance(operator, torch._ops.OpOverload):
        return None
    name = operator._schema.name.removeprefix("aten::")
    if operator.namespace != "aten" or not name.endswith("_") or name in _ARE_OTHERS:
        return None
    packet = getattr(_aten, name[:-1], None)
    if packet is None or not operator._schema.arguments[0].is_write:
        return None
    is_pointwise = any(torch.Tag.pointwise in getattr(packet, overload).tags for overload in packet.overloads())
    return packet if is_pointwise else None


_ARE_OTHERS = frozenset(("copy_", "eq_", "ne_", "masked_fill_"))

CHECKS: dict[Any, Check] = {
    **dict.fromkeys((
        _aten._softmax.default, _aten._log_softmax.default, _aten.cummax.default, _aten.cummin.default,
        _aten.sort.default,
    ), _dimension),
    _aten.sort.stable: lambda args, kwargs: _dimension((args[0], kwargs.get("dim", -1)), {}),
    **dict.fromkeys((
        _aten.max.dim, _aten.min.dim, _aten.median.dim, _aten.nanmedian.dim, _aten.mode.default,
    ), _not_empty),
    **dict.fromkeys((_aten.max.default, _aten.min.default), _has_elements),
    _aten.index_select.default: _selects,
    **dict.fromkeys((
        _aten.index_add.default, _aten.index_add_.default, _aten.index_reduce.default, _aten.index_reduce_.default,
    ), _adds),
    **dict.fromkeys((_aten.index_copy.default, _aten.index_copy_.default), _copies),
    **dict.fromkeys((_aten.index_put.default, _aten.index_put_.default), _puts),
    **dict.fromkeys((
        _aten.nll_loss_forward.default, _aten.nll_loss2d_forward.default,
    ), _is_of(1, torch.int64, torch.uint8)),
    _aten.masked_select.default: _is_of(1, torch.bool),
    _aten.diagonal_scatter.default: _diagonal,
    _aten.bucketize.Tensor: _boundaries,
    **dict.fromkeys((_aten.celu.default, _aten.celu_.default), _alpha),
    _aten.add.Tensor: _scaled,
}  # fmt: skip
