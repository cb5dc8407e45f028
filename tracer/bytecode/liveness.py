"""Which local variables are still read after an instruction (only those are passed to a resume function), and which
closure variables may be read there while they are unbound."""
from __future__ import annotations

import dis
from collections.abc import Collection
from functools import lru_cache
from types import CodeType

from ..runtime.per_code import cached_per_code
from .instructions import CodeInfo, Instruction

READS = frozenset(("LOAD_FAST", "LOAD_FAST_CHECK", "LOAD_FAST_AND_CLEAR", "DELETE_FAST"))
ENDS = frozenset(
    ("RETURN_VALUE", "RETURN_CONST", "RAISE_VARARGS", "RERAISE", "JUMP_FORWARD", "JUMP_BACKWARD",
     "JUMP_BACKWARD_NO_INTERRUPT")
)
"""Instructions after which execution never falls through."""


def live_at(info: CodeInfo, index: int) -> frozenset[str]:
    """The local variables whose value at the start of instruction `index` may still be read."""
    live = _live_in(info)[index]
    return frozenset(name for number, name in enumerate(info.code.co_varnames) if live >> number & 1)


@lru_cache(maxsize=256)
def _live_in(info: CodeInfo) -> list[int]:
    """For each instruction the set of live variables as a bit mask: backward data flow to a fixed point.

    Every instruction with a handler may raise.
    """
    bits = {name: 1 << number for number, name in enumerate(info.code.co_varnames)}
    instructions = info.instructions
    live = [0] * (len(instructions) + 1)
    reads = [bits.get(i.value, 0) if i.opname in READS else 0 for i in instructions]
    writes = [bits.get(i.value, 0) if i.opname == "STORE_FAST" else 0 for i in instructions]
    successors = [_successors(info, instruction) for instruction in instructions]
    changed = True
    while changed:
        changed = False
        for index in range(len(instructions) - 1, -1, -1):
            after = 0
            for successor in successors[index]:
                after |= live[successor]
            before = (after & ~writes[index]) | reads[index]
            if before != live[index]:
                live[index] = before
                changed = True
    return live


def unbound_cell_read(info: CodeInfo, index: int, bound: Collection[str]) -> str | None:
    """A closure variable of the frame that may be read unbound after instruction `index`, which leaves those in `bound`
    bound; None when there is none. One that an inner function deletes may be unbound at any time.

    The resume function has it as a free variable, for which Python raises another error.
    """
    cells = frozenset(info.code.co_cellvars)
    if not cells:
        return None
    seen: dict[int, frozenset[str]] = {}
    deleted = cells & _deleted_inside(info.code)
    unbound = cells.difference(bound) | deleted
    pending = [(successor, unbound) for successor in _successors(info, info.instructions[index])]
    while pending:
        index, unbound = pending.pop()
        if index >= len(info.instructions) or (index in seen and unbound <= seen[index]):
            continue
        seen[index] = unbound = unbound | seen.get(index, frozenset())
        instruction = info.instructions[index]
        if instruction.opname in ("LOAD_DEREF", "DELETE_DEREF") and instruction.value in unbound:
            return str(instruction.value)
        if instruction.opname == "STORE_DEREF":
            unbound -= {instruction.value} - deleted
        elif instruction.opname == "DELETE_DEREF":
            unbound |= cells & {instruction.value}
        pending += [(successor, unbound) for successor in _successors(info, instruction)]
    return None


@cached_per_code(256)
def _deleted_inside(code: CodeType) -> frozenset[str]:
    """The closure variables that functions defined in `code` delete."""
    found: frozenset[str] = frozenset()
    for inner in code.co_consts:
        if isinstance(inner, CodeType):
            found |= {word.argval for word in dis.get_instructions(inner) if word.opname == "DELETE_DEREF"}
            found |= _deleted_inside(inner)
    return found


def _successors(info: CodeInfo, instruction: Instruction) -> list[int]:
    found = [] if instruction.opname in ENDS else [instruction.index + 1]
    if instruction.target >= 0:
        found.append(instruction.target)
    handled = info.handler_of(instruction.index)
    if handled is not None:
        found.append(handled.target)
    return found
