"""Jumps, loops, return."""
from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import torch

from ...breaks.reasons import Reason
from ...breaks.unsupported import Unsupported
from ...bytecode.opcode_table import VERSION, opcode
from ...variables.containers.iterators import get_iter
from ...variables.core.base import Value
from ...variables.torch.runtime_asserts import assume

if TYPE_CHECKING:
    from ...bytecode.instructions import CodeInfo, Instruction
    from ..interpreter import Interpreter


@opcode("RETURN_VALUE")
def RETURN_VALUE(tx: Interpreter, instruction: Instruction) -> None:
    tx.returned = tx.stack.pop()


@opcode("JUMP_FORWARD", "JUMP_BACKWARD", "JUMP_BACKWARD_NO_INTERRUPT")
def JUMP_FORWARD(tx: Interpreter, instruction: Instruction) -> None:
    _jump(tx, instruction)


def _jump(tx: Interpreter, instruction: Instruction) -> None:
    if instruction.target <= instruction.index:
        tx.trace.spend()
    tx.index = instruction.target


def _truth(tx: Interpreter, value: Value, if_true: int, if_false: int) -> bool:
    """bool(value). Where it is data-dependent and one of the two possible next instructions only raises, as after an
    `assert`, tracing takes the other branch, and the graph checks the condition."""
    try:
        return value.truth(tx)
    except Unsupported as error:
        if error.reason not in (Reason.DATA_DEPENDENT_BRANCH, Reason.BRANCH_ON_SIZE):
            raise
        if _only_raises(tx.info.instructions, if_false):
            assume(tx, value, error.again())
            return True
        if not issubclass(value.python_type(), torch.Tensor) or not _only_raises(tx.info.instructions, if_true):
            raise
        assume(tx, value.call_method(tx, "logical_not", [], {}), error.again())
        return False


def _only_raises(instructions: Sequence[Instruction], index: int) -> bool:
    """Whether the code at `index` makes an exception and raises it, without another branch."""
    for instruction in instructions[index : index + _LONGEST_RAISE]:
        if instruction.opname == "RAISE_VARARGS":
            return True
        if instruction.target >= 0 or instruction.opname.startswith(("RETURN", "STORE", "YIELD", "DELETE")):
            return False
    return False


_LONGEST_RAISE = 80
"""Instructions that make a message, at most."""


@opcode("POP_JUMP_FORWARD_IF_TRUE", "POP_JUMP_BACKWARD_IF_TRUE", before=(3, 12))
@opcode("POP_JUMP_IF_TRUE", since=(3, 12))
def POP_JUMP_IF_TRUE(tx: Interpreter, instruction: Instruction) -> None:
    if _truth(tx, tx.stack.pop(), if_true=instruction.target, if_false=tx.index):
        _jump(tx, instruction)


@opcode("POP_JUMP_FORWARD_IF_FALSE", "POP_JUMP_BACKWARD_IF_FALSE", before=(3, 12))
@opcode("POP_JUMP_IF_FALSE", since=(3, 12))
def POP_JUMP_IF_FALSE(tx: Interpreter, instruction: Instruction) -> None:
    if not _truth(tx, tx.stack.pop(), if_true=tx.index, if_false=instruction.target):
        _jump(tx, instruction)


@opcode("JUMP_IF_TRUE_OR_POP", before=(3, 12))
def JUMP_IF_TRUE_OR_POP(tx: Interpreter, instruction: Instruction) -> None:
    if tx.stack[-1].truth(tx):
        _jump(tx, instruction)
    else:
        tx.stack.pop()


@opcode("JUMP_IF_FALSE_OR_POP", before=(3, 12))
def JUMP_IF_FALSE_OR_POP(tx: Interpreter, instruction: Instruction) -> None:
    if tx.stack[-1].truth(tx):
        tx.stack.pop()
    else:
        _jump(tx, instruction)


def is_none(value: Value) -> bool:
    """Whether this is the object None."""
    return value.is_constant() and value.as_constant() is None


@opcode("POP_JUMP_FORWARD_IF_NONE", "POP_JUMP_BACKWARD_IF_NONE", before=(3, 12))
@opcode("POP_JUMP_IF_NONE", since=(3, 12))
def POP_JUMP_IF_NONE(tx: Interpreter, instruction: Instruction) -> None:
    if is_none(tx.stack.pop()):
        _jump(tx, instruction)


@opcode("POP_JUMP_FORWARD_IF_NOT_NONE", "POP_JUMP_BACKWARD_IF_NOT_NONE", before=(3, 12))
@opcode("POP_JUMP_IF_NOT_NONE", since=(3, 12))
def POP_JUMP_IF_NOT_NONE(tx: Interpreter, instruction: Instruction) -> None:
    if not is_none(tx.stack.pop()):
        _jump(tx, instruction)


@opcode("GET_ITER")
def GET_ITER(tx: Interpreter, instruction: Instruction) -> None:
    tx.stack.append(get_iter(tx, tx.stack.pop()))


@opcode("FOR_ITER")
def FOR_ITER(tx: Interpreter, instruction: Instruction) -> None:
    value = tx.stack[-1].next(tx)
    if value is not None:
        tx.stack.append(value)
        return
    tx.stack.pop()
    tx.index = after_loop(tx.info, instruction.target)


JUMP_IF_FALSE = "POP_JUMP_IF_FALSE" if VERSION >= (3, 12) else "POP_JUMP_FORWARD_IF_FALSE"
"""The forward jump if false."""


def after_loop(info: CodeInfo, target: int) -> int:
    """The instruction after a loop. From 3.12 on the jump skips END_FOR (and in 3.13 the POP_TOP that follows)."""
    instructions = info.instructions
    if instructions[target].opname != "END_FOR":
        return target
    return target + (2 if VERSION >= (3, 13) else 1)
