"""Lazy tensors: the arguments and results of lowerings.

A `Base` is a tensor that some node computes: first a function from indices to a statement, and, once it is *realized*,
a buffer. A `Value` is a base seen through an index mapping: views are free and never materialize, and realizing a base
realizes it for all its views.
"""
from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import torch

from ..ir.affine import Linear, Size, axis, constant, expr, product, recombine
from ..ir.ir import View
from .body import BodyBuilder

Index = tuple[Linear, ...]
Compute = Callable[[BodyBuilder, Index], str]
Reindex = Callable[[Index], Index]


@dataclass(eq=False, slots=True)
class Base:
    """A tensor made by `node`. Exactly one of `compute` and `buffer` is set.

    `size` and `stride` are those of the fake tensor: the layout it gets when it is realized. `depth` is the length of
    the longest chain of unrealized operations below it, `reads` the buffers it would load, `windows` the views of them.
    `stored` is the dtype of the buffer if narrower: the elements were already rounded to it.
    """

    node: str
    size: tuple[Size, ...]
    stride: tuple[Size, ...]
    dtype: torch.dtype
    device: torch.device
    compute: Compute | None = None
    buffer: str = ""
    depth: int = 0
    reads: frozenset[str] = frozenset()
    heavy: bool = False
    windows: frozenset[Value] = frozenset()
    stored: torch.dtype | None = None


@dataclass(eq=False, slots=True)
class Value:
    """`base` seen through `reindex` (indices of the value to indices of the base; None: the same)."""

    base: Base
    size: tuple[Size, ...]
    reindex: Reindex | None = None
    node: str = field(default="")

    @property
    def dtype(self) -> torch.dtype:
        """The dtype of the elements."""
        return self.base.dtype

    @property
    def device(self) -> torch.device:
        """Its device."""
        return self.base.device

    def through(self, size: tuple[Size, ...], reindex: Reindex) -> Value:
        """A view of this value: `reindex` maps the view's indices to this value's."""
        inner = self.reindex
        return Value(self.base, size, reindex if inner is None else lambda index: inner(reindex(index)))

    def load(self, e: BodyBuilder, index: Index) -> str:
        """Emit the element at `index` into the body, in its compute dtype."""
        if self.reindex is not None:
            index = self.reindex(index)
        base = self.base
        if base.buffer:
            return e.load(base.buffer, offset(index, base.stride), base.stored or base.dtype)
        key = (id(base), index, e.mask)
        name = e.memo.get(key)
        if name is None:
            outer, e.origin = e.origin, base.node
            assert base.compute is not None
            e.memo[key] = name = base.compute(e, index)
            e.origin = outer
        return name

    def broadcast(self, e: BodyBuilder, index: Index) -> str:
        """Emit the element at an index of a shape that this value broadcasts to."""
        mine = self.size
        if len(mine) != len(index):
            index = index[len(index) - len(mine):]
        if 1 in mine:
            index = tuple([constant(0) if s == 1 else i for s, i in zip(mine, index)])
        return self.load(e, index)


def offset(index: Index, stride: Sequence[Size]) -> Linear:
    """The element offset of an index in a strided layout."""
    total = constant(0)
    for i, s in zip(index, stride):
        total = total + i * s
    return total


def loop_index(size: Sequence[Size], stride: Sequence[Size], prefix: str = "i") -> tuple[list[tuple[str, Size]], Index]:
    """(axes, index): a loop for each dimension larger than 1, the largest stride outermost, and the index they make."""
    order = sorted(range(len(size)), key=lambda d: weight(stride[d]), reverse=True)
    axes: list[tuple[str, Size]] = []
    index: list[Linear] = [constant(0)] * len(size)
    for d in order:
        if size[d] != 1:
            axes.append((f"{prefix}{len(axes)}", size[d]))
            index[d] = axis(*axes[-1])
    return axes, tuple(index)


def weight(stride: Size) -> int:
    """Where a stride sorts: symbols count as 4096 each, or as 1 where numbers are divided by quotients of them."""
    if type(stride) is int:
        return stride
    try:
        return int(stride.subs(dict.fromkeys(stride.free_symbols, 4096)))
    except ZeroDivisionError:
        return int(stride.subs(dict.fromkeys(stride.free_symbols, 1)))


def strided(value: Value, like: Sequence[Size] | None = None) -> View | None:
    """The value as a strided window onto its (realized) buffer, or None where no strides express it.

    `like` are the strides to use for dimensions of size 1 or 0, where any would do.
    """
    base = value.base
    index = tuple([axis(f"i{d}", s) for d, s in enumerate(value.size)])
    form = recombine(offset(value.reindex(index) if value.reindex else index, base.stride))
    coefficients = {atom.name: c for atom, c in form.terms.items() if atom.kind == "axis"}
    if len(coefficients) != len(form.terms):
        return None
    empty = 0 in value.size
    strides = []
    running: Size = 1
    for d in reversed(range(len(value.size))):
        if value.size[d] == 1 or empty:
            strides.append(like[d] if like is not None else running)
        else:
            strides.append(coefficients.get(f"i{d}", 0))
        running = product((value.size[d], strides[-1]))
    return View(base.buffer, tuple(map(expr, value.size)), tuple(map(expr, reversed(strides))), expr(form.const))
