"""Conditions on symbols as data, and as Python."""
from __future__ import annotations

from dataclasses import dataclass, field

import sympy

from ...artifacts.records import Location
from ..sources.source import Source


@dataclass(frozen=True)
class ShapeGuard:
    """A condition on symbols: `expression` is Python over `names`, whose values are read from `sources`; `location` is
    the user's line that specialized on it."""

    expression: str
    names: tuple[str, ...]
    sources: tuple[Source, ...]
    location: Location | None = field(default=None, compare=False)


def says_not_negative(expression: sympy.Expr) -> bool:
    """Whether a condition only says that a size is not negative: making the tensor checks that."""
    if isinstance(expression, sympy.Ge):
        return expression.lhs.is_Symbol and expression.rhs == 0
    if isinstance(expression, sympy.Le):
        return expression.rhs.is_Symbol and expression.lhs == 0
    return expression is sympy.true


def with_sign(expression: sympy.Expr) -> str:
    """A condition as Python; for a float that must be 0.0 also that it is not -0.0, which is never traced."""
    text = python(expression)
    if isinstance(expression, sympy.Eq) and expression.lhs.is_Symbol and expression.rhs.is_zero:
        if not expression.lhs.is_integer:
            return f"{text} and math.copysign(1.0, {expression.lhs}) == 1.0"
    return text


def python(expression: sympy.Expr) -> str:
    """A sympy expression over symbols as Python."""
    from torch.utils._sympy.printers import PythonPrinter  # takes 0.1 s, and only frames with symbols need it

    return PythonPrinter().doprint(expression)
