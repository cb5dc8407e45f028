"""Data about code objects, by identity.

Python compares code objects by name, instructions and line numbers: a function and its copy in another file are equal.
As dict keys they would be one, and messages about one would name the other's file.
"""
from __future__ import annotations

import weakref
from collections.abc import Callable
from functools import lru_cache, update_wrapper
from types import CodeType
from typing import Any, Concatenate, Generic, ParamSpec, TypeVar

T = TypeVar("T")
P = ParamSpec("P")
Of = Callable[Concatenate[CodeType, P], T]
"""A function of a code object and further arguments."""


class PerCode(Generic[T]):
    """A mapping from code objects to values; an entry is dropped when its code object dies."""

    def __init__(self) -> None:
        self._values: dict[int, T] = {}

    def __setitem__(self, code: CodeType, value: T) -> None:
        if id(code) not in self._values:
            weakref.finalize(code, self._values.pop, id(code), None).atexit = False  # two threads may race
        self._values[id(code)] = value

    def __contains__(self, code: CodeType) -> bool:
        return id(code) in self._values

    def get(self, code: CodeType) -> T | None:
        """The value of `code`; None without one."""
        return self._values.get(id(code))


class _Itself:
    """A key that is equal only to the same code object."""

    __slots__ = ("code",)

    def __init__(self, code: CodeType) -> None:
        self.code = code

    def __hash__(self) -> int:
        return id(self.code)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Itself) and other.code is self.code


def cached_per_code(maxsize: int) -> Callable[[Of[P, T]], Of[P, T]]:
    """`functools.lru_cache` for functions of a code object and other arguments. `maxsize`: how many results are
    kept."""

    def decorate(function: Of[P, T]) -> Of[P, T]:
        @lru_cache(maxsize)
        def cached(key: _Itself, *args: Any, **kwargs: Any) -> T:
            return function(key.code, *args, **kwargs)

        def call(code: CodeType, *args: P.args, **kwargs: P.kwargs) -> T:
            return cached(_Itself(code), *args, **kwargs)  # type: ignore[arg-type]

        return update_wrapper(call, function)

    return decorate
