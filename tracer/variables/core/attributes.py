"""Attribute lookup as `object.__getattribute__` does it, on classes that are real and instances that are Values."""
from __future__ import annotations

import functools
from types import (
    BuiltinFunctionType,
    ClassMethodDescriptorType,
    FunctionType,
    GetSetDescriptorType,
    MemberDescriptorType,
    MethodDescriptorType,
    WrapperDescriptorType,
)
from typing import TYPE_CHECKING, Any

from ...breaks.reasons import Reason
from ...breaks.unsupported import Unsupported
from ...sources.source import AttrSource, CallSource, ItemSource, Source
from ..python.builtin_functions import BuiltinValue
from ..python.partials import MethodValue, PartialValue
from .base import Value
from .constant import BoundBuiltin, ConstantValue, constant
from .identity_guards import guard_library_member, guard_unchanged
from .registry import build, builds, existing, from_python, is_library

if TYPE_CHECKING:
    from .base import Codegen, Translator

MISSING = object()


def lookup(cls: type, name: str, after: type | None = None) -> Any:
    """What the classes of `cls.__mro__` (those after `after`) define under `name`; MISSING for nothing."""
    mro = cls.__mro__
    for base in mro[mro.index(after) + 1 :] if after is not None else mro:
        if name in base.__dict__:
            return base.__dict__[name]
    return MISSING


def special(tx: Translator, cls: type, name: str) -> Any:
    """`lookup` of a special method, which Python finds on the class, where attribute guards do not look. A user-defined
    class without one may have one at the next call, so the current one is guarded."""
    found = lookup(cls, name)
    if not is_python_method(found) and is_user_defined(cls):
        guard_unchanged(tx, cls, lambda cls: lookup(cls, name) is found, name)
    return found


def can_be_called(tx: Translator, value: Value) -> bool:
    """callable(value)."""
    if value.is_constant():
        return callable(value.as_constant())
    cls = value.python_type()
    found = special(tx, cls, "__call__")
    if is_python_method(found) and any("__call__" in vars(base) for base in filter(is_user_defined, cls.__mro__)):
        guard_unchanged(tx, cls, lambda cls: lookup(cls, "__call__") is not MISSING, "__call__")  # nothing calls it
    return found is not MISSING


def is_user_defined(cls: type) -> bool:
    """Whether the class is user-defined, so that it may change: code of installed libraries is taken as fixed."""
    return bool(cls.__flags__ & _HEAP_TYPE) and not is_library(cls.__module__)


_HEAP_TYPE = 1 << 9


def stored_in_class(tx: Translator, cls: type, name: str, after: type | None = None) -> Value | None:
    """What the trace stored in the class that has `name` for `cls` (among those after `after`); None where that class
    has its real attribute."""
    classes = tx.effects.of_classes.get(name)
    if classes is None:
        return None
    mro = cls.__mro__
    for base in mro[mro.index(after) + 1 :] if after is not None else mro:
        if base in classes:
            stored = tx.effects.load_attr(classes[base], name)
            if stored is None:
                raise Unsupported(Reason.ATTRIBUTE, detail=f"{name} of {base.__qualname__}, which was deleted,")
            return stored
        if name in base.__dict__:
            return None
    return None


def is_python_method(found: Any) -> bool:
    """Whether a special method found on a class is written in Python."""
    return isinstance(found, (FunctionType, classmethod, staticmethod))


def is_data_descriptor(found: Any) -> bool:
    """Whether a class member takes precedence over the instance's attribute: its own class, written in Python, defines
    how it is read and how it is set or deleted."""
    kind = type(found)
    if not is_python_method(lookup(kind, "__get__")):
        return False
    return lookup(kind, "__set__") is not MISSING or lookup(kind, "__delete__") is not MISSING


def type_source(owner: Value) -> Source | None:
    """The source of the class of `owner`."""
    return CallSource(owner.source, "type") if owner.source is not None else None


def class_member(tx: Translator, found: Any, name: str, cls_source: Source | None) -> Value:
    """The Value of a class member `name`, unbound."""
    if cls_source is None:
        return existing(tx, found)
    return build(tx, found, AttrSource(cls_source, name))


def method_of(tx: Translator, cls: type, name: str, function: Any) -> Value:
    """The function that a class has as its method `name`, for a caller that invokes it on the class's behalf."""
    return class_member(tx, function, name, from_python(tx, cls).source)


def part_of(tx: Translator, cls: type, name: str, part: str, function: Any) -> Value:
    """The function that a descriptor of the class holds as `part`: a property's `fset`."""
    return _part(tx, function, name, part, from_python(tx, cls).source)


