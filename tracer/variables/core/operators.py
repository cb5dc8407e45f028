"""The `operator` module on Values: every operator of the bytecode ends in `apply`."""
from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from ...breaks.reasons import Reason
from ...breaks.unsupported import Unsupported
from ...sources.computed import ComputedSource
from ..python.operand_errors import OPERATORS, refuse_types
from .base import Value
from .constant import constant, fold
from .late import late

if TYPE_CHECKING:
    from .base import Translator


def apply(tx: Translator, function: Callable[..., Any], *args: Value) -> Value:
    """function(*args) for a function of the `operator` module.

    Raises ObservedException with what Python raises on constants, Unsupported where no operand's Value supports the
    operation.
    """
    special = _SPECIAL.get(function)
    if special is not None:
        return special(tx, *args)
    if len(args) == 1:
        return args[0].unary(tx, function)
    left, right = args
    result = left.binary(tx, function, left, right)
    if result is None and type(right) is not type(left):
        result = right.binary(tx, function, left, right)
    if result is not None:
        return result
    if left.is_constant() and right.is_constant():
        return fold(tx, function, args)
    if function is operator.eq:
        return constant(same(tx, left, right))
    if function is operator.ne:
        return constant(not same(tx, left, right))
    refuse_types(tx, function, left, right)
    plain = IN_PLACE.get(function)
    if plain is not None:
        return apply(tx, plain, *args)
    raise Unsupported(Reason.OPERATOR, function, given=(left, right))


def note_identity_comparison(tx: Translator, *values: Value) -> None:
    """Traced code compared these objects by `is` or as keys: guards keep them distinct
    (`tracer/effects/aliasing.py`)."""
    for value in values:
        tx.trace.compared_by_identity.setdefault(value.python_type(), {})[value] = None


def same(tx: Translator, left: Value, right: Value) -> bool:
    """`left is right` in traced code."""
    if left is right:
        return True
    if left.is_constant() and right.is_constant():
        a, b = left.as_constant(), right.as_constant()
        return a is b or (type(a) is type(b) and type(a) in _INTERNED and a == b)
    if not (left.identified and right.identified) and left.python_type() is right.python_type():
        raise Unsupported(Reason.OPERATOR, operator.is_, given=(left, right))
    read = left.source is not None or right.source is not None
    if read and type(left) is type(right) and left.python_type() not in (int, float):  # whose values are compared
        note_identity_comparison(tx, left, right)
    return False


def identical(tx: Translator, left: Value, right: Value) -> bool:
    """`left is right` as traced code evaluates it: for two equal strings or numbers, guards decide, or only Python
    knows."""
    if left is right:
        return True
    kind = left.python_type()
    if kind is right.python_type() and kind in _EQUAL_BUT_NOT_ONE:
        if left.is_constant() and right.is_constant():
            return _is_one_constant(tx, left, right)
        if kind in (bool, int, float):
            return _is_one_number(tx, left, right)
    return same(tx, left, right)


_EQUAL_BUT_NOT_ONE = frozenset((bool, int, float, complex, str, bytes, tuple))


def _is_one_constant(tx: Translator, left: Value, right: Value) -> bool:
    a, b = left.as_constant(), right.as_constant()
    if a is not b and a != b:
        return False
    if type(a) is bool or (type(a) is int and -5 <= a <= 256):
        return True
    if left.source is not None and right.source is not None:
        tx.guards.add(ComputedSource(operator.is_, (left.source, right.source)), "COMPUTED", a is b)
    elif a is not b:
        raise Unsupported(Reason.OPERATOR, operator.is_, given=(left, right))
    elif left.source is not None or right.source is not None:
        text = f"{{}} is {a!r}, and the object that it was"
        tx.guards.add(left.source or right.source, "LAMBDA", (lambda real: real is a, text))
    return a is b


def _is_one_number(tx: Translator, left: Value, right: Value) -> bool:
    """Of one type, and one of them varies. Python keeps one object of each bool and of each small int."""
    if left.python_type() is bool:
        return left.truth(tx) == right.truth(tx)
    is_nan = left.python_type() is float and apply(tx, operator.ne, left, left).truth(tx)  # and may be itself
    if not is_nan and not apply(tx, operator.eq, left, right).truth(tx):
        return False
    small = left.python_type() is int and all(
        apply(tx, operator.le, low, high).truth(tx) for low, high in ((constant(-5), left), (left, constant(256)))
    )
    if not small:
        raise Unsupported(Reason.OPERATOR, operator.is_, given=(left, right))
    return True


_INTERNED = frozenset((int, str, bytes, bool))


def equal(tx: Translator, left: Value, right: Value) -> bool:
    """`left is right or left == right`, as containers compare their items."""
    return same(tx, left, right) or apply(tx, operator.eq, left, right).truth(tx)


