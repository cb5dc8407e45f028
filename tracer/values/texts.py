"""str() and repr() of Values."""
from __future__ import annotations

import dataclasses
import reprlib
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from .base import Unsupported, Value
from .constant import REGISTRY, constant, fold
from .deques import DequeValue
from .exceptions import ExceptionValue
from .mappings import DictValue
from .number import NumberValue
from .objects import ObjectValue
from .registry import from_python
from .sequences import ListValue, TupleValue
from .sets import SetValue
from .tensor import TensorValue

if TYPE_CHECKING:
    from ..interpreter import Interpreter

_BRACKETS: dict[type, str] = {list: "[{}]", tuple: "({})"}

_AGAINST_RECURSION = tuple(
    wrap(repr).__code__
    for wrap in (reprlib.recursive_repr(), getattr(dataclasses, "_recursive_repr", reprlib.recursive_repr()))
)
"""What stands around the `__repr__` of a dataclass: it asks for the number of the thread."""


def text_of(tx: Interpreter, value: Value, function: Callable[[Any], str]) -> Value:
    """str(value) or repr(value), where it does not depend on tensors."""
    if isinstance(value, NumberValue):
        return constant(function(value.specialize(tx)))
    if isinstance(value, TensorValue):
        raise Unsupported("data-dependent-value", f"{function.__name__}() of {value.describe()}")
    if isinstance(value, ExceptionValue):
        return value.text(tx, function)
    if isinstance(value, ObjectValue):
        return _text_of_object(tx, value, function)
    if isinstance(value, (ListValue, TupleValue)) and value.python_type() in _BRACKETS:
        return _text_of_items(tx, value)
    if not value.is_constant() and not isinstance(value, (DequeValue, DictValue, SetValue)):
        raise Unsupported("call", f"{function.__name__}() of {value.describe()}")
    return fold(tx, function, [value])


REGISTRY["text_of"] = text_of


def _text_of_items(tx: Interpreter, value: ListValue | TupleValue) -> Value:
    texts = [text_of(tx, item, repr).as_constant() for item in value.items]
    kind = value.python_type()
    return constant(_BRACKETS[kind].format(", ".join(texts) + "," * (kind is tuple and len(texts) == 1)))


def _text_of_object(tx: Interpreter, value: ObjectValue, function: Callable[[Any], str]) -> Value:
    """By `__str__` or `__repr__` of the program; of an exception that exists, by its arguments."""
    name = f"__{function.__name__}__"
    found: Any = getattr(value.cls, name)
    if found is object.__str__:
        name, found = "__repr__", value.cls.__repr__
    if getattr(found, "__code__", None) in _AGAINST_RECURSION:
        return from_python(tx, found.__wrapped__).call(tx, [value], {})
    if hasattr(found, "__code__"):
        return value.method(tx, name).call(tx, [], {})  # type: ignore[union-attr]
    if isinstance(value.real, BaseException) and value.getattr(tx, "args").is_constant():
        return constant(function(value.real))
    raise Unsupported("call", f"{function.__name__}() of {value.describe()}")
