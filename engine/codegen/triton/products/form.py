"""A form whose first body is a matrix product: which loops are rows, columns and terms of its sums.

The two operands are tiles of other shapes: rows by terms, and terms by columns. So each gets statements of its own, and
names of its own for the loops over the terms.
"""
from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

import sympy
import torch

from ....ir.ir import TILED, Axis, Statement
from ....unsupported import TritonUnsupported
from ..form import Form, Space, TileBody, product, uses

LEFT, RIGHT = "r", "k"  # the names of the terms in the left and in the right operand
PIECE = 16  # bytes to which the rows of what a descriptor copies are aligned
FACTORS = (torch.float16, torch.bfloat16, torch.int8, torch.float32)
"""The dtypes that tensor cores multiply, or, of float32, Triton's loops."""


@dataclass(frozen=True)
class Product:
    """A matrix product and what is fused to it. `form` has two spaces, the terms in each operand; `body` is the body of
    the product, `total` its reduction, `left` and `right` are the statements that are multiplied."""

    form: Form
    body: TileBody
    total: Statement
    left: str
    right: str
    batch: tuple[Axis, ...]
    rows: tuple[Axis, ...]
    columns: tuple[Axis, ...]

    @property
    def terms(self) -> Space:
        """The loops over the terms of each sum."""
        return self.form.spaces[0]

    @property
    def shape(self) -> tuple[int, int, int, int]:
        """Batch, rows, columns and terms, in the call that the graph was compiled for."""
        numbers = [product(a.extent for a in axes) for axes in (self.batch, self.rows, self.columns, self.terms.axes)]
        batch, rows, columns, terms = [self.form.hint(n) for n in numbers]
        return batch, rows, columns, terms

    @property
    def factor(self) -> torch.dtype:
        """The dtype of both operands as they are multiplied."""
        return self.body.by_name[self.left].dtype


@dataclass(frozen=True)
class Described:
    """A matrix in memory, of which a descriptor copies a tile at a time: `size` and `step` (elements from one row to
    the next) as it lies there, `offset` that of its first element. `turned`: its rows are the tile's columns."""

    buffer: str
    size: tuple[int, int]
    step: int
    offset: int
    turned: bool


def descriptions(product: Product) -> dict[str, Described]:
    """The loads inside of the sums that a Hopper's tensor memory accelerator can make, by the names of statements."""
    found = {}
    for s in product.body.statements:
        if s.op == "load" and s.name in product.body.inner and not s.mask and s.index is not None:
            left = s.name.endswith(f"_{LEFT}")
            described = _described(product, s, product.rows if left else product.columns, LEFT if left else RIGHT)
            if described is not None:
                found[s.name] = described
    return found


def _described(product: Product, s: Statement, outer: tuple[Axis, ...], space: str) -> Described | None:
    terms = next(found for found in product.form.spaces if found.name == space)
    symbol = terms.axes[0].symbol if len(terms.axes) == 1 else position(space)
    numel = terms.numel
    assert s.index is not None
    if len(outer) != 1 or s.index.free_symbols != {outer[0].symbol, symbol}:
        return None
    steps = [s.index.coeff(x) for x in (outer[0].symbol, symbol)]
    rest = sympy.expand(s.index - steps[0] * outer[0].symbol - steps[1] * symbol)
    numbers = (*steps, rest, outer[0].extent, numel)
    if not all(sympy.sympify(n).is_Integer for n in numbers):
        return None
    across, along, offset, length, count = map(int, numbers)
    itemsize = product.form.buffers[s.buffer].dtype.itemsize
    by_terms = along == 1
    step, size = (across, (length, count)) if by_terms else (along, (count, length))
    if min(across, along) != 1 or step < size[1] or step * itemsize % PIECE or offset * itemsize % PIECE:
        return None
    return Described(s.buffer, size, step, offset, by_terms != (space == LEFT))


def product_of(form: Form) -> Product | None:
    """The product that a form computes, None if it is none. Raises TritonUnsupported for one that has no tile."""
    bodies = [b for b in form.bodies if b.source.is_product]
    if not bodies:
        return None
    (body,) = bodies
    total = next(s for s in body.statements if s.op == "reduce" and s.mode in TILED)
    factors = body.by_name[total.args[0]]
    if factors.op != "mul" or body.space is None or len(form.spaces) != 1:
        raise TritonUnsupported("a matrix product with other loops in it")
    left, right = (_unwidened(body, name) for name in factors.args)
    kinds = {body.by_name[name].dtype for name in (left, right)}
    if len(kinds) > 1 or kinds.pop().is_floating_point is not total.dtype.is_floating_point:
        left, right = factors.args
    rows, columns = (_outer_axes(form, body, name) for name in (left, right))
    batch = tuple([a for a in form.axes if (a in rows) == (a in columns)])
    rows, columns = (tuple([a for a in axes if a not in batch]) for axes in (rows, columns))
    if _along(form, rows) and not _along(form, columns):
        left, right, rows, columns = right, left, columns, rows
    return _with_two_spaces(form, body, total, left, right, batch, rows, columns)


