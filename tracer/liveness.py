"""Which local variables are still read after an instruction: only those are handed to a resume function."""
from __future__ import annotations

from .instructions import CodeInfo, Instruction

_READS = frozenset(("LOAD_FAST", "LOAD_FAST_CHECK", "LOAD_FAST_AND_CLEAR", "DELETE_FAST"))
_ENDS = frozenset(
    ("RETURN_VALUE", "RETURN_CONST", "RAISE_VARARGS", "RERAISE", "JUMP_FORWARD", "JUMP_BACKWARD",
     "JUMP_BACKWARD_NO_INTERRUPT")
)


def live_at(info: CodeInfo, index: int) -> frozenset[str]:
    """The local variables whose value at the start of instruction `index` may be read from there on."""
    return _live_in(info)[index]


def _live_in(info: CodeInfo) -> list[frozenset[str]]:
    """Backward data flow to the fixed point; an exception may leave every instruction that has a handler."""
    instructions = info.instructions
    live: list[frozenset[str]] = [frozenset()] * (len(instructions) + 1)
    successors = [_successors(info, instruction) for instruction in instructions]
    changed = True
    while changed:
        changed = False
        for instruction in reversed(instructions):
            after = frozenset().union(*(live[s] for s in successors[instruction.index]))
            before = _before(instruction, after)
            if before != live[instruction.index]:
                live[instruction.index] = before
                changed = True
    return live


def _successors(info: CodeInfo, instruction: Instruction) -> list[int]:
    found = [] if instruction.opname in _ENDS else [instruction.index + 1]
    if instruction.target >= 0:
        found.append(instruction.target)
    handled = info.handler_of(instruction.index)
    if handled is not None:
        found.append(handled.target)
    return found


def _before(instruction: Instruction, after: frozenset[str]) -> frozenset[str]:
    opname = instruction.opname
    if opname in _READS:
        return after | {instruction.value}
    if opname == "STORE_FAST":
        return after - {instruction.value}
    return after
