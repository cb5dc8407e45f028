"""Instructions that only move values on the stack, or do nothing while tracing."""
from __future__ import annotations

from typing import TYPE_CHECKING

from ...bytecode.opcode_table import opcode
from ...variables.core.base import NULL
from ..destructors import let_go

if TYPE_CHECKING:
    from ...bytecode.instructions import Instruction
    from ..interpreter import Interpreter


@opcode("NOP", "RESUME")
def NOP(tx: Interpreter, instruction: Instruction) -> None:
    pass


@opcode("POP_TOP")
def POP_TOP(tx: Interpreter, instruction: Instruction) -> None:
    let_go(tx, tx.stack.pop())


@opcode("PUSH_NULL")
def PUSH_NULL(tx: Interpreter, instruction: Instruction) -> None:
    tx.stack.append(NULL)


@opcode("SWAP")
def SWAP(tx: Interpreter, instruction: Instruction) -> None:
    stack, depth = tx.stack, instruction.arg
    stack[-1], stack[-depth] = stack[-depth], stack[-1]


@opcode("COPY")
def COPY(tx: Interpreter, instruction: Instruction) -> None:
    tx.stack.append(tx.stack[-instruction.arg])
