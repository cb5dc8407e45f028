"""Which line of a kernel's source each line of its compiled forms comes from, as the compilers' own line tables say.

To follow another form, add its function to LINES. Inlined code counts for the line of the kernel that calls it.
"""
from __future__ import annotations

import re
from collections.abc import Callable, Mapping

MACHINE = "machine_code"
"""The stage in references to lines of compiled forms: `machine_code:KERNEL.FORM#LINE`."""
PREFERRED = ("asm", "ptx", "sass", "ttgir", "ttir", "llir", "vectors")

_ASM_LINE = re.compile(r"\s*; line (\d+)$")
_INSTRUCTION = re.compile(r"\s*[0-9a-f]+:\t")
_PTX_LOC = re.compile(r"\s*\.loc\s+\d+\s+(\d+)")
_PTX_INLINED = re.compile(r"inlined_at\s+\d+\s+(\d+)")
_MLIR_USE = re.compile(r"loc\((#loc\d*)\)\s*$")
_MLIR_FILE = re.compile(r'^(#loc\d*) = loc\("<ptdebug[^"]*":(\d+):\d+\)')
_MLIR_NAME = re.compile(r'^(#loc\d*) = loc\("[^"]*"\((#loc\d*)\)\)')
_MLIR_CALL = re.compile(r"^(#loc\d*) = loc\(callsite\((#loc\d*) at (#loc\d*)\)\)")
_LLVM_USE = re.compile(r"!dbg !(\d+)\s*$")
_LLVM_PLACE = re.compile(r"^!(\d+) = (?:distinct )?!DILocation\(line: (\d+)[^)]*?(?:inlinedAt: !(\d+))?\)")
_REPORT = re.compile(r"line (\d+): ")


def source_lines(form: str, text: str) -> list[int]:
    """For each line of a compiled form the line of the kernel, from 1; 0 where there is none or it is not known."""
    follow = LINES.get(form)
    lines = text.split("\n")
    return follow(lines) if follow is not None else [0] * len(lines)


def _asm(lines: list[str]) -> list[int]:
    """As `disassemble` writes it: `; line N` before the instructions of a line."""
    found, now = [], 0
    for line in lines:
        mark = _ASM_LINE.match(line)
        if mark:
            now = int(mark[1])
        elif not _INSTRUCTION.match(line):
            now = 0
        found.append(now)
    return found


def _ptx(lines: list[str]) -> list[int]:
    """`.loc` holds for what follows it, up to the end of the function."""
    found, now = [], 0
    for line in lines:
        place = _PTX_LOC.match(line)
        if place:
            inlined = _PTX_INLINED.findall(line)
            now = int(inlined[-1] if inlined else place[1])
        elif line.startswith(("}", ".section", "\t.section")):
            now = 0
        found.append(now)
    return found


def _mlir(lines: list[str]) -> list[int]:
    """`loc(#locN)` ends an operation; the aliases stand before or after the module."""
    places: dict[str, int] = {}
    aliases: dict[str, str] = {}
    for line in lines:
        if not line.startswith("#loc"):
            continue
        if found := _MLIR_FILE.match(line):
            places[found[1]] = int(found[2])
        elif found := _MLIR_NAME.match(line):
            aliases[found[1]] = found[2]
        elif found := _MLIR_CALL.match(line):
            aliases[found[1]] = found[3]  # the caller: the kernel's own line
    return [_resolved(use[1], aliases, places) if (use := _MLIR_USE.search(line)) else 0 for line in lines]


def _llvm(lines: list[str]) -> list[int]:
    places: dict[str, int] = {}
    callers: dict[str, str] = {}
    for line in lines:
        if found := _LLVM_PLACE.match(line):
            places[found[1]] = int(found[2])
            if found[3]:
                callers[found[1]] = found[3]
    return [_resolved(use[1], callers, places) if (use := _LLVM_USE.search(line)) else 0 for line in lines]


def _resolved(name: str, aliases: Mapping[str, str], places: Mapping[str, int]) -> int:
    """The place that a chain of aliases ends at."""
    for _ in range(64):  # a damaged recording may go round in a circle
        if name not in aliases:
            return places.get(name, 0)
        name = aliases[name]
    return 0


def _report(lines: list[str]) -> list[int]:
    return [int(found[1]) if (found := _REPORT.match(line)) else 0 for line in lines]


LINES: dict[str, Callable[[list[str]], list[int]]] = {
    "asm": _asm, "ptx": _ptx, "ttir": _mlir, "ttgir": _mlir, "llir": _llvm, "vectors": _report,
}
