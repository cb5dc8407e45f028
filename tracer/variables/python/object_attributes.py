"""Attributes of instances, looked up, set and deleted as Python does: descriptors, slots, `__dict__`, `__getattr__`."""
from __future__ import annotations

import contextlib
import functools
import sys
import threading
from collections.abc import Callable, Sequence
from types import FunctionType, GetSetDescriptorType, MemberDescriptorType, NoneType
from typing import TYPE_CHECKING, Any, NoReturn

from torch.autograd.graph import Node

from ...breaks.reasons import Reason
from ...breaks.unsupported import Unsupported
from ...sources.source import AttrSource, ItemSource, Source
from ..containers.sequences import FIELD, TupleValue
from ..core.attributes import (
    MISSING,
    bind,
    is_data_descriptor,
    is_python_method,
    lookup,
    method_of,
    part_of,
    special,
    stored_in_class,
    type_source,
)
from ..core.base import ObservedException, Value
from ..core.constant import constant
from ..core.finalizers import refuse_visible_death
from ..core.late import late
from ..core.registry import build, from_python, is_library
from .own_dict import NO_DICT, instance_dict, own_dict

if TYPE_CHECKING:
    from ..core.base import Translator

VERSION = sys.version_info[:2]

_HIDDEN = (FunctionType, staticmethod, classmethod, functools._lru_cache_wrapper)
"""Class members that an instance attribute takes precedence over; so do descriptors in Python that only read."""


