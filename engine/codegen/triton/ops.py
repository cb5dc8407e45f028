"""The pointwise operators of the loop IR as Triton expressions: one table, one entry for each operator.

An entry takes the texts of the operands and their dtype (that of the first operand; of a `where`, of its values) and
returns an expression. Where Triton has several spellings, eager's values decide: `tl.exp`, `/` and `tl.sqrt` are faster
and less exact than what torch's CUDA kernels call, so float32 uses libdevice, `tl.div_rn` and `tl.sqrt_rn`.
"""
from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache

import torch

from ...unsupported import TritonUnsupported
from .dtypes import value_type

Printer = Callable[[list[str], torch.dtype], str]


def _infix(symbol: str) -> Printer:
    return lambda a, dtype: f"{a[0]} {symbol} {a[1]}"


def _call(function: str) -> Printer:
    return lambda a, dtype: f"{function}({', '.join(a)})"


def _divide(a: list[str], dtype: torch.dtype) -> str:
    return f"({a[0]}) / ({a[1]})" if dtype == torch.float64 else f"tl.div_rn({a[0]}, {a[1]})"


def _square_root(a: list[str], dtype: torch.dtype) -> str:
    return f"libdevice.sqrt({a[0]})" if dtype == torch.float64 else f"tl.sqrt_rn({a[0]})"


def _extreme(function: str, logical: str) -> Printer:
    """The larger or smaller; NaN if either is. 0.0 is larger than -0.0, as for eager's `fmax`."""
    def text(a: list[str], dtype: torch.dtype) -> str:
        if dtype == torch.bool:
            return f"{a[0]} {logical} {a[1]}"
        if dtype == torch.float64:  # PTX has no max.NaN.f64
            known = f"tl.where({a[1]} != {a[1]}, {a[1]}, tl.{function}({a[0]}, {a[1]}))"
            return f"tl.where({a[0]} != {a[0]}, {a[0]}, {known})"
        nan = ", propagate_nan=tl.PropagateNan.ALL" if dtype.is_floating_point else ""
        return f"tl.{function}({a[0]}, {a[1]}{nan})"

    return text


def _boolean(arithmetic: str, logical: str) -> Printer:
    return lambda a, dtype: f"{a[0]} {logical if dtype == torch.bool else arithmetic} {a[1]}"


def _by_kind(floating: str, integer: str) -> Printer:
    """A call that differs between floating point and integers."""
    return lambda a, dtype: f"{floating if dtype.is_floating_point else integer}({', '.join(a)})"


UNARY: dict[str, Printer] = {
    # 0 - x would turn 0.0 into 0.0, not -0.0
    "neg": lambda a, dtype: f"-1.0 * {a[0]}" if dtype.is_floating_point else f"0 - {a[0]}",
    "abs": lambda a, dtype: f"tl.abs({a[0]})" if dtype != torch.bool else a[0],
    "sign": lambda a, dtype: f"({a[0]} > 0).to({value_type(dtype)}) - ({a[0]} < 0).to({value_type(dtype)})",
    "reciprocal": lambda a, dtype: _divide(["1.0", a[0]], dtype),
    "sqrt": _square_root,
    "sigmoid": lambda a, dtype: _divide(["1.0", f"1.0 + libdevice.exp(-1.0 * {a[0]})"], dtype),
    "round": _call("libdevice.nearbyint"),  # half to even
    "isnan": lambda a, dtype: f"{a[0]} != {a[0]}",
    "isinf": lambda a, dtype: f'tl.abs({a[0]}) == float("inf")',
    "logical_not": lambda a, dtype: f"{a[0]} == 0",
    "bitwise_not": lambda a, dtype: f"{a[0]} == 0" if dtype == torch.bool else f"~{a[0]}",
    **{
        name: _call(f"libdevice.{name}")
        for name in (
            "rsqrt", "exp", "exp2", "expm1", "log", "log2", "log10", "log1p", "sin", "cos", "tan", "asin", "acos",
            "atan", "sinh", "cosh", "tanh", "asinh", "acosh", "atanh", "erf", "erfc", "erfinv", "lgamma", "floor",
            "ceil", "trunc",
        )
    },
}

