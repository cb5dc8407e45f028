"""Set algebra and comparison of views of a dict's keys or pairs."""
from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from ...breaks.reasons import Reason
from ...breaks.unsupported import Unsupported
from ..core.base import Value
from ..core.constant import constant
from ..core.late import late
from .dict_views import DictView
from .sets import ALGEBRA, COMPARISONS, IN_PLACE, SetValue, combined, kind_of_dict

if TYPE_CHECKING:
    from ..core.base import Translator


def with_views(tx: Translator, function: Callable[..., Any], left: Value, right: Value) -> Value | None:
    """Set algebra and comparison where an operand is a view of a dict's keys or pairs. The result is always a new set:
    `s |= view` rebinds `s`."""
    sides = [_as_set(tx, side) for side in (left, right)]
    if not all(isinstance(side, SetValue) for side in sides):
        return None
    if function in COMPARISONS:
        return constant(function(sides[0].items.keys(), sides[1].items.keys()))
    function = IN_PLACE.get(function, function)
    if function not in ALGEBRA:
        return None
    real = function(*[_real_side(tx, side) for side in (left, right)])
    result = SetValue(type(real))
    result.items = combined(function, sides[0].items, sides[1].items)
    return result.chosen(tx, real)


late.with_views = with_views


def _as_set(tx: Translator, value: Value) -> Any:
    """A view of a dict's keys or pairs as a set; other values as they are."""
    if not isinstance(value, DictView) or value.what == "values":
        return value
    items = value.iterate(tx)
    if value.what == "items" and not all(pair.is_constant() for pair in items):
        raise Unsupported(
            Reason.OPERATOR, detail=f"a set operation to {value.describe()}"
        )  # which are equal, their values say
    return SetValue().filled(tx, items)


def _real_side(tx: Translator, value: Value) -> Any:
    """A set, or view of a dict, of the same keys that was built in the same way."""
    if isinstance(value, SetValue):
        return value.ordered
    assert isinstance(value, DictView)
    kind = kind_of_dict(value.of)
    if value.what == "keys":
        return kind.fromkeys(item.key() for item in value.iterate(tx)).keys()
    return kind(item.key() for item in value.iterate(tx)).items()
