"""Index expressions and sizes (SymPy) as text: Triton source, or Python for the grid of a launch."""
from __future__ import annotations

from collections.abc import Callable

import sympy

from ...unsupported import TritonUnsupported

_PYTHON_MOD = "(({0} % {1} + {1}) % {1})"

# Both languages agree on these for the operands that occur: `//` and `%` are of non-negative integers, as
# Triton's round towards zero, like C's; PythonMod has the sign of the divisor, FloorDownDiv is a FloorDiv of any sign.
_FUNCTIONS: dict[str, Callable[[list[str]], str]] = {
    "FloorDiv": lambda a: f"({a[0]} // {a[1]})",
    "FloorDownDiv": lambda a: f"(({a[0]} - {_PYTHON_MOD.format(*a)}) // {a[1]})",
    "CleanDiv": lambda a: f"({a[0]} // {a[1]})",
    "CeilDiv": lambda a: f"(({a[0]} + {a[1]} - 1) // {a[1]})",
    "Mod": lambda a: f"({a[0]} % {a[1]})",
    "PythonMod": lambda a: _PYTHON_MOD.format(*a),
    "ModularIndexing": lambda a: f"({a[0]} // {a[1]} % {a[2]})",
    "Identity": lambda a: a[0],
}
# Quotients of sizes that a program rounds itself (`int(n / k)`), in doubles: (Triton, Python).
_FLOATS: dict[str, tuple[str, str]] = {
    "ToFloat": ("tl.cast({0}, tl.float64)", "float({0})"),
    "IntTrueDiv": ("(tl.cast({0}, tl.float64) / tl.cast({1}, tl.float64))", "({0} / {1})"),
    "FloatTrueDiv": ("({0} / {1})", "({0} / {1})"),
    "TruncToInt": ("tl.cast({0}, tl.int64)", "int({0})"),
}
_EXTREMES = {"Max": ("tl.maximum", "max"), "Min": ("tl.minimum", "min")}


def index_text(expr: sympy.Expr, *, python: bool = False) -> str:
    """`expr` as Triton source, symbols by their names (`python=True`: as Python on ints).

    Raises TritonUnsupported for a function that index expressions have no form for.
    """
    return _print(sympy.sympify(expr), python)


def _print(expr: sympy.Expr, python: bool) -> str:
    if expr.is_Integer:
        return str(int(expr))
    if expr.is_Symbol:
        return str(expr.name)
    if expr.is_Float:
        return repr(float(expr))
    if expr.is_Add:
        return _sum(expr, python)
    if expr.is_Mul:
        return "*".join(_factor(a, python) for a in expr.args)
    if expr.is_Pow and expr.exp.is_Integer and expr.exp > 0:
        return "*".join([_factor(expr.base, python)] * int(expr.exp))
    name = type(expr).__name__
    if name == "FloorDiv" and not python and not all(operand.is_nonnegative for operand in expr.args):
        name = "FloorDownDiv"
    arguments = [_print(a, python) for a in expr.args]
    if name in _EXTREMES:
        function = _EXTREMES[name][1 if python else 0]
        text = arguments[0]
        for other in arguments[1:]:
            text = f"{function}({text}, {other})"
        return text
    if name in _FLOATS:
        return _FLOATS[name][python].format(*(f"({a})" for a in arguments))
    if name in _FUNCTIONS:
        operands = [a if x.is_Symbol or x.is_Integer else f"({a})" for a, x in zip(arguments, expr.args)]
        return _FUNCTIONS[name](operands)
    raise TritonUnsupported(f"index expression {expr} has no Triton form")


def _sum(expr: sympy.Expr, python: bool) -> str:
    text = ""
    for term in sorted(expr.args, key=lambda t: (t.is_Integer, str(t))):
        piece = _print(-term, python) if term.could_extract_minus_sign() else _print(term, python)
        sign = "-" if term.could_extract_minus_sign() else "+"
        text = f"{text} {sign} {piece}" if text else (f"-{piece}" if sign == "-" else piece)
    return text


def _factor(expr: sympy.Expr, python: bool) -> str:
    text = _print(expr, python)
    return f"({text})" if expr.is_Add or (expr.is_Integer and expr < 0) else text
