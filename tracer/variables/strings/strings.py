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
from ..core.constant import REGISTRY, ConstantValue, constant, fold
from ..core.registry import from_python
from ..python.exceptions import ExceptionValue
from ..python.objects import ObjectValue
from ..python.symbolic_numbers import NumberValue
from ..torch.tensor import TensorValue
from .tensor_strings import DataText, text_of_tensor

if TYPE_CHECKING:
    from ..core.base import Codegen, Translator

_BRACKETS: dict[type, str] = {list: "[{}]", tuple: "({})", torch.Size: "torch.Size([{}])"}

_AGAINST_RECURSION = tuple(
    wrap(repr).__code__
    for wrap in (reprlib.recursive_repr(), getattr(dataclasses, "_recursive_repr", reprlib.recursive_repr()))
)
"""What stands around the `__repr__` of a dataclass: it asks for the number of the thread."""


_Part = Union[str, "tuple[NumberValue | GivenText, str]"]


class _LateText(ConstantValue):
    """A text that varies from call to call: as a part of another one, it does so, too."""

    __slots__ = ()

    def python_type(self) -> type:
        """str."""
        return str

    def binary(self, tx: Translator, function: Callable[..., Any], left: Value, right: Value) -> Value | None:
        """Texts in a row; anything else asks for the text."""
        if function in (operator.add, operator.iadd) and left.python_type() is right.python_type() is str:
            return joined(tx, [left, right])
        return super().binary(tx, function, left, right)


class GivenText(_LateText):
    """A text that came over a break, as part of what a program prints at each step: it is guarded when the program asks
    for it."""

    __slots__ = ("_asked", "_text", "tx")

    def __init__(self, tx: Translator, text: str, source: Source) -> None:
        Value.__init__(self, source)
        self.tx = tx
        self._text = text
        self._asked = False
        tx.guards.add(source, "TYPE_MATCH", str)

    @property
    def value(self) -> str:
        """The text at this call."""
        if not self._asked:
            self._asked = True
            self.tx.guards.add(self.source, "EQUALS_MATCH", self._text)
        return self._text

    def specialize(self, tx: Translator) -> str:
        """The text."""
        return self.value

    def describe(self) -> str:
        """For messages."""
        return "a text from before a break"


REGISTRY["given_text"] = GivenText


class TextValue(_LateText):
    """A text with numbers in it that vary from call to call. Where it only leaves the frame, the new bytecode makes it;
    who asks for the text itself fixes the numbers, with guards. `parts` are texts, and numbers and texts that vary with
    their format."""

    __slots__ = ("_text", "parts", "tx")

    def __init__(self, tx: Translator, parts: list[_Part]) -> None:
        Value.__init__(self)
        self.tx = tx
        self.parts = parts
        self._text: str | None = None

    @property
    def value(self) -> str:
        """The text at this call."""
        if self._text is None:
            made = [p if isinstance(p, str) else format(p[0].specialize(self.tx), p[1]) for p in self.parts]
            self._text = "".join(made)
        return self._text

    def reconstruct(self, codegen: Codegen) -> None:
        """str.format(template, *numbers); the text, where it is known by now."""
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
        return "a text with numbers that vary"


def _template(part: _Part) -> str:
    return part.replace("{", "{{").replace("}", "}}") if isinstance(part, str) else f"{{:{part[1]}}}"


def joined(tx: Translator, texts: Sequence[Value]) -> Value:
    """The texts in a row."""
    unknown = next((text for text in texts if isinstance(text, DataText)), None)
    if unknown is not None:
        return DataText(unknown.refusal)
    parts: list[_Part] = []
    for text in texts:
        given: list[_Part] = [(text, "")] if isinstance(text, GivenText) else []
        parts += text.parts if isinstance(text, TextValue) else given or [text.as_constant()]
    if all(isinstance(part, str) for part in parts):
        return constant("".join(map(str, parts)))
    return TextValue(tx, parts)


def number_text(tx: Translator, number: NumberValue, pattern: str = "") -> Value:
    """format(number, pattern): of an int that the graph can return, without asking for it."""
    if number.is_constant() or number.python_type() is not int or not number.is_backed() or "{" in pattern:
        return constant(format(number.specialize(tx), pattern))
    return TextValue(tx, [(number, pattern)])


