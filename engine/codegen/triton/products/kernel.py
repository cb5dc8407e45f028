"""Writes the kernel of a matrix product: the positions of its tile, the loop over the terms, and what follows."""
from __future__ import annotations

from dataclasses import replace

import sympy
import torch

from .....artifacts.records import CodeLine
from ..dims import Dim, Dims
from ..dtypes import literal, value_type
from ..emit import Scope, origins_of
from ..index import index_text
from ..kernel import KernelWriter
from ..source import Launch, SourceWriter
from ..tiling import Tile
from ..values import Value
from .form import LEFT, RIGHT, Described, Product, descriptions, position
from .tiling import programs

TOGETHER = 8  # tiles below each other that programs take before they go on to the next column of tiles


class ProductDims(Dims):
    """Rows (y) and columns (x) of a tile, one element of a batch (z), and the terms in both operands."""

    def __init__(self, product: Product, tile: Tile, index: str) -> None:
        super().__init__(product.form, tile, index)
        down, across = "[:, None]", "[None, :]"
        batch = [Dim("z", product.batch, 0, "")] if product.batch else []
        self.rows, self.columns = Dim("y", product.rows, tile.y, down), Dim("x", product.columns, tile.x, across)
        self.outer = [*batch, self.rows, self.columns]
        left, right = product.form.spaces
        self.inner = {LEFT: Dim(LEFT, left.axes, tile.inner[LEFT], across),
                      RIGHT: Dim(RIGHT, right.axes, tile.inner[RIGHT], down)}
        self.rank = 2

    def by_symbol(self) -> dict[str, str]:
        """Also the numbers of the terms."""
        return {**super().by_symbol(), **{position(space).name: space for space in (LEFT, RIGHT)}}


