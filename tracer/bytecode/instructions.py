"""Decoded code objects: instructions with their handlers, jump targets as indices, the exception table.

`code_info` is cached per code object, so a function inlined a hundred times is decoded once.
"""
from __future__ import annotations

import builtins
import dis
import itertools
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from types import CodeType
from typing import Any

from ...artifacts.records import Location
from ..breaks.reasons import Reason
from ..breaks.unsupported import Unsupported
from ..runtime.per_code import cached_per_code
from ..runtime.skips import is_program
from .assembly import OPCODES, CodeUnit, Operand, code_units, jump_target
from .opcode_table import HALVES, HANDLERS, Handler


@dataclass(slots=True, eq=False)
class Instruction:
    """One instruction. `value` is the decoded argument (a name, a constant, ...), `target` the index of a jump
    target."""

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
    """An entry of the exception table, in instruction indices: [start, end) is handled at `target`."""

    start: int
    end: int
    target: int
    depth: int
    lasti: bool


def location_in(code: CodeType, positions: Any) -> Location:
    """The location in `code` of an instruction with these positions (of `dis`); its first line where there are none."""
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
    """A decoded code object. `of_program` is False for code of torch, the standard library and ptdebug: stacks do not
    show it."""

    code: CodeType
    instructions: list[Instruction]
    exceptions: list[Handled]
    of_program: bool

    @cached_property
    def prologue(self) -> int:
        """How many instructions precede RESUME: they make the cells. A later MAKE_CELL belongs to a comprehension."""
        return next((i.index for i in self.instructions if i.opname == "RESUME"), 0)

    @cached_property
    def reuses_cells(self) -> bool:
        """Whether a comprehension, which from 3.12 on is inlined in this code, reuses the indices of the frame's
        cells."""
        cells = {*self.code.co_cellvars, *self.code.co_freevars}
        return any(
            (i.opname == "MAKE_CELL" and i.index >= self.prologue)
            or (i.opname == "LOAD_FAST_AND_CLEAR" and i.value in cells)
            for i in self.instructions
        )

    @cached_property
    def reads_variables_by_name(self) -> str:
        """The builtin that this code names and that inspects the caller's variables, of which a resume function has
        others; "" where there is none."""
        steps = [i for i in self.instructions if i.opname not in ("PRECALL", "PUSH_NULL", "CACHE")]
        for named, after in itertools.pairwise(steps):
            if named.opname not in ("LOAD_GLOBAL", "LOAD_NAME"):
                continue
            of_its_own = after.opname == "CALL" and after.arg == 0
            if named.value in ("locals", "eval", "exec") or (named.value in ("vars", "dir") and of_its_own):
                return str(named.value)
        return ""

    def ends_generator(self, entry: Handled) -> bool:
        """Whether this is the handler of 3.12 and later around a whole generator, which only converts StopIteration."""
        return self.instructions[entry.target].opname == "CALL_INTRINSIC_1"

    def passes_on(self, entry: Handled, exception: type[BaseException], names: Mapping[str, Any]) -> bool:
        """Whether a handler is a sequence of `except Class:` (builtins that are not among `names`) none of which
        matches `exception`, and the same holds for the handlers around it: the exception leaves the frame as if
        unhandled."""
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
        cleanup = self.handler_of(index)  # COPY, POP_EXCEPT, RERAISE: restores the exception that was handled before
        outer = self.handler_of(cleanup.target + 2) if cleanup is not None else None
        return outer is None or self.ends_generator(outer) or self.passes_on(outer, exception, names)

    def cleans_up_at(self, index: int, names: Mapping[str, Any]) -> bool:
        """Whether something runs where the generator is closed at the yield at `index`; its globals are `names`."""
        handler = self.handler_of(index)
        while handler is not None and self.instructions[handler.target].opname == "CLEANUP_THROW":
            handler = self.handler_of(handler.target)  # `yield from` of 3.12 passes on what is not StopIteration
        if handler is None or self.ends_generator(handler):
            return False
        return not self.passes_on(handler, GeneratorExit, names)

    def may_clean_up(self, names: Mapping[str, Any]) -> bool:
        """Whether that is so at some yield."""
        yields = (i.index for i in self.instructions if i.opname in ("YIELD_VALUE", "SEND"))
        return any(self.cleans_up_at(index, names) for index in yields)

    def location(self, instruction: Instruction) -> Location:
        """The source location of `instruction`."""
        location = instruction.location
        if location is None:
            location = instruction.location = location_in(self.code, instruction.positions)
        return location

    def handler_of(self, index: int) -> Handled | None:
        """The innermost entry of the exception table that covers instruction `index`."""
        for entry in self.exceptions:
            if entry.start <= index < entry.end:
                return entry
        return None


    def handlers_of(self, index: int) -> Iterator[Handled]:
        """The entries that an exception of instruction `index` passes if each re-raises it, innermost first; those that
        clean up after a handler are included."""
        entry = self.handler_of(index)
        while entry is not None:
            yield entry
            entry = self.handler_of(entry.target)


@cached_per_code(4096)
def code_info(code: CodeType) -> CodeInfo:
    """`code`, decoded."""
    instructions: list[Instruction] = []
    by_offset: dict[int, int] = {}
    for word in code_units(code):
        by_offset[word.start] = len(instructions)
        if word.name in HALVES:
            places = word.arg >> 4, word.arg & 15
            halves = [(opname, code.co_varnames[place]) for opname, place in zip(HALVES[word.name], places)]
        else:
            halves = [(word.name, _value(code, word))]
        for opname, value in halves:
            handler = HANDLERS.get(opname, _unknown)
            place = len(instructions), word.offset
            instructions.append(Instruction(*place, opname, word.arg, value, handler, word.positions))
    for instruction in instructions:
        if OPCODES[instruction.opname].operand is Operand.JUMP:
            instruction.target = by_offset[instruction.value]
    return CodeInfo(
        code=code,
        instructions=instructions,
        exceptions=_exception_table(code, by_offset, len(instructions)),
        of_program=is_program(code.co_filename) and not code.co_qualname.startswith(_OF_DATACLASSES),
    )


_OF_DATACLASSES = "__create_fn__."
"""Prefixes of the names of methods that `dataclasses` generates: they have no lines."""


def _value(code: CodeType, word: CodeUnit) -> Any:
    """The meaning of an instruction's argument, as in `dis`."""
    _, operand, shift, _, _ = OPCODES[word.name]
    if operand is Operand.LOCAL or operand is Operand.CLOSURE:
        return code._varname_from_oparg(word.arg)  # type: ignore[attr-defined]
    if operand is Operand.CONSTANT:
        return code.co_consts[word.arg]
    if operand is Operand.NAME:
        return code.co_names[word.arg >> shift]
    if operand is Operand.JUMP:
        return jump_target(word)
    if word.name == "COMPARE_OP":
        return dis.cmp_op[word.arg >> _COMPARE_SHIFT]
    return word.arg


_COMPARE_SHIFT = {(3, 11): 0, (3, 12): 4}.get(sys.version_info[:2], 5)
"""How many flag bits are below the index of a comparison."""


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
    raise Unsupported(Reason.OPCODE, detail=instruction.opname)

