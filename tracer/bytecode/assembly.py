"""CPython's encoding of code objects, 3.11 to 3.13: from instructions to bytes, and back.

The argument of an `Instr` is symbolic (a name, a constant, a label); `assemble` encodes it. What the numbers mean, what
is added to them and how many cache entries follow an instruction is in `OPCODES`, which is built from the tables of
`dis`. The formats are described in CPython's InternalDocs (locations, exception handling).
"""
from __future__ import annotations

import dis
import enum
import opcode
import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import groupby
from types import CodeType
from typing import Any, NamedTuple

Positions = tuple[int | None, int | None, int | None, int | None]
"""First line, last line, first column, last column: as `CodeType.co_positions` gives them."""

_SINCE_312 = sys.version_info >= (3, 12)
_SHIFTS = {"LOAD_GLOBAL": 1, "LOAD_ATTR": 1 if _SINCE_312 else 0, "LOAD_SUPER_ATTR": 2}
"""How many flag bits are below the index of the name."""


class Operand(enum.Enum):
    """What the argument of an instruction indexes."""

    NUMBER = enum.auto()
    CONSTANT = enum.auto()
    NAME = enum.auto()
    LOCAL = enum.auto()
    CLOSURE = enum.auto()
    JUMP = enum.auto()


class Opcode(NamedTuple):
    """What is known of an opcode. `shift` flag bits are below the index of a name; a jump goes `back`."""

    number: int
    operand: Operand
    shift: int
    caches: int
    back: bool


def _opcodes() -> dict[str, Opcode]:
    operands = dict.fromkeys(dis.hasconst, Operand.CONSTANT) | dict.fromkeys(dis.hasname, Operand.NAME)
    operands |= dict.fromkeys(dis.haslocal, Operand.LOCAL) | dict.fromkeys(dis.hasfree, Operand.CLOSURE)
    operands |= dict.fromkeys(dis.hasjrel, Operand.JUMP)
    entries: Any = opcode._inline_cache_entries  # type: ignore[attr-defined]
    caches = entries if isinstance(entries, dict) else {dis.opname[number]: n for number, n in enumerate(entries)}
    return {
        name: Opcode(number, operands.get(number, Operand.NUMBER), _SHIFTS.get(name, 0), caches.get(name, 0),
                     "JUMP_BACKWARD" in name)
        for name, number in dis.opmap.items()
    }  # fmt: skip


OPCODES = _opcodes()
_EXTENDED = dis.opmap["EXTENDED_ARG"]
_CACHE = dis.opmap["CACHE"]


class Label:
    """A position between instructions that jumps and handlers refer to."""

    __slots__ = ()


@dataclass(frozen=True, slots=True)
class Cell:
    """The argument of an instruction on a closure variable, of the function itself or of an enclosing one."""

    name: str


@dataclass(slots=True)
class Instr:
    """An instruction. `arg` is a constant, a name, (flags, name) where there are flags, a Cell, a Label or an integer.
    Without a location it has that of the previous one."""

    name: str
    arg: Any = 0
    location: Positions | None = None


def at(location: Positions | None, parts: Iterable[tuple[Any, ...]]) -> list[Instr]:
    """Instructions at a location, given as names, with an argument where they need one."""
    return [Instr(part[0], part[1] if len(part) > 1 else 0, location) for part in parts]


@dataclass(frozen=True, slots=True, eq=False)
class TryBegin:
    """What follows is handled at `target`, with the stack cut to `depth`; `lasti`: the offset of the raising
    instruction is pushed."""

    target: Label
    lasti: bool
    depth: int


@dataclass(frozen=True, slots=True, eq=False)
class TryEnd:
    """The end of the block that `begin` starts."""

    begin: TryBegin


# ---- decoding --------------------------------------------------------------------------------------------------------
class CodeUnit(NamedTuple):
    """An encoded instruction. It begins at `start`, with its EXTENDED_ARGs, and raises from `offset`."""

    start: int
    offset: int
    name: str
    arg: int
    positions: Positions


def code_units(code: CodeType) -> Iterator[CodeUnit]:
    """The instructions of `code`; EXTENDED_ARG is part of the next one, CACHE of the previous one."""
    raw, positions = code.co_code, list(code.co_positions())
    extended, start = 0, -1
    for offset in range(0, len(raw), 2):
        number, arg = raw[offset], raw[offset + 1] | extended
        if number == _CACHE:
            continue
        if start < 0:
            start = offset
        if number == _EXTENDED:
            extended = arg << 8
            continue
        yield CodeUnit(start, offset, dis.opname[number], arg, positions[offset >> 1])
        extended, start = 0, -1


