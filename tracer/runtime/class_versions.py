"""Whether a class has changed, by CPython's version of the type: the tag of its cache of methods.

Each change of a class, or of one of its bases, sets the tag to 0, and the next look-up gives it a number that no class
had before. So a class whose tag is neither 0 nor another one than before gives what it gave.
"""
from __future__ import annotations

import contextlib
import ctypes
import sys
import weakref
from collections.abc import Callable
from typing import Any

_OFFSET = 384  # of `tp_version_tag` in 64-bit CPython 3.11 to 3.13
_UNKNOWN = memoryview(bytes(4)).cast("I")


def _tag_at(cls: type) -> memoryview:
    size = ctypes.sizeof(ctypes.c_uint)
    return memoryview((ctypes.c_ubyte * size).from_address(id(cls) + _OFFSET)).cast("B").cast("I")


def _works() -> bool:
    """Whether the tag of a class changes with it, and only then."""
    if sys.implementation.name != "cpython" or sys.maxsize <= 2**32 or hasattr(sys, "getobjects"):
        return False

    class Base:
        value = 0

    class Probe(Base):
        pass

    tag = _tag_at(Probe)
    seen = []
    for owner in (Probe, Base, Base):
        for _ in range(3):
            Probe.value  # noqa: B018 the look-up gives it a tag
        seen.append(tag[0])
        owner.value = len(seen)
        seen.append(tag[0])
    return seen[1::2] == [0, 0, 0] and len({*seen}) == 4


_AVAILABLE = _works()


def version_tag(cls: type) -> memoryview:
    """The tag of a class that never dies, in an array of one; always 0 where this Python has none."""
    return _tag_at(cls) if _AVAILABLE else _UNKNOWN


def _look_up(cls: type | None) -> None:
    """Give a class a tag, if it can have one: nobody may look anything up in it for long. None of its code runs."""
    if cls is not None:
        with contextlib.suppress(AttributeError):
            type.__getattribute__(cls, "__ptdebug_has_no_such_name__")


def unchanged(classes: tuple[type, ...], verify: Callable[[], bool]) -> Callable[[object], bool]:
    """A check that `verify` holds, which is called only where one of the classes has changed since it did. It keeps no
    class alive, and is not concerned with one that has died."""
    names: dict[str, Any] = {"noted": [0] * len(classes)}
    numbers = range(len(classes))
    conditions = ["True"]
    for number, cls in enumerate(classes):
        names[f"c{number}"], names[f"t{number}"] = weakref.ref(cls), _tag_at(cls) if _AVAILABLE else _UNKNOWN
        conditions.append(f"((c := c{number}()) is None or 0 != t{number}[0] == noted[{number}])")

    def again() -> bool:
        for number in numbers:
            _look_up(names[f"c{number}"]())
        before = [0 if names[f"c{number}"]() is None else names[f"t{number}"][0] for number in numbers]
        if not verify():
            return False
        names["noted"][:] = before  # what changed meanwhile has another tag
        return True

    names["again"] = again
    check: Callable[[object], bool] = eval(f"lambda _: ({' and '.join(conditions)}) or again()", names)
    return check
