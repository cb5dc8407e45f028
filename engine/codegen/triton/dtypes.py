"""torch's dtypes by their Triton names."""
from __future__ import annotations

import math

import torch

from ...unsupported import TritonUnsupported

# dtype: (name in tl, name in a launch signature)
_NAMES: dict[torch.dtype, tuple[str, str]] = {
    torch.bool: ("int1", "i1"),
    torch.uint8: ("uint8", "u8"),
    torch.uint16: ("uint16", "u16"),
    torch.uint32: ("uint32", "u32"),
    torch.uint64: ("uint64", "u64"),
    torch.int8: ("int8", "i8"),
    torch.int16: ("int16", "i16"),
    torch.int32: ("int32", "i32"),
    torch.int64: ("int64", "i64"),
    torch.float16: ("float16", "fp16"),
    torch.bfloat16: ("bfloat16", "bf16"),
    torch.float32: ("float32", "fp32"),
    torch.float64: ("float64", "fp64"),
    torch.float8_e4m3fn: ("float8e4nv", "fp8e4nv"),
    torch.float8_e5m2: ("float8e5", "fp8e5"),
}


def value_type(dtype: torch.dtype) -> str:
    """`torch.float32` -> "tl.float32"."""
    return f"tl.{_entry(dtype)[0]}"


def pointer_type(dtype: torch.dtype) -> str:
    """`torch.float32` -> "*fp32", as launch signatures write it."""
    return f"*{_entry(dtype)[1]}"


def _entry(dtype: torch.dtype) -> tuple[str, str]:
    if dtype not in _NAMES:
        raise TritonUnsupported(f"Triton has no {dtype}")
    return _NAMES[dtype]


def literal(value: bool | int | float, dtype: torch.dtype) -> str:
    """A constant as Triton source that keeps its value: infinities, NaN and -0.0 spelled out. Of a whole number, the
    bits that the dtype has."""
    if dtype == torch.bool:
        return str(bool(value))
    if dtype.is_floating_point:
        number = float(value)
        if number == 0.0 and math.copysign(1.0, number) < 0:  # of a literal Triton makes 0.0
            bits = 8 * dtype.itemsize
            return f"tl.full([], {-(1 << (bits - 1))}, tl.int{bits}).to({value_type(dtype)}, bitcast=True)"
        finite = number == number and number not in (float("inf"), float("-inf"))
        return repr(number) if finite else f'float("{number}")'
    least = torch.iinfo(dtype).min
    return str((int(value) - least) % (1 << 8 * dtype.itemsize) + least)


def lowest(dtype: torch.dtype) -> bool | int | float:
    """The identity of `max`."""
    if dtype == torch.bool:
        return False
    return float("-inf") if dtype.is_floating_point else torch.iinfo(dtype).min


def highest(dtype: torch.dtype) -> bool | int | float:
    """The identity of `min`."""
    if dtype == torch.bool:
        return True
    return float("inf") if dtype.is_floating_point else torch.iinfo(dtype).max