def text_of(
    tx: Translator, value: Value, function: Callable[[Any], str], around: tuple[Value, ...] = ()
) -> Value:
    """str(value) or repr(value), where it does not depend on tensors. `around` are the lists, tuples and dicts that it
    is in: of one of them, which contains itself, Python shows brackets."""
    if isinstance(value, NumberValue):
        return number_text(tx, value) if value.python_type() is int else constant(function(value.specialize(tx)))
    if isinstance(value, TensorValue):
        return text_of_tensor(tx, value, function)
    if isinstance(value, DataText):
        return value if function is str else DataText(value.refusal)
    if isinstance(value, ExceptionValue):
        return value.text(tx, function)
    if isinstance(value, ObjectValue):
        return _text_of_object(tx, value, function)
    if isinstance(value, MappingProxy):
        shown = text_of(tx, value.mapping, function, around)
        return shown if function is str else joined(tx, [constant("mappingproxy("), shown, constant(")")])
    if isinstance(value, (ListValue, TupleValue)) and value.python_type() in _BRACKETS:
        return _text_of_items(tx, value, around)
    if isinstance(value, DictValue) and value.python_type() is dict:
        return _text_of_dict(tx, value, around)
    if isinstance(value, DictView) and value.of is dict:
        return _text_of_parts(tx, f"dict_{value.what}([", value.iterate(tx), "])", (*around, value.owner))
    if isinstance(value, SetValue) and value.filled_late():
        return _text_of_set(tx, value, value.kind.__name__)
    if not value.is_constant() and not isinstance(value, (DequeValue, DictValue, SetValue)):
        raise Unsupported(Reason.UNSUPPORTED_BUILTIN, function, given=(value,))
    return fold(tx, function, [value])


REGISTRY["text_of"] = text_of
REGISTRY["joined"] = joined


def _text_of_items(tx: Translator, value: ListValue | TupleValue, around: tuple[Value, ...]) -> Value:
    kind = value.python_type()
    start, end = _BRACKETS[kind].split("{}")
    if any(outer is value for outer in around):
        return constant(f"{start}...{end}")
    texts: list[Value] = [constant(start)]
    for number, item in enumerate(value.items):
        texts += [constant(", " if number else ""), text_of(tx, item, repr, (*around, value))]
    return joined(tx, [*texts, constant("," * (kind is tuple and len(value.items) == 1) + end)])


def _text_of_parts(
    tx: Translator, start: str, parts: Sequence[Value], end: str, around: tuple[Value, ...] = ()
) -> Value:
    texts: list[Value] = [constant(start)]
    for number, part in enumerate(parts):
        texts += [constant(", " if number else ""), text_of(tx, part, repr, around)]
    return joined(tx, [*texts, constant(end)])


def _text_of_set(tx: Translator, value: SetValue, name: str) -> Value:
    """The name of the class is left out for a set."""
    if not value.items:
        return constant(f"{name}()")
    start, end = ("{", "}") if name == "set" else (f"{name}({{", "})")
    return _text_of_parts(tx, start, value.iterate(tx), end)


def _text_of_dict(tx: Translator, value: DictValue, around: tuple[Value, ...]) -> Value:
    if any(outer is value for outer in around):
        return constant("{...}")
    texts: list[Value] = []
    for key, item in value.pairs(tx):
        texts += [constant(", " if texts else "{"), text_of(tx, key, repr, (*around, value)), constant(": ")]
        texts.append(text_of(tx, item, repr, (*around, value)))
    return joined(tx, [*texts, constant("}" if texts else "{}")])


_OF_CONTAINERS = (list.__repr__, tuple.__repr__, dict.__repr__, set.__repr__, frozenset.__repr__)


def _text_of_object(tx: Translator, value: ObjectValue, function: Callable[[Any], str]) -> Value:
    """By `__str__` or `__repr__` of the program; of an exception that exists, by its arguments."""
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
            return _text_of_set(tx, value.storage, value.cls.__name__)
        return text_of(tx, value.storage, repr)
    if isinstance(value.real, BaseException) and value.getattr(tx, "args").is_constant():
        return constant(function(value.real))
    raise Unsupported(Reason.UNSUPPORTED_BUILTIN, function, given=(value,))
