"""Class statements inside a traced function.

Each call of the function makes a new class. While tracing, a real class represents it, whose methods are the functions
that the trace made (`values_by_id` has them), and whose other attributes are stores of the trace. That class must not
be visible outside of the trace: where it, or an instance, would be needed after the graph, the graph breaks at the
statement instead. Classes with a metaclass, keywords, `__del__`, or bases written in Python are left to eager: they run
user code, or are found through `__subclasses__`.
"""
from __future__ import annotations

import builtins
import collections
import dataclasses
import functools
from collections.abc import Callable, Mapping, Sequence
from types import CellType, FunctionType
from typing import TYPE_CHECKING, Any

from ...breaks.reasons import Reason
from ...breaks.unsupported import Unsupported
from ..containers.mappings import DictValue
from ..containers.sequences import SequenceValue
from ..core.attributes import lookup
from ..core.base import Value
from ..core.constant import constant
from ..core.handlers import handles, pure
from ..core.registry import from_python
from .classes import ClassValue
from .functions import FunctionValue
from .partials import PartialValue

if TYPE_CHECKING:
    from ..core.base import Translator

Args = Sequence[Value]
Kwargs = Mapping[str, Value]

_HEAP_TYPE = 1 << 9


class LocalClass(ClassValue):
    """A class that the trace made. `annotations` is its own dict of them, None without one."""

    __slots__ = ("annotations",)

    def __init__(self, cls: type, annotations: Value | None) -> None:
        super().__init__(cls)
        self.annotations = annotations

    def getattr(self, tx: Translator, name: str) -> Value:
        """An attribute of the class."""
        if name == "__annotations__" and self.annotations is not None:
            return self.annotations
        return super().getattr(tx, name)

    def setattr(self, tx: Translator, name: str, value: Value) -> None:
        """Stored in the trace; methods and other descriptors change the class, which is left to eager."""
        if hasattr(value.python_type(), "__get__") or hasattr(type(self.cls.__dict__.get(name)), "__get__"):
            raise Unsupported(Reason.SET_ATTRIBUTE, self, name)
        tx.effects.store_attr(self, name, value)
        tx.effects.of_classes.setdefault(name, {})[self.cls] = self


class LocalDescriptor(Value):
    """property(...), staticmethod(...) or classmethod(...) of functions that the trace made, for a class body."""

    __slots__ = ("kind", "parts")

    def __init__(self, kind: Callable[..., Any], parts: Sequence[Value]) -> None:
        super().__init__()
        self.kind = kind
        self.parts = tuple(parts)

    def getattr(self, tx: Translator, name: str) -> Value:
        """`setter`, `getter` and `deleter` of a property."""
        order = ("getter", "setter", "deleter")
        if self.kind is not property or name not in order:
            return super().getattr(tx, name)
        return _With(self, order.index(name))


class _With(Value):
    """`a_property.setter`: called with a function it returns a property with that setter."""

    __slots__ = ("place", "whole")

    def __init__(self, whole: LocalDescriptor, place: int) -> None:
        super().__init__()
        self.whole = whole
        self.place = place

    def call(self, tx: Translator, args: Args, kwargs: Kwargs) -> Value:
        """The property."""
        parts = list(self.whole.parts) + [constant(None)] * (3 - len(self.whole.parts))
        parts[self.place] = args[0]
        return LocalDescriptor(property, parts)


def _describes(kind: Callable[..., Any]) -> None:
    @handles(kind)
    def handler(tx: Translator, args: Args, kwargs: Kwargs) -> Value:
        if kwargs or not all(isinstance(arg, FunctionValue) or arg.is_constant() for arg in args):
            raise Unsupported(Reason.UNSUPPORTED_BUILTIN, kind, detail="in a traced function")
        return LocalDescriptor(kind, args)


for _kind in (property, staticmethod, classmethod, functools.cached_property):
    _describes(_kind)


pure(dataclasses.field)


# ---- the statement ---------------------------------------------------------------------------------------------------
@handles(builtins.__build_class__)
def _build_class(tx: Translator, args: Args, kwargs: Kwargs) -> Value:
    body, name, *bases = args
    if kwargs or not isinstance(body, FunctionValue) or body.function is not None:
        raise Unsupported(Reason.CLASS_DEFINITION, __build_class__)
    if set(body.code.co_varnames) & set(body.code.co_freevars):
        # A comprehension inside it, since 3.12, has variables of its own with the names of the free ones.
        raise Unsupported(Reason.CLASS_DEFINITION, __build_class__)
    real_bases = tuple(_base(tx, base) for base in bases)
    namespace = tx.run_class_body(body)
    if "__del__" in namespace:
        raise Unsupported(Reason.CLASS_DEFINITION, __build_class__)
    cell = namespace.pop("__classcell__", None)
    real, stored = _members(tx, namespace)
    try:
        cls = type(name.as_constant(), real_bases, real)
    except Exception as error:  # Python raises it at the statement
        raise Unsupported(Reason.CLASS_DEFINITION, __build_class__) from error
    made = _local(tx, cls, namespace.get("__annotations__"))
    for attribute, value in stored.items():
        tx.effects.store_attr(made, attribute, value)
        tx.effects.of_classes.setdefault(attribute, {})[cls] = made
    if cell is not None:
        tx.effects.store_cell(cell, made)
    return made


