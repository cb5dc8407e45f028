"""New in CPython 3.12."""
from __future__ import annotations

import operator
from typing import TYPE_CHECKING

from ...breaks.reasons import Reason
from ...breaks.unsupported import Unsupported
from ...bytecode.opcode_table import VERSION, opcode
from ...variables import build
from ...variables.core import operators
from ...variables.core.base import NULL, Value
from .calls import method_of

if TYPE_CHECKING:
    from ...bytecode.instructions import Instruction
    from ..interpreter import Interpreter


@opcode("LOAD_ATTR", since=(3, 12))
def LOAD_ATTR(tx: Interpreter, instruction: Instruction) -> None:
    owner = tx.stack.pop()
    if not instruction.arg & 1:
        tx.push(owner.getattr(tx, instruction.value))
        return
    tx.stack.extend(callable_pair(method_of(tx, owner, instruction.value)))


def callable_pair(function: Value) -> tuple[Value, Value]:
    """A callable and its NULL in the order of this version (from 3.13 on the NULL is above)."""
    return (function, NULL) if VERSION >= (3, 13) else (NULL, function)


@opcode("LOAD_SUPER_ATTR", since=(3, 12))
def LOAD_SUPER_ATTR(tx: Interpreter, instruction: Instruction) -> None:
    function, cls, instance = tx.popn(3)
    args = [cls, instance] if instruction.arg & 2 else []
    owner = function.call(tx, args or [cls, instance], {})
    if instruction.arg & 1:
        tx.stack.extend(callable_pair(owner.getattr(tx, instruction.value)))
    else:
        tx.push(owner.getattr(tx, instruction.value))


@opcode("LOAD_FAST_CHECK", since=(3, 12))
def LOAD_FAST_CHECK(tx: Interpreter, instruction: Instruction) -> None:
    tx.push(tx.load_local(instruction.value))


@opcode("LOAD_FAST_AND_CLEAR", since=(3, 12))
def LOAD_FAST_AND_CLEAR(tx: Interpreter, instruction: Instruction) -> None:
    name = instruction.value
    if name in tx.cells:
        tx.push(tx.cells.pop(name))
    elif tx.is_bound(name):
        tx.push(tx.load_local(name))
        tx.locals.pop(name, None)
    else:
        tx.push(NULL)


@opcode("RETURN_CONST", since=(3, 12))
def RETURN_CONST(tx: Interpreter, instruction: Instruction) -> None:
    tx.returned = build.from_python(tx, instruction.value)


@opcode("END_FOR", since=(3, 12), before=(3, 13))
def END_FOR(tx: Interpreter, instruction: Instruction) -> None:
    tx.popn(2)


@opcode("END_SEND", since=(3, 12))
def END_SEND(tx: Interpreter, instruction: Instruction) -> None:
    del tx.stack[-2]


@opcode("BINARY_SLICE", since=(3, 12))
def BINARY_SLICE(tx: Interpreter, instruction: Instruction) -> None:
    container, start, stop = tx.popn(3)
    key = build.make_slice(tx, [start, stop, build.constant(None)])
    tx.push(operators.apply(tx, operator.getitem, container, key))


@opcode("STORE_SLICE", since=(3, 12))
def STORE_SLICE(tx: Interpreter, instruction: Instruction) -> None:
    value, container, start, stop = tx.popn(4)
    key = build.make_slice(tx, [start, stop, build.constant(None)])
    operators.apply(tx, operator.setitem, container, key, value)


@opcode("CALL_INTRINSIC_1", since=(3, 12))
def CALL_INTRINSIC_1(tx: Interpreter, instruction: Instruction) -> None:
    if instruction.arg == 3:  # INTRINSIC_STOPITERATION_ERROR: `generators.py` does it
        return
    if instruction.arg == 5:  # INTRINSIC_UNARY_POSITIVE
        tx.push(operators.apply(tx, operator.pos, tx.pop()))
    elif instruction.arg == 6:  # INTRINSIC_LIST_TO_TUPLE
        tx.push(build.make_tuple(tx, list(tx.pop().iterate(tx))))
    else:
        raise Unsupported(Reason.OPCODE, detail=f"CALL_INTRINSIC_1 {instruction.arg}")


@opcode("CALL_INTRINSIC_2", since=(3, 12))
def CALL_INTRINSIC_2(tx: Interpreter, instruction: Instruction) -> None:
    raise Unsupported(Reason.OPCODE, detail=_INTRINSICS_2[instruction.arg])


_INTRINSICS_2 = ("", "except*", *["a type parameter"] * 2, "a generic function or class", "a type parameter")


@opcode("CLEANUP_THROW", since=(3, 12))
def CLEANUP_THROW(tx: Interpreter, instruction: Instruction) -> None:
    exception = tx.stack[-1]
    if not issubclass(exception.python_type(), StopIteration):
        tx.raise_value(tx.pop(), again=True)
    tx.popn(3)
    tx.push(build.constant(None))
    tx.push(exception.getattr(tx, "value"))