IN_PLACE: dict[Callable[..., Any], Callable[..., Any]] = {
    operator.iadd: operator.add, operator.isub: operator.sub, operator.imul: operator.mul,
    operator.itruediv: operator.truediv, operator.ifloordiv: operator.floordiv, operator.imod: operator.mod,
    operator.ipow: operator.pow, operator.imatmul: operator.matmul, operator.iand: operator.and_,
    operator.ior: operator.or_, operator.ixor: operator.xor, operator.ilshift: operator.lshift,
    operator.irshift: operator.rshift,
}  # fmt: skip
"""What `x += y` does where x has no in-place form."""

REFLECTED: dict[Callable[..., Any], tuple[str, str]] = {
    operator.add: ("__add__", "__radd__"), operator.sub: ("__sub__", "__rsub__"),
    operator.mul: ("__mul__", "__rmul__"), operator.truediv: ("__truediv__", "__rtruediv__"),
    operator.floordiv: ("__floordiv__", "__rfloordiv__"), operator.mod: ("__mod__", "__rmod__"),
    operator.pow: ("__pow__", "__rpow__"), operator.matmul: ("__matmul__", "__rmatmul__"),
    operator.and_: ("__and__", "__rand__"), operator.or_: ("__or__", "__ror__"),
    operator.xor: ("__xor__", "__rxor__"), operator.lshift: ("__lshift__", "__rlshift__"),
    operator.rshift: ("__rshift__", "__rrshift__"), operator.eq: ("__eq__", "__eq__"),
    operator.ne: ("__ne__", "__ne__"), operator.lt: ("__lt__", "__gt__"), operator.gt: ("__gt__", "__lt__"),
    operator.le: ("__le__", "__ge__"), operator.ge: ("__ge__", "__le__"),
}  # fmt: skip
"""The special method of each binary operator, and the reflected one of the right operand."""

_BY_METHOD = {
    **{right: (function, True) for function, (left, right) in REFLECTED.items()},
    **{left: (function, False) for function, (left, right) in REFLECTED.items()},
    **{f"__{function.__name__}__": (function, False) for function in IN_PLACE},
}
"""The operator behind a special method, and whether it is the one of the right operand."""

OPERATORS.update(_BY_METHOD)

COMPARISONS = frozenset((operator.eq, operator.ne, operator.lt, operator.le, operator.gt, operator.ge))
"""Those whose reflected form is also tried where both operands have one type."""

UNARY: dict[Callable[..., Any], str] = {
    operator.neg: "__neg__", operator.pos: "__pos__", operator.invert: "__invert__", operator.index: "__index__",
    operator.abs: "__abs__",
}  # fmt: skip


def operator_method(tx: Translator, owner: Value, name: str, args: Sequence[Value]) -> Value:
    """`owner.__lt__(other)`, and other special methods behind operators, of a builtin container."""
    known = _BY_METHOD.get(name)
    if known is None or len(args) != 1:
        raise Unsupported(Reason.UNSUPPORTED_METHOD, owner, name)
    function, reflected = known
    other = getattr(args[0], "storage", None) or args[0]
    found = owner.binary(tx, function, *((other, owner) if reflected else (owner, other)))
    if found is None and function not in COMPARISONS and not issubclass(owner.python_type(), (set, frozenset)):
        raise Unsupported(Reason.RAISES, detail=f"TypeError: {owner.describe()}.{name} of {other.describe()}")
    return found if found is not None else constant(NotImplemented)


def _apply_numbers(tx: Translator, function: Callable[..., Any], args: Sequence[Value]) -> Value:
    """A function of numbers: a symbolic operator where one of them varies, else folded."""
    if all(arg.is_constant() for arg in args):
        return fold(tx, function, args)
    return apply(tx, function, *args)


late.apply_numbers = _apply_numbers


def _is(tx: Translator, left: Value, right: Value) -> Value:
    return constant(identical(tx, left, right))


def _is_not(tx: Translator, left: Value, right: Value) -> Value:
    return constant(not identical(tx, left, right))


def _not(tx: Translator, value: Value) -> Value:
    return constant(not value.truth(tx))


def _truth(tx: Translator, value: Value) -> Value:
    return constant(value.truth(tx))


def _contains(tx: Translator, container: Value, item: Value) -> Value:
    return constant(container.contains(tx, item))


def _getitem(tx: Translator, container: Value, key: Value) -> Value:
    return container.getitem(tx, key)


def _setitem(tx: Translator, container: Value, key: Value, item: Value) -> Value:
    container.setitem(tx, key, item)
    return constant(None)


def _delitem(tx: Translator, container: Value, key: Value) -> Value:
    container.delitem(tx, key)
    return constant(None)


_SPECIAL: dict[Callable[..., Any], Callable[..., Value]] = {
    operator.is_: _is,
    operator.is_not: _is_not,
    operator.not_: _not,
    operator.truth: _truth,
    operator.contains: _contains,
    operator.getitem: _getitem,
    operator.setitem: _setitem,
    operator.delitem: _delitem,
}
