"""Which line of a kernel's source each line of its compiled forms comes from, as the compilers' own line tables say.

To follow another form, add its function to LINES. Inlined code counts for the line of the kernel that calls it.
"""
from __future__ import annotations

import re
from collections.abc import Callable, Mapping

MACHINE = "machine_code"
"""The stage in references to lines of compiled forms: `machine_code:KERNEL.FORM#LINE`."""
PREFERRED = ("asm", "sass", "ptx", "ttgir", "ttir", "llir", "vectors")

_ASM_LINE = re.compile(r"\s*; line (\d+)$")
_INSTRUCTION = re.compile(r"\s*[0-9a-f]+:\t")
_PTX_LOC = re.compile(r"\s*\.loc\s+(\d+\s+\d+\s+\d+)")
_PTX_INLINED = re.compile(r"inlined_at\s+(\d+\s+\d+\s+\d+)")
_PTX_COMMENT = re.compile(r"//.*<ptdebug[^>]*>:(\d+)")
_PTX_FILE = re.compile(r'\s*\.file\s+(\d+)\s+"<ptdebug', re.MULTILINE)
_PTX_ASSEMBLY = re.compile(r"\s*// (begin|end) inline asm")
_SASS_LINE = re.compile(r"\s*// (?:line (\d+), )?PTX \d+")
_MLIR_USE = re.compile(r"loc\((#loc\d*)\)\s*$")
_MLIR_FILE = re.compile(r'^(#loc\d*) = loc\("<ptdebug[^"]*":(\d+):\d+\)')
_MLIR_NAME = re.compile(r'^(#loc\d*) = loc\("[^"]*"\((#loc\d*)\)\)')
_MLIR_CALL = re.compile(r"^(#loc\d*) = loc\(callsite\((#loc\d*) at (#loc\d*)\)\)")
_LLVM_USE = re.compile(r"!dbg !(\d+)\s*$")
_LLVM_PLACE = re.compile(r"^!(\d+) = (?:distinct )?!DILocation\(line: (\d+)[^)]*?(?:inlinedAt: !(\d+))?\)")
_PTX_PLACE = re.compile(r'^\s*//## File "\.nv_debug_ptx_txt", line (\d+).*$')
_SASS_CODE = re.compile(r"\s*/\*[0-9a-f]+\*/|\s*//## File|\.(L|text\.)\w+:")
_SASS_INDENT = re.compile(r"^\s*(/\*[0-9a-f]+\*/)\s+")
_MLIR_NUMBER = re.compile(r'(loc\("<ptdebug[^"]*":)(\d+)')
_NUMBERS = {
    "ttir": _MLIR_NUMBER, "ttgir": _MLIR_NUMBER, "llir": re.compile(r"(!DILocation\(line: )(\d+)"),
    "ptx": re.compile(r"(\.loc\s+1 |inlined_at 1 |<ptdebug[^>]*>:)(\d+)"),
}
_REPORT = re.compile(r"line (\d+): ")


def form_of(product: str) -> str:
    """The form that a product of a compiler is in: of several launches each has its own (`fused_0_combine.ptx`)."""
    return product.rpartition(".")[2]


def source_lines(product: str, text: str) -> list[int]:
    """For each line of a compiled form the line of the kernel, from 1; 0 where there is none or it is not known."""
    follow = LINES.get(form_of(product))
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
    """`.loc` holds for what follows it, up to the end of the function.

    In assembly that was written inline LLVM counts the lines of that text: only the first `.loc` is the kernel's.
    """
    found, now, inline = [], 0, 0  # outside of inline assembly, before its first `.loc`, after it
    own = next((place[1] for line in reversed(lines) if (place := _PTX_FILE.match(line))), "1")
    known: dict[str, int] = {}
    for line in lines:
        place = _PTX_LOC.match(line)
        if place:
            known[place[1]] = _ptx_line(line, place[1], own, known)
            now = known[place[1]] if inline < 2 else now
            inline = 2 if inline else 0
        elif assembly := _PTX_ASSEMBLY.match(line):
            inline = int(assembly[1] == "begin")
        elif line.startswith(("}", ".section", "\t.section")):
            now = 0
        found.append(now)
    return found


def _ptx_line(line: str, place: str, own: str, known: Mapping[str, int]) -> int:
    """The line of the kernel, whose file is number `own`, of a `.loc`: where it calls what is inlined there. That may
    be the place of an earlier `.loc` in another file, whose line is `known`."""
    inlined = _PTX_INLINED.search(line)
    if inlined is not None:
        place = inlined[1]
    file, number, _ = place.split()
    if file == own:
        return int(number)
    comment = _PTX_COMMENT.search(line)
    return known.get(place, 0) if inlined is not None else int(comment[1]) if comment else 0


def _sass(lines: list[str]) -> list[int]:
    """`// line N, PTX M` stands before the instructions of a line, up to the next one or the end of the section."""
    found, now = [], 0
    for line in lines:
        mark = _SASS_LINE.match(line)
        if mark:
            now = int(mark[1] or 0)
        elif line.startswith("//-----"):
            now = 0
        found.append(now)
    return found


def sass_with_lines(disassembly: str, ptx: str) -> str:
    """The code that `nvdisasm -gp` prints, without directives around it, and with the lines of the kernel (`// line 18,
    PTX 58`) by way of those of its PTX.

    The line table of the kernel's own source is not used: it is wrong for inline assembly, as `_ptx` says.
    """
    known = _ptx(ptx.split("\n"))

    def marked(found: re.Match[str]) -> str:
        number = int(found[1])
        line = known[number - 1] if 0 < number <= len(known) else 0
        return f"  // {f'line {line}, ' if line else ''}PTX {number}"

    code = [_SASS_INDENT.sub(r"    \1 ", _PTX_PLACE.sub(marked, line)) for line in disassembly.splitlines()
            if _SASS_CODE.match(line)]
    return "\n".join(code) + "\n" if code else disassembly


def relined(form: str, text: str, lines: Mapping[int, int]) -> str:
    """A compiled form whose line table names lines of another text: `lines` says which of the kernel they are, and
    what is not there becomes 0, no line."""
    pattern = _NUMBERS.get(form)
    if pattern is None or all(old == new for old, new in lines.items()):
        return text
    return pattern.sub(lambda found: f"{found[1]}{lines.get(int(found[2]), 0)}", text)


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
    "asm": _asm, "ptx": _ptx, "sass": _sass, "ttir": _mlir, "ttgir": _mlir, "llir": _llvm, "vectors": _report,
}
