"""Loop groups in, one C++ file out: plain scalar code that gcc vectorizes, without a single include.

Walk: `kernel.py` writes a group as a function, with the help of `nests.py` (which loops stand inside the outer ones),
`choices.py` (which loops are shared among threads), `storage.py` (what stays in registers), `nest_writer.py` (loops and
reductions) and `statements.py` (values), whose tables are `operators.py`, `reductions.py`, `dtypes.py` and
`indices.py`. `prelude.py` holds the functions that the code calls, `entry.py` makes the kernels callable from Python.
"""
from __future__ import annotations

from dataclasses import dataclass

from ...artifacts.context import CompileContext
from ...artifacts.records import CodeLine
from ..ir import Group, KernelSignature, Plan
from .entry import write_entries
from .kernel import Kernel
from .prelude import prelude
from .writer import Writer


@dataclass(frozen=True)
class CppSource:
    """One C++ file: its lines with their origins, and how each kernel in it is called."""

    lines: tuple[CodeLine, ...]
    signatures: tuple[KernelSignature, ...]

    @property
    def text(self) -> str:
        """The file."""
        return "\n".join([line.text for line in self.lines]) + "\n"


def generate(plan: Plan, context: CompileContext) -> CppSource:
    """The C++ file of all groups of `plan` that run on the CPU. No lines when there is none.

    Raises NotImplementedError for an operation or dtype without C++.
    """
    writer, entries = Writer(), []
    for item in plan.items:
        if isinstance(item, Group) and item.device.type == "cpu":
            kernel = Kernel(item, plan.program, writer)
            writer.line()
            kernel.emit()
            entries.append((kernel.signature, kernel.pointer_types, kernel.shape.parallel != ""))
    if not entries:
        return CppSource((), ())
    text = "\n".join([line.text for line in writer.lines])
    write_entries(writer, entries)
    head = [CodeLine(line) for line in prelude(text)]
    return CppSource((*head, *writer.lines), tuple([signature for signature, _, _ in entries]))
