"""Code objects taken apart once: instructions with their handlers, jump targets as indices, the exception table.

`code_info` is cached for each code object, so a function inlined a hundred times is decoded once.
"""
from __future__ import annotations

import builtins
import dis
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from types import CodeType
from typing import Any

from ..artifacts.records import Location
from . import opcodes as opcodes  # fills the table of handlers
from .opcodes.py313 import HALVES
from .opcodes.registry import HANDLERS, Handler
from .skips import is_program
from .values.base import Unsupported

_IGNORED = frozenset(("CACHE", "EXTENDED_ARG"))


@dataclass(slots=True, eq=False)
class Instruction:
    """One instruction. `value` is the decoded argument (a name, a constant, ...), `target` the index jumped to."""

    index: int
    offset: int
    opname: str
    arg: int
    value: Any
    handler: Handler
    positions: Any
    target: int = -1
    location: Location | None = None


@dataclass(frozen=True, slots=True)
class Handled:
    """An entry of the exception table, over instruction indices: [start, end) is handled at `target`."""

    start: int
    end: int
    target: int
    depth: int
    lasti: bool


def location_in(code: CodeType, positions: Any) -> Location:
    """The place in `code` of an instruction with these positions (of `dis`); its first line where there are none."""
    line, end_line, column, end_column = positions or (None, None, None, None)
    return Location(
        code.co_filename,
        line or code.co_firstlineno,
        code.co_qualname,
        -1 if column is None else column,
        -1 if end_line is None else end_line,
        -1 if end_column is None else end_column,
    )


@dataclass(eq=False)
class CodeInfo:
    """A decoded code object. `of_program` is False for torch's code, Python's library and ours: no stack shows it."""

    code: CodeType
    instructions: list[Instruction]
    exceptions: list[Handled]
    of_program: bool
    by_offset: dict[int, int] = field(default_factory=dict)

    @cached_property
    def prologue(self) -> int:
        """How many instructions stand before RESUME: they make the cells. A later MAKE_CELL is of a comprehension."""
        return next((i.index for i in self.instructions if i.opname == "RESUME"), 0)

    @cached_property
    def reuses_cells(self) -> bool:
        """Whether a comprehension, from 3.12 on a part of this code, has variables in the places of the frame's cells.
        """
        cells = {*self.code.co_cellvars, *self.code.co_freevars}
        return any(
            (i.opname == "MAKE_CELL" and i.index >= self.prologue)
            or (i.opname == "LOAD_FAST_AND_CLEAR" and i.value in cells)
            for i in self.instructions
        )

    def ends_generator(self, entry: Handled) -> bool:
        """Whether this is the handler of 3.12 and later around all of a generator, which only turns StopIteration."""
        return self.instructions[entry.target].opname == "CALL_INTRINSIC_1"

    def passes_on(self, entry: Handled, exception: type[BaseException], names: Mapping[str, Any]) -> bool:
        """Whether a handler is a row of `except Class:` (of builtins, not among `names`) that all let `exception` by,
        as do the handlers around it: it then leaves the frame as if nothing handled it."""
        index = entry.target + 1
        while self.instructions[index].opname == "LOAD_GLOBAL":
            name = self.instructions[index].value
            caught = getattr(builtins, name, None) if name not in names else None
            if self.instructions[index + 1].opname != "CHECK_EXC_MATCH" or not isinstance(caught, type):
                return False
            if issubclass(exception, caught):
                return False
            index = self.instructions[index + 2].target
        if self.instructions[index].opname != "RERAISE" or index == entry.target + 1:
            return False
        cleanup = self.handler_of(index)  # COPY, POP_EXCEPT, RERAISE: the exception handled before is handled again
        outer = self.handler_of(cleanup.target + 2) if cleanup is not None else None
        return outer is None or self.ends_generator(outer) or self.passes_on(outer, exception, names)

    def location(self, instruction: Instruction) -> Location:
        """Where `instruction` stands in its source file."""
        location = instruction.location
        if location is None:
            location = instruction.location = location_in(self.code, instruction.positions)
        return location

    def handler_of(self, index: int) -> Handled | None:
        """The innermost entry of the exception table that covers the instruction `index`."""
        for entry in self.exceptions:
            if entry.start <= index < entry.end:
                return entry
        return None


@lru_cache(maxsize=4096)
def code_info(code: CodeType) -> CodeInfo:
    """`code`, decoded."""
    instructions: list[Instruction] = []
    by_offset: dict[int, int] = {}
    pending: list[int] = []
    for raw in dis.get_instructions(code):
        pending.append(raw.offset)
        if raw.opname in _IGNORED:
            continue
        index = len(instructions)
        for offset in pending:
            by_offset[offset] = index
        pending.clear()
        arg = raw.arg if raw.arg is not None else 0
        value = code.co_consts[arg] if raw.opname == "KW_NAMES" else raw.argval
        halves = HALVES.get(raw.opname)
        for opname, half in zip(halves, value) if halves else [(raw.opname, value)]:
            handler = HANDLERS.get(opname, _unknown)
            place = len(instructions), raw.offset
            instructions.append(Instruction(*place, opname, arg, half, handler, raw.positions))
    for instruction in instructions:
        if instruction.opname in _JUMPS:
            instruction.target = by_offset[instruction.value]
    return CodeInfo(
        code=code,
        instructions=instructions,
        exceptions=_exception_table(code, by_offset, len(instructions)),
        of_program=is_program(code.co_filename),
        by_offset=by_offset,
    )


_JUMPS = frozenset(dis.opname[op] for op in (*dis.hasjrel, *dis.hasjabs))


def _exception_table(code: CodeType, by_offset: dict[int, int], count: int) -> list[Handled]:
    """The exception table over instruction indices. Ranges end at instructions or at the end of the code."""
    if not code.co_exceptiontable:
        return []
    entries = []
    for entry in dis._parse_exception_table(code):  # type: ignore[attr-defined]
        end = _index_at_or_after(by_offset, entry.end, count)
        entries.append(Handled(by_offset[entry.start], end, by_offset[entry.target], entry.depth, bool(entry.lasti)))
    return entries


def _index_at_or_after(by_offset: dict[int, int], offset: int, count: int) -> int:
    max_offset = next(reversed(by_offset))
    while offset not in by_offset and offset <= max_offset:
        offset += 2
    return by_offset.get(offset, count)


def _unknown(tx: Any, instruction: Instruction) -> None:
    raise Unsupported("opcode", instruction.opname)

