"""Split reductions: several programs share a row, with two kernels and a workspace between them, no atomics.

The first kernel reduces a part of each row and stores its accumulators, the second combines those and runs what depends
on the results. The order of the additions depends on sizes alone, so results are deterministic.
"""
from __future__ import annotations

from dataclasses import replace

import sympy

from ....artifacts.records import Ref
from ...ir.ir import Axis
from .dtypes import pointer_type
from .emit import origins_of, pointer_name
from .form import Form, Space, TileBody
from .index import index_text
from .kernel import Accumulators, KernelWriter
from .source import Launch, Workspace
from .tiling import Tile

COMBINED = 2048  # partial results that one program combines


def split_kernels(
    form: Form, tile: Tile, index: str, bounds: tuple[str, ...], stored: frozenset[str],
    symbols: tuple[sympy.Symbol, ...],
) -> tuple[tuple[Launch, ...], tuple[Workspace, ...]]:
    """The kernel that leaves partial results, and the one that combines them. `can_split(form)` must hold."""
    first = KernelWriter(form, tile, index, bounds, stored, f"{form.name}_partial")
    first.header()
    begun = _share_of_row(first, form, tile)
    workspaces = []
    for number, acc in enumerate(begun):
        origins = origins_of(acc.body, acc.statement)
        parts = first.combined(acc.body, acc.statement, acc.kind, first.whole(acc))
        for part, (value, (_, dtype, _)) in enumerate(zip(parts, acc.kind.parts)):
            name = f"partial_{number}_{part}"
            workspaces.append(Workspace(name, dtype, sympy.sympify(form.numel) * tile.splits))
            first.workspace_types[name] = pointer_type(dtype)
            mask = "".join(f", mask={m}" for m in first.dims.masks(["x"]))
            target = f"{pointer_name(name)} + {_place(first, 'split')}"
            first.writer.line(f"tl.store({target}, {value.text}{mask})", origins)
    first.grid = [*first.grid, sympy.Integer(tile.splits)]

    second = _combining_writer(form, tile, index, bounds, stored)
    second.header()
    for number, acc in enumerate(begun):
        _combine(second, acc, number)
    second.after(_looping(form))
    for body in form.bodies:
        if body.space is None:
            second.comment(body)
            second.straight(body)
    return (first.launch(symbols), second.launch(symbols)), tuple(workspaces)


def _share_of_row(writer: KernelWriter, form: Form, tile: Tile) -> list[Accumulators]:
    """The loop over this program's part of the row."""
    space = form.spaces[0]
    dim = writer.dims.inner[space.name]
    numel = index_text(space.numel)
    lines = writer.writer
    lines.line(f"split = tl.program_id(1){writer.dims.cast}")
    lines.line(f"share = tl.cdiv({numel}, {tile.splits} * {dim.constant}) * {dim.constant}")
    lines.line("start = split * share")
    lines.line(f"stop = tl.minimum(start + share, {numel})")
    bodies = _looping(form)
    for body in bodies:
        writer.comment(body)
    return writer.loop(space, bodies, "start", "stop")


def _looping(form: Form) -> list[TileBody]:
    """The bodies that run in the loop. The others have no inner loops: they wait for the combined results."""
    return [b for b in form.bodies if b.space is not None]


def _combining_writer(
    form: Form, tile: Tile, index: str, bounds: tuple[str, ...], stored: frozenset[str]
) -> KernelWriter:
    space = form.spaces[0]
    part = Axis(sympy.Symbol("part", integer=True, nonnegative=True), sympy.Integer(tile.splits))
    shares = replace(form, spaces=(Space(space.name, (part,)),))
    rows = min(tile.x, max(2, COMBINED // tile.splits))
    small = replace(tile, shape="persistent", x=rows, inner={space.name: tile.splits}, splits=1,
                    warps=min(4, tile.warps))
    return KernelWriter(shares, small, index, bounds, stored, f"{form.name}_combine")


def _combine(writer: KernelWriter, acc: Accumulators, number: int) -> None:
    origins: tuple[Ref, ...] = origins_of(acc.body, acc.statement)
    names = []
    for part, (_, dtype, _) in enumerate(acc.kind.parts):
        workspace = f"partial_{number}_{part}"
        writer.workspace_types[workspace] = pointer_type(dtype)
        mask = "".join(f", mask={m}" for m in writer.dims.masks(["x"]))
        names.append(writer.namer.fresh(f"{acc.names[part]}s"))
        source = f"{pointer_name(workspace)} + {_place(writer, 'part')}"
        writer.writer.line(f"{names[-1]} = tl.load({source}{mask})", origins)
    writer.reduce(acc, names)


def _place(writer: KernelWriter, part: str) -> str:
    """The offsets in a workspace of the partial results of program `part` for the rows of this tile, contiguous."""
    if not writer.dims.outer:
        return part
    rows = index_text(writer.form.numel)
    rows = rows if sympy.sympify(writer.form.numel).is_Atom else f"({rows})"
    return f"({part} * {rows} + {writer.dims.outer[0].position})"
