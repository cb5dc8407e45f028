"""Whether the program handles exceptions of the current instruction: a data-dependent error of the graph is caught."""
from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ..bytecode.instructions import Instruction
    from ..variables.core.base import Translator, Value


def is_caught(tx: Translator) -> bool:
    """Whether user code handles exceptions of the current instruction, in this frame or in a caller: an `except` covers
    it, or a `with` block whose manager is not torch's or is not known (the block was entered before the frame broke).
    `finally` does not count: it re-raises."""
    frame: Translator | None = tx
    while frame is not None:
        known = {context.depth + 1 for context in frame.open_contexts}  # below the handler's stack is `__exit__`
        instructions = frame.info.instructions
        for entry in frame.info.handlers_of(frame.current.index):
            leaves_block = instructions[entry.target + 1].opname == "WITH_EXCEPT_START"
            if entry.depth not in known if leaves_block else _handles(instructions, entry.target):
                return True
        if any(not _is_torchs(context.manager, frame) for context in frame.open_contexts):
            return True
        frame = frame.parent
    return False


def _is_torchs(manager: Value, frame: Translator) -> bool:
    """Whether the context manager that `frame` has entered never swallows an exception: torch's do not, including those
    of decorated functions."""
    if not manager.handles_exceptions:
        return True
    names = manager.python_type().__module__, str(frame.f_globals.get("__name__"))
    return any(name.partition(".")[0] == "torch" for name in names)


def _handles(instructions: list[Instruction], start: int) -> bool:
    """Whether the handler is an `except`; that of a comprehension, from Python 3.12 on, restores a variable."""
    if instructions[start].opname != "PUSH_EXC_INFO":
        return False
    for instruction in instructions[start + 1 :]:
        if instruction.opname in ("CHECK_EXC_MATCH", "CHECK_EG_MATCH"):
            return True
        if instruction.opname == "POP_TOP" and instruction.index == start + 1:  # a bare `except:`
            return True
        if instruction.opname in ("RERAISE", "POP_EXCEPT", "WITH_EXCEPT_START"):
            return False
    return False