def _local(tx: Translator, cls: type, annotations: Value | None = None) -> LocalClass:
    """The value of a class that was just made."""
    made = LocalClass(cls, annotations)
    tx.trace.keep_alive.append(cls)
    tx.trace.values_by_id[id(cls)] = made
    tx.effects.local_classes[cls] = (tx.trace.safe_step(), tx.own_location(), tx.stack_locations())
    return made


def _base(tx: Translator, base: Value) -> type:
    """A base class that runs no code when a class derives from it: a builtin, or another class that the trace made."""
    cls = base.cls if isinstance(base, ClassValue) else None
    if cls is not None and type(cls) is type and not isinstance(lookup(cls, "__init_subclass__"), classmethod):
        made = cls in tx.effects.local_classes and not hasattr(cls, "_fields")
        if made or not cls.__flags__ & _HEAP_TYPE:
            return cls
    raise Unsupported(Reason.CLASS_DEFINITION, __build_class__)


def _members(tx: Translator, namespace: Mapping[str, Value]) -> tuple[dict[str, Any], dict[str, Value]]:
    """The members of the real class, and what is stored in the trace."""
    real, stored = {}, {}
    for name, value in namespace.items():
        if isinstance(value, (FunctionValue, LocalDescriptor)):
            real[name] = _stand_in(tx, value)
        elif value.is_constant():
            real[name] = value.as_constant()
            if hasattr(type(real[name]), "__set_name__") and not isinstance(real[name], dataclasses.Field):
                raise Unsupported(Reason.CLASS_DEFINITION, __build_class__)
        elif name == "__slots__" and isinstance(value, SequenceValue):
            real[name] = tuple(item.as_constant() for item in value.items)
        elif name == "__annotations__" and isinstance(value, DictValue):
            real[name] = {key.as_constant(): item.as_constant() for key, item in value.pairs(tx)}
        elif name.startswith("__") or hasattr(value.python_type(), "__get__"):
            raise Unsupported(Reason.CLASS_DEFINITION, __build_class__)
        else:
            stored[name] = value
    return real, stored


def _stand_in(tx: Translator, value: Value) -> Any:
    """A real function or descriptor in place of one that the trace made: never called, since the trace calls its
    own."""
    if isinstance(value, LocalDescriptor):
        return value.kind(*[_stand_in(tx, part) for part in value.parts])
    if not isinstance(value, FunctionValue):
        return value.as_constant()
    if value.function is not None:
        return value.function
    cells = tuple(CellType() for _ in value.code.co_freevars)
    real = FunctionType(value.code, value.f_globals, value.code.co_name, None, cells)
    tx.trace.keep_alive.append(real)
    tx.trace.values_by_id[id(real)] = value
    return real


@handles(dataclasses.dataclass)
def _dataclass(tx: Translator, args: Args, kwargs: Kwargs) -> Value:
    """dataclasses.dataclass itself, on a class that the trace made; it writes methods from constants."""
    if not args:
        return PartialValue(from_python(tx, dataclasses.dataclass), [], kwargs)
    made = args[0]
    options = {name: value.as_constant() for name, value in kwargs.items()}
    if not isinstance(made, LocalClass) or len(args) > 1 or options.get("slots"):
        raise Unsupported(Reason.CLASS_DEFINITION, dataclasses.dataclass)
    if any(made.cls in classes for classes in tx.effects.of_classes.values()):  # defaults that only the trace knows
        raise Unsupported(Reason.CLASS_DEFINITION, dataclasses.dataclass)
    try:
        dataclasses.dataclass(**options)(made.cls)
    except Exception as error:  # Python raises it at the statement
        raise Unsupported(Reason.CLASS_DEFINITION, dataclasses.dataclass) from error
    return made


@handles(collections.namedtuple)
def _named_tuple(tx: Translator, args: Args, kwargs: Kwargs) -> Value:
    """Each call makes a class, as a class statement does."""
    given = [_plain(arg) for arg in args]
    options: dict[str, Any] = {"module": tx.f_globals.get("__name__")}
    options |= {name: _plain(value) for name, value in kwargs.items()}
    make: Callable[..., type] = collections.namedtuple
    try:
        cls = make(*given, **options)
    except Exception as error:  # Python raises it at the call
        raise Unsupported(Reason.CLASS_DEFINITION, collections.namedtuple) from error
    return _local(tx, cls)


def _plain(value: Value) -> Any:
    """A constant, or a list of constants."""
    return [item.as_constant() for item in value.items] if isinstance(value, SequenceValue) else value.as_constant()
