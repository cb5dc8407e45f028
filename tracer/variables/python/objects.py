"""Instances of classes, existing or made by the trace. The class is always real.

Special methods written in Python are interpreted. A class that derives from dict, list, set or tuple keeps its items in
`storage`, a Value of the builtin type; methods that the builtin base defines work on that.
"""
from __future__ import annotations

import contextlib
import functools
import itertools
import operator
import sys
import threading
from collections import OrderedDict, defaultdict
from collections.abc import Callable, Mapping, Sequence
from types import FunctionType, GetSetDescriptorType, MemberDescriptorType, NoneType, WrapperDescriptorType
from typing import TYPE_CHECKING, Any, NoReturn

from torch.autograd.graph import Node

from ...breaks.hints import reason_of_call
from ...breaks.reasons import Reason
from ...breaks.subjects import name_of_subject
from ...breaks.unsupported import Unsupported
from ...sources.display_names import display_name
from ...sources.source import AttrSource, ItemSource, Source
from ..containers.dict_views import DictView
from ..containers.mappings import DictValue
from ..containers.sequences import FIELD, TupleValue
from ..containers.slices import checked_index, checked_length
from ..core.attributes import (
    MISSING,
    BaseMethod,
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
from ..core.base import ObservedException, Value, each, with_arguments
from ..core.constant import constant
from ..core.finalizers import refuse_visible_death
from ..core.late import late
from ..core.operators import COMPARISONS, IN_PLACE, REFLECTED, UNARY, equal
from ..core.registry import build, from_python, is_library
from .own_dict import NO_DICT, instance_dict, own_dict

if TYPE_CHECKING:
    from ..core.base import Codegen, Translator


VERSION = sys.version_info[:2]


class ObjectValue(Value):
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

    # ---- special methods -------------------------------------------------------------------------------------------
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

    def call(self, tx: Translator, args: Sequence[Value], kwargs: Mapping[str, Value]) -> Value:
        """`__call__`."""
        method = self.method(tx, "__call__")
        if method is None or isinstance(method, BaseMethod):
            raise Unsupported(reason_of_call(self.represents()), self)
        return method.call(tx, args, kwargs)

    def truth(self, tx: Translator) -> bool:
        """`__bool__`, `__len__`, or True."""
        if None in (lookup(self.cls, "__bool__"), lookup(self.cls, "__len__")):
            raise Unsupported(Reason.RAISES, detail=f"TypeError: bool() of {self.describe()}")
        result = self._special(tx, "__bool__", [])
        if result is None:
            length = self._special(tx, "__len__", [])
            return length is None or checked_length(tx, length).truth(tx)
        kind = result.python_type()
        if kind is not bool:
            tx.raise_observed(TypeError, f"__bool__ should return bool, returned {kind.__name__}")
        return result.truth(tx)

    def length(self, tx: Translator) -> Value:
        """`__len__`."""
        result = self._required(tx, "__len__", [], f"object of type '{self.cls.__name__}' has no len()")
        return checked_length(tx, result)

    def hint(self, tx: Translator) -> None:
        """A user-defined `__len__`, else `__length_hint__`."""
        for name in ("__len__", "__length_hint__"):
            found = special(tx, self.cls, name)
            if not is_python_method(found) or is_library(found.__module__):
                continue
            try:
                checked_length(tx, self._required(tx, name, [], ""))
                return
            except ObservedException as raised:
                if not issubclass(raised.value.python_type(), TypeError):
                    raise

    def iter(self, tx: Translator) -> Value:
        """`__iter__`."""
        if special(tx, self.cls, "__iter__") is MISSING and special(tx, self.cls, "__getitem__") is not MISSING:
            by_index: Value = late.index_iterator(self)
            return by_index
        iterator = self._required(tx, "__iter__", [], f"'{self.cls.__name__}' object is not iterable")
        kind = iterator.python_type()
        if not hasattr(kind, "__next__"):
            tx.raise_observed(TypeError, f"iter() returned non-iterator of type '{kind.__name__}'")
        return iterator

    def iterate(self, tx: Translator) -> Sequence[Value]:
        """All items of iter(object)."""
        if self.storage is not None and not is_python_method(special(tx, self.cls, "__iter__")):
            return self.storage.iterate(tx)
        iterator = self.iter(tx)
        return iterator.iterate(tx) if iterator is not self else self._drain(tx)

    def _drain(self, tx: Translator) -> Sequence[Value]:
        items = []
        while (item := self.next(tx)) is not None:
            items.append(item)
        return items

    def next(self, tx: Translator) -> Value | None:
        """`__next__`; None for StopIteration."""
        return late.next_of(tx, self)

    def contains(self, tx: Translator, item: Value) -> bool:
        """`__contains__`, or a search in the items."""
        if lookup(self.cls, "__contains__") is None:
            tx.raise_observed(TypeError, f"'{self.cls.__name__}' object is not a container")
        result = self._special(tx, "__contains__", [item])
        if result is not None:
            return result.truth(tx)
        if not hasattr(self.cls, "__iter__") and not hasattr(self.cls, "__getitem__"):
            raise Unsupported(Reason.RAISES, detail=f"TypeError: `in` to {self.describe()}")
        return any(equal(tx, own, item) for own in each(tx, self))

    def getitem(self, tx: Translator, key: Value) -> Value:
        """`__getitem__`."""
        return self._required(tx, "__getitem__", [key], f"'{self.cls.__name__}' object is not subscriptable")

    def setitem(self, tx: Translator, key: Value, value: Value) -> None:
        """`__setitem__`."""
        message = f"'{self.cls.__name__}' object does not support item assignment"
        self._required(tx, "__setitem__", [key, value], message)

    def delitem(self, tx: Translator, key: Value) -> None:
        """`__delitem__`."""
        self._required(tx, "__delitem__", [key], f"'{self.cls.__name__}' object doesn't support item deletion")

    def _required(self, tx: Translator, name: str, args: Sequence[Value], message: str) -> Value:
        result = self._special(tx, name, args)
        if result is None:
            tx.raise_observed(TypeError, message)
        return result

    def unary(self, tx: Translator, function: Callable[..., Any]) -> Value:
        """`__neg__` and the like."""
        result = self._special(tx, UNARY[function], []) if function in UNARY else None
        if result is None:
            return super().unary(tx, function)
        return checked_index(tx, result) if function is operator.index else result

    def binary(self, tx: Translator, function: Callable[..., Any], left: Value, right: Value) -> Value | None:
        """`__add__`, `__radd__`, `__iadd__`, ...; None where they return NotImplemented."""
        in_place = IN_PLACE.get(function)
        if in_place is not None and left is self:
            result = self._answer(tx, f"__{function.__name__}__", right)
            if result is not None:
                return result
        names = REFLECTED.get(in_place or function)
        if names is None:
            return None
        if left is not self:
            return self._answer(tx, names[1], left)
        if not isinstance(right, ObjectValue):
            return self._answer(tx, names[0], right)
        return self._answer_of_both(tx, names, right, function in COMPARISONS)

    def _answer_of_both(
        self, tx: Translator, names: tuple[str, str], right: ObjectValue, compares: bool
    ) -> Value | None:
        """The special method of this object, or the reflected one of `right`: that first where its class is a subclass
        with its own (or always, for comparisons); not at all for one type, except for comparisons."""
        same_type = right.cls is self.cls
        own = compares or special(tx, right.cls, names[1]) is not special(tx, self.cls, names[1])
        reflected_first = not same_type and issubclass(right.cls, self.cls) and own
        found = right._answer(tx, names[1], self) if reflected_first else None
        if found is None:
            found = self._answer(tx, names[0], right)
        if found is None and not reflected_first and (compares or not same_type):
            found = right._answer(tx, names[1], self)
        return found

    def _answer(self, tx: Translator, name: str, other: Value) -> Value | None:
        found = special(tx, self.cls, name)
        if found in (MISSING, getattr(object, name, None)):
            if name == "__ne__":
                equal = self._answer(tx, "__eq__", other)
                return constant(not equal.truth(tx)) if equal is not None else None
            return constant(True) if name == "__eq__" and other is self else None
        if self.storage is None and isinstance(found, WrapperDescriptorType):
            raise Unsupported(Reason.OPERATOR, detail=f"{name} to {self.describe()}")  # written in C, for this class
        result = self._special(tx, name, [other])
        if result is None or (result.is_constant() and result.as_constant() is NotImplemented):
            return None
        return result

    def has_user_hash(self, tx: Translator) -> bool:
        """Where `__hash__` is written in Python, or is that of the builtin class whose items it has."""
        frozen = isinstance(self.storage, TupleValue) or getattr(self.storage, "kind", None) is frozenset
        return frozen or is_python_method(lookup(self.cls, "__hash__"))

    def key(self) -> Any:
        """Objects are keys by identity, unless their class defines otherwise."""
        if self.hashed is not None:
            return self.hashed
        if self.cls.__hash__ is not object.__hash__ or self.cls.__eq__ is not object.__eq__:
            raise Unsupported(Reason.UNSUPPORTED_BUILTIN, hash, given=(self,))
        return self

    # ---- what builtin bases define -----------------------------------------------------------------------------------
    def base_method(self, tx: Translator, name: str, args: Sequence[Value], kwargs: Mapping[str, Value]) -> Value:
        """A method of a builtin base class, bypassing overrides."""
        known = _OBJECT_METHODS.get(name)
        if name == "__init__" and self.storage is None and (args or kwargs):
            raise Unsupported(Reason.RAISES, detail="TypeError: the arguments of object.__init__")
        if known is not None and not (self.storage is not None and name in ("__init__", "__eq__", "__ne__")):
            return known(tx, self, *args)
        if self.storage is None:
            raise Unsupported(Reason.UNSUPPORTED_METHOD, self, name)
        if name == "__getitem__" and isinstance(self.storage, DictValue) and not self.storage.contains(tx, args[0]):
            missing = self._special(tx, "__missing__", args)
            if missing is not None:
                return missing
        if name in _OF_ITS_CLASS and issubclass(self.cls, (OrderedDict, defaultdict)):
            raise Unsupported(Reason.UNSUPPORTED_METHOD, self, name)
        if name in _BY_ITEM and issubclass(self.cls, OrderedDict) and (args or kwargs):
            if any(is_python_method(lookup(self.cls, method)) for method in _BY_ITEM[name]):
                raise Unsupported(Reason.UNSUPPORTED_METHOD, self, name)
        if name == "fromkeys":
            made: Value = with_arguments(late.fromkeys, tx, self.cls, *args, **kwargs)
            return made
        if name in _BINARY:  # the other operand, too, is converted to its builtin base
            args = [arg.storage if isinstance(arg, ObjectValue) and arg.storage is not None else arg for arg in args]
        result = self.storage.call_method(tx, name, args, kwargs)
        if isinstance(result, DictView):
            result.of = self.cls
        return self if result is self.storage else result

    def reconstruct(self, codegen: Codegen) -> None:
        """A container of the items, for the side effects; an object without a source as it is."""
        if self.storage is not None and not isinstance(self.storage, TupleValue):
            self.storage.reconstruct(codegen)
        elif self.real is not None:
            codegen.const(self.real)
        elif self.storage is not None:
            codegen.call_const(tuple.__new__, [constant(self.cls), self.storage])
        else:
            super().reconstruct(codegen)

    def create(self, codegen: Codegen, cls: type) -> None:
        """One that cannot be filled later is made from its items."""
        if isinstance(self.storage, TupleValue):
            return self.storage.create(codegen, cls)
        if issubclass(cls, frozenset) and self.storage is not None:
            codegen.push_function(frozenset.__new__)
            codegen.const(cls)
            self.storage.reconstruct(codegen)
            return codegen.call(2)
        return super().create(codegen, cls)

    def _of_this_thread(self, tx: Translator, name: str) -> Value | None:
        """An attribute of a `threading.local`, whose `__dict__` differs in each thread: only getattr finds it."""
        if type(self.real) is not threading.local or self.source is None or name == "__dict__":
            raise Unsupported(Reason.ATTRIBUTE, self, name, detail=", of which each thread has its own")
        if not hasattr(self.real, name):
            return None
        return build(tx, getattr(self.real, name), AttrSource(self.source, name))

    def represents(self) -> object:
        """A function of NumPy's, which has classes of its own for these."""
        return self.real if callable(self.real) and self.cls.__module__.startswith(("numpy", "_cython")) else None

    def describe(self) -> str:
        """For messages: its name where it is a NumPy function, for which NumPy has classes of its own."""
        function = self.represents()
        if hasattr(function, "__name__"):
            return name_of_subject(function)
        where = f" `{display_name(self.source)}`" if self.source is not None else ""
        return f"{'an' if self.cls.__qualname__[0].lower() in 'aeiou' else 'a'} {self.cls.__qualname__}{where}"


_OF_ITS_CLASS = ("copy", "__copy__", "__or__", "__ror__")
"""Class members that an instance attribute takes precedence over; so do descriptors in Python that only read."""

_BINARY = frozenset(itertools.chain.from_iterable(REFLECTED.values()))

_HIDDEN = (FunctionType, staticmethod, classmethod, functools._lru_cache_wrapper)
"""Methods of OrderedDict (odictobject.c) that call methods of a subclass, where dict's do not: which ones they call."""

_BY_ITEM = dict.fromkeys(("__init__", "update", "__ior__"), ("__setitem__",)) | {
    "setdefault": ("__contains__", "__getitem__", "__setitem__"), "pop": ("__contains__", "__getitem__", "__delitem__"),
    "popitem": ("__getitem__", "__delitem__"),
}  # fmt: skip
"""Methods of OrderedDict (odictobject.c) that ask a subclass, where those of dict do not: for which methods."""


def _setattr(tx: Translator, self: ObjectValue, name: Value, value: Value) -> Value:
    self.generic_setattr(tx, name.as_constant(), value, raw=True)
    return constant(None)


def _getattribute(tx: Translator, self: ObjectValue, name: Value) -> Value:
    found = self.find_attr(tx, name.as_constant())
    if found is None:
        text = f"'{self.cls.__name__}' object has no attribute '{name.as_constant()}'"
        tx.raise_observed(AttributeError, text)
    return found


def _delattr(tx: Translator, self: ObjectValue, name: Value) -> Value:
    self.generic_delattr(tx, name.as_constant())
    return constant(None)


_OBJECT_METHODS: dict[str, Callable[..., Value]] = {
    "__init__": lambda tx, self, *args: constant(None),
    "__setattr__": _setattr,
    "__getattribute__": _getattribute,
    "__delattr__": _delattr,
    "__eq__": lambda tx, self, other: constant(True if other is self else NotImplemented),
    "__ne__": lambda tx, self, other: constant(False if other is self else NotImplemented),
    "__init_subclass__": lambda tx, self: constant(None),
}
"""Methods of `object` that an override calls through super()."""
