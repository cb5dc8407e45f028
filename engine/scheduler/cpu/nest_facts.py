"""What transformations ask about a nest: where it stands in its kernel, and at which depth each statement runs."""
from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from functools import cached_property

import sympy
import torch

from ....artifacts.context import CompileContext
from ...ir.ir import DOTS, Axis, Buffer, Group, Statement
from ...ir.loop_nest import Part, Reduction, RunningScan
from ...ir.tiles import RowTile, Tile
from .bitwise_copies import HALVES
from .distribution import Nest, position_of
from .loop_shape import Shape
from .scatter import free_axes

BLOCK = 256  # a sum runs over blocks of this many elements, and over the blocks in double
LANE_BLOCK = 32  # the same for sums over rows, along lanes, where every lane adds one element of each row


@dataclass(frozen=True)
class Site:
    """The kernel around a nest.

    `local` buffers stay inside; those of `memory` do not. `outer` are the loops around everything, `around` the loops
    of a body of its own that the nest stands in. `widened` are rows of float16 that are converted before all nests,
    `streamed` the results with non-temporal stores.
    """

    group: Group
    context: CompileContext
    shape: Shape
    buffers: Mapping[str, Buffer]
    memory: Mapping[str, Buffer]
    local: Collection[str]
    written: Collection[str]
    outer: tuple[Axis, ...]
    lane: Axis | None = None
    width: int = 0
    around: tuple[Axis, ...] = ()
    tile: Tile | RowTile | None = None
    owner: Statement | None = None
    widened: Collection[tuple[str, sympy.Expr]] = ()
    streamed: frozenset[str] = frozenset()


@dataclass(frozen=True, eq=False)
class NestFacts:
    """A nest in its kernel, and what follows from where it stands."""

    nest: Nest
    site: Site

    @property
    def context(self) -> CompileContext:
        return self.site.context

    @property
    def kernel(self) -> str:
        """The kernel's name."""
        return self.site.group.kernel

    @property
    def subject(self) -> str:
        """What decisions about the nest are called by."""
        return f"{self.kernel}:{self.nest.parts[0].body.name}"

    @property
    def lane(self) -> Axis | None:
        return self.site.lane

    @cached_property
    def axes(self) -> tuple[Axis, ...]:
        """The loops, and that over lanes."""
        return self.nest.loops if self.lane is None else (*self.nest.loops, self.lane)

    @cached_property
    def statements(self) -> tuple[tuple[Part, Statement], ...]:
        """All statements, with their parts."""
        return tuple([(p, s) for p in self.nest.parts for s in p.statements])

    # ---- depths ------------------------------------------------------------------------------------------------------
    @cached_property
    def depths(self) -> tuple[Mapping[str, int], ...]:
        """The loop depth of each statement of each part (loop-invariant code motion)."""
        return tuple([self._depths(part) for part in self.nest.parts])

    def _depths(self, part: Part) -> dict[str, int]:
        level = {a.symbol.name: i + 1 for i, a in enumerate(self.axes)}
        elsewhere = len(self.axes) if self.lane is not None else 0  # results of reductions: one for each lane
        depths: dict[str, int] = {}
        for s in part.statements:
            if s.op in ("store", "reduce", "scan"):
                if s.op == "scan":
                    depths[s.name] = len(self.axes)
                continue
            depth = max((depths.get(a, elsewhere) for a in (*s.args, *([s.mask] if s.mask else ()))), default=0)
            if s.index is not None:
                for symbol in s.index.free_symbols:
                    depth = max(depth, level.get(symbol.name, depths.get(symbol.name, 0)))
            depths[s.name] = depth
        return depths

    # ---- checks of indices -------------------------------------------------------------------------------------------
    @cached_property
    def checked_at(self) -> frozenset[int]:
        """At which depths indices are checked: one that only uses them needs no flag in each lane."""
        return frozenset([depths[s.name] for part, depths in zip(self.nest.parts, self.depths) for s in part.statements
                          if s.op == "indirect" and s.mode != "unchecked"])

    def checks_inside(self, depth: int) -> bool:
        """Whether the loop at `depth` checks indices."""
        return any(at > depth for at in self.checked_at)

    @property
    def checks_points(self) -> bool:
        """Whether an index is checked at each point, not at each row."""
        return self.checks_inside(len(self.axes) - 1)

    # ---- order -------------------------------------------------------------------------------------------------------
    @cached_property
    def threads(self) -> bool:
        """Whether threads share the nest."""
        return self.site.shape.parallel == "nests" and not (self.site.around or self.nest.scans) and bool(
            self.nest.loops)

    @property
    def shares(self) -> bool:
        """Whether threads share the outermost loop as it is."""
        return self.threads and not (self.reductions or self.in_order or self.scatters)

    @cached_property
    def scatters(self) -> bool:
        return any(s.mode for p in self.nest.parts for s in p.stores)

    @cached_property
    def in_order(self) -> bool:
        """Whether the innermost loop must run in order."""
        last = None if self.lane is None else self.lane.symbol
        moded = [p.body for p in self.nest.parts if any(s.mode for s in p.stores)]  # on loops of names of their own
        collide = bool(moded) and not (
            self.axes and all((last or b.axes[-1].symbol) in free_axes(b) for b in moded))
        return collide or (bool(self.scans) and self.lane is None)

    # ---- reductions --------------------------------------------------------------------------------------------------
    @cached_property
    def scans(self) -> tuple[RunningScan, ...]:
        return tuple([RunningScan(p, s, p.dtype(s.args[0])) for p, s in self.statements if s.op == "scan"])

    @cached_property
    def reductions(self) -> tuple[Reduction, ...]:
        """The reductions; not a maximum that another one finds with its position."""
        reduces = [(p, s) for p, s in self.statements if s.op == "reduce"]
        long = bool(reduces) and self._sums_are_long()
        return tuple([_reduction(p, s, long) for p, s in reduces if position_of(p, s) is None])

    @cached_property
    def wide_sums(self) -> tuple[Reduction, ...]:
        """The sums in double. Products, whose error does not depend on order, are in double throughout."""
        return tuple([r for r in self.reductions if r.wide and r.kind == "sum"])

    @property
    def vectorizes(self) -> bool:
        return all(r.vectorizes for r in self.reductions)

    def _sums_are_long(self) -> bool:
        points = sympy.Mul(*[a.extent for a in self.nest.loops])
        limit = BLOCK if self.lane is None else LANE_BLOCK
        return self.threads or not points.is_Integer or points > limit


def _reduction(part: Part, s: Statement, long: bool) -> Reduction:
    operand = part.dtype(s.args[0])
    kinds = _computed_in(operand), _computed_in(s.dtype)
    blocks = kinds == (torch.float32, torch.float32) or (
        kinds == (torch.float64, torch.float64) and _loads_doubles(part))
    wide = s.mode in ("sum", "prod", *DOTS) and (kinds == (torch.float32, torch.float64) or (long and blocks))
    return Reduction(part, s, operand, wide)


def _computed_in(dtype: torch.dtype) -> torch.dtype:
    return torch.float32 if dtype in HALVES else dtype


def _loads_doubles(part: Part) -> bool:
    """Whether double sums are of doubles, for which blocks reduce rounding errors; sums of floats have digits to
    spare."""
    return any(s.dtype is torch.float64 for s in part.loads)
