"""What CPython 3.13 brought or changed: the NULL of a call lies above the callable, super-instructions, to_bool."""
from __future__ import annotations

from typing import TYPE_CHECKING

from ..values import build, operators
from ..values.base import NULL, Value
from .calls import call
from .operators import COMPARE
from .registry import opcode
from .variables import load_global

if TYPE_CHECKING:
    from ..instructions import Instruction
    from ..interpreter import Interpreter


@opcode("LOAD_GLOBAL", since=(3, 13))
def LOAD_GLOBAL(tx: Interpreter, instruction: Instruction) -> None:
    tx.push(load_global(tx, instruction.value))
    if instruction.arg & 1:
        tx.push(NULL)


@opcode("LOAD_FAST_LOAD_FAST", since=(3, 13))
def LOAD_FAST_LOAD_FAST(tx: Interpreter, instruction: Instruction) -> None:
    for name in instruction.value:
        tx.push(tx.load_local(name))


@opcode("STORE_FAST_LOAD_FAST", since=(3, 13))
def STORE_FAST_LOAD_FAST(tx: Interpreter, instruction: Instruction) -> None:
    stored, loaded = instruction.value
    _store(tx, stored)
    tx.push(tx.load_local(loaded))


@opcode("STORE_FAST_STORE_FAST", since=(3, 13))
def STORE_FAST_STORE_FAST(tx: Interpreter, instruction: Instruction) -> None:
    for name in instruction.value:
        _store(tx, name)


def _store(tx: Interpreter, name: str) -> None:
    tx.unread.pop(name, None)
    tx.locals[name] = tx.pop()


@opcode("TO_BOOL", since=(3, 13))
def TO_BOOL(tx: Interpreter, instruction: Instruction) -> None:
    tx.push(build.constant(tx.pop().truth(tx)))


@opcode("COMPARE_OP", since=(3, 13))
def COMPARE_OP(tx: Interpreter, instruction: Instruction) -> None:
    left, right = tx.popn(2)
    symbol = instruction.value.removeprefix("bool(").removesuffix(")")
    value = operators.apply(tx, COMPARE[symbol], left, right)
    tx.push(build.constant(value.truth(tx)) if instruction.arg & 16 else value)


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
    code = tx.pop().as_constant()
    tx.push(build.make_function(tx, code, code.co_name, tx.f_globals, (), {}, (), None))


@opcode("SET_FUNCTION_ATTRIBUTE", since=(3, 13))
def SET_FUNCTION_ATTRIBUTE(tx: Interpreter, instruction: Instruction) -> None:
    value, function = tx.popn(2)
    if instruction.arg == 1:
        function.defaults = tuple(value.iterate(tx))  # type: ignore[attr-defined]
    elif instruction.arg == 2:
        function.kwdefaults = {k.as_constant(): value.getitem(tx, k) for k in value.iterate(tx)}  # type: ignore[attr-defined]
    elif instruction.arg == 8:
        function.closure = tuple(value.iterate(tx))  # type: ignore[attr-defined]
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
