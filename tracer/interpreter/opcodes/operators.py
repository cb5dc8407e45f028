"""Unary and binary operators, comparisons, subscripts: all call `variables.core.operators.apply`."""
from __future__ import annotations

import dis
import operator
from typing import TYPE_CHECKING, Any

from ...bytecode.opcode_table import opcode
from ...variables.core import operators

if TYPE_CHECKING:
    from ...bytecode.instructions import Instruction
    from ..interpreter import Interpreter

_BY_NAME: dict[str, Any] = {
    "NB_ADD": operator.add, "NB_AND": operator.and_, "NB_FLOOR_DIVIDE": operator.floordiv,
    "NB_LSHIFT": operator.lshift, "NB_MATRIX_MULTIPLY": operator.matmul, "NB_MULTIPLY": operator.mul,
    "NB_REMAINDER": operator.mod, "NB_OR": operator.or_, "NB_POWER": operator.pow, "NB_RSHIFT": operator.rshift,
    "NB_SUBTRACT": operator.sub, "NB_TRUE_DIVIDE": operator.truediv, "NB_XOR": operator.xor,
    "NB_INPLACE_ADD": operator.iadd, "NB_INPLACE_AND": operator.iand, "NB_INPLACE_FLOOR_DIVIDE": operator.ifloordiv,
    "NB_INPLACE_LSHIFT": operator.ilshift, "NB_INPLACE_MATRIX_MULTIPLY": operator.imatmul,
    "NB_INPLACE_MULTIPLY": operator.imul, "NB_INPLACE_REMAINDER": operator.imod, "NB_INPLACE_OR": operator.ior,
    "NB_INPLACE_POWER": operator.ipow, "NB_INPLACE_RSHIFT": operator.irshift, "NB_INPLACE_SUBTRACT": operator.isub,
    "NB_INPLACE_TRUE_DIVIDE": operator.itruediv, "NB_INPLACE_XOR": operator.ixor,
}
BINARY = [_BY_NAME[name] for name, _ in dis._nb_ops]  # type: ignore[attr-defined]

COMPARE = {
    "<": operator.lt, "<=": operator.le, "==": operator.eq, "!=": operator.ne, ">": operator.gt, ">=": operator.ge,
}


@opcode("BINARY_OP")
def BINARY_OP(tx: Interpreter, instruction: Instruction) -> None:
    stack = tx.stack
    right = stack.pop()
    stack.append(operators.apply(tx, BINARY[instruction.arg], stack.pop(), right))


@opcode("UNARY_NEGATIVE")
def UNARY_NEGATIVE(tx: Interpreter, instruction: Instruction) -> None:
    tx.stack.append(operators.apply(tx, operator.neg, tx.stack.pop()))


@opcode("UNARY_INVERT")
def UNARY_INVERT(tx: Interpreter, instruction: Instruction) -> None:
    tx.stack.append(operators.apply(tx, operator.invert, tx.stack.pop()))


@opcode("UNARY_NOT")
def UNARY_NOT(tx: Interpreter, instruction: Instruction) -> None:
    tx.stack.append(operators.apply(tx, operator.not_, tx.stack.pop()))


@opcode("UNARY_POSITIVE", before=(3, 12))
def UNARY_POSITIVE(tx: Interpreter, instruction: Instruction) -> None:
    tx.stack.append(operators.apply(tx, operator.pos, tx.stack.pop()))


@opcode("COMPARE_OP", before=(3, 13))
def COMPARE_OP(tx: Interpreter, instruction: Instruction) -> None:
    stack = tx.stack
    right = stack.pop()
    stack.append(operators.apply(tx, COMPARE[instruction.value], stack.pop(), right))


@opcode("IS_OP")
def IS_OP(tx: Interpreter, instruction: Instruction) -> None:
    stack = tx.stack
    right = stack.pop()
    stack.append(operators.apply(tx, operator.is_not if instruction.arg else operator.is_, stack.pop(), right))


@opcode("CONTAINS_OP")
def CONTAINS_OP(tx: Interpreter, instruction: Instruction) -> None:
    stack = tx.stack
    container = stack.pop()
    found = operators.apply(tx, operator.contains, container, stack.pop())
    stack.append(operators.apply(tx, operator.not_, found) if instruction.arg else found)


@opcode("BINARY_SUBSCR")
def BINARY_SUBSCR(tx: Interpreter, instruction: Instruction) -> None:
    stack = tx.stack
    key = stack.pop()
    stack.append(operators.apply(tx, operator.getitem, stack.pop(), key))


@opcode("STORE_SUBSCR")
def STORE_SUBSCR(tx: Interpreter, instruction: Instruction) -> None:
    value, container, key = tx.popn(3)
    operators.apply(tx, operator.setitem, container, key, value)


@opcode("DELETE_SUBSCR")
def DELETE_SUBSCR(tx: Interpreter, instruction: Instruction) -> None:
    container, key = tx.popn(2)
    operators.apply(tx, operator.delitem, container, key)
