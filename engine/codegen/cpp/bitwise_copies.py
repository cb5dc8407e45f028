"""16-bit floats that are only moved or selected, never computed with: they are stored with the bits they were loaded
with.

Widening to float and rounding back would give the same numbers for ten times the instructions (half precision), but
would change the bits of NaNs, which eager's copies keep and integer views show.
"""
from __future__ import annotations

from dataclasses import dataclass, field

import torch

from .dtypes import bits_literal, ctype
from .nests import Part

MOST_LEAVES = 8  # values that are selected from


@dataclass
class Moves:
    """What the stores of a part move, and what it views as integers."""

    part: Part
    known: dict[tuple[str, torch.dtype], tuple[str, ...] | None] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.made = {s.name: s for s in self.part.statements}
        stored = [(s.args[0], s.dtype) for s in self.part.stores if s.mode == "" and ctype(s.dtype).store]
        viewed = [s.args[0] for s in self.part.statements if s.op == "bitcast"]
        stored += [(name, dtype) for name in viewed if ctype(dtype := self.made[name].dtype).store]
        self.loads = {load for name, dtype in stored for load in self.leaves(name, dtype) or ()}

    def leaves(self, name: str, dtype: torch.dtype) -> tuple[str, ...] | None:
        """The loads and views as `dtype` that a value is selected from; None if it may be computed otherwise."""
        key = name, dtype
        if key not in self.known:
            self.known[key] = self._leaves(name, dtype)
        return self.known[key]

    def _leaves(self, name: str, dtype: torch.dtype) -> tuple[str, ...] | None:
        s = self.made.get(name)
        if s is None or s.dtype not in (dtype, torch.float32, torch.float64):
            return None
        if s.op == "constant":
            return () if bits_literal(s.number, dtype) else None
        if s.op == "bitcast":
            return (name,) if s.dtype is dtype else None
        if s.op == "load":
            return (name,) if s.dtype is dtype and (not s.mask or bits_literal(s.number, dtype)) else None
        found: tuple[str, ...] = ()
        for chosen in s.args[1:] if s.op == "where" else s.args if s.op == "cast" else ():
            more = self.leaves(chosen, dtype)
            if more is None:
                return None
            found += more
        return found if found and len(found) <= MOST_LEAVES else None
