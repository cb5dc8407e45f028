"""Constants, local variables, globals, closure cells, attributes, imports."""
from __future__ import annotations

import importlib.util
import sys
from types import CellType
from typing import TYPE_CHECKING

from ...breaks.reasons import Reason
from ...breaks.unsupported import Unsupported
from ...bytecode.opcode_table import opcode
from ...variables import build
from ...variables.core.base import NULL, ObservedException, Value
from ...variables.core.finalizers import object_dies_visibly, refuse_visible_death, refuse_visible_deaths
from ...variables.core.registry import is_library
from ...variables.python.cells import DELETED, CellValue
from ..destructors import let_go

if TYPE_CHECKING:
    from ...bytecode.instructions import Instruction
    from ..interpreter import Interpreter


@opcode("LOAD_CONST")
def LOAD_CONST(tx: Interpreter, instruction: Instruction) -> None:
    tx.stack.append(build.from_python(tx, instruction.value))


# ---- local variables ------------------------------------------------------------------------------------------------
@opcode("LOAD_FAST")
def LOAD_FAST(tx: Interpreter, instruction: Instruction) -> None:
    tx.stack.append(load_fast(tx, instruction.value))


@opcode("STORE_FAST")
def STORE_FAST(tx: Interpreter, instruction: Instruction) -> None:
    store_fast(tx, instruction.value, tx.stack.pop())


def load_fast(tx: Interpreter, name: str) -> Value:
    """A local variable; from 3.13 on also a closure cell itself, which has an index among them."""
    value = tx.locals.get(name)
    if value is not None:
        return value
    return tx.cells[name] if name in tx.cells else tx.load_local(name)


def store_fast(tx: Interpreter, name: str, value: Value) -> None:
    """Assign to a local variable. After a comprehension (3.12) the value may be what LOAD_FAST_AND_CLEAR saved: a cell,
    or NULL for an unbound variable."""
    before = forget(tx, name)
    if isinstance(value, CellValue):
        tx.cells[name] = value
    elif value is not NULL:
        tx.locals[name] = value
    if before is not None:
        let_go(tx, before)


def forget(tx: Interpreter, name: str) -> Value | None:
    """Remove a local variable's value, and return the object whose death may be observable."""
    if name in tx.unread and object_dies_visibly(tx.unread[name]):
        tx.load_local(name)
    tx.unread.pop(name, None)
    return tx.locals.pop(name, None)


@opcode("DELETE_FAST")
def DELETE_FAST(tx: Interpreter, instruction: Instruction) -> None:
    name = instruction.value
    tx.load_local(name)
    before = forget(tx, name)
    if before is not None:
        let_go(tx, before)


# ---- globals --------------------------------------------------------------------------------------------------------
def load_global(tx: Interpreter, name: str) -> Value:
    """A global or builtin by name, from the cache of the trace when it was read before."""
    value = tx.trace.global_values.get((id(tx.f_globals), name))
    return value if value is not None and value is not DELETED else tx.load_global(name)


@opcode("STORE_GLOBAL")
def STORE_GLOBAL(tx: Interpreter, instruction: Instruction) -> None:
    tx.store_global(instruction.value, tx.stack.pop())


@opcode("DELETE_GLOBAL")
def DELETE_GLOBAL(tx: Interpreter, instruction: Instruction) -> None:
    tx.load_global(instruction.value)
    tx.store_global(instruction.value, DELETED)


# ---- closure cells --------------------------------------------------------------------------------------------------
@opcode("COPY_FREE_VARS")
def COPY_FREE_VARS(tx: Interpreter, instruction: Instruction) -> None:
    pass  # the interpreter starts with the cells of the closure


@opcode("MAKE_CELL")
def MAKE_CELL(tx: Interpreter, instruction: Instruction) -> None:
    name = instruction.value
    content = tx.load_local(name) if tx.is_bound(name) else None
    tx.locals.pop(name, None)
    if tx.parent is None and instruction.index < tx.info.prologue:
        tx.cells[name] = CellValue(content, name=name)
        return
    tx.cells[name] = cell = CellValue()
    if content is not None:
        tx.effects.store_cell(cell, content)


@opcode("LOAD_DEREF")
def LOAD_DEREF(tx: Interpreter, instruction: Instruction) -> None:
    tx.stack.append(tx.load_cell(instruction.value))


@opcode("STORE_DEREF")
def STORE_DEREF(tx: Interpreter, instruction: Instruction) -> None:
    _let_go_of_cell(tx.cells[instruction.value])
    tx.effects.store_cell(tx.cells[instruction.value], tx.stack.pop())


def _let_go_of_cell(cell: CellValue) -> None:
    """The content of a cell is dropped. Raises Unsupported where its death may be observable."""
    refuse_visible_deaths([cell.content])
    if cell.content is None and cell.real is not None and cell.real != CellType():
        refuse_visible_death(cell.real.cell_contents, detail=f"what the variable {cell.name or cell.describe()} holds")


@opcode("DELETE_DEREF")
def DELETE_DEREF(tx: Interpreter, instruction: Instruction) -> None:
    tx.load_cell(instruction.value)
    _let_go_of_cell(tx.cells[instruction.value])
    tx.effects.store_cell(tx.cells[instruction.value], DELETED)


# ---- attributes -----------------------------------------------------------------------------------------------------
@opcode("STORE_ATTR")
def STORE_ATTR(tx: Interpreter, instruction: Instruction) -> None:
    owner = tx.stack.pop()
    owner.setattr(tx, instruction.value, tx.stack.pop())


@opcode("DELETE_ATTR")
def DELETE_ATTR(tx: Interpreter, instruction: Instruction) -> None:
    owner = tx.stack.pop()
    owner.call_method(tx, "__delattr__", [build.constant(instruction.value)], {})


# ---- imports --------------------------------------------------------------------------------------------------------
@opcode("IMPORT_NAME")
def IMPORT_NAME(tx: Interpreter, instruction: Instruction) -> None:
    names, level = tx.stack.pop(), tx.stack.pop().as_constant()
    name = instruction.value
    if level:
        package = tx.f_globals.get("__package__") or tx.f_globals.get("__name__", "").rpartition(".")[0]
        name = importlib.util.resolve_name("." * level + name, package)
    if name not in sys.modules:
        raise Unsupported(Reason.IMPORT, detail=name)
    absolute = name if names.truth(tx) or level else name.partition(".")[0]
    module = sys.modules[absolute]
    if not is_library(absolute):
        unchanged = (lambda _: sys.modules.get(absolute) is module, f"sys.modules[{absolute!r}] is unchanged")
        tx.guards.add(None, "LAMBDA", unchanged)
    tx.stack.append(build.from_python(tx, module))


@opcode("IMPORT_FROM")
def IMPORT_FROM(tx: Interpreter, instruction: Instruction) -> None:
    module = tx.stack[-1]
    try:
        value = module.getattr(tx, instruction.value)
    except ObservedException:
        name = f"{module.as_constant().__name__}.{instruction.value}"
        if name not in sys.modules:
            raise Unsupported(Reason.IMPORT, detail=name) from None
        value = build.from_python(tx, sys.modules[name])
    tx.stack.append(value)


@opcode("LOAD_GLOBAL", before=(3, 13))
def LOAD_GLOBAL(tx: Interpreter, instruction: Instruction) -> None:
    if instruction.arg & 1:
        tx.stack.append(NULL)
    tx.stack.append(load_global(tx, instruction.value))
