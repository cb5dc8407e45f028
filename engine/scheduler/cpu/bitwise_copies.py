"""16-bit floats that are only moved or selected, never computed with: they are stored with the bits they were loaded
with.

Widening to float and rounding back would give the same numbers for ten times the instructions (half precision), but
would change the bits of NaNs, which eager's copies keep and integer views show.
"""
from __future__ import annotations

import math
from dataclasses import dataclass, field

import torch

from ...ir.ir import Statement
from ...ir.loop_nest import Part

HALVES = (torch.float16, torch.bfloat16)
MOST_LEAVES = 8  # values that are selected from


def is_exact(number: float | bool | int, dtype: torch.dtype) -> bool:
    """Whether `dtype` has the number, or it is NaN."""
    stored = torch.tensor(float(number), dtype=torch.float64).to(dtype)
    return stored.item() == float(number) or math.isnan(float(number))


@dataclass
class Moves:
    """What the stores of a part move, and what it views as integers."""

    part: Part
    known: dict[tuple[str, torch.dtype], tuple[str, ...] | None] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.made = {s.name: s for s in self.part.statements}
        stored = [(s.args[0], s.dtype) for s in self.part.stores if s.mode == "" and s.dtype in HALVES]
        viewed = [s.args[0] for s in self.part.statements if s.op == "bitcast"]
        stored += [(name, dtype) for name in viewed if (dtype := self.made[name].dtype) in HALVES]
        self.loads = {load for name, dtype in stored for load in self.leaves(name, dtype) or ()}

    def moved(self, s: Statement) -> bool:
        """Whether a load or store of a 16-bit float may move its bits as they are."""
        return s.name in self.loads if s.op == "load" else self.leaves(s.args[0], s.dtype) is not None

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
            return () if is_exact(s.number, dtype) else None
        if s.op == "bitcast":
            return (name,) if s.dtype is dtype else None
        if s.op == "load":
            return (name,) if s.dtype is dtype and (not s.mask or is_exact(s.number, dtype)) else None
        found: tuple[str, ...] = ()
        for chosen in s.args[1:] if s.op == "where" else s.args if s.op == "cast" else ():
            more = self.leaves(chosen, dtype)
            if more is None:
                return None
            found += more
        return found if found and len(found) <= MOST_LEAVES else None
