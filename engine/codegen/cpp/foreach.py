"""A `Foreach` as two C++ functions: the loop nest that its members share, and a driver that runs it for each member.

The nest takes pointers, sizes, and a range of its outermost loop. The driver walks a table with a row for each member,
in `PARTS` parts of equal work that threads share, however the work is distributed over the members.
"""
from __future__ import annotations

from ....artifacts.records import ref
from ...ir.ir import Foreach, KernelSignature, Member, Program
from ...ir.loop_nest import COUNT, FIRST, LoopNest
from ...scheduler.cpu.foreach import PARTS, member_work, threads_share
from ...scheduler.templates import with_all_origins
from .entry import Entry
from .kernel import Kernel
from .source_writer import Writer


def write_foreach(foreach: Foreach, loops: LoopNest, program: Program, writer: Writer) -> Entry:
    """Write both functions; the entry calls the second."""
    nest = _write_nest(foreach, loops, program, writer)
    buffers = tuple(dict.fromkeys(b for m in foreach.members for b in m.arguments))
    place = {name: k for k, name in enumerate(buffers)}
    rows = [[*member_work(m), *[place[b] for b in nest.arguments_of(m)], *m.sizes] for m in foreach.members]
    shared = threads_share(foreach)
    writer.line()
    origins = [ref("loop_ir", "", b.name) for b in foreach.bodies]
    writer.line(f"// for each of {len(rows)} members, which need nothing of each other", origins)
    with writer.block(f"static int64 {foreach.kernel}(void* const* p)"):
        writer.line("// iterations, work of one, buffers, sizes")
        with writer.block(f"static const int64 table[{len(rows)}][{len(rows[0])}] =", end="};"):
            for member, row in zip(foreach.members, rows):
                body_refs = [ref("loop_ir", "", b.name) for b in member.group.bodies]
                writer.line(f"{{{', '.join(map(str, row))}}},  // {_described(member)}", body_refs)
        _write_walk(writer, nest.call, len(rows), sum(row[0] * row[1] for row in rows) if shared else 0)
        writer.line("return 0;")
    types = tuple("void" for _ in buffers)
    return Entry(KernelSignature(foreach.kernel, buffers), foreach.kernel, types, shared, table=True)


def _write_walk(writer: Writer, call: str, rows: int, total: int) -> None:
    """The loop over the table; threads share its `total` work, unless that is 0."""
    if not total:
        with writer.block(f"for (int64 m = 0; m < {rows}; m++)"):
            writer.line("const int64* t = table[m];")
            writer.line("const int64 first = 0, last = t[0];")
            writer.line(call)
        return
    writer.line("#pragma omp parallel for schedule(static)")
    with writer.block(f"for (int64 part = 0; part < {PARTS}; part++)"):
        writer.line(f"const int64 begin = {total} * part / {PARTS}, end = {total} * (part + 1) / {PARTS};")
        writer.line("int64 start = 0;  // of the member's work")
        with writer.block(f"for (int64 m = 0; m < {rows} && start < end; m++)"):
            writer.line("const int64* t = table[m];")
            writer.line("const int64 work = t[0] * t[1], from = begin - start, to = end - start;")
            writer.line("start += work;")
            writer.line("if (from >= work) continue;")
            writer.line("const int64 first = from <= 0 ? 0 : (from + t[1] - 1) / t[1];")
            writer.line("const int64 last = to >= work ? t[0] : (to + t[1] - 1) / t[1];")
            writer.line(f"if (first < last) {call}")


class _Nest:
    """How the common function is called for a row `t` of the table and iterations `first` to `last`."""

    def __init__(self, kernel: Kernel, foreach: Foreach) -> None:
        parameters = foreach.template.parameters
        self._order = [parameters.index(b) for b in kernel.buffers]
        sizes = {s: k for k, s in enumerate(foreach.template.sizes)}
        pointers = [f"({kind}*)p[t[{2 + k}]]" for k, kind in enumerate(kernel.pointer_types)]
        names = {FIRST: "first", COUNT: "last - first"}
        numbers = [names.get(s) or f"t[{2 + len(pointers) + sizes[s]}]" for s in kernel.symbols]
        self.call = f"{kernel.nest.group.kernel}({', '.join(pointers + numbers)});"

    def arguments_of(self, member: Member) -> list[str]:
        """The member's buffers in the order of the function's pointers."""
        return [member.arguments[k] for k in self._order]


def _write_nest(foreach: Foreach, nest: LoopNest, program: Program, writer: Writer) -> _Nest:
    own = Writer()
    kernel = Kernel(nest, program, own)
    kernel.emit()
    writer.line()
    writer.lines += with_all_origins(foreach, own.lines)
    return _Nest(kernel, foreach)


def _described(member: Member) -> str:
    sizes = " x ".join(str(a.extent) for a in member.group.axes) or "1"
    written = dict.fromkeys(n for b in member.group.bodies for n in b.writes if n not in member.group.internal)
    return f"{', '.join(written)}: {sizes}"
