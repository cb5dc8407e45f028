"""From real objects to Values: a table by type, filled by the modules of this package.

`build` is for objects that the frame reads through a source: guards are installed on what the trace relies on.
`from_python` is for objects without a source: constants, fresh containers of constants, library functions and classes.
`wrap_result` is for the fake result of a node. One object is one Value: `tx.trace.values_by_id`.
"""
from __future__ import annotations

import dataclasses
import enum
import sys
from collections.abc import Callable, Mapping, Sequence
from types import CodeType, MappingProxyType, ModuleType
from typing import TYPE_CHECKING, Any

import torch

from ...breaks.reasons import Reason
from ...breaks.unsupported import Unsupported
from ...sources.roots import LocalSource, ModuleGlobalSource, WeakrefSource
from ...sources.source import Source
from .base import Value
from .constant import ConstantValue
from .handlers import comes_from
from .late import late

if TYPE_CHECKING:
    from .base import Codegen, Translator

Builder = Callable[["Translator", Any, "Source | None"], Value]

BUILDERS: dict[type, Builder] = {}
"""By exact type, then along the type's bases. A builder gets source None for an object that is not guarded."""

BUILDERS_BY_NAME: dict[tuple[str, str], Builder] = {}
"""By exact module and name of a type: of modules that must not be imported just to name it."""

FRESH: dict[type, Callable[[Any, Any], Value]] = {}
"""How `from_python` copies a container that Python computed: list, tuple, dict, set."""

RESULTS: list[tuple[Callable[[Any], bool], Callable[..., Value]]] = []
"""(predicate on a fake result, wrapper(tx, node, fake))."""

CONSTANT_TYPES: set[type] = {
    type(None), bool, int, float, complex, str, bytes, type(Ellipsis), type(NotImplemented), range,
    torch.dtype, torch.device, torch.layout, torch.memory_format, CodeType, torch.finfo, torch.iinfo,
}  # fmt: skip
"""Types whose instances are immutable values; guarded by equality."""

OPAQUE_CONSTANTS: set[type] = set()
"""Immutable records of the standard library that are only ever the result of folding (inspect.Signature, ...)."""


def builds(*types: type) -> Callable[[Builder], Builder]:
    """Register the builder for objects of `types` (and of subclasses without one)."""

    def register(builder: Builder) -> Builder:
        for kind in types:
            BUILDERS[kind] = builder
        return builder

    return register


def build(tx: Translator, obj: Any, source: Source) -> Value:
    """The Value of the real object `obj`, read through `source`, with guards on what it is."""
    trace = tx.trace
    value = trace.values_by_source.get(source)
    if value is not None:
        return value
    kind = type(obj)
    if kind in CONSTANT_TYPES or issubclass(kind, enum.Enum):
        value = build_constant(tx, obj, source)
    else:
        value = trace.values_by_id.get(id(obj))
        if value is None:
            value = _builder(kind)(tx, obj, source)
            trace.keep_alive.append(obj)
            trace.values_by_id.setdefault(id(obj), value)
        else:
            _guard_alias(tx, obj, value, source)
    trace.values_by_source[source] = value
    return value


def build_constant(tx: Translator, obj: Any, source: Source) -> Value:
    """A constant read through `source`; an int that the policy makes dynamic becomes an input of the graph."""
    kind = type(obj)
    if obj is None:
        tx.guards.add(source, "NONE", None)
    elif kind is bool:
        tx.guards.add(source, "BOOL", obj)
    elif kind is int or kind is float:
        node_value = (late.symbolic_int if kind is int else late.symbolic_float)(tx, obj, source)
        if node_value is not None:
            return node_value
        tx.guards.add(source, "EQUALS_MATCH", obj)
    elif kind is str and tx.trace.resumed and type(source) is LocalSource:
        given: Value = late.carried_string(tx, obj, source)
        return given
    elif kind in BY_IDENTITY or issubclass(kind, enum.Enum):
        tx.guards.add(source, "ID_MATCH", obj)
    else:
        tx.guards.add(source, "EQUALS_MATCH", obj)
    return ConstantValue(obj, source)


BY_IDENTITY = {type(Ellipsis), type(NotImplemented), CodeType, torch.finfo, torch.iinfo}
"""Constants guarded by identity: they have no equality, or one that says too little."""


def _guard_alias(tx: Translator, obj: Any, value: Value, source: Source) -> None:
    """A second path to the same object: it must stay the same object."""
    if is_stable(source) and (callable(obj) or isinstance(obj, ModuleType)):  # a class may hold any other
        return
    if value.source is None or isinstance(value.source, WeakrefSource):
        tx.guards.add(source, "ID_MATCH", obj)
    elif value.source != source:
        tx.guards.add(source, "DUPLICATE_INPUT", value.source)


