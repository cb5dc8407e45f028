"""What eager refuses and torch's fake kernels let pass: arguments, dtypes, numbers that a dtype does not hold.

A node that only fails when it runs would fail too late, or never: generated code would compute something, and where
nothing uses its result it would not even run. The facts are in `traits.py` (`check`, `same_dtype`, `norm_dtype`,
`converts`).
"""
from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache, partial
from itertools import combinations
from typing import Any

import torch
from torch.fx.experimental.symbolic_shapes import free_unbacked_symbols

from .argument_checks import fits_in_place
from .traits import traits_of

_aten = torch.ops.aten
_REDUCED = (torch.float16, torch.bfloat16)
_WITHOUT_PROMOTION = (torch.uint16, torch.uint32, torch.uint64)
_NARROW = (torch.int8, torch.uint8, torch.int16, torch.int32)


def refuse(operator: Any, args: Sequence[Any], kwargs: Mapping[str, Any] | None) -> None:
    """Raise RuntimeError where eager raises for these arguments of an ATen operator."""
    traits = traits_of(operator)
    if traits.same_dtype or traits.norm_dtype:
        _refuse_mixed_dtypes(operator, args)
    _refuse_without_promotion(operator, args)
    check = traits.check
    if check is None:
        computed = _elementwise_in_place(operator)
        if computed is None:
            return
        check = partial(fits_in_place, computed)
    if why := check(args, kwargs or {}):
        raise RuntimeError(f"{operator}: {why}")


def refuse_overflow(operator: Any, args: Sequence[Any], kwargs: Mapping[str, Any], result: Any) -> None:
    """Raise RuntimeError, as eager does, where a number that varies does not fit into the dtype of `result`.

    A constant that does not fit fails in eager's kernel when the graph runs; generated code would cut off a number that
    varies. It is compared with the limits of the dtype here, which guards the answer.
    """
    numbers = _converted(operator, args, kwargs)
    if not numbers or not isinstance(result, torch.Tensor) or result.dtype not in _NARROW:
        return
    limits = torch.iinfo(result.dtype)
    lowest = limits.min or -limits.max  # eager wraps negative numbers around, but where it pads
    if operator is _aten.constant_pad_nd.default:
        lowest = limits.min
    for number in numbers:
        if not lowest <= number <= limits.max:
            raise RuntimeError(f"{operator}: {number} in a tensor of {result.dtype}")


def _converted(operator: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> list[Any]:
    """The numbers that vary and are converted to the dtype of the result."""
    converts = traits_of(operator).converts
    if not converts:
        return []
    found = (*args, *kwargs.values()) if converts == "numbers" else (kwargs.get("alpha"),)
    return [it for it in found if isinstance(it, torch.SymInt) and not free_unbacked_symbols(it)]


def _refuse_mixed_dtypes(operator: Any, args: Sequence[Any]) -> None:
    traits = traits_of(operator)
    positions = traits.same_dtype or traits.norm_dtype
    dtypes = [args[i].dtype for i in positions if i < len(args) and isinstance(args[i], torch.Tensor)]
    if traits.norm_dtype and dtypes[0] in _REDUCED:
        dtypes = [dtype for dtype in dtypes if dtype is not torch.float32]
    if len(set(dtypes)) > 1:
        raise RuntimeError(f"{operator}: tensors of the dtypes {', '.join(str(dtype) for dtype in dtypes)}")


def _refuse_without_promotion(operator: Any, args: Sequence[Any]) -> None:
    """Where an element is computed of dtypes that torch has no common dtype for."""
    tensors = [arg for arg in args if isinstance(arg, torch.Tensor)]
    if operator is _aten.cat.default:
        tensors = args[0]
    elif len(tensors) < 2 or torch.Tag.pointwise not in getattr(operator, "tags", ()):
        return
    if any(tensor.dtype in _WITHOUT_PROMOTION for tensor in tensors):
        for one, other in combinations(tensors, 2):
            torch.result_type(one, other)


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
