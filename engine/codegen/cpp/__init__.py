"""Loop nests in, one C++ file out: plain scalar loops that gcc vectorizes, without a single include.

What there is to choose, `scheduler/cpu/` has chosen. Read in this order: `kernel.py` prints a nest as a function, with
a table that says what prints each type of node: `loops.py` (ranges, blocks, threads, tiles), `compute.py` (what is done
at a point), `accumulators.py` (reductions and scans), `half_precision.py`, `nontemporal_stores.py`, `prefetches.py`,
`blocked_scans.py`; `remainders.py` names remainders before the loops in which they do not change. Lines are written
through `source_writer.py`, names come from `scope.py`. `emission.py` is what they know of the nodes around them;
`statements.py` prints values (with the tables `operators.py`, `reductions.py`, `scans.py`, `dtypes.py`, `indices.py`).
`foreach.py` prints horizontally fused kernels. `prelude.py` has the functions that kernels call (math in
`float_math.py`, `vector_math.py` with `float_tables.py`, `double_math.py`), and `entry.py` makes kernels callable from
Python.
"""
from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from ....artifacts.records import CodeLine
from ...ir.ir import Foreach, Group, KernelSignature
from ...scheduler import ScheduledPlan
from .entry import Entry, write_entries
from .foreach import write_foreach
from .kernel import Kernel
from .prelude import prelude
from .source_writer import Writer


@dataclass(frozen=True)
class CppSource:
    """One C++ file: its lines with their origins, and how each kernel in it is called.

    `body` is the file without the functions that stand before the kernels; what follows them may be added to it.
    """

    body: tuple[CodeLine, ...]
    entries: tuple[Entry, ...]

    @cached_property
    def lines(self) -> tuple[CodeLine, ...]:
        """All lines."""
        head = prelude("\n".join([line.text for line in self.body])) if self.body else ()
        return (*[CodeLine(line) for line in head], *self.body)

    @property
    def signatures(self) -> tuple[KernelSignature, ...]:
        """How the kernels are called, in the order of the table."""
        return tuple([entry.signature for entry in self.entries])

    @property
    def text(self) -> str:
        """The file."""
        return "\n".join([line.text for line in self.lines]) + "\n"


def generate(plan: ScheduledPlan, always: bool = False) -> CppSource:
    """The C++ file of all groups of `plan` that run on the CPU. No lines when there is none, unless `always`.

    Kernels that differ in names only (the layers of a model) are written and compiled once.

    Raises NotImplementedError for an operation or dtype without C++.
    """
    writer, entries = Writer(), []
    written: dict[str, tuple[str, int]] = {}  # shape of a kernel's text -> name and first line of the one that has it
    twins: dict[int, list[list[CodeLine]]] = {}  # by that line, the texts of those that were not written
    for item in plan.items:
        if not isinstance(item, Group) or item.device.type != "cpu":
            continue
        if isinstance(item, Foreach):
            entries.append(write_foreach(item, plan.nests[item.kernel], plan.program, writer))
            continue
        own = Writer()
        kernel = Kernel(plan.nests[item.kernel], plan.program, own)
        kernel.emit()
        shape = kernel.canonical(own.lines)
        function, start = written.setdefault(shape, (item.kernel, len(writer.lines) + 1))
        if function == item.kernel:
            writer.line()
            writer.lines += own.lines
        else:
            twins.setdefault(start, []).append(own.lines)
        entries.append(Entry(kernel.signature, function, kernel.pointer_types, kernel.nest.threaded))
    if not entries and not always:
        return CppSource((), ())
    for start, texts in twins.items():
        _merge_origins(writer.lines, start, texts)
    write_entries(writer, entries)
    return CppSource(tuple(writer.lines), tuple(entries))


def _merge_origins(lines: list[CodeLine], start: int, twins: list[list[CodeLine]]) -> None:
    """Give the lines of a kernel the origins of others that have the same text."""
    for position, same in enumerate(zip(*twins), start):
        shown = lines[position]
        origins = [origin for line in (shown, *same) for origin in line.origins]
        lines[position] = CodeLine(shown.text, tuple(origins))
