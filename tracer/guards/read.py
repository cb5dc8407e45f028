"""Evaluates sources in a real frame."""
from __future__ import annotations

import itertools
import keyword
import sys
from collections.abc import Callable, Mapping
from typing import Any

from ..sources.array_memory import tensor_of
from ..sources.mapping_proxies import mapping_of
from ..sources.source import (
    AttrSource,
    CallSource,
    CellSource,
    ComputedSource,
    ConstantSource,
    DefaultSource,
    GlobalSource,
    ItemSource,
    KeySource,
    LocalSource,
    ModuleGlobalSource,
    ResultSource,
    SizeSource,
    Source,
    WeakrefSource,
    values_of,
)
from ..sources.weak_proxies import proxied
from .cached_results import cached_result


class Scope:
    """The variables of one frame: locals (cell contents included), globals, builtins."""

    def __init__(self, f_locals: Mapping[str, Any], f_globals: dict[str, Any], f_builtins: Mapping[str, Any]) -> None:
        self.f_locals = f_locals
        self.f_globals = f_globals
        self.f_builtins = f_builtins
        self._values: dict[Source, Any] = {}

    def value(self, source: Source) -> Any:
        """The object behind `source`, read once. Raises whatever reading it raises."""
        try:
            return self._values[source]
        except KeyError:
            pass
        owner = source.base
        if owner is None:
            value = _ROOTS[type(source)](self, source)
        else:
            value = _READERS[type(source)](self.value(owner), source)
        self._values[source] = value
        return value


def reader(source: Source, f_globals: dict[str, Any], f_builtins: Mapping[str, Any]) -> Callable[[Any], Any]:
    """`Scope.value(source)` in any frame of this code, as a function of the frame's locals: straight-line Python with
    one line for each source on the way. Raises whatever reading raises."""
    names: dict[str, Any] = {"scope": Scope({}, f_globals, f_builtins)}
    variables: dict[Source, str] = {}
    lines = ["def read(L):"]

    def name(value: Any) -> str:
        names[f"n{len(names)}"] = value
        return f"n{len(names) - 1}"

    def variable(of: Source) -> str:
        if of not in variables:
            text = _step(of, name, variable)
            variables[of] = f"v{len(variables)}"
            lines.append(f" {variables[of]} = {text}")
        return variables[of]

    lines.append(f" return {variable(source)}")
    exec(compile("\n".join(lines), "<guards>", "exec"), names)
    read: Callable[[Any], Any] = names.pop("read")
    return read


def _step(source: Source, name: Callable[[Any], str], variable: Callable[[Source], str]) -> str:
    """The Python that reads `source`, given the variables of those that it is read from."""
    if isinstance(source, LocalSource):
        return f"L[{source.name!r}]"
    if isinstance(source, ComputedSource):
        arguments = [variable(argument) for argument in source.args]
        return f"{name(source.function)}({', '.join(arguments)})"
    if source.base is None:
        return f"{name(_ROOTS[type(source)])}(scope, {name(source)})"
    owner = variable(source.base)
    if isinstance(source, AttrSource) and not source.generic and _is_name(source.name):
        return f"{owner}.{source.name}"
    return f"{name(_READERS[type(source)])}({owner}, {name(source)})"


def _is_name(text: str) -> bool:
    return text.isidentifier() and not keyword.iskeyword(text)


def _global(scope: Scope, source: Any) -> Any:
    if source.name in scope.f_globals:
        return scope.f_globals[source.name]
    return scope.f_builtins[source.name]


_MISSING = object()
_ROOTS: dict[type[Source], Callable[[Scope, Any], Any]] = {
    LocalSource: lambda scope, source: scope.f_locals[source.name],
    GlobalSource: _global,
    ModuleGlobalSource: lambda scope, source: sys.modules[source.module].__dict__[source.name],
    WeakrefSource: lambda scope, source: source.value(),
    ConstantSource: lambda scope, source: source.value,
    ComputedSource: lambda scope, source: source.function(*[scope.value(arg) for arg in source.args]),
}


def _attribute(owner: Any, source: AttrSource) -> Any:
    return object.__getattribute__(owner, source.name) if source.generic else getattr(owner, source.name)


def item(owner: Any, key: Any) -> Any:
    """`owner[key]`; a dict that creates missing items (a defaultdict) is not changed but raises KeyError."""
    if not isinstance(owner, dict) or type(owner).__getitem__ is not dict.__getitem__:
        return owner[key]
    found = dict.get(owner, key, _MISSING)
    if found is _MISSING:
        raise KeyError(key)
    return found


def _default(owner: Any, source: DefaultSource) -> Any:
    return (owner.__defaults__ if isinstance(source.key, int) else owner.__kwdefaults__)[source.key]


def _size(owner: Any, source: SizeSource) -> int:
    if source.kind == "storage_offset":
        return owner.storage_offset()
    return getattr(owner, source.kind)()[source.dimension]


FUNCTIONS: dict[str, Callable[[Any], Any]] = {
    "type": type, "len": len, "list": list, "tuple": tuple, "set": set, "referent": lambda reference: reference(),
    "tensor_of": tensor_of, "proxied": proxied, "mapping_of": mapping_of, "subclasses": type.__subclasses__,
    "values_of": values_of,
}
"""The functions that a CallSource may name."""

_READERS: dict[type[Source], Callable[[Any, Any], Any]] = {
    AttrSource: _attribute,
    ItemSource: lambda owner, source: item(owner, source.key),
    KeySource: lambda owner, source: key_at(owner, source.index),
    CallSource: lambda owner, source: FUNCTIONS[source.function](owner),
    CellSource: lambda owner, source: owner.__closure__[source.index].cell_contents,
    DefaultSource: _default,
    ResultSource: lambda owner, source: cached_result(owner, source.args, source.kwargs),
    SizeSource: _size,
}


def key_at(mapping: Mapping[Any, Any], index: int) -> Any:
    """The `index`-th key of a dict (or item of a set) in iteration order."""
    return next(itertools.islice(mapping, index, None))