def _unwidened(body: TileBody, name: str) -> str:
    """The statement of which `name` is the same number with more bits."""
    s = body.by_name[name]
    if s.op != "cast":
        return name
    narrow = body.by_name[s.args[0]].dtype
    return s.args[0] if narrow in FACTORS and narrow.itemsize < s.dtype.itemsize else name


def _closure(body: TileBody, name: str) -> dict[str, Statement]:
    """The statements that `name` is computed from, itself among them, in order."""
    found: set[str] = set()
    waiting = [name]
    while waiting:
        s = body.by_name[waiting.pop()]
        found.add(s.name)
        inside = {x.name for x in s.index.free_symbols} if s.index is not None else set()
        waiting += [n for n in (*uses(s), *inside) if n in body.by_name and n not in found]
    return {s.name: s for s in body.statements if s.name in found}


def _outer_axes(form: Form, body: TileBody, name: str) -> tuple[Axis, ...]:
    free = {x for s in _closure(body, name).values() if s.index is not None for x in s.index.free_symbols}
    return tuple([a for a in form.axes if a.symbol in free])


def _along(form: Form, axes: Iterable[Axis]) -> bool:
    """Whether results are contiguous in memory along one of the axes."""
    stores = [s.index for b in form.bodies for s in b.statements if s.op == "store" and s.index is not None]
    return any(index.coeff(a.symbol) == 1 for index in stores for a in axes)


def _with_two_spaces(
    form: Form, body: TileBody, total: Statement, left: str, right: str, batch: tuple[Axis, ...],
    rows: tuple[Axis, ...], columns: tuple[Axis, ...],
) -> Product:
    assert body.space is not None
    symbols = {space: {a.symbol: _symbol(f"{space}{k}") for k, a in enumerate(body.space.axes)}
               for space in (LEFT, RIGHT)}
    spaces = {name: Space(name, tuple([Axis(renamed[a.symbol], a.extent) for a in body.space.axes]))
              for name, renamed in symbols.items()}
    statements: list[Statement] = []
    for operand, space in ((left, LEFT), (right, RIGHT)):
        own = _closure(body, operand)
        names = {name: f"{name}_{space}" for name in own if name in body.inner}
        indices = {_symbol(old): _symbol(new) for old, new in names.items()}
        for s in own.values():
            if s.name in names:
                statements.append(_renamed(s, names, {**symbols[space], **indices}, spaces[space]))
    rest = [s for s in body.statements if s.name not in body.inner]
    outer, following = (tuple([s for s in rest if (s.name in body.after) == after]) for after in (False, True))
    places = [Axis(position(name), body.space.numel) for name in (LEFT, RIGHT)]
    terms = Space(LEFT, (*spaces[LEFT].axes, *spaces[RIGHT].axes, *places))
    changed = TileBody(body.key, body.name, terms, (*outer, *statements, *following), body.source)
    bodies = tuple([changed if b is body else b for b in form.bodies])
    given = [f"{name}_{space}" if name in body.inner else name for name, space in ((left, LEFT), (right, RIGHT))]
    return Product(replace(form, spaces=(spaces[LEFT], spaces[RIGHT]), bodies=bodies), changed, total, given[0],
                   given[1], batch, rows, columns)


def position(space: str) -> sympy.Symbol:
    """The number of a term, counted through all loops over the terms."""
    return _symbol(f"{space}_index")


def _in_one(index: sympy.Expr, space: Space) -> sympy.Expr:
    """An index that walks evenly through the terms by their number, without the loops that they are counted in."""
    if len(space.axes) < 2:
        return index
    step = index.coeff(space.axes[-1].symbol)
    rest, wanted = index, step
    for axis in reversed(space.axes):
        rest = rest - wanted * axis.symbol
        wanted = wanted * axis.extent
    rest = sympy.expand(rest)
    apart = step == 0 or rest.free_symbols & {a.symbol for a in space.axes}
    return index if apart else rest + step * position(space.name)


def _symbol(name: str) -> sympy.Symbol:
    return sympy.Symbol(name, integer=True, nonnegative=True)


def _renamed(
    s: Statement, names: dict[str, str], indices: dict[sympy.Symbol, sympy.Symbol], space: Space
) -> Statement:
    index = None if s.index is None else _in_one(s.index.xreplace(indices), space)
    return replace(s, name=names[s.name], args=tuple([names.get(a, a) for a in s.args]),
                   mask=names.get(s.mask, s.mask), index=index)