def jump_target(word: CodeUnit) -> int:
    """The offset of a jump's target."""
    known = OPCODES[word.name]
    return word.offset + 2 * (1 + known.caches + (-word.arg if known.back else word.arg))


# ---- encoding --------------------------------------------------------------------------------------------------------
def assemble(
    items: Iterable[Instr | Label | TryBegin | TryEnd],
    code: CodeType,
    stacksize: int | None = None,
    argnames: Sequence[str] | None = None,
) -> CodeType:
    """A code object like `code` with the instructions `items`. Without `stacksize` an upper bound is computed.

    Arguments, cells and local variables keep their indices, unless `argnames` makes it a function of these, whose free
    variables are all cells of `code`.
    """
    instructions: list[Instr] = []
    places: dict[Any, int] = {}  # positions of labels and ends of try blocks, by index of the next instruction
    for item in items:
        if isinstance(item, Instr):
            instructions.append(item)
        else:
            places[item] = len(instructions)
    changes: dict[str, Any] = {}
    names, cells, free = list(code.co_varnames), code.co_cellvars, code.co_freevars
    if argnames is not None:
        names, cells, free = list(argnames), (), (*code.co_cellvars, *code.co_freevars)
        changes |= {"co_argcount": len(names), "co_posonlyargcount": 0, "co_kwonlyargcount": 0}
        changes["co_flags"] = code.co_flags & ~0x0C  # takes neither *args nor **kwargs
    tables = _Tables(names, cells, free, code.co_consts)
    known = [OPCODES[instruction.name] for instruction in instructions]
    arguments = tables.numbers(instructions, known)
    starts = _laid_out(instructions, known, arguments, places)
    return code.replace(
        co_code=_encoded(known, arguments),
        co_consts=tuple(tables.constants),
        co_names=tuple(tables.names),
        co_varnames=tuple(tables.locals),
        co_nlocals=len(tables.locals),
        co_cellvars=cells,
        co_freevars=free,
        co_stacksize=_stack_bound(known, arguments) if stacksize is None else stacksize,
        co_linetable=_line_table(instructions, starts, code.co_firstlineno),
        co_exceptiontable=_exception_table(places, starts),
        **changes,
    )


class _Tables:
    """Constants, names and variables of the new code object, with their indices."""

    def __init__(
        self, names: Iterable[str], cells: Sequence[str], free: Sequence[str], constants: tuple[Any, ...]
    ) -> None:
        documented = bool(constants) and isinstance(constants[0], str)
        self.constants: list[Any] = [constants[0] if documented else None]  # a function's first is its docstring
        self.names: dict[str, int] = {}
        self.locals = {name: number for number, name in enumerate(names)}
        self._by_identity = {id(self.constants[0]): 0}
        self._cells = cells
        self._free = free

    def numbers(self, instructions: Sequence[Instr], known: Sequence[Opcode]) -> list[int]:
        """The encoded argument of each instruction; that of a jump is 0."""
        found: list[int] = []
        closures: list[tuple[int, str]] = []
        for instruction, (_, operand, shift, _, _) in zip(instructions, known):
            arg = instruction.arg
            if operand is Operand.NUMBER:
                found.append(arg)
            elif isinstance(arg, Cell):
                closures.append((len(found), arg.name))
                found.append(0)
            elif operand is Operand.LOCAL:
                found.append(self.locals.setdefault(arg, len(self.locals)))
            elif operand is Operand.CONSTANT:
                found.append(self._constant(arg))
            elif operand is Operand.NAME:
                flags, name = arg if shift else (0, arg)
                found.append(self.names.setdefault(name, len(self.names)) << shift | flags)
            else:
                found.append(0)
        places = self._closure_places() if closures else {}
        for number, name in closures:
            found[number] = places[name]
        return found

    def _constant(self, value: Any) -> int:
        """By identity: 1 is not True, and 0.0 is not -0.0."""
        number = self._by_identity.setdefault(id(value), len(self.constants))
        if number == len(self.constants):
            self.constants.append(value)
        return number

    def _closure_places(self) -> dict[str, int]:
        """Parameters that are cells keep their own index; then come the other cells, then the free variables."""
        own = [name for name in self._cells if name not in self.locals]
        after = {name: len(self.locals) + number for number, name in enumerate((*own, *self._free))}
        return {name: self.locals[name] for name in self._cells if name in self.locals} | after


