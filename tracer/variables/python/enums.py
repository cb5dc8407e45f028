"""Members of enumerations, which are constants except for attributes that user code sets on them and their classes."""
from __future__ import annotations

import enum
from collections.abc import Mapping, Sequence
from types import DynamicClassAttribute
from typing import TYPE_CHECKING, Any, TypeGuard

from ...breaks.reasons import Reason
from ...breaks.unsupported import Unsupported
from ..core.attributes import MISSING, bind, is_python_method, is_user_defined, lookup, special
from ..core.base import ObservedException, Value
from ..core.constant import ConstantValue, fold
from ..core.identity_guards import guard_unchanged
from ..core.late import late
from ..core.registry import existing, is_library

if TYPE_CHECKING:
    from ..core.base import Translator


def attribute_of_member(tx: Translator, member: ConstantValue, name: str) -> Value | None:
    """`member.name` where user code may give another result at the next call; None where it cannot."""
    real = member.value
    cls = type(real)
    found = lookup(cls, name)
    if not is_user_defined(cls) or (isinstance(found, DynamicClassAttribute) and found.fget.__module__ == "enum"):
        return None  # its name or its value
    own = vars(real).get(name, MISSING)
    guard_unchanged(tx, cls, lambda cls: lookup(cls, name) is found, name)
    guard_unchanged(tx, cls, lambda _: vars(real).get(name, MISSING) is own, f"{real.name}.{name}")
    if own is not MISSING and not isinstance(found, property):
        return existing(tx, own)
    if isinstance(found, property) or is_python_method(found):
        return bind(tx, found, name, member, cls, None)
    if found is MISSING or is_python_method(lookup(type(found), "__get__")):
        raise Unsupported(Reason.ATTRIBUTE, member, name)
    return None


def truth_of_member(tx: Translator, member: ConstantValue) -> bool:
    """bool(member); a user-defined one is traced."""
    for name in ("__bool__", "__len__"):
        found = special(tx, type(member.value), name)
        if is_python_method(found) and not is_library(found.__module__):
            return bind(tx, found, name, member, type(member.value), None).call(tx, [], {}).truth(tx)
    return bool(member.value)


late.attribute_of_member = attribute_of_member
late.truth_of_member = truth_of_member


def is_plain_enum(cls: type) -> TypeGuard[type[enum.Enum]]:
    """Whether the class is an enumeration whose metaclass is not user-defined."""
    return isinstance(cls, enum.EnumMeta) and is_library(type(cls).__module__)


def member_of(tx: Translator, cls: type, args: Sequence[Value], kwargs: Mapping[str, Value]) -> Value:
    """`cls(value)`. What a user-defined `_missing_` does not find is left to eager, and so is a new enumeration."""
    assert issubclass(cls, enum.Enum)
    own: Any = lookup(cls, "_missing_")
    if not is_plain_enum(cls) or len(args) != 1 or kwargs:
        raise Unsupported(Reason.UNSUPPORTED_CLASS, cls)
    value = args[0].as_constant()
    if not is_library(own.__func__.__module__) and not any(value is member or value == member.value for member in cls):
        return _found_by_missing(tx, cls, own, args)
    return fold(tx, cls, args, kwargs)


def _found_by_missing(tx: Translator, cls: type[enum.Enum], own: Any, args: Sequence[Value]) -> Value:
    """The member that the class's own `_missing_` returns. What it raises is left to eager, which chains it to an error
    of enum."""
    if not isinstance(own, classmethod) or not is_python_method(own.__func__):
        raise Unsupported(Reason.UNSUPPORTED_METHOD, cls, "_missing_")
    try:
        found = existing(tx, cls).call_method(tx, "_missing_", args, {})
    except ObservedException as raised:
        raise Unsupported(Reason.UNSUPPORTED_METHOD, cls, "_missing_") from raised
    if not found.is_constant() or not isinstance(found.as_constant(), cls):
        raise Unsupported(Reason.UNSUPPORTED_METHOD, cls, "_missing_")
    return found
