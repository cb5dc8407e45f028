"""Evaluates sources in a real frame."""
from __future__ import annotations

import keyword
from collections.abc import Callable, Mapping
from typing import Any

from ..sources.computed import ComputedSource
from ..sources.roots import LocalSource
from ..sources.source import AttrSource, Source


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
        value = source.read(self if owner is None else self.value(owner))
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
        return f"{name(source.read)}(scope)"
    owner = variable(source.base)
    if isinstance(source, AttrSource) and not source.generic and _is_name(source.name):
        return f"{owner}.{source.name}"
    return f"{name(source.read)}({owner})"


def _is_name(text: str) -> bool:
    return text.isidentifier() and not keyword.iskeyword(text)
