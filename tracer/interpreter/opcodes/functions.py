"""Making functions; generators."""
from __future__ import annotations

from typing import TYPE_CHECKING

from ...breaks.reasons import Reason
from ...breaks.unsupported import Unsupported
from ...bytecode.opcode_table import VERSION, opcode
from ...variables import build
from ...variables.containers.iterators import get_iter
from ...variables.core.base import Value
from ...variables.python.cells import CellValue
from ...variables.python.objects import ObjectValue
from ..generators import GeneratorValue

if TYPE_CHECKING:
    from ...bytecode.instructions import Instruction
    from ..interpreter import Interpreter


@opcode("LOAD_CLOSURE", before=(3, 13))
def LOAD_CLOSURE(tx: Interpreter, instruction: Instruction) -> None:
    tx.push(tx.cells[instruction.value])


@opcode("MAKE_FUNCTION", before=(3, 13))
def MAKE_FUNCTION(tx: Interpreter, instruction: Instruction) -> None:
    flags = instruction.arg
    code = tx.pop().as_constant()
    closure = closure_of(tx, tx.pop()) if flags & 8 else ()
    annotations = tx.pop() if flags & 4 else None
    kwdefaults = by_name(tx, tx.pop()) if flags & 2 else {}
    defaults = tuple(tx.pop().iterate(tx)) if flags & 1 else ()
    arguments = code, tx.f_globals, defaults, kwdefaults, closure, annotations
    tx.push(build.make_function(tx, *arguments))


def closure_of(tx: Interpreter, cells: Value) -> tuple[CellValue, ...]:
    """The cells in a tuple. After a break between making the tuple and the function it is a real tuple: the function is
    then made in eager."""
    found = [cell for cell in cells.iterate(tx) if isinstance(cell, CellValue)]
    if len(found) < len(cells.iterate(tx)):
        raise Unsupported(Reason.UNKNOWN_TYPE, detail="a cell that an earlier part of the function left")
    return tuple(found)


def by_name(tx: Interpreter, mapping: Value) -> dict[str, Value]:
    """The items of a dict of keyword defaults."""
    return {key.as_constant(): mapping.getitem(tx, key) for key in mapping.iterate(tx)}


# ---- generators -----------------------------------------------------------------------------------------------------
@opcode("RETURN_GENERATOR")
def RETURN_GENERATOR(tx: Interpreter, instruction: Instruction) -> None:
    tx.push(build.constant(None))  # the generator exists already; the POP_TOP that follows drops the value "sent"


@opcode("YIELD_VALUE")
def YIELD_VALUE(tx: Interpreter, instruction: Instruction) -> None:
    tx.yielded = tx.pop()


@opcode("GET_YIELD_FROM_ITER")
def GET_YIELD_FROM_ITER(tx: Interpreter, instruction: Instruction) -> None:
    value = tx.pop()
    tx.push(value if isinstance(value, GeneratorValue) else get_iter(tx, value))


@opcode("SEND")
def SEND(tx: Interpreter, instruction: Instruction) -> None:
    sent = tx.pop()
    receiver = tx.stack[-1]
    if isinstance(receiver, GeneratorValue):
        value, result = receiver.resume(tx, sent), receiver.result
    elif not (sent.is_constant() and sent.as_constant() is None) or isinstance(receiver, ObjectValue):
        raise Unsupported(
            Reason.GENERATOR, detail=f"`yield from` {receiver.describe()}"
        )  # which has a say in `send` and results
    else:
        value, result = receiver.next(tx), None
    if value is not None:
        tx.push(value)
        return
    if VERSION < (3, 12):
        tx.pop()  # END_SEND removes the receiver later
    tx.push(result if result is not None else build.constant(None))
    tx.index = instruction.target