class ObjectAttributes(Value):
    """An instance of `cls`. `real` is the object where it exists outside the trace."""

    __slots__ = ("cls", "hashed", "real", "storage")

    def __init__(self, cls: type, real: Any = None, source: Source | None = None) -> None:
        super().__init__(source)
        self.cls = cls
        self.real = real
        self.storage: Value | None = None
        self.hashed: Any = None  # the key (see `keys.py`) of an object whose class defines `__hash__`

    def python_type(self) -> type:
        """The class."""
        return self.cls

    # ---- attributes ------------------------------------------------------------------------------------------------
    def getattr(self, tx: Translator, name: str) -> Value:
        """The attribute, through `__getattribute__` where the class defines one in Python."""
        custom = self._reader(tx, "__getattribute__")
        if is_python_method(custom):
            method = bind(tx, custom, "__getattribute__", self, self.cls, type_source(self))
            return self._or_fallback(tx, name, lambda: method.call(tx, [constant(name)], {}))
        return self.generic_getattr(tx, name)

    def _reader(self, tx: Translator, name: str) -> Any:
        """The method of the class that reads attributes: guards on attributes of an existing object read through it,
        too."""
        return lookup(self.cls, name) if self.source is not None else special(tx, self.cls, name)

    def generic_getattr(self, tx: Translator, name: str) -> Value:
        """object.__getattribute__, then the class's `__getattr__`."""
        return self._or_fallback(tx, name, lambda: self.find_attr(tx, name))

    def _or_fallback(self, tx: Translator, name: str, find: Callable[[], Value | None]) -> Value:
        """The attribute that `find` finds, else that of `__getattr__` where it finds nothing or raises
        AttributeError."""
        fallback = self._reader(tx, "__getattr__")
        try:
            found = find()
        except ObservedException as raised:
            if fallback is MISSING or not issubclass(raised.value.python_type(), AttributeError):
                raise
            found = None
        if found is not None:
            return found
        if fallback is not MISSING:
            return bind(tx, fallback, "__getattr__", self, self.cls, type_source(self)).call(tx, [constant(name)], {})
        shown = self.cls.__name__
        if VERSION >= (3, 13) and isinstance(lookup(self.cls, name), MemberDescriptorType):
            shown = f"{self.cls.__module__}.{self.cls.__qualname__}"
        return tx.raise_observed(AttributeError, f"'{shown}' object has no attribute '{name}'")

    def find_attr(self, tx: Translator, name: str) -> Value | None:
        """object.__getattribute__; None where it raises AttributeError."""
        found = lookup(self.cls, name)
        if name == "__class__" and not isinstance(found, property):
            return from_python(tx, self.cls)
        if type(found) is FIELD and isinstance(self.storage, TupleValue):
            return self.storage.items[found.__reduce__()[1][0]]
        if isinstance(found, property) or is_data_descriptor(found):
            return bind(tx, found, name, self, self.cls, type_source(self))
        if tx.effects.has_pending(self, name):
            stored = tx.effects.load_attr(self, name)
            if stored is not None:
                return stored
        elif self.real is not None:
            own = self._instance_attr(tx, name, found)
            if own is not None:
                return own
        if name == "__dict__" and self.cls.__dictoffset__:
            return self._instance_dict(tx)
        stored_in = stored_in_class(tx, self.cls, name)
        if stored_in is not None:
            self.guard_not_hidden(tx, name)
            return stored_in
        if found is MISSING or isinstance(found, MemberDescriptorType):
            self.guard_missing(tx, name)
            return None
        if isinstance(found, _HIDDEN) or is_python_method(lookup(type(found), "__get__")):
            self.guard_not_hidden(tx, name)
        return bind(tx, found, name, self, self.cls, type_source(self))

    def guard_missing(self, tx: Translator, name: str) -> None:
        """Traced code has seen that there is no such attribute, and has not deleted it itself."""
        if self.real is None:
            special(tx, self.cls, name)
        if self.source is None or self.real is None or tx.effects.has_pending(self, name):
            return
        plain = not any(is_python_method(lookup(self.cls, special)) for special in ("__getattr__", "__getattribute__"))
        if plain:
            tx.guards.add(self.source, "NO_ATTR", name)
        else:
            self.guard_not_hidden(tx, name)

    def guard_not_hidden(self, tx: Translator, name: str) -> None:
        """Guard that no instance attribute hides the class attribute `name`; a deleted one does not."""
        if self.source is None or self.real is None or tx.effects.has_pending(self, name):
            return
        if instance_dict(self.real) is not NO_DICT:
            tx.guards.add(AttrSource(self.source, "__dict__", generic=True), "NOT_IN_DICT", name)

    def _instance_attr(self, tx: Translator, name: str, found: Any) -> Value | None:
        """The real object's attribute in its `__dict__` or in a slot."""
        if issubclass(type(self.real), threading.local):
            return self._of_this_thread(tx, name)
        own = own_dict(tx, self, self.real)
        if name in own and not isinstance(found, MemberDescriptorType):  # a slot takes precedence over the dict
            if self.source is not None and is_python_method(lookup(type(found), "__get__")):
                shown = AttrSource(self.source, "__dict__", generic=True)  # guards do not compute a cached property
                return build(tx, own[name], ItemSource(shown, name))
            return self.read(tx, own[name], name)
        if isinstance(found, (MemberDescriptorType, GetSetDescriptorType)) and name != "__dict__":
            if "saved" in name and isinstance(self.real, Node):
                raise Unsupported(Reason.ATTRIBUTE, self, name)  # each read runs hooks that unpack
            try:
                value = found.__get__(self.real, self.cls)
            except AttributeError:
                return None
            except Exception as error:  # traced code must see it itself
                raise Unsupported(Reason.ATTRIBUTE, self, name) from error
            return self.read(tx, value, name)
        return None

    def read(self, tx: Translator, value: Any, name: str) -> Value:
        """The Value of an attribute of the real object."""
        if self.source is None:
            self._guard_unreachable(tx, value, name)
            return from_python(tx, value)
        return build(tx, value, self.source_of(name))

    def source_of(self, name: str) -> AttrSource:
        """The source of a real object's attribute: bypassing a user-defined `__getattr__`, which guards must not
        run."""
        assert self.source is not None
        asked = [lookup(self.cls, method) for method in ("__getattribute__", "__getattr__")]
        generic = any(is_python_method(found) and not is_library(found.__module__) for found in asked)
        return AttrSource(self.source, name, generic)

    def _guard_unreachable(self, tx: Translator, value: Any, name: str) -> None:
        """Guard that a number or string in an object without a source (a call's result, a logger) is unchanged."""
        if type(value) in (bool, int, float, str, NoneType) and not self.cls.__module__.startswith("torch"):
            real, known = self.real, (type(value), repr(value))

            def unchanged(_: Any) -> bool:
                now = getattr(real, name, None)
                return (type(now), repr(now)) == known

            words = f"{name} of {self.describe()} (at {id(real):#x}) is {value!r}"
            tx.guards.add(None, "LAMBDA", (unchanged, words))

    def _instance_dict(self, tx: Translator) -> Value:
        if self.real is not None and self.source is None:
            raise Unsupported(Reason.ATTRIBUTE, self, "__dict__")
        if self.real is not None:
            own_dict(tx, self, self.real, changes=True)
        return tx.effects.instance_dicts.get(self) or late.instance_dict(tx, self)

    def setattr(self, tx: Translator, name: str, value: Value) -> None:
        """Through `__setattr__` where the class defines one in Python."""
        custom = special(tx, self.cls, "__setattr__")
        if is_python_method(custom):
            method = bind(tx, custom, "__setattr__", self, self.cls, type_source(self))
            method.call(tx, [constant(name), value], {})
        else:
            self.generic_setattr(tx, name, value)

    def generic_setattr(self, tx: Translator, name: str, value: Value, raw: bool = False) -> None:
        """object.__setattr__: a property's setter, or a side effect."""
        found = lookup(self.cls, name)
        if isinstance(found, property) and type(found).__set__ is property.__set__:
            if found.fset is None:
                self._refuse_property(tx, name, "setter")
            part_of(tx, self.cls, name, "fset", found.fset).call(tx, [self, value], {})
            return
        if self._is_set_by_descriptor(tx, found, "__set__", [value]):
            return
        if self.source is None and not tx.effects.is_new(self):
            raise Unsupported(Reason.SET_ATTRIBUTE, self, name)
        in_dict = self.cls.__dictoffset__ or self.cls is threading.local
        if not in_dict and not isinstance(found, MemberDescriptorType):
            if lookup(self.cls, "__setattr__") is not object.__setattr__:  # a class in C with its own implementation
                raise Unsupported(Reason.SET_ATTRIBUTE, self, name)
            missing = f"has no attribute '{name}'"
            if VERSION >= (3, 13):
                missing += " and no __dict__ for setting new attributes"
            what = missing if found is MISSING else f"attribute '{name}' is read-only"
            start = f"'{self.cls.__name__}' object "
            tx.raise_observed(AttributeError, start + what)
        self._let_go(tx, name)
        if self.real is not None:
            own_dict(tx, self, self.real, changes=True)
        tx.effects.store_attr(self, name, value, raw=raw or is_python_method(lookup(self.cls, "__setattr__")))

    def _is_set_by_descriptor(self, tx: Translator, found: Any, how: str, args: list[Value]) -> bool:
        """Whether a descriptor of the class sets or deletes the attribute; if so, it has. One with only one of both
        methods refuses the other operation (typeobject.c, slot_tp_descr_set)."""
        kind = type(found)
        if found is MISSING or isinstance(found, MemberDescriptorType) or (
            not hasattr(kind, "__set__") and not hasattr(kind, "__delete__")
        ):
            return False
        method = lookup(kind, how)
        if method is MISSING:
            tx.raise_observed(AttributeError, how)
        if not is_python_method(method):
            raise Unsupported(Reason.SET_ATTRIBUTE, self)
        method_of(tx, kind, how, method).call(tx, [from_python(tx, found), self, *args], {})
        return True

    def _refuse_property(self, tx: Translator, name: str, what: str) -> NoReturn:
        tx.raise_observed(AttributeError, f"property '{name}' of '{self.cls.__qualname__}' object has no {what}")

    def delattr(self, tx: Translator, name: str) -> None:
        """del object.name."""
        if is_python_method(special(tx, self.cls, "__delattr__")):
            self._special(tx, "__delattr__", [constant(name)])
            return
        self.generic_delattr(tx, name)

    def generic_delattr(self, tx: Translator, name: str) -> None:
        """object.__delattr__: a descriptor's deleter, or a side effect."""
        found = lookup(self.cls, name)
        if isinstance(found, property) and type(found).__delete__ is property.__delete__:
            if found.fdel is None:
                self._refuse_property(tx, name, "deleter")
            part_of(tx, self.cls, name, "fdel", found.fdel).call(tx, [self], {})
            return
        if self._is_set_by_descriptor(tx, found, "__delete__", []):
            return
        if isinstance(found, MemberDescriptorType):
            if self.find_attr(tx, name) is None:
                tx.raise_observed(AttributeError, name)
        elif not self._has_own(tx, name):
            tx.raise_observed(AttributeError, f"'{self.cls.__name__}' object has no attribute '{name}'")
        self._let_go(tx, name)
        tx.effects.delete_attr(self, name)

    def _let_go(self, tx: Translator, name: str) -> None:
        """The attribute's object is dropped. Raises Unsupported where its death may be observable."""
        held: Any = None
        if tx.effects.has_pending(self, name):
            held = getattr(tx.effects.load_attr(self, name), "real", None)
        elif self.real is not None:
            held = instance_dict(self.real).get(name)
            slot = lookup(self.cls, name)
            if isinstance(slot, MemberDescriptorType):
                with contextlib.suppress(AttributeError):
                    held = slot.__get__(self.real, self.cls)
        refuse_visible_death(held, self, name)

    def _has_own(self, tx: Translator, name: str) -> bool:
        """Whether the instance's dict has the attribute."""
        if tx.effects.has_pending(self, name):
            return not tx.effects.is_deleted(self, name)
        own = own_dict(tx, self, self.real, changes=True) if self.real is not None else NO_DICT
        if name in own:
            self.read(tx, own[name], name)
            return True
        self.guard_not_hidden(tx, name)
        return False

    def _of_this_thread(self, tx: Translator, name: str) -> Value | None:
        """An attribute of a `threading.local`, whose `__dict__` differs in each thread: only getattr finds it."""
        if type(self.real) is not threading.local or self.source is None or name == "__dict__":
            raise Unsupported(Reason.ATTRIBUTE, self, name, detail=", of which each thread has its own")
        if not hasattr(self.real, name):
            return None
        return build(tx, getattr(self.real, name), AttrSource(self.source, name))

    # ---- special methods
    def method(self, tx: Translator, name: str) -> Value | None:
        """The special method `name`, looked up on the class; None when it has none (or disables it with None)."""
        found = special(tx, self.cls, name)
        if found is MISSING or found is None:
            return None
        return bind(tx, found, name, self, self.cls, type_source(self))

    def _special(self, tx: Translator, name: str, args: Sequence[Value]) -> Value | None:
        """The call of a special method; None when the class has none. One that is not written in Python is left to
        eager."""
        method = self.method(tx, name)
        if method is None:
            return None
        return method.call(tx, args, {})
