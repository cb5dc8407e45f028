"""Operators that Python refuses because of the types of their operands: the message is taken from empty containers."""
from __future__ import annotations

import operator
from collections import OrderedDict, defaultdict, deque
from collections.abc import Callable, Mapping, Sequence
from types import FunctionType, GeneratorType
from typing import TYPE_CHECKING, Any

from ...breaks.reasons import Reason
from ...breaks.unsupported import Unsupported
from ..core.base import Value, with_arguments

if TYPE_CHECKING:
    from ..core.base import Translator

_EMPTY: dict[type, Any] = {
    **{kind: kind() for kind in (list, tuple, set, frozenset, dict, OrderedDict, defaultdict, deque)},
    type({}.keys()): {}.keys(), type({}.values()): {}.values(), type({}.items()): {}.items(),
    FunctionType: lambda: None, GeneratorType: (lambda: (yield))(),
}  # fmt: skip
_NO_VALUE = object()
OPERATORS: set[str] = set()
"""The names of the special methods behind operators, which `operators.py` knows."""


def refuse_types(tx: Translator, function: Callable[..., Any], left: Value, right: Value) -> None:
    """TypeError in traced code where `function` does not support operands of these types; nothing where it may support
    them."""
    samples = _sample(left), _sample(right)
    if any(sample is _NO_VALUE for sample in samples) or (function is operator.mod and isinstance(samples[0], str)):
        return
    if not any(isinstance(sample, tuple(_EMPTY)) for sample in samples):  # two constants: their values count
        return
    try:
        function(*samples)
    except TypeError as error:
        message = str(error)
    except Exception:
        return
    else:
        return
    tx.raise_observed(TypeError, message)


def _sample(value: Value) -> Any:
    if value.is_constant():
        constant = value.as_constant()
        return constant if type(constant) not in _EMPTY or isinstance(constant, FunctionType) else type(constant)()
    if value.python_type() in _EMPTY:
        return _EMPTY[value.python_type()]
    storage = getattr(value, "storage", None)
    return _of_subclass(value.python_type(), storage.python_type()) if storage is not None else _NO_VALUE


def _of_subclass(cls: type, kind: type) -> Any:
    """An empty instance of a class of the same name that changes nothing; None where operators are user-defined."""
    own = set().union(*(vars(base) for base in cls.__mro__[: cls.__mro__.index(kind)]))
    if kind not in _EMPTY or not OPERATORS.isdisjoint(own):
        return _NO_VALUE
    return type(cls.__name__, (kind,), {})()


def call_method_with(
    method: Callable[..., Any], name: str, tx: Translator, owner: Value, args: Sequence[Value],
    kwargs: Mapping[str, Value],
) -> Any:  # fmt: skip
    """method(tx, owner, *args, **kwargs), the tracer's method `name` of a builtin container; TypeError in traced code,
    with the container's message, for arguments that do not fit."""
    try:
        return with_arguments(method, tx, owner, *args, **kwargs)
    except Unsupported as error:
        if "arguments" in error.context and name != "__init__":
            _refuse_arguments(tx, owner.python_type(), name, len(args), kwargs)
        raise


def _refuse_arguments(tx: Translator, kind: type, name: str, count: int, kwargs: Mapping[str, Value]) -> None:
    if kind not in _EMPTY:
        return
    try:
        getattr(kind(), name)(*[None] * count, **dict.fromkeys(kwargs))
    except TypeError as error:
        if "argument" in str(error):
            message = str(error)
        else:
            return
    except Exception:
        return
    else:
        return
    tx.raise_observed(TypeError, message)


def refuse_construction(tx: Translator, cls: type, count: int, kwargs: Mapping[str, Value]) -> None:
    """TypeError in traced code where a class with the constructor of a builtin container is called with arguments that
    it does not accept."""
    kind = next(kind for kind in cls.__mro__ if kind in _EMPTY)
    try:
        type(cls.__name__, (kind,), {})(*[()] * count, **dict.fromkeys(kwargs))
    except TypeError as error:
        message = str(error)
    else:
        raise Unsupported(Reason.RAISES, detail=f"TypeError: the arguments of {cls.__qualname__}")
    tx.raise_observed(TypeError, message)