BINARY: dict[str, Printer] = {
    "add": _boolean("+", "|"),
    "sub": _boolean("-", "^"),
    "mul": _boolean("*", "&"),
    "truediv": _divide,
    "floordiv": _by_kind("float_floordiv", "integer_floordiv"),
    "truncdiv": lambda a, dtype: f"libdevice.trunc({_divide(a, dtype)})" if dtype.is_floating_point
    else f"{a[0]} // {a[1]}",
    "mod": _by_kind("float_mod", "integer_mod"),
    "fmod": lambda a, dtype: f"libdevice.fmod({a[0]}, {a[1]})" if dtype.is_floating_point else f"{a[0]} % {a[1]}",
    "pow": _by_kind("libdevice.pow", "integer_pow"),
    "minimum": _extreme("minimum", "&"),
    "maximum": _extreme("maximum", "|"),
    "fmin": _call("tl.minimum"),
    "fmax": _call("tl.maximum"),
    "bitwise_and": _infix("&"),
    "bitwise_or": _infix("|"),
    "bitwise_xor": _infix("^"),
    "shl": _call("shift_left"),
    "shr": _call("shift_right"),
    "logical_and": _infix("&"),
    "logical_or": _infix("|"),
    "logical_xor": _infix("^"),
    "eq": _infix("=="),
    "ne": _infix("!="),
    "lt": _infix("<"),
    "le": _infix("<="),
    "gt": _infix(">"),
    "ge": _infix(">="),
    **{name: _call(f"libdevice.{name}") for name in ("atan2", "hypot", "copysign", "nextafter")},
}

TERNARY: dict[str, Printer] = {
    "where": _call("tl.where"),
    "fma": lambda a, dtype: f"tl.fma({', '.join(a)})" if dtype.is_floating_point else f"{a[0]} * {a[1]} + {a[2]}",
}

PRINTERS: dict[str, Printer] = {**UNARY, **BINARY, **TERNARY}

# Operators whose constant operands may be Python literals: Triton gives them the dtype of the other operand.
TAKES_LITERALS = frozenset(
    {"add", "sub", "mul", "truediv", "eq", "ne", "lt", "le", "gt", "ge", "where"}
)


def expression(op: str, operands: list[str], dtype: torch.dtype) -> str:
    """The Triton expression of `op`. Raises TritonUnsupported for an operator without one."""
    printer = PRINTERS.get(op)
    if printer is None:
        raise TritonUnsupported(f"operator {op} has no Triton form")
    return printer(operands, dtype)


_EIGHT_BITS = {torch.float8_e4m3fn: "to_float8_e4m3fn", torch.float8_e5m2: "to_float8_e5m2"}


@lru_cache(maxsize=2)
def _is_limited(dtype: torch.dtype) -> bool:
    """Whether torch, as a GPU does, gives the largest number for what is too large; releases differ."""
    return bool(torch.tensor(1e9).to(dtype).float().isfinite())


def cast(text: str, source: torch.dtype, target: torch.dtype) -> str:
    """A conversion as C's (and torch's): towards zero, `!= 0` for bool, integers keep their low bits."""
    if source == target:
        return text
    if target == torch.bool:
        return f"{text} != 0"
    if source.is_floating_point and target in (torch.uint8, torch.int8, torch.int16, torch.uint16):
        return f"{text}.to(tl.int64).to({value_type(target)})"  # torch wraps; a direct conversion saturates
    if target in _EIGHT_BITS:
        wide = cast(text, source, torch.float32)
        return f"{wide}.to({value_type(target)})" if _is_limited(target) else f"{_EIGHT_BITS[target]}({wide})"
    if source == torch.bool and target.is_floating_point and target.itemsize < 4:
        return f"{text}.to(tl.float32).to({value_type(target)})"
    return f"{text}.to({value_type(target)})"