def bind(tx: Translator, found: Any, name: str, owner: Value, cls: type, cls_source: Source | None) -> Value:
    """`found`, a member of the class `cls` of `owner`, as read through the instance."""
    if cls_source is None:  # an instance made in the trace, perhaps of a class that has a source
        cls_source = from_python(tx, cls).source
    kind = type(found)
    guard_library_member(tx, cls, name, found)
    if kind is FunctionType:
        return MethodValue(class_member(tx, found, name, cls_source), owner)
    if kind is staticmethod:
        return class_member(tx, found.__func__, name, cls_source)
    if kind is classmethod:
        source = AttrSource(AttrSource(cls_source, name), "__func__") if cls_source is not None else None
        function = build(tx, found.__func__, source) if source is not None else from_python(tx, found.__func__)
        return MethodValue(function, from_python(tx, cls))
    if isinstance(found, property) and kind.__get__ is property.__get__:
        return _part(tx, found.fget, name, "fget", cls_source).call(tx, [owner], {})
    if isinstance(found, functools.cached_property):
        value = _part(tx, found.func, name, "func", cls_source).call(tx, [owner], {})
        tx.effects.store_attr(owner, name, value, raw=True)
        return value
    if isinstance(found, functools._lru_cache_wrapper):
        return MethodValue(class_member(tx, found, name, cls_source), owner)
    if isinstance(found, functools.partialmethod):
        if not isinstance(found.func, FunctionType):
            raise Unsupported(Reason.ATTRIBUTE, detail=f"the partialmethod {name}")
        where = _source_of_descriptor(tx, found, name, cls, cls_source)
        if where is not None:
            tx.guards.add(where, "ID_MATCH", found)
        given = {word: existing(tx, value) for word, value in found.keywords.items()}
        method = MethodValue(from_python(tx, found.func), owner)
        return PartialValue(method, [existing(tx, value) for value in found.args], given)
    if isinstance(found, WrapperDescriptorType) or not hasattr(kind, "__get__"):
        if isinstance(found, WrapperDescriptorType):
            return BaseMethod(owner, name, found)
        return _plain(tx, found, name, owner, cls_source)
    getter = lookup(kind, "__get__")
    if isinstance(getter, FunctionType):
        descriptor = _descriptor(tx, found, name, cls, cls_source)
        return method_of(tx, kind, "__get__", getter).call(tx, [descriptor, owner, from_python(tx, cls)], {})
    if isinstance(found, (MemberDescriptorType, GetSetDescriptorType)):
        raise Unsupported(Reason.ATTRIBUTE, owner, name)
    if callable(found):
        return BaseMethod(owner, name, found)
    raise Unsupported(Reason.ATTRIBUTE, owner, name)


def _descriptor(tx: Translator, found: Any, name: str, cls: type, cls_source: Source | None) -> Value:
    """A descriptor itself."""
    source = _source_of_descriptor(tx, found, name, cls, cls_source)
    return from_python(tx, found) if source is None else build(tx, found, source)


def _source_of_descriptor(
    tx: Translator, found: Any, name: str, cls: type, cls_source: Source | None
) -> Source | None:
    """The source of a descriptor itself: reading it from the class would call its `__get__`."""
    place = next((i for i, base in enumerate(cls.__mro__) if base.__dict__.get(name) is found), None)
    if cls_source is None or place is None or tx.guards.value(cls_source) is not cls:
        return None
    owner = ItemSource(AttrSource(cls_source, "__mro__"), place) if place else cls_source
    return ItemSource(AttrSource(owner, "__dict__"), name)


def _part(tx: Translator, function: Any, name: str, part: str, cls_source: Source | None) -> Value:
    """The function inside a descriptor of a class."""
    if cls_source is None:
        return from_python(tx, function)
    return build(tx, function, AttrSource(AttrSource(cls_source, name), part))


def _plain(tx: Translator, found: Any, name: str, owner: Value, cls_source: Source | None) -> Value:
    if owner.source is not None and not tx.effects.is_deleted(owner, name):
        return build(tx, found, AttrSource(owner.source, name))
    return class_member(tx, found, name, cls_source)


_OF_BUILTINS = (MethodDescriptorType, WrapperDescriptorType, ClassMethodDescriptorType, BuiltinFunctionType)
"""The types of methods of builtin classes; pybind11 and Cython have others."""


