"""str() and repr() of Values."""
from __future__ import annotations

import dataclasses
import operator
import reprlib
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Union

import torch

from ...breaks.reasons import Reason
from ...breaks.unsupported import Unsupported
from ...sources.source import Source
from ..containers.deques import DequeValue
from ..containers.dict_views import DictView
from ..containers.lists import ListValue
from ..containers.mapping_proxies import MappingProxy
from ..containers.mappings import DictValue
from ..containers.sequences import TupleValue
from ..containers.sets import SetValue
from ..core.attributes import special
from ..core.base import Value
from ..core.constant import ConstantValue, constant, fold
from ..core.late import late
from ..core.registry import from_python
from ..python.exceptions import ExceptionValue
from ..python.objects import ObjectValue
from ..python.symbolic_numbers import NumberValue
from ..torch.tensor import TensorValue
from .tensor_strings import DataDependentString, string_of_tensor

if TYPE_CHECKING:
    from ..core.base import Codegen, Translator

_BRACKETS: dict[type, str] = {list: "[{}]", tuple: "({})", torch.Size: "torch.Size([{}])"}

_AGAINST_RECURSION = tuple(
    wrap(repr).__code__
    for wrap in (reprlib.recursive_repr(), getattr(dataclasses, "_recursive_repr", reprlib.recursive_repr()))
)
"""The wrapper around a dataclass's `__repr__`: it reads the thread's id."""


_Part = Union[str, "tuple[NumberValue | CarriedString, str]"]


class _VaryingString(ConstantValue):
    """A string that varies from call to call, as does any string that it is a part of."""

    __slots__ = ()

    def python_type(self) -> type:
        """str."""
        return str

    def binary(self, tx: Translator, function: Callable[..., Any], left: Value, right: Value) -> Value | None:
        """Concatenation; anything else reads the string."""
        if function in (operator.add, operator.iadd) and left.python_type() is right.python_type() is str:
            return joined(tx, [left, right])
        return super().binary(tx, function, left, right)


class CarriedString(_VaryingString):
    """A string passed over a break, as part of the output that user code prints at each step: it is guarded when it is
    read."""

    __slots__ = ("_asked", "_text", "tx")

    def __init__(self, tx: Translator, text: str, source: Source) -> None:
        Value.__init__(self, source)
        self.tx = tx
        self._text = text
        self._asked = False
        tx.guards.add(source, "TYPE_MATCH", str)

    @property
    def value(self) -> str:
        """The string at this call."""
        if not self._asked:
            self._asked = True
            self.tx.guards.add(self.source, "EQUALS_MATCH", self._text)
        return self._text

    def specialize(self, tx: Translator) -> str:
        """The string, guarded."""
        return self.value

    def describe(self) -> str:
        """For messages."""
        return "a string from before a break"


late.carried_string = CarriedString


class StringValue(_VaryingString):
    """A string that contains numbers which vary from call to call. Where it only leaves the frame, the new bytecode
    formats it; reading the string itself specializes the numbers. `parts` are strings, and varying numbers and strings
    with their formats."""

    __slots__ = ("_text", "parts", "tx")

    def __init__(self, tx: Translator, parts: list[_Part]) -> None:
        Value.__init__(self)
        self.tx = tx
        self.parts = parts
        self._text: str | None = None

    @property
    def value(self) -> str:
        """The string at this call."""
        if self._text is None:
            made = [p if isinstance(p, str) else format(p[0].specialize(self.tx), p[1]) for p in self.parts]
            self._text = "".join(made)
        return self._text

    def reconstruct(self, codegen: Codegen) -> None:
        """str.format(template, *numbers); the string, where it is known by now."""
        if self._text is not None:
            codegen.const(self._text)
            return
        numbers = [part[0] for part in self.parts if not isinstance(part, str)]
        codegen.push_null()
        codegen.const(str.format)
        codegen.const("".join(map(_template, self.parts)))
        for number in numbers:
            codegen(number)
        codegen.call(1 + len(numbers))

    def describe(self) -> str:
        """For messages."""
        return "a string with varying numbers"


def _template(part: _Part) -> str:
    return part.replace("{", "{{").replace("}", "}}") if isinstance(part, str) else f"{{:{part[1]}}}"


def joined(tx: Translator, pieces: Sequence[Value]) -> Value:
    """The concatenation of strings."""
    unknown = next((text for text in pieces if isinstance(text, DataDependentString)), None)
    if unknown is not None:
        return DataDependentString(unknown.refusal)
    parts: list[_Part] = []
    for text in pieces:
        given: list[_Part] = [(text, "")] if isinstance(text, CarriedString) else []
        parts += text.parts if isinstance(text, StringValue) else given or [text.as_constant()]
    if all(isinstance(part, str) for part in parts):
        return constant("".join(map(str, parts)))
    return StringValue(tx, parts)


