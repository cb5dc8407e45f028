"""About how much work statements and bodies are."""
from __future__ import annotations

import sympy

from ...ir.ir import LoopBody

PARALLEL_WORK = 60_000  # simple operations; fewer are done before a thread wakes up
EXPENSIVE = frozenset((
    "exp", "exp2", "expm1", "log", "log2", "log10", "log1p", "sin", "cos", "tan", "asin", "acos", "atan", "sinh",
    "cosh", "tanh", "asinh", "acosh", "atanh", "erf", "erfc", "lgamma", "atan2", "hypot", "sigmoid", "pow", "fmod",
    "mod", "floordiv", "truediv", "sqrt", "rsqrt", "reciprocal",
))
EXPENSIVE_COST = 8
FEW_ROWS = 15  # fewer elements than a vector has
FEW_MASKED = 8  # so few that a vector under a mask is mostly empty


def body_work(body: LoopBody) -> sympy.Expr:
    """About how many simple operations a body takes."""
    cost = sum(EXPENSIVE_COST if s.op in EXPENSIVE else 1 for s in body.statements if s.op != "constant")
    return sympy.Mul(cost, *[a.extent for a in body.axes + body.reduction_axes])