class BaseMethod(BoundBuiltin):
    """A method that a builtin base class of the owner defines: `super().__setattr__`, `dict.update` of a subclass.

    `function` is the method as the base class has it.
    """

    __slots__ = ("function",)

    def __init__(self, owner: Value, name: str, function: Any) -> None:
        super().__init__(owner, name)
        self.function = function

    def call(self, tx: Translator, args: Any, kwargs: Any) -> Value:
        """The builtin's behaviour, past any override; that of an extension's class is not known."""
        if not isinstance(self.function, _OF_BUILTINS):
            raise Unsupported(Reason.UNSUPPORTED_METHOD, self.owner, self.name)
        return self.owner.base_method(tx, self.name, args, kwargs)

    def reconstruct(self, codegen: Codegen) -> None:
        """Bind it: the owner's attribute of that name may be an override or, for a class, belong to its instances."""
        codegen.call_const(self.function.__get__, [self.owner])


class SuperValue(Value):
    """super(cls, owner): attributes are looked up after `cls` in the method resolution order of owner's type."""

    __slots__ = ("cls", "owner")

    def __init__(self, cls: type, owner: Value) -> None:
        super().__init__()
        self.cls = cls
        self.owner = owner

    def python_type(self) -> type:
        """super."""
        return super

    def truth(self, tx: Translator) -> bool:
        """It is true."""
        return True

    def getattr(self, tx: Translator, name: str) -> Value:
        """The next definition of `name`, bound to the owner."""
        is_class = self.owner.is_constant() and isinstance(self.owner.as_constant(), type)
        kind = self.owner.as_constant() if is_class else self.owner.python_type()
        of_metaclass = is_class and not issubclass(kind, self.cls)
        if of_metaclass:
            kind = type(kind)
        stored = stored_in_class(tx, kind, name, self.cls)
        if stored is not None:
            return stored
        found = lookup(kind, name, self.cls)
        if found is MISSING:
            if is_user_defined(kind):
                guard_unchanged(tx, kind, lambda kind: lookup(kind, name, self.cls) is MISSING, name)
            tx.raise_observed(AttributeError, f"'super' object has no attribute '{name}'")
        place = next(i for i, c in enumerate(kind.__mro__) if i > kind.__mro__.index(self.cls) and name in c.__dict__)
        source = getattr(from_python(tx, kind.__mro__[place]), "source", None)
        of_kind = from_python(tx, kind).source if source is None else None
        if of_kind is not None:
            source = ItemSource(AttrSource(of_kind, "__mro__"), place)
        if is_class and not of_metaclass:
            return self._of_class(tx, found, name, source)
        if name == "__new__":
            return class_member(tx, getattr(found, "__func__", found), name, source)
        if not hasattr(type(found), "__get__"):  # the owner itself may have another attribute under this name
            return class_member(tx, found, name, source)
        return bind(tx, found, name, self.owner, kind, source)

    def _of_class(self, tx: Translator, found: Any, name: str, source: Source | None) -> Value:
        """In a class method, or in `__new__`."""
        if isinstance(found, classmethod):
            where = AttrSource(AttrSource(source, name), "__func__") if source is not None else None
            function = build(tx, found.__func__, where) if where is not None else from_python(tx, found.__func__)
            return MethodValue(function, self.owner)
        if name == "__init_subclass__":
            raise Unsupported(Reason.UNSUPPORTED_ARGUMENT, detail="super().__init_subclass__")
        if isinstance(found, ClassMethodDescriptorType):
            return MethodValue(BuiltinValue(found), self.owner)  # read from the class, it would be bound to that
        return class_member(tx, getattr(found, "__func__", found), name, source)

    def reconstruct(self, codegen: Codegen) -> None:
        """super(cls, owner)."""
        codegen.call_const(super, [constant(self.cls), self.owner])

    def describe(self) -> str:
        """For messages."""
        return f"super() of {self.owner.describe()}"


@builds(MemberDescriptorType, property)
def build_descriptor(tx: Translator, obj: Any, source: Source | None) -> Value:
    """A descriptor read from a class itself: only its identity matters."""
    return ConstantValue(obj, source)


def is_behind_descriptor(cls: type, name: str) -> bool:
    """Whether instances can have this attribute only in their `__dict__`: their class has a property of that name, or a
    descriptor written in Python, whose code is traced when it is set."""
    found = next((base.__dict__[name] for base in cls.__mro__ if name in base.__dict__), None)
    kinds = type(found).__mro__
    own = (kind.__dict__.get(method) for kind in kinds for method in ("__set__", "__delete__"))
    return isinstance(found, property) or any(isinstance(method, FunctionType) for method in own)