def number_text(tx: Translator, number: NumberValue, pattern: str = "") -> Value:
    """format(number, pattern) of an int that the graph can return, without specializing it."""
    if number.is_constant() or number.python_type() is not int or not number.is_backed() or "{" in pattern:
        return constant(format(number.specialize(tx), pattern))
    return StringValue(tx, [(number, pattern)])


def string_of(
    tx: Translator, value: Value, function: Callable[[Any], str], around: tuple[Value, ...] = ()
) -> Value:
    """str(value) or repr(value), where it does not depend on tensors. `around` are the enclosing lists, tuples and
    dicts: for one that contains itself, Python shows brackets."""
    if isinstance(value, NumberValue):
        return number_text(tx, value) if value.python_type() is int else constant(function(value.specialize(tx)))
    if isinstance(value, TensorValue):
        return string_of_tensor(tx, value, function)
    if isinstance(value, DataDependentString):
        return value if function is str else DataDependentString(value.refusal)
    if isinstance(value, ExceptionValue):
        return value.text(tx, function)
    if isinstance(value, ObjectValue):
        return _string_of_object(tx, value, function)
    if isinstance(value, MappingProxy):
        shown = string_of(tx, value.mapping, function, around)
        return shown if function is str else joined(tx, [constant("mappingproxy("), shown, constant(")")])
    if isinstance(value, (ListValue, TupleValue)) and value.python_type() in _BRACKETS:
        return _string_of_items(tx, value, around)
    if isinstance(value, DictValue) and value.python_type() is dict:
        return _string_of_dict(tx, value, around)
    if isinstance(value, DictView) and value.of is dict:
        return _string_of_parts(tx, f"dict_{value.what}([", value.iterate(tx), "])", (*around, value.owner))
    if isinstance(value, SetValue) and value.filled_late():
        return _string_of_set(tx, value, value.kind.__name__)
    if not value.is_constant() and not isinstance(value, (DequeValue, DictValue, SetValue)):
        raise Unsupported(Reason.UNSUPPORTED_BUILTIN, function, given=(value,))
    return fold(tx, function, [value])


late.string_of = string_of


def _string_of_items(tx: Translator, value: ListValue | TupleValue, around: tuple[Value, ...]) -> Value:
    kind = value.python_type()
    start, end = _BRACKETS[kind].split("{}")
    if any(outer is value for outer in around):
        return constant(f"{start}...{end}")
    pieces: list[Value] = [constant(start)]
    for number, item in enumerate(value.items):
        pieces += [constant(", " if number else ""), string_of(tx, item, repr, (*around, value))]
    return joined(tx, [*pieces, constant("," * (kind is tuple and len(value.items) == 1) + end)])


def _string_of_parts(
    tx: Translator, start: str, parts: Sequence[Value], end: str, around: tuple[Value, ...] = ()
) -> Value:
    pieces: list[Value] = [constant(start)]
    for number, part in enumerate(parts):
        pieces += [constant(", " if number else ""), string_of(tx, part, repr, around)]
    return joined(tx, [*pieces, constant(end)])


def _string_of_set(tx: Translator, value: SetValue, name: str) -> Value:
    """Without the class name for a set."""
    if not value.items:
        return constant(f"{name}()")
    start, end = ("{", "}") if name == "set" else (f"{name}({{", "})")
    return _string_of_parts(tx, start, value.iterate(tx), end)


def _string_of_dict(tx: Translator, value: DictValue, around: tuple[Value, ...]) -> Value:
    if any(outer is value for outer in around):
        return constant("{...}")
    pieces: list[Value] = []
    for key, item in value.pairs(tx):
        pieces += [constant(", " if pieces else "{"), string_of(tx, key, repr, (*around, value)), constant(": ")]
        pieces.append(string_of(tx, item, repr, (*around, value)))
    return joined(tx, [*pieces, constant("}" if pieces else "{}")])


_OF_CONTAINERS = (list.__repr__, tuple.__repr__, dict.__repr__, set.__repr__, frozenset.__repr__)


def _string_of_object(tx: Translator, value: ObjectValue, function: Callable[[Any], str]) -> Value:
    """By a user-defined `__str__` or `__repr__`; of an existing exception, by its arguments."""
    name = f"__{function.__name__}__"
    found: Any = special(tx, value.cls, name)
    if found is object.__str__:
        name, found = "__repr__", special(tx, value.cls, "__repr__")
    if getattr(found, "__code__", None) in _AGAINST_RECURSION and hasattr(found, "__wrapped__"):
        return from_python(tx, found.__wrapped__).call(tx, [value], {})
    if hasattr(found, "__code__"):
        return value.method(tx, name).call(tx, [], {})  # type: ignore[union-attr]
    if found in _OF_CONTAINERS and value.storage is not None:
        if isinstance(value.storage, SetValue):
            return _string_of_set(tx, value.storage, value.cls.__name__)
        return string_of(tx, value.storage, repr)
    if isinstance(value.real, BaseException) and value.getattr(tx, "args").is_constant():
        return constant(function(value.real))
    raise Unsupported(Reason.UNSUPPORTED_BUILTIN, function, given=(value,))