class ProductWriter(KernelWriter):
    """Writes one kernel of a product: `header`, then `bodies`, then `launch`."""

    dims: ProductDims

    def __init__(
        self, product: Product, tile: Tile, index: str, bounds: tuple[str, ...], stored: frozenset[str], name: str
    ) -> None:
        super().__init__(product.form, tile, index, bounds, stored, name, ProductDims(product, tile, index))
        self.product = product
        self.copied = descriptions(product) if tile.persistent else {}
        for name in ("place", "first", "height", "down", "across", "offset"):
            self.namer.fresh(name)

    def header(self) -> None:
        """The positions of this program's tile: neighbouring programs read the same columns."""
        dims, line = self.dims, self.writer.line
        rows, columns = (sympy.sympify(d.programs) for d in (dims.rows, dims.columns))
        batch = sympy.Mul(*[a.extent for a in self.product.batch])
        self.grid = [programs(self.product, self.tile, rows * columns * batch)]
        if not self.tile.persistent:
            line(f"program = tl.program_id(0){dims.cast}")
        place = "program"
        if self.product.batch:
            count = _factor(rows * columns)
            self.dims.positions(dims.outer[0], f"program // {count}", self.writer)
            line(f"place = program % {count}")
            place = "place"
        down, across = self._order(place, rows, columns)
        self.starts = f"{down} * {dims.rows.constant}", f"{across} * {dims.columns.constant}"
        dims.positions(dims.rows, self.starts[0], self.writer)
        dims.positions(dims.columns, self.starts[1], self.writer)

    def _order(self, place: str, rows: sympy.Expr, columns: sympy.Expr) -> tuple[str, str]:
        """(row, column) of tile number `place`: down a few rows of tiles, then on to the next column."""
        if rows == 1:
            return "0", place
        if columns == 1:
            return place, "0"
        line, many = self.writer.line, _factor(TOGETHER * columns)
        line(f"first = {place} // {many} * {TOGETHER}")
        line(f"height = tl.minimum({index_text(rows)} - first, {TOGETHER})")
        line(f"down = first + {place} % {many} % height")
        line(f"across = {place} % {many} // height")
        return "down", "across"

    def bodies(self) -> None:
        """The product, then the others on its tile."""
        for body in self.form.bodies:
            self.comment(body)
            if body is self.product.body:
                self._multiply()
                self.after([body])
            else:
                self.straight(body)
        if self.tile.persistent:
            self._repeat()

    def launch(self, symbols: tuple[sympy.Symbol, ...]) -> Launch:
        """The kernel, and which of its pointers have to be aligned."""
        made = super().launch(symbols)
        spans = {d.buffer: self.form.buffers[d.buffer].dtype.itemsize * (
            d.offset + (d.size[0] - 1) * d.step + d.size[1]) for d in self.copied.values()}
        return replace(made, copied=tuple([(made.pointers.index(name), span) for name, span in spans.items()]))

    def _repeat(self) -> None:
        """All that was written, in a loop over the tiles of this program, behind the descriptors."""
        lines, self.writer.lines = self.writer.lines, []
        for name, described in self.copied.items():
            block = self._block(name, described)
            rows, columns = described.size
            start = f"{self.emitter.pointer(described.buffer)}{f' + {described.offset}' if described.offset else ''}"
            self.writer.line(f"{self._tiles(name)} = tl.make_tensor_descriptor({start}, shape=[{rows}, {columns}], "
                             f"strides=[{described.step}, 1], block_shape=[{', '.join(block)}])",
                             origins_of(self.product.body, self.product.body.by_name[name]))
        tiles = index_text(sympy.Mul(*[d.programs for d in self.dims.outer]))
        self.writer.line(f"for program in tl.range(tl.program_id(0), {tiles}, tl.num_programs(0), flatten=True):")
        self.writer.lines += [CodeLine(f"    {line.text}", line.origins) for line in lines]

    def _tiles(self, name: str) -> str:
        return f"{self.product.body.by_name[name].buffer}_{name}_tiles"

    def _block(self, name: str, described: Described) -> list[str]:
        block = [self.dims.rows.constant, self.dims.inner[LEFT].constant] if name.endswith(f"_{LEFT}") else [
            self.dims.inner[RIGHT].constant, self.dims.columns.constant]
        return block[::-1] if described.turned else block

    def _copy(self, name: str, described: Described) -> None:
        """A tile that a descriptor copies, zeros where there is nothing."""
        body, left = self.product.body, name.endswith(f"_{LEFT}")
        place = [self.starts[0], "offset"] if left else ["offset", self.starts[1]]
        text = f"{self._tiles(name)}.load([{', '.join(place[::-1] if described.turned else place)}])"
        text = f"tl.trans({text})" if described.turned else text
        s, names = body.by_name[name], ("y", LEFT) if left else (RIGHT, "x")
        scope = self.emitter.loop
        assert scope is not None
        scope.statements[body.key, name] = self.emitter.assign(scope, s.buffer, text, s.dtype, names,
                                                               origins_of(body, s))

    def _multiply(self) -> None:
        """The loop that adds up products of two tiles."""
        product, emitter, body, total = self.product, self.emitter, self.product.body, self.product.total
        origins = origins_of(body, total)
        sums = self.namer.fresh(f"{body.wanted_name(total)}_tile")
        shape = self.dims.shape(["y", "x"])
        self.writer.line(f"{sums} = tl.zeros({shape}, {value_type(total.dtype)})", origins)
        numel = index_text(product.terms.numel)
        emitter.loop, emitter.zeros = Scope(SourceWriter(2), emitter.outer), True
        inside = emitter.loop.writer
        for dim in self.dims.inner.values():
            self.dims.positions(dim, "offset", inside, stop=numel if dim.mask else "")
        for name, described in self.copied.items():
            self._copy(name, described)
        left = self._side(product.left, self.dims.inner[LEFT], ["y", LEFT])
        right = self._side(product.right, self.dims.inner[RIGHT], [RIGHT, "x"])
        inside.line(f"{sums} = tl.dot({left}, {right}, {sums}{self._precision()})", origins)
        emitter.loop, emitter.zeros = None, False
        self.writer.line(f"for offset in range(0, {numel}, {self.dims.inner[LEFT].constant}):")
        self.writer.lines += inside.lines
        emitter.results[body.key, total.name] = (Value(sums, total.dtype, frozenset(("y", "x"))),)

    def _precision(self) -> str:
        if self.product.total.dtype is torch.int32:
            return ", out_dtype=tl.int32"
        if self.product.factor is not torch.float32:
            return ""
        return f', input_precision="{"tf32" if self.product.total.mode == "dot_tf32" else "ieee"}"'

    def _side(self, name: str, terms: Dim, names: list[str]) -> str:
        """A tile of an operand, zeros where there are no terms."""
        body, emitter = self.product.body, self.emitter
        assert emitter.loop is not None
        value, s = emitter.value(body, name), body.by_name[name]
        text = value.typed
        if terms.mask and (s.op != "load" or terms.name not in value.dims):  # a load has zeros there
            text = f"tl.where({terms.mask}, {text}, {literal(0, s.dtype)})"
        if not {d.name for d in self.dims.all if d.block and d.name in names} <= value.dims:
            text = f"tl.broadcast_to({text}, {self.dims.shape_in_order(names)})"
        if text == value.text:
            return text
        return emitter.assign(emitter.loop, f"{name}_tile", text, s.dtype, names, origins_of(body, s)).text


def _factor(count: sympy.Expr) -> str:
    text = index_text(count)
    return text if sympy.sympify(count).is_Atom else f"({text})"
