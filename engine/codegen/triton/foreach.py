"""A `Foreach` as one Triton kernel over tables in GPU memory: one text, however many members and sizes.

`programs` maps each program to its member and block; `rows` holds for each member the addresses of its buffers, then
its sizes. A launch passes two pointers, not some for each member, so the number of arguments is unbounded; the rows are
copied to the GPU again only when an address changed. (Persistent grouped matrix products find their operands in this
way: Triton's tutorial 08.)
"""
from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from math import gcd

import sympy

from ....artifacts.records import CodeLine, ref
from ...ir.ir import Buffer, Foreach, Group, KernelSignature
from ...runtime.kernel_tables import Table
from ...scheduler.templates import with_all_origins
from .dtypes import value_type
from .emit import pointer_name
from .form import Form, form_of
from .kernel import KernelWriter
from .source import WIDE_FROM, Launch, SourceWriter, TritonSource, assemble
from .tiling import Tile

BLOCK, WARPS = 1024, 4
ALIGNMENT = 16  # bytes: aligned buffers are loaded so many at a time


def generate_foreach(foreach: Foreach, buffers: Mapping[str, Buffer]) -> TritonSource:
    """The kernel and its tables. Raises TritonUnsupported for an operation without a Triton form."""
    template = foreach.template
    body = template.body
    form = form_of(Group(foreach.kernel, body.axes, (body,), template.internal, foreach.device), buffers)
    tile = Tile("pointwise", BLOCK if form.axes else 0, WARPS if form.axes else 1)
    stored = frozenset(body.writes) - template.internal
    widest = max(_span(buffers[n]) for m in foreach.members for n in m.arguments)
    writer = KernelWriter(form, tile, "int64" if widest >= WIDE_FROM // 2 else "int32", (), stored, foreach.kernel)
    for dim in writer.dims.outer:
        writer.dims.positions(dim, f"block{writer.dims.cast} * {dim.constant}", writer.writer)
    writer.bodies()
    head = _head(foreach, buffers, writer)
    signature = KernelSignature(foreach.kernel, tuple(dict.fromkeys(n for m in foreach.members for n in m.arguments)))
    table = _table(foreach, form, signature)
    launch = Launch(
        foreach.kernel, ("rows", "programs"), ("*i64", "*i32"), (), _constants(form),
        (sympy.Integer(sum(table.blocks)),), tile.warps, "int32",
        (*head, *with_all_origins(foreach, writer.writer.lines)), tile.name,
    )
    return TritonSource(signature, (launch,), lines=assemble([launch]), table=table)


def _head(foreach: Foreach, buffers: Mapping[str, Buffer], writer: KernelWriter) -> list[CodeLine]:
    """The head of the kernel, which binds the template's buffers and sizes to those of the program's member."""
    template, lines = foreach.template, SourceWriter(1)
    origins = tuple(ref("loop_ir", b.name, b.name) for b in foreach.bodies)
    constants = "".join(f", {name}: tl.constexpr" for name in _constants(writer.form))
    head = [CodeLine("@triton.jit", origins), CodeLine(f"def {foreach.kernel}(rows, programs{constants}):", origins)]
    lines.line("program = tl.program_id(0)")
    lines.line("member = tl.load(programs + 2 * program)")
    lines.line("block = tl.load(programs + 2 * program + 1)")
    lines.line(f"row = rows + member * {len(template.parameters) + len(template.sizes)}")
    for k, name in enumerate(template.parameters):
        if name in writer.emitter.used:
            pointer = f"tl.load(row + {k}).to(tl.pointer_type({value_type(buffers[name].dtype)}))"
            lines.line(f"{pointer_name(name)} = tl.multiple_of({pointer}, ALIGNED)")
    width = "tl.int64" if writer.index == "int64" else "tl.int32"
    for k, size in enumerate(template.sizes):
        common = gcd(ALIGNMENT, *[m.sizes[k] for m in foreach.members])
        lines.line(f"{size} = tl.multiple_of(tl.load(row + {len(template.parameters) + k}).to({width}), {common})")
    return [*head, *lines.lines]


def _constants(form: Form) -> dict[str, int]:
    return {"ALIGNED": ALIGNMENT} | ({"X_BLOCK": BLOCK} if form.axes else {})


def unaligned(launch: Launch) -> Launch:
    """The same for unaligned addresses."""
    return replace(launch, constants={**launch.constants, "ALIGNED": 1})


def _table(foreach: Foreach, form: Form, signature: KernelSignature) -> Table:
    template = foreach.template
    place = {name: k for k, name in enumerate(signature.buffers)}
    points = [int(form.numel.xreplace(dict(zip(template.sizes, m.sizes)))) for m in foreach.members]
    return Table(
        tuple([tuple([place[n] for n in m.arguments]) for m in foreach.members]),
        tuple([m.sizes for m in foreach.members]),
        tuple([-(-n // BLOCK) if form.axes else 1 for n in points]),
    )


def _span(buffer: Buffer) -> int:
    """Elements from the first to the last."""
    return 1 + sum((int(n) - 1) * int(stride) for n, stride in zip(buffer.size, buffer.stride))