def _laid_out(
    instructions: Sequence[Instr], known: Sequence[Opcode], arguments: list[int], places: dict[Any, int]
) -> list[int]:
    """Fill in the arguments of jumps; returns the start of each instruction, and the end, in code units. A long jump
    needs an EXTENDED_ARG, which may lengthen another: repeated until nothing grows."""
    jumps = [
        (number, places[instruction.arg])
        for number, instruction in enumerate(instructions)
        if known[number].operand is Operand.JUMP
    ]
    while True:
        starts = [0]
        for one, arg in zip(known, arguments):
            starts.append(starts[-1] + one.caches + _units(arg))
        grown = False
        for number, target in jumps:
            distance = starts[target] - starts[number + 1]
            arg = -distance if known[number].back else distance
            assert arg >= 0, f"{instructions[number].name} the wrong way"
            grown |= _units(arg) > _units(arguments[number])
            arguments[number] = arg
        if not grown:
            return starts


def _units(arg: int) -> int:
    """The code units of an instruction with its EXTENDED_ARGs."""
    return 1 if arg < 256 else (arg.bit_length() + 7) // 8


def _encoded(known: Sequence[Opcode], arguments: Sequence[int]) -> bytes:
    made = bytearray()
    for (number, _, _, caches, _), arg in zip(known, arguments):
        if arg > 255:
            for byte in arg.to_bytes(_units(arg), "big")[:-1]:
                made += bytes((_EXTENDED, byte))
        made += bytes((number, arg & 255))
        made += bytes(2 * caches)
    return bytes(made)


def _stack_bound(known: Sequence[Opcode], arguments: Sequence[int]) -> int:
    """An upper bound of the stack depth: each basic block starts at the greatest depth at which the previous one
    ended."""
    depth = highest = 0
    for one, arg in zip(known, arguments):
        depth = max(0, depth + _effect(one.number, arg))
        highest = max(highest, depth)
    return highest + 8


@lru_cache(maxsize=4096)
def _effect(number: int, arg: int) -> int:
    return dis.stack_effect(number, arg if number >= dis.HAVE_ARGUMENT else None, jump=False)


def _exception_table(places: dict[Any, int], starts: Sequence[int]) -> bytes:
    made = bytearray()
    for item, end in places.items():
        if not isinstance(item, TryEnd) or places[item.begin] == end:
            continue
        begin = item.begin
        start = starts[places[begin]]
        made += _exception_entry(start, starts[end] - start, starts[places[begin.target]], begin.depth, begin.lasti)
    return bytes(made)


def encoded_exceptions(entries: Iterable[tuple[int, int, int, int, bool]]) -> bytes:
    """The `co_exceptiontable` of (start, end, target, depth, lasti), with offsets in bytes as `dis` has them."""
    parts = [
        _exception_entry(start // 2, (end - start) // 2, target // 2, depth, lasti)
        for start, end, target, depth, lasti in entries
    ]
    return b"".join(parts)


def _exception_entry(start: int, length: int, target: int, depth: int, lasti: bool) -> bytes:
    values = _big_endian(length), _big_endian(target), _big_endian(depth << 1 | lasti)
    return _big_endian(start, first=128) + b"".join(values)


def _big_endian(value: int, first: int = 0) -> bytes:
    """Six bits per byte, most significant first, with the flag 64 on all but the last; `first` is set on the first."""
    made = [value & 63]
    while value := value >> 6:
        made.append(value & 63 | 64)
    made[-1] |= first
    return bytes(reversed(made))


def _line_table(instructions: Sequence[Instr], starts: Sequence[int], line: int) -> bytes:
    made = bytearray()
    current: Positions = (line, None, None, None)
    located: list[tuple[Positions, int]] = []
    for number, instruction in enumerate(instructions):
        current = instruction.location or current
        located.append((current, starts[number + 1] - starts[number]))
    for positions, group in groupby(located, key=lambda pair: pair[0]):
        units = sum(size for _, size in group)
        while units > 0:
            made += _location(positions, min(units, 8), line)
            line = line if positions[0] is None else positions[0]
            units -= 8
    return bytes(made)


@lru_cache(maxsize=8192)
def _location(positions: Positions, units: int, line: int) -> bytes:
    """One entry, for up to 8 code units: no line, a line only, or (the long form) all four."""
    first, last, column, end_column = positions
    if first is None:
        return bytes((128 | 15 << 3 | units - 1,))
    if last is None or column is None or end_column is None:
        return bytes((128 | 13 << 3 | units - 1,)) + _signed(first - line)
    numbers = _signed(first - line) + _little_endian(last - first)
    return bytes((128 | 14 << 3 | units - 1,)) + numbers + _little_endian(column + 1) + _little_endian(end_column + 1)


def _signed(value: int) -> bytes:
    return _little_endian(-value << 1 | 1 if value < 0 else value << 1)


def _little_endian(value: int) -> bytes:
    """Six bits per byte, least significant first, with the flag 64 on all but the last."""
    made = bytearray()
    while value > 63:
        made.append(value & 63 | 64)
        value >>= 6
    made.append(value)
    return bytes(made)
