"""What to write in the place of a function of `math` that is given a tensor: torch's function, where there is one."""
from __future__ import annotations

import ast
import math
import re

import torch

_RENAMED = {
    "fabs": "torch.abs", "degrees": "torch.rad2deg", "radians": "torch.deg2rad", "fsum": "torch.stack(...).sum()",
    "prod": "torch.stack(...).prod()",
}
_OTHERS = frozenset(("remainder", "gcd", "lcm", "isclose", "dist", "gamma"))
"""Of one name with a function of torch's, which computes something else or takes other arguments."""
_OF_TENSORS = frozenset(("atan2", "hypot", "ldexp", "nextafter"))

COUNTERPARTS = _RENAMED | {
    name: f"torch.{name}" for name in vars(math)
    if callable(getattr(math, name)) and hasattr(torch, name) and name not in _OTHERS | _RENAMED.keys()
}
"""By the name of the function in `math`: what computes the same of tensors."""

CALL = rf"\A(?:math\.)?({'|'.join(name for name, it in vars(math).items() if callable(it) and name[0] != '_')})\("
"""A call of a function of `math`, as programs write it."""

_NOTHING = (
    "torch has no such function: compute it from what the compiled function returns (here the graph ends and Python "
    "waits for the value, as it does for .item())"
)


def in_torch(expression: str) -> str:
    """The hint for a call of a function of `math`."""
    found = re.match(CALL, expression)
    name = found[1] if found else ""
    if name not in COUNTERPARTS:
        return _NOTHING
    if name == "log" and _arguments(expression) == 2:
        return "use torch.log(x) / math.log(base), which is a tensor (of x's dtype: math computes in float64)"
    tensors = ", of tensors only (torch.tensor(2.0) for a number)" if name in _OF_TENSORS else ""
    return f"use {COUNTERPARTS[name]}{tensors}: it gives a tensor (of the argument's dtype: math computes in float64)"


def _arguments(expression: str) -> int:
    try:
        call = ast.parse(expression, mode="eval").body
    except SyntaxError:  # cut off, or a part of a statement
        return 0
    return len(call.args) if isinstance(call, ast.Call) else 0
