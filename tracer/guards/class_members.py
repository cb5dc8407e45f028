"""Methods and properties of library classes that a trace has used: one check that each is still what its class gives.

The code of libraries is taken as fixed, but a program may put another method into a class (`nn.Tanh.forward = ...`), as
tests and profilers do. A guard for each module of a model would cost more than the model's other guards; here each pair
of a class and a name is read once, which CPython does by the version of the type.
"""
from __future__ import annotations

import keyword
import sys
import weakref
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from types import FunctionType
from typing import Any


@dataclass(frozen=True, slots=True)
class Member:
    """What a class gives under a name. Nothing of the program is kept alive: references to what no module holds are
    weak."""

    words: str
    name: str
    cls: Callable[[], type | None]
    function: Callable[[], Any]
    lasting: bool  # the class is that of a module, and reading the attribute gives the function

    def is_kept(self) -> bool:
        """Whether the class still gives this; one that is gone is asked nothing."""
        cls = self.cls()
        return cls is None or _found(cls, self.name) is self.function()


@dataclass(frozen=True, slots=True)
class Members:
    """All of one guard; in words it is their names."""

    items: tuple[Member, ...]

    def __str__(self) -> str:
        return ", ".join(item.words for item in self.items)

    def changed(self) -> list[Member]:
        """Those that are not what they were."""
        return [item for item in self.items if not item.is_kept()]

    def check(self) -> Callable[[Any], bool]:
        """Whether none has changed, as fast as can be."""
        names: dict[str, Any] = {}
        conditions = ["True"]
        for number, item in enumerate(self.items):
            if item.lasting:
                names[f"c{number}"], names[f"f{number}"] = item.cls(), item.function()
                conditions.append(f"c{number}.{item.name} is f{number}")
            else:
                names[f"kept{number}"] = item.is_kept
                conditions.append(f"kept{number}()")
        holds: Callable[[Any], bool] = eval(f"lambda _: {' and '.join(conditions)}", names)
        return holds


def members_of(found: Iterable[tuple[type, str, Any]]) -> Members:
    """The guarded form of (class, name, what its `__dict__` or that of a base has there)."""
    return Members(tuple(_member(*each) for each in found))


def _member(cls: type, name: str, function: Any) -> Member:
    plain = name.isidentifier() and not keyword.iskeyword(name)
    lasting = plain and _is_of_module(cls) and type(cls).__getattribute__ is type.__getattribute__
    lasting = lasting and getattr(cls, name, None) is function
    if lasting:
        return Member(f"{cls.__qualname__}.{name}", name, lambda: cls, lambda: function, True)
    kept = weakref.ref(function) if isinstance(function, FunctionType) else lambda: function  # a library's: it stays
    return Member(f"{cls.__qualname__}.{name}", name, weakref.ref(cls), kept, False)


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
