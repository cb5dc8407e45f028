"""Class statements: names of a class body, and the function that makes the class.

A body's variables are a dict, which is in `locals` here: `variables/python/class_statements.py` runs bodies, as inner
frames. The frame of a body by itself, or of a module, is not traced.
"""
from __future__ import annotations

import builtins
from typing import TYPE_CHECKING

from ...breaks.reasons import Reason
from ...breaks.unsupported import Unsupported
from ...bytecode.opcode_table import opcode
from ...variables import build
from ...variables.core.base import Value
from .variables import load_global

if TYPE_CHECKING:
    from ...bytecode.instructions import Instruction
    from ..interpreter import Interpreter

_BUILD_CLASS = builtins.__build_class__


@opcode("LOAD_BUILD_CLASS")
def LOAD_BUILD_CLASS(tx: Interpreter, instruction: Instruction) -> None:
    if builtins.__build_class__ is not _BUILD_CLASS:
        raise Unsupported(Reason.CLASS_DEFINITION, __build_class__, detail=", which the program replaced,")
    tx.push(build.from_python(tx, _BUILD_CLASS))


def _body(tx: Interpreter) -> dict[str, Value]:
    if tx.parent is None:
        raise Unsupported(Reason.OPCODE, detail="the body of a class or module")
    return tx.locals


@opcode("STORE_NAME")
def STORE_NAME(tx: Interpreter, instruction: Instruction) -> None:
    _body(tx)[instruction.value] = tx.pop()


@opcode("LOAD_NAME")
def LOAD_NAME(tx: Interpreter, instruction: Instruction) -> None:
    name = instruction.value
    tx.push(_body(tx).get(name) or load_global(tx, name))


@opcode("DELETE_NAME")
def DELETE_NAME(tx: Interpreter, instruction: Instruction) -> None:
    name = instruction.value
    if _body(tx).pop(name, None) is None:
        tx.raise_observed(NameError, f"name '{name}' is not defined")


@opcode("LOAD_CLASSDEREF", before=(3, 12))
def LOAD_CLASSDEREF(tx: Interpreter, instruction: Instruction) -> None:
    name = instruction.value
    tx.push(_body(tx).get(name) or tx.load_cell(name))


class Variables(Value):
    """The variables of a class body, in which names are looked up."""

    __slots__ = ("names",)

    def __init__(self, names: dict[str, Value]) -> None:
        super().__init__()
        self.names = names


@opcode("LOAD_LOCALS", since=(3, 12))
def LOAD_LOCALS(tx: Interpreter, instruction: Instruction) -> None:
    tx.push(Variables(_body(tx)))


def _found(tx: Interpreter, name: str) -> Value | None:
    variables = tx.pop()
    if not isinstance(variables, Variables):
        raise Unsupported(Reason.OPCODE, detail="a name that is looked up in a dict")
    return variables.names.get(name)


@opcode("LOAD_FROM_DICT_OR_DEREF", since=(3, 12))
def LOAD_FROM_DICT_OR_DEREF(tx: Interpreter, instruction: Instruction) -> None:
    tx.push(_found(tx, instruction.value) or tx.load_cell(instruction.value))


@opcode("LOAD_FROM_DICT_OR_GLOBALS", since=(3, 12))
def LOAD_FROM_DICT_OR_GLOBALS(tx: Interpreter, instruction: Instruction) -> None:
    tx.push(_found(tx, instruction.value) or load_global(tx, instruction.value))


@opcode("SETUP_ANNOTATIONS")
def SETUP_ANNOTATIONS(tx: Interpreter, instruction: Instruction) -> None:
    if "__annotations__" not in _body(tx):
        tx.locals["__annotations__"] = build.make_dict(tx, [], [])
