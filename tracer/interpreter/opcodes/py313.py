"""New or changed in CPython 3.13: the NULL of a call is above the callable, super-instructions, TO_BOOL."""
from __future__ import annotations

from typing import TYPE_CHECKING

from ...breaks.reasons import Reason
from ...breaks.unsupported import Unsupported
from ...bytecode.opcode_table import opcode
from ...variables import build
from ...variables.core import operators
from ...variables.core.base import NULL, Value
from ...variables.python.functions import FunctionValue
from .calls import call
from .functions import by_name, closure_of
from .operators import COMPARE
from .variables import load_global

if TYPE_CHECKING:
    from ...bytecode.instructions import Instruction
    from ..interpreter import Interpreter


JUMPS_ON_BOOL = ("POP_JUMP_IF_TRUE", "POP_JUMP_IF_FALSE")
"""Jumps that take a bool only, from 3.13 on."""


@opcode("LOAD_GLOBAL", since=(3, 13))
def LOAD_GLOBAL(tx: Interpreter, instruction: Instruction) -> None:
    tx.push(load_global(tx, instruction.value))
    if instruction.arg & 1:
        tx.push(NULL)


@opcode("TO_BOOL", since=(3, 13))
def TO_BOOL(tx: Interpreter, instruction: Instruction) -> None:
    if not _jump_follows(tx):
        tx.push(build.constant(tx.pop().truth(tx)))


@opcode("COMPARE_OP", since=(3, 13))
def COMPARE_OP(tx: Interpreter, instruction: Instruction) -> None:
    left, right = tx.popn(2)
    value = operators.apply(tx, COMPARE[instruction.value], left, right)
    as_bool = instruction.arg & 16 and not _jump_follows(tx)
    tx.push(build.constant(value.truth(tx)) if as_bool else value)


def _jump_follows(tx: Interpreter) -> bool:
    """Whether the next instruction is a jump on a bool. The jump computes the truth value itself, so that a graph that
    breaks on it breaks at the jump, with a resume function for each branch, as before 3.13."""
    return tx.info.instructions[tx.index].opname in JUMPS_ON_BOOL


def _called(tx: Interpreter, args: list[Value]) -> tuple[Value, list[Value]]:
    function, first = tx.popn(2)
    return function, args if first is NULL else [first, *args]


@opcode("CALL", since=(3, 13))
def CALL(tx: Interpreter, instruction: Instruction) -> None:
    function, args = _called(tx, tx.popn(instruction.arg))
    call(tx, function, args, {})


@opcode("CALL_KW", since=(3, 13))
def CALL_KW(tx: Interpreter, instruction: Instruction) -> None:
    names = tx.pop().as_constant()
    function, args = _called(tx, tx.popn(instruction.arg))
    split = len(args) - len(names)
    call(tx, function, args[:split], dict(zip(names, args[split:])))


@opcode("END_FOR", since=(3, 13))
def END_FOR(tx: Interpreter, instruction: Instruction) -> None:
    tx.pop()


@opcode("MAKE_FUNCTION", since=(3, 13))
def MAKE_FUNCTION(tx: Interpreter, instruction: Instruction) -> None:
    code = tx.stack[-1].as_constant()
    if code.co_freevars:
        closure_of(tx, tx.stack[-2])  # the function cannot be rebuilt without its cells
    tx.pop()
    tx.push(build.make_function(tx, code, tx.f_globals, (), {}, (), None))


@opcode("SET_FUNCTION_ATTRIBUTE", since=(3, 13))
def SET_FUNCTION_ATTRIBUTE(tx: Interpreter, instruction: Instruction) -> None:
    value, function = tx.popn(2)
    if not isinstance(function, FunctionValue) or function.source is not None:
        raise Unsupported(Reason.SET_ATTRIBUTE, detail="a part of a function that an earlier part of this one left")
    if instruction.arg == 1:
        function.complete(defaults=tuple(value.iterate(tx)))
    elif instruction.arg == 2:
        function.complete(kwdefaults=by_name(tx, value))
    elif instruction.arg == 8:
        function.complete(closure=closure_of(tx, value))
    elif instruction.arg == 4:
        function.complete(annotations=value)
    tx.push(function)


@opcode("CONVERT_VALUE", since=(3, 13))
def CONVERT_VALUE(tx: Interpreter, instruction: Instruction) -> None:
    tx.push(build.format_value(tx, tx.pop(), ("", "s", "r", "a")[instruction.arg], None))


@opcode("FORMAT_SIMPLE", since=(3, 13))
def FORMAT_SIMPLE(tx: Interpreter, instruction: Instruction) -> None:
    tx.push(build.format_value(tx, tx.pop(), "", None))


@opcode("FORMAT_WITH_SPEC", since=(3, 13))
def FORMAT_WITH_SPEC(tx: Interpreter, instruction: Instruction) -> None:
    value, spec = tx.popn(2)
    tx.push(build.format_value(tx, value, "", spec))
