"""How a torch dtype looks in memory and as a value in C++.

Values of bool are C++ `bool`, in memory bytes. Values of the 16-bit floats are `float`: they are widened when loaded
and rounded (to nearest, ties to even) when cast or stored, by bit operations that gcc vectorizes; its own `_Float16`
and `__bf16` do not vectorize in gcc 12.
"""
from __future__ import annotations

import math
from dataclasses import dataclass

import torch


@dataclass(frozen=True)
class CType:
    """`memory`: the element type of a buffer; `value`: of a variable; `load` and `store`: what converts (prelude)."""

    memory: str
    value: str
    bytes: int
    load: str = ""
    store: str = ""


CTYPES: dict[torch.dtype, CType] = {
    torch.float64: CType("double", "double", 8),
    torch.float32: CType("float", "float", 4),
    torch.bfloat16: CType("uint16", "float", 2, "bfloat16_to_float", "float_to_bfloat16"),
    torch.float16: CType("uint16", "float", 2, "half_to_float", "float_to_half"),
    torch.int64: CType("int64", "int64", 8),
    torch.int32: CType("int32", "int32", 4),
    torch.int16: CType("int16", "int16", 2),
    torch.int8: CType("int8", "int8", 1),
    torch.uint8: CType("uint8", "uint8", 1),
    torch.uint16: CType("uint16", "uint16", 2),
    torch.uint32: CType("uint32", "uint32", 4),
    torch.uint64: CType("uint64", "uint64", 8),
    torch.bool: CType("uint8", "bool", 1),
}


ALONE = frozenset(("half_to_float", "float_to_half", "as_half"))
"""Conversions that have another form, of this name and `_alone`, for loops that run in order (half_precision.py)."""


def ctype(dtype: torch.dtype) -> CType:
    """The C++ side of `dtype`; NotImplementedError for one that kernels cannot hold (complex, float8)."""
    try:
        return CTYPES[dtype]
    except KeyError:
        raise NotImplementedError(f"no C++ kernels for {dtype}") from None


def literal(value: bool | int | float, dtype: torch.dtype) -> str:
    """`value` as a C++ constant of the value type of `dtype`, exactly."""
    kind = ctype(dtype).value
    if kind == "bool":
        return "true" if value else "false"
    if kind in ("float", "double"):
        number = float(value)
        suffix = "f" if kind == "float" else ""
        if math.isnan(number):
            return f'__builtin_nan{suffix}("")'
        if kind == "float":
            number = torch.tensor(number, dtype=torch.float64).to(torch.float32).item()  # rounds once, as torch does
        if math.isinf(number):
            return f"{'-' if number < 0 else ''}__builtin_inf{suffix}()"
        return f"{_decimal(number, kind)}{suffix}"
    integer = int(value)
    if integer == -(2**63):
        return "(-9223372036854775807l - 1)"
    return f"{integer}ul" if kind == "uint64" else f"{integer}l" if kind == "int64" else f"({kind}){integer}"


def bits_literal(value: float | bool | int, dtype: torch.dtype) -> str:
    """The number, as a 16-bit float of `dtype` has it in memory; "" where that is another number."""
    stored = torch.tensor(float(value), dtype=torch.float64).to(dtype)
    same = stored.item() == float(value) or math.isnan(float(value))
    return f"(uint16){int(stored.view(torch.int16).item()) & 0xffff}" if same else ""


def _decimal(number: float, kind: str) -> str:
    """The shortest decimal that reads back as the same float (9 digits always do) or double."""
    text = repr(number)
    if kind == "float":
        text = next(t for digits in range(6, 10) if _as_float(t := f"{number:.{digits}g}") == number)
    return text if any(c in text for c in ".en") else f"{text}.0"


def _as_float(text: str) -> float:
    return torch.tensor(float(text), dtype=torch.float64).to(torch.float32).item()
