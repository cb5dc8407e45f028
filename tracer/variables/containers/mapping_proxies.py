"""Read-only views of mappings: `types.MappingProxyType`, and the `__dict__` of a class.

They show changes of the mapping, so they are not constants: the dict behind one is read, and guarded, like any other.
The proxies that Python computes from constants (`inspect.signature(f).parameters`) show a dict that nothing changes.
"""
from __future__ import annotations

import operator
import types
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from ...breaks.reasons import Reason
from ...breaks.unsupported import Unsupported
from ...sources.mapping_proxies import mapping_of
from ...sources.source import AttrSource, CallSource, Source
from ..core.attributes import is_user_defined
from ..core.base import Value
from ..core.constant import ConstantValue, attribute_of_builtin, constant, fold
from ..core.handlers import handles
from ..core.late import late
from ..core.operators import apply
from ..core.registry import FRESH, build, builds, from_python, importable
from .mappings import DICT_TYPES, DictValue

if TYPE_CHECKING:
    from ..core.base import Codegen, Translator

Args = Sequence[Value]
Kwargs = Mapping[str, Value]


class MappingProxy(Value):
    """MappingProxyType(mapping): reads go to the mapping."""

    __slots__ = ("mapping", "real")

    def __init__(self, mapping: DictValue, source: Source | None = None, real: Any = None) -> None:
        super().__init__(source)
        self.mapping = mapping
        self.real = real

    def python_type(self) -> type:
        """types.MappingProxyType."""
        return MappingProxyType

    def truth(self, tx: Translator) -> bool:
        """Whether there are items."""
        return self.mapping.truth(tx)

    def length(self, tx: Translator) -> Value:
        """The number of items."""
        return self.mapping.length(tx)

    def iterate(self, tx: Translator) -> Sequence[Value]:
        """The keys."""
        return self.mapping.iterate(tx)

    def iter(self, tx: Translator) -> Value:
        """An iterator over the keys."""
        return self.mapping.iter(tx)

    def reversed(self, tx: Translator) -> Value:
        """An iterator over the keys from the end."""
        return self.mapping.reversed(tx)

    def contains(self, tx: Translator, item: Value) -> bool:
        """Whether there is such a key."""
        return self.mapping.contains(tx, item)

    def getitem(self, tx: Translator, key: Value) -> Value:
        """The value at a key."""
        return self.mapping.getitem(tx, key)

    def binary(self, tx: Translator, function: Callable[..., Any], left: Value, right: Value) -> Value | None:
        """Union and comparison of the mappings; proxies support no others, and no in-place ones."""
        if function not in (operator.or_, operator.eq, operator.ne):
            return None
        shown = [each.mapping if isinstance(each, MappingProxy) else each for each in (left, right)]
        return apply(tx, function, *shown)

    def is_hashable(self) -> bool:
        """Not hashable, as dicts are not."""
        return False

    def without_hash(self) -> type:
        """Where proxies are hashable, they have the hash of the mapping."""
        return MappingProxyType if MappingProxyType.__hash__ is None else self.mapping.without_hash()

    def getattr(self, tx: Translator, name: str) -> Value:
        """Its methods."""
        found = attribute_of_builtin(tx, self, MappingProxyType, name)
        return found or fold(tx, getattr, [ConstantValue(MappingProxyType({})), constant(name)])  # raises

    def call_method(self, tx: Translator, name: str, args: Args, kwargs: Kwargs) -> Value:
        """A method that only reads, of the mapping."""
        if name in _READING:
            return self.mapping.call_method(tx, name, args, kwargs)
        return super().call_method(tx, name, args, kwargs)

    def reconstruct(self, codegen: Codegen) -> None:
        """The existing proxy, or a new one of the mapping."""
        if self.real is not None:
            codegen.const(self.real)
        else:
            codegen.call_const(MappingProxyType, [self.mapping])

    def describe(self) -> str:
        """For messages."""
        return f"a read-only view of {self.mapping.describe()}"


_READING = frozenset((
    "__contains__", "__getitem__", "__iter__", "__len__", "__reversed__", "copy", "get", "items", "keys", "values",
))  # fmt: skip


# ---- making them -----------------------------------------------------------------------------------------------------
@builds(MappingProxyType)
def build_proxy(tx: Translator, obj: MappingProxyType[Any, Any], source: Source | None) -> Value:
    """An existing proxy."""
    mapping = mapping_of(obj)
    if source is None or type(mapping) not in DICT_TYPES:
        raise Unsupported(Reason.UNKNOWN_TYPE, detail=f"a mappingproxy of an object of class {type(mapping).__name__}")
    tx.guards.add(source, "TYPE_MATCH", MappingProxyType)
    behind = build(tx, mapping, CallSource(source, "mapping_of"))
    assert isinstance(behind, DictValue)
    return MappingProxy(behind, source)


def _computed(tx: Translator, obj: MappingProxyType[Any, Any]) -> Value:
    """Of a new dict, or of an installed library's class: nothing changes it."""
    mapping = mapping_of(obj)
    if type(mapping) not in DICT_TYPES or "__module__" in mapping:
        return ConstantValue(obj)
    behind = FRESH[type(mapping)](tx, mapping)
    assert isinstance(behind, DictValue)
    return MappingProxy(behind, None, obj)


FRESH[MappingProxyType] = _computed


def class_dict(tx: Translator, cls: type, source: Source | None) -> Value:
    """`cls.__dict__` of a class read from `source`. Raises Unsupported for a user-defined class without a source, which
    could not be guarded."""
    if not is_user_defined(cls):
        return from_python(tx, cls.__dict__)
    where = source or importable(cls)
    if where is None:
        raise Unsupported(Reason.ATTRIBUTE, cls, "__dict__")
    return build(tx, cls.__dict__, AttrSource(where, "__dict__"))


@handles(MappingProxyType)
def _proxy(tx: Translator, args: Args, kwargs: Kwargs) -> Value:
    (mapping,) = args if len(args) == 1 and not kwargs else (None,)
    if not isinstance(mapping, DictValue):
        raise Unsupported(Reason.UNSUPPORTED_ARGUMENT, types.MappingProxyType)
    return MappingProxy(mapping)


late.class_dict = class_dict
