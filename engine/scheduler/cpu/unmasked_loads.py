"""Loads under a mask that need none: of an element that is there in every iteration, and the same along a loop.

The mask of what a scatter of a diagonal reads changes along the row, but the element is one of the row: loaded before
the loop, and chosen in it. Under the mask each lane would be asked whether to load it.
"""
from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace

import sympy

from ...ir.body_affine import form_or_none, static
from ...ir.ir import Axis, Buffer, LoopBody, Statement
from .distribution import dependent


def without_masks(
    bodies: Sequence[LoopBody], changed: Collection[str], buffers: Mapping[str, Buffer]
) -> list[LoopBody]:
    """`bodies`, in which such loads of buffers that are not `changed` (or stay inside) are selected afterwards."""
    return [_without_masks(b, changed, buffers) if any(s.mask for s in b.statements) else b for b in bodies]


def _without_masks(body: LoopBody, changed: Collection[str], buffers: Mapping[str, Buffer]) -> LoopBody:
    axes = (*body.axes, *body.reduction_axes)
    if not axes or body.scans:
        return body
    along = dependent(body, frozenset((axes[-1].symbol,)))
    made: list[Statement] = []
    for s in body.statements:
        free = s.op == "load" and s.mask in along and s.buffer not in changed
        if not free or axes[-1].symbol in _symbols(s) or not _is_there(s, axes, buffers[s.buffer]):
            made.append(s)
            continue
        there, other = replace(s, name=f"{s.name}_any", mask="", value=None), f"{s.name}_else"
        made += [there, Statement(other, "constant", (), s.dtype, value=s.number, origins=s.origins),
                 Statement(s.name, "where", (s.mask, there.name, other), s.dtype, origins=s.origins)]
    return replace(body, statements=tuple(made)) if len(made) > len(body.statements) else body


def _symbols(s: Statement) -> set[sympy.Basic]:
    assert s.index is not None
    return set(s.index.free_symbols)


def _is_there(s: Statement, axes: Sequence[Axis], buffer: Buffer) -> bool:
    """Whether the index of a load is inside of the buffer in all iterations."""
    assert s.index is not None
    form = form_or_none(s.index, axes)
    extents = {a.symbol.name: static(a.extent) for a in axes}
    if form is None or type(form.const) is not int or not all(n.is_Integer for n in (*buffer.size, *buffer.stride)):
        return False
    least = most = form.const
    for atom, factor in form.terms.items():
        extent = extents.get(atom.name) if atom.kind == "axis" else None
        if extent is None or type(factor) is not int:
            return False
        least, most = least + min(0, factor * (extent - 1)), most + max(0, factor * (extent - 1))
    last = sum((int(n) - 1) * int(stride) for n, stride in zip(buffer.size, buffer.stride))
    return 0 <= least and most <= last and 0 not in buffer.size
