"""Instances of classes, existing or made by the trace. The class is always real.

Special methods written in Python are interpreted. A class that derives from dict, list, set or tuple keeps its items in
`storage`, a Value of the builtin type; methods that the builtin base defines work on that.
"""
from __future__ import annotations

import itertools
import operator
import sys
from collections import OrderedDict, defaultdict
from collections.abc import Callable, Mapping, Sequence
from types import WrapperDescriptorType
from typing import TYPE_CHECKING, Any

from ...breaks.hints import reason_of_call
from ...breaks.reasons import Reason
from ...breaks.subjects import name_of_subject
from ...breaks.unsupported import Unsupported
from ...sources.display_names import display_name
from ..containers.dict_views import DictView
from ..containers.mappings import DictValue
from ..containers.sequences import TupleValue
from ..containers.slices import checked_index, checked_length
from ..core.attributes import (
    MISSING,
    BaseMethod,
    is_python_method,
    lookup,
    special,
)
from ..core.base import ObservedException, Value, with_arguments
from ..core.constant import constant
from ..core.iteration import each
from ..core.late import late
from ..core.operators import COMPARISONS, IN_PLACE, REFLECTED, UNARY, equal
from ..core.registry import is_library
from .object_attributes import ObjectAttributes

if TYPE_CHECKING:
    from ..core.base import Codegen, Translator


VERSION = sys.version_info[:2]


class ObjectValue(ObjectAttributes):
    """An instance of `cls`: its special methods, and what its builtin base defines."""

    __slots__ = ()

    # ---- special methods -------------------------------------------------------------------------------------------
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
"""Methods of OrderedDict (odictobject.c) that call methods of a subclass, where dict's do not: which ones they call."""

_BINARY = frozenset(itertools.chain.from_iterable(REFLECTED.values()))

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
