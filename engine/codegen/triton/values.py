"""Values of a kernel under construction: their text, shape and dtype, and fresh names for them."""
from __future__ import annotations

import builtins
import keyword
import re
from collections.abc import Iterable
from dataclasses import dataclass

import torch

from .dtypes import literal, value_type
from .prelude import HELPERS

_RESERVED = frozenset({"tl", "triton", "libdevice", "INDEX", "program", "split", *HELPERS})


@dataclass(frozen=True)
class Value:
    """A variable, or a literal that has not been given one; `dims` are the dimensions that it varies along."""

    text: str
    dtype: torch.dtype
    dims: frozenset[str] = frozenset()
    constant: bool | int | float | None = None

    @property
    def typed(self) -> str:
        """Text that has the dtype by itself, which a Python literal has not."""
        if self.constant is None:
            return self.text
        return f"tl.full([], {literal(self.constant, self.dtype)}, {value_type(self.dtype)})"


class Namer:
    """Hands out names that are valid, readable and unique in one kernel."""

    def __init__(self, taken: Iterable[str]) -> None:
        self._taken = set(taken)

    def fresh(self, wanted: str) -> str:
        """`wanted`, or `wanted_2`, `wanted_3`, ..."""
        base = re.sub(r"\W", "_", wanted).strip("_") or "value"
        base = f"v{base}" if base[0].isdigit() else base
        if keyword.iskeyword(base) or hasattr(builtins, base) or base in _RESERVED:
            base = f"{base}_"
        name, number = base, 1
        while name in self._taken:
            number += 1
            name = f"{base}_{number}"
        self._taken.add(name)
        return name
