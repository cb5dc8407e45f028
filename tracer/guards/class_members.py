"""Methods and properties of library classes that a trace has used: one check that each is still what its class gives.

The code of libraries is taken as fixed, but a program may put another method into a class (`nn.Tanh.forward = ...`), as
tests and profilers do. A guard for each module of a model would cost more than the model's other guards; here each pair
of a class and a name is read only when the class has changed since it was read last.
"""
from __future__ import annotations

import sys
import weakref
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from types import FunctionType
from typing import Any

from ..runtime.class_versions import unchanged


@dataclass(frozen=True, slots=True)
class Member:
    """What a class gives under a name, None for nothing. Nothing of the program is kept alive: references to what no
    module holds are weak."""

    name: str
    cls: weakref.ref[type]
    function: Callable[[], Any]
    words: str

    def is_kept(self) -> bool:
        """Whether the class still gives this; one that is gone is asked nothing."""
        cls = self.cls()
        return cls is None or _found(cls, self.name) is self.function()


@dataclass(frozen=True, slots=True)
class Members:
    """All of one guard; in words it is their names, those that only must not appear left out."""

    items: tuple[Member, ...]

    @property
    def names(self) -> list[str]:
        """As people know them."""
        present = [item.words for item in self.items if item.function() is not None]
        return present or [item.words for item in self.items]

    def __str__(self) -> str:
        return ", ".join(self.names)

    def changed(self) -> list[Member]:
        """Those that are not what they were."""
        return [item for item in self.items if not item.is_kept()]

    def check(self) -> Callable[[Any], bool]:
        """Whether none has changed, as fast as can be."""
        classes = {cls for item in self.items if (cls := item.cls()) is not None}
        return unchanged(tuple(classes), lambda: all(item.is_kept() for item in self.items))


def members_of(found: Iterable[tuple[type, str, Any]]) -> Members:
    """The guarded form of (class, name, what its `__dict__` or that of a base has there)."""
    return Members(tuple(_member(*each) for each in found))


def _member(cls: type, name: str, function: Any) -> Member:
    weak = isinstance(function, FunctionType) and not _is_of_module(cls)
    kept = weakref.ref(function) if weak else lambda: function  # a library's: it stays
    return Member(name, weakref.ref(cls), kept, f"{cls.__qualname__}.{name}")


def _is_of_module(cls: type) -> bool:
    found: Any = sys.modules.get(cls.__module__)
    for part in cls.__qualname__.split("."):
        found = getattr(found, part, None)
    return found is cls and cls.__module__ != "__main__"


def _found(cls: type, name: str) -> Any:
    for base in cls.__mro__:
        if name in base.__dict__:
            return base.__dict__[name]
    return None