def is_stable(source: Source | None) -> bool:
    """Whether what `source` reads is part of the installed code: globals of torch's modules, attributes of types.

    Such functions and classes are not guarded, except methods that user code defines, and functions that user code,
    layers and models read from a library's module: replacing more of a library's code while a program runs is not
    supported.
    """
    while source is not None:
        if isinstance(source, ModuleGlobalSource):
            return is_library(source.module)
        if getattr(source, "function", None) == "type":
            return True
        source = source.base
    return False


def is_library(module: str | None) -> bool:
    """Whether code of that module is taken as fixed."""
    return (module or "").partition(".")[0] in _LIBRARIES


_LIBRARIES = frozenset(sys.stdlib_module_names) | {"torch", "transformers", "einops", "ptdebug"}


def _builder_by_name(kind: type) -> Builder | None:
    module = getattr(kind, "__module__", "")
    builder = BUILDERS_BY_NAME.get((module, kind.__qualname__))
    return builder if builder is not None and comes_from(kind, module) else None


def _builder(kind: type) -> Builder:
    builder = BUILDERS.get(kind) or _builder_by_name(kind)
    if builder is None:
        for base in kind.__mro__:
            builder = BUILDERS.get(base)
            if builder is not None:
                break
        else:
            raise Unsupported(Reason.UNKNOWN_TYPE, kind)
    return builder


def from_python(tx: Translator, obj: Any) -> Value:
    """The Value of an object without a source: results that Python computed from constants, library functions,
    classes."""
    kind = type(obj)
    if kind in CONSTANT_TYPES or kind in OPAQUE_CONSTANTS or issubclass(kind, enum.Enum):
        return ConstantValue(obj)
    fresh = FRESH.get(kind)
    if fresh is not None:
        return fresh(tx, obj)
    trace = tx.trace
    value = trace.values_by_id.get(id(obj))
    if value is None:
        value = _builder(kind)(tx, obj, None)
        trace.keep_alive.append(obj)
        trace.values_by_id.setdefault(id(obj), value)
    return value


class DataclassFields(ConstantValue):
    """The `__dataclass_fields__` of a class, which only dataclasses reads, and nothing changes."""

    __slots__ = ()

    def python_type(self) -> type:
        """dict."""
        return dict

    def call_method(self, tx: Translator, name: str, args: Sequence[Value], kwargs: Mapping[str, Value]) -> Value:
        """`values()`, to iterate over."""
        if name == "values":
            fields: Value = late.make_tuple(tx, [ConstantValue(part) for part in self.value.values()])
            return fields
        return super().call_method(tx, name, args, kwargs)

    def reconstruct(self, codegen: Codegen) -> None:
        """Not supported: it stays in the trace, where it has another type."""
        raise Unsupported(Reason.RECONSTRUCT, detail="the fields of a data class")


def existing(tx: Translator, obj: Any) -> Value:
    """As `from_python`, for a user's object that no source reaches: changes of a copy of a container would be lost."""
    if type(obj) is dict and obj and all(type(item) is dataclasses.Field for item in obj.values()):
        return DataclassFields(MappingProxyType(obj))
    if type(obj) in FRESH and type(obj).__hash__ is None:
        raise Unsupported(Reason.ATTRIBUTE, detail=f"a {type(obj).__name__} that no expression reaches")
    return from_python(tx, obj)


def importable(obj: Any) -> Source | None:
    """The source of a class or function as a global of the module that defines it."""
    module, name = getattr(obj, "__module__", None), getattr(obj, "__qualname__", None)
    if isinstance(module, str) and isinstance(name, str) and module in sys.modules:
        if sys.modules[module].__dict__.get(name) is obj:
            return ModuleGlobalSource(module, name)
    return None


def wrap_result(tx: Translator, node: torch.fx.Node, fake: Any) -> Value:
    """The Value of a node whose fake result is `fake`. A fake tensor that is known already is the same tensor."""
    if isinstance(fake, torch.Tensor):
        known = tx.trace.values_by_id.get(id(fake))
        if known is not None:
            tx.trace.layouts_assumed += 1  # contiguous() returns the tensor itself where it is
            return known
    elif type(fake) in CONSTANT_TYPES:
        return ConstantValue(fake)
    for matches, wrap in RESULTS:
        if matches(fake):
            return wrap(tx, node, fake)
    raise Unsupported(Reason.UNKNOWN_TYPE, type(fake), detail=f", the result of {node.target}")


late.from_python = from_python
late.existing = existing
