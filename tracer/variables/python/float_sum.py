"""sum(). Since Python 3.12 floats are added with compensation (Neumaier's), which `+` one by one does not give:
`builtin_sum_impl` in CPython's Python/bltinmodule.c."""
from __future__ import annotations

import operator
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

from ...breaks.reasons import Reason
from ...breaks.unsupported import Unsupported
from ..core.base import Value
from ..core.constant import constant, fold
from ..core.iteration import each
from ..core.operators import apply
from .floats import FloatValue, compute
from .symbolic_numbers import NumberValue

if TYPE_CHECKING:
    from ..core.base import Translator

_COMPENSATED = sys.version_info >= (3, 12)


def add_up(tx: Translator, items: Value, start: Value) -> Value:
    """sum(items, start)."""
    if issubclass(start.python_type(), (str, bytes, bytearray)):
        return fold(tx, sum, [constant(()), start])  # raises
    total = start
    floats: list[Value] = []  # to be added in one go
    whole, compensated = total.python_type() is int, _COMPENSATED and total.python_type() is float
    for item in each(tx, items):
        kind = item.python_type()
        if compensated and (kind is float or issubclass(kind, int)):
            floats.append(item)
            continue
        total = apply(tx, operator.add, _with(tx, total, floats), item)
        floats = []
        compensated = _COMPENSATED and whole and not issubclass(kind, int) and total.python_type() is float
        whole = whole and issubclass(kind, int)
    return _with(tx, total, floats)


def _with(tx: Translator, total: Value, floats: Sequence[Value]) -> Value:
    """The total plus the numbers to be added in one go. A single one is added by `+`."""
    if len(floats) < 2:
        return apply(tx, operator.add, total, floats[0]) if floats else total
    parts = [_known(tx, part) for part in (total, *floats)]
    if all(part.is_constant() for part in parts):
        return fold(tx, sum_of, parts)
    if not all(part.is_constant() or isinstance(part, FloatValue) for part in parts):
        raise Unsupported(Reason.UNSUPPORTED_BUILTIN, sum, detail="of floats that only data tells")
    return compute(tx, sum_of, parts)


def _known(tx: Translator, part: Value) -> Value:
    """A varying size is specialized."""
    whole = isinstance(part, NumberValue) and part.python_type() is int
    return constant(part.specialize(tx)) if whole else part  # type: ignore[attr-defined]


def sum_of(start: float, *numbers: float) -> float:
    """sum(numbers, start)."""
    return sum(numbers, start)
