"""Index and size expressions as C++: int64 arithmetic over loop variables, size symbols and indirect values."""
from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import lru_cache

import sympy
from torch.utils._sympy.functions import (
    FloatTrueDiv,
    FloorDiv,
    IntTrueDiv,
    Mod,
    PythonMod,
    ToFloat,
    TruncToInt,
)

from ...ir.affine import renamed
from ...unsupported import EngineUnsupported


class NoExpression(EngineUnsupported, NotImplementedError):
    """There is no C++ for an index or size expression."""


_SUM, _PRODUCT, _ATOM = 0, 1, 2  # binding strength of a printed expression


def c_expression(expr: sympy.Expr, names: Mapping[str, str] | None = None) -> str:
    """`expr` as C++. `names` says what symbols are called where that is not their own name.

    Raises NoExpression for a SymPy function that has no integer meaning here.
    """
    if names:
        expr = renamed(expr, {s: sympy.Symbol(names[s.name]) for s in expr.free_symbols if s.name in names})
    return _text(expr)[0]


@lru_cache(maxsize=65536)
def _text(expr: sympy.Expr) -> tuple[str, int]:
    if expr.is_Symbol:
        return expr.name, _ATOM
    if expr.is_Integer:
        return str(int(expr)), _ATOM if expr >= 0 else _SUM
    if expr.is_Float:
        return repr(float(expr)), _ATOM if expr >= 0 else _SUM
    printer = _PRINTERS.get(type(expr))
    if printer is None:
        raise NoExpression(f"no C++ for the index expression {expr}")
    return printer(expr)


def _wrap(expr: sympy.Expr, strength: int) -> str:
    text, own = _text(expr)
    return text if own >= strength else f"({text})"


def _add(expr: sympy.Expr) -> tuple[str, int]:
    parts = [_wrap(a, _SUM) for a in sorted(expr.args, key=lambda a: (a.is_number, -_leading(a), str(a)))]
    return " + ".join(parts).replace("+ -", "- "), _SUM


def _leading(term: sympy.Expr) -> int:
    factor = term.as_coeff_Mul()[0]
    return int(factor) if factor.is_Integer else 1


def _mul(expr: sympy.Expr) -> tuple[str, int]:
    factor, rest = expr.as_coeff_Mul()
    if factor == -1:
        return f"-{_wrap(rest, _PRODUCT)}", _SUM
    if not (factor.is_Integer or factor.is_Float):
        numerator, denominator = expr.as_numer_denom()
        return f"{_wrap(numerator, _PRODUCT)} / {_wrap(denominator, _ATOM)}", _PRODUCT
    return "*".join(_wrap(a, _ATOM) for a in expr.args), _PRODUCT if factor > 0 else _SUM


def _pow(expr: sympy.Expr) -> tuple[str, int]:
    base, exponent = expr.args
    if not (exponent.is_Integer and exponent > 0):
        raise NoExpression(f"no C++ for the index expression {expr}")
    return "*".join([_wrap(base, _ATOM)] * int(exponent)), _PRODUCT


def _operator(symbol: str) -> Callable[[sympy.Expr], tuple[str, int]]:
    return lambda e: (f"{_wrap(e.args[0], _PRODUCT)} {symbol} {_wrap(e.args[1], _ATOM)}", _PRODUCT)


def _select(symbol: str) -> Callable[[sympy.Expr], tuple[str, int]]:
    def text(expr: sympy.Expr) -> tuple[str, int]:
        best = _text(expr.args[0])[0]
        for other in expr.args[1:]:
            value = _text(other)[0]
            best = f"(({best}) {symbol} ({value}) ? ({best}) : ({value}))"
        return best, _ATOM
    return text


def _floor(expr: sympy.Expr) -> tuple[str, int]:
    numerator, denominator = expr.args[0].as_numer_denom()
    return f"floor_divide<long>({_text(numerator)[0]}, {_text(denominator)[0]})", _ATOM


def _call(function: str) -> Callable[[sympy.Expr], tuple[str, int]]:
    return lambda e: (f"{function}({', '.join(_text(a)[0] for a in e.args)})", _ATOM)


def _converted(dtype: str) -> Callable[[sympy.Expr], tuple[str, int]]:
    return lambda e: (f"({dtype}){_wrap(e.args[0], _ATOM)}", _PRODUCT)


def _quotient(expr: sympy.Expr) -> tuple[str, int]:
    if all(operand.is_nonnegative for operand in expr.args):  # C++ rounds towards zero
        return _operator("/")(expr)
    return _call("floor_divide<long>")(expr)


_PRINTERS: dict[type, Callable[[sympy.Expr], tuple[str, int]]] = {
    sympy.Add: _add,
    sympy.Mul: _mul,
    sympy.Pow: _pow,
    FloorDiv: _quotient,
    Mod: _operator("%"),
    PythonMod: _call("floor_remainder<long>"),
    sympy.Mod: _call("floor_remainder<long>"),
    sympy.floor: _floor,
    ToFloat: _converted("double"),
    TruncToInt: _converted("int64"),  # as Python's int(): towards zero
    FloatTrueDiv: _operator("/"),
    IntTrueDiv: lambda e: (f"(double){_wrap(e.args[0], _ATOM)} / {_wrap(e.args[1], _ATOM)}", _PRODUCT),
    sympy.Max: _select(">"),
    sympy.Min: _select("<"),
}
for _name, _symbol in (("Max", ">"), ("Min", "<")):  # torch's own faster versions, where this torch has them
    _cls = getattr(__import__("torch.utils._sympy.functions", fromlist=[_name]), _name, None)
    if _cls is not None:
        _PRINTERS[_cls] = _select(_symbol)
