"""Bounds on integers computed along the way: Python's are unbounded, those of C++ have 64 bits."""
from __future__ import annotations

import sympy
from torch.utils._sympy.functions import FloorDiv, Mod, PythonMod

from ...unsupported import NoCppWrapper

BOUND = "0x1p62"
_NO_LARGER = (FloorDiv, Mod, PythonMod, sympy.Mod, sympy.Max, sympy.Min)
"""What they give is no larger than one of the arguments."""


def magnitude(expr: sympy.Expr) -> str:
    """C++ of a double that `expr` and all on the way to it do not exceed; NoCppWrapper where there is none."""
    if expr.is_Symbol:
        return f"__builtin_fabs({expr.name})"
    if expr.is_Integer:
        return repr(float(abs(int(expr))))
    if expr.is_Pow and expr.args[1].is_Integer and expr.args[1] > 0:
        return f"({' * '.join([magnitude(expr.args[0])] * int(expr.args[1]))})"
    if not (expr.is_Mul or expr.is_Add or isinstance(expr, _NO_LARGER) or type(expr).__name__ in ("Max", "Min")):
        raise NoCppWrapper("a result is an integer without a known bound")
    return f"({(' * ' if expr.is_Mul else ' + ').join(map(magnitude, expr.args))})"
