"""The dimensions of a tile: the lines that compute indices and masks, and how values along them are shaped."""
from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import sympy

from ...ir.ir import Axis
from .form import Form, product
from .index import index_text
from .source import SourceWriter
from .tiling import Tile


@dataclass(frozen=True)
class Dim:
    """One dimension: `name` is x, y or a space's. `slot` is how its range is indexed to get the tile's rank."""

    name: str
    axes: tuple[Axis, ...]
    block: int  # 0: one index, a scalar
    slot: str  # "", "[:, None]" or "[None, :]"

    @property
    def numel(self) -> sympy.Expr:
        return product(a.extent for a in self.axes)

    @property
    def constant(self) -> str:
        """The name of the block size in the kernel."""
        return f"{self.name.upper()}_BLOCK"

    @property
    def position(self) -> str:
        """The variable that holds the indices: the axis itself where there is one."""
        return self.axes[0].symbol.name if len(self.axes) == 1 else f"{self.name}_index"

    @property
    def mask(self) -> str:
        """The mask variable, "" where no lane is out of range."""
        numel = sympy.sympify(self.numel)
        whole = not self.block or (numel.is_Integer and int(numel) % self.block == 0 and int(numel) > 0)
        return "" if whole else f"{self.name}_mask"

    @property
    def programs(self) -> sympy.Expr:
        """How many blocks cover the dimension."""
        if not self.block:
            return self.numel
        numel = sympy.sympify(self.numel)
        if numel.is_Integer:
            return sympy.Integer(-(-int(numel) // self.block))
        return sympy.Function("CeilDiv")(numel, sympy.Integer(self.block))


class Dims:
    """The dimensions of one kernel: `outer` in tile order, and one for each space."""

    def __init__(self, form: Form, tile: Tile, index: str) -> None:
        self.cast = {"int32": "", "int64": ".to(tl.int64)", "dynamic": ".to(INDEX)"}[index]
        self.outer: list[Dim] = []
        rank = (1 if tile.x else 0) + (1 if tile.y else 0) + (1 if form.spaces else 0)
        x_slot, inner_slot = ("", "") if rank < 2 else ("[:, None]", "[None, :]")
        if tile.y and tile.y_axis is not None:
            chosen = tuple(a for a in form.axes if a.symbol == tile.y_axis)
            rest = tuple(a for a in form.axes if a.symbol != tile.y_axis)
            self.outer = [Dim("y", chosen, tile.y, x_slot), Dim("x", rest, tile.x, inner_slot)]
        elif form.axes:
            self.outer = [Dim("x", form.axes, tile.x, x_slot)]
        self.inner = {s.name: Dim(s.name, s.axes, tile.inner[s.name], inner_slot) for s in form.spaces}
        self.rank = rank

    @property
    def all(self) -> list[Dim]:
        return [*self.outer, *self.inner.values()]

    def shape(self, names: Iterable[str]) -> str:
        """The full tile of the dimensions called `names`: "[X_BLOCK, R_BLOCK]"."""
        wanted = set(names)
        sizes = [d.constant for d in self.all if d.block and d.name in wanted]
        return f"[{', '.join(sizes)}]"

    def shape_in_order(self, names: Iterable[str]) -> str:
        """The same in the order of `names`."""
        sizes = {d.name: d.constant for d in self.all}
        return f"[{', '.join(sizes[name] for name in names)}]"

    def by_symbol(self) -> dict[str, str]:
        """Which dimension each axis symbol (by name) belongs to."""
        return {a.symbol.name: d.name for d in self.all for a in d.axes}

    def masks(self, names: Iterable[str]) -> list[str]:
        """The mask variables of the dimensions called `names`."""
        wanted = set(names)
        return [d.mask for d in self.all if d.mask and d.name in wanted]

    def positions(self, dim: Dim, start: str, writer: SourceWriter, *, stop: str = "") -> None:
        """Lines that define the positions from `start` on, the mask (below `stop`) and the axes."""
        inner = self.cast if dim.name in self.inner else ""  # the start of an outer one is as wide as the index
        spread = f"tl.arange(0, {dim.constant}){inner}{dim.slot}" if dim.block else ""
        writer.line(f"{dim.position} = {' + '.join(p for p in (start, spread) if p)}")
        if dim.mask or stop:
            writer.line(f"{dim.name}_mask = {dim.position} < {stop or index_text(dim.numel)}")
        if len(dim.axes) < 2:
            return
        rest = dim.position
        for k, axis in reversed(list(enumerate(dim.axes))):
            extent = index_text(axis.extent)
            extent = extent if sympy.sympify(axis.extent).is_Atom else f"({extent})"
            if k == 0:
                writer.line(f"{axis.symbol.name} = {rest}")
            else:
                writer.line(f"{axis.symbol.name} = {rest} % {extent}")
                rest = f"{rest} // {extent}"
