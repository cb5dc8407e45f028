"""Numbers that the graph of a package computes (a size that varies, `item()`), marked in the example call.

The program only hands them on, so that they are known again in its result. What makes something else of one (a text, an
index, a condition) would make a constant of it, and is refused.
"""
from __future__ import annotations

from typing import Any, NoReturn


class ComputedNumberUsed(TypeError):
    """The program does something with a number that the graph returns."""


class _Computed:
    def _refuse(self, *unused: object) -> NoReturn:
        raise ComputedNumberUsed("a number that depends on the arguments is used outside of the graph, in a text, say")

    __repr__ = __str__ = __format__ = __index__ = __int__ = __float__ = __bool__ = _refuse
    __add__ = __sub__ = __mul__ = __neg__ = __eq__ = __lt__ = __hash__ = _refuse


class ComputedInt(_Computed, int):
    """An integer or a bool."""


class ComputedFloat(_Computed, float):
    """A float."""


def computed(value: Any) -> Any:
    """A result of the graph; a number marked."""
    if isinstance(value, int):
        return ComputedInt(value)
    return ComputedFloat(value) if isinstance(value, float) else value
