"""Resume functions: the rest of a frame after a graph break, as a function of the stack and of the live variables.

A resume function has the code of the original with another start: push the stack that the break left, jump to where
it goes on. All cells of the original are its free variables. It is an ordinary function, so the frame hook captures it
like any other, and a break in it makes the next one.
"""
from __future__ import annotations

import dis
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from types import CodeType
from typing import Any

from bytecode import Bytecode, CellVar, CompilerFlags, FreeVar, Instr, Label
from bytecode.concrete import _ConvertBytecodeToConcrete

from .codegen import STACK_ARGUMENT
from .instructions import code_info
from .opcodes.py313 import HALVES
from .slots import Slot, push_slot
from .wording import expression_of


@dataclass(frozen=True)
class Origin:
    """Where the instructions of a resume function come from: instruction i is the original's i + `shift`, after the
    first `own`, which push the stack. It goes on at the original's `index`. Arguments `boxed` come in lists of one."""

    code: CodeType
    shift: int
    index: int
    own: int
    boxed: tuple[str, ...]


_ORIGINS: dict[CodeType, Origin] = {}


def origin_of(code: CodeType) -> Origin | None:
    """Where a resume function's code comes from; None for any other code."""
    return _ORIGINS.get(code)


def resumed_line(code: CodeType) -> int:
    """The line at which a resume function goes on; the first line for any other code."""
    origin = origin_of(code)
    line = instruction_at(origin.code, origin.index).lineno if origin is not None else None
    return line if isinstance(line, int) else code.co_firstlineno


def resume_name(code: CodeType) -> str:
    """What a resume function is called in records, as stock's are; the qualified name of any other code."""
    if origin_of(code) is None:
        return code.co_qualname
    return f"torch_dynamo_resume_in_{code.co_name}_at_{resumed_line(code)}"


def resume_id(code: CodeType) -> str:
    """Which function a resume function continues, and at which instruction; "" for any other code."""
    origin = origin_of(code)
    if origin is None:
        return ""
    return f"{origin.code.co_filename}:{origin.code.co_firstlineno}:{origin.code.co_qualname}+{origin.index}"


def stack_words(code: CodeType) -> Callable[[str], str]:
    """A function that puts the names of a resume function's stack arguments in a text into words: the last of them is
    what the instruction before it left, `x.max().item()`."""
    origin = origin_of(code)
    if origin is None:
        return str
    names = [name for name in code.co_varnames[: code.co_argcount] if name.startswith(STACK_ARGUMENT)]
    info = code_info(origin.code)
    text = expression_of(info.location(info.instructions[origin.index - 1]))

    def words(sentence: str) -> str:
        for name in origin.boxed:
            sentence = sentence.replace(f"{name}[0]", name)
        for name in names:
            what = text if name == names[-1] and text else f"a value from before line {resumed_line(code)}"
            sentence = re.sub(rf"{name}\b", what.replace("\\", r"\\"), sentence)
        return sentence

    return words


def is_resume_code(code: CodeType) -> bool:
    """Whether this is the code of a resume function."""
    return code in _ORIGINS


@lru_cache(maxsize=512)
def disassembled(code: CodeType) -> Bytecode:
    """`code` as a list of instructions and labels, super-instructions taken apart; not to be changed."""
    bytecode = Bytecode.from_code(code, conserve_exception_block_stackdepth=True)
    if any(isinstance(item, Instr) and item.name in HALVES for item in bytecode):
        bytecode[:] = [half for item in bytecode for half in _halves(item)]
    return bytecode


def _halves(item: Any) -> list[Any]:
    if not isinstance(item, Instr) or item.name not in HALVES:
        return [item]
    arguments: Any = item.arg
    return [Instr(name, arg, location=item.location) for name, arg in zip(HALVES[item.name], arguments)]


def instruction_at(code: CodeType, index: int) -> Instr:
    """Instruction `index` (as in `instructions.code_info`) in the assembler's form."""
    return _in_order(code)[index]


@lru_cache(maxsize=512)
def _in_order(code: CodeType) -> list[Instr]:
    return [item for item in disassembled(code) if isinstance(item, Instr)]


def argument_of(item: Instr) -> list[Any]:
    """The argument of an instruction, as a list that is empty when it has none."""
    return [] if item.opcode < dis.HAVE_ARGUMENT else [item.arg]


def assemble(items: Sequence[Any], code: CodeType, stacksize: int, argnames: Sequence[str] | None = None) -> CodeType:
    """A code object with the instructions `items` in the place of `code`'s.

    Arguments, cells and local variables keep their places, unless `argnames` makes it a function of these, whose free
    variables are all cells of `code`.
    """
    bytecode = Bytecode(list(items))
    bytecode.name, bytecode.qualname, bytecode.filename = code.co_name, code.co_qualname, code.co_filename
    bytecode.first_lineno = code.co_firstlineno
    bytecode.docstring = code.co_consts[0] if code.co_consts and isinstance(code.co_consts[0], str) else None
    if argnames is None:
        bytecode.argcount = code.co_argcount
        bytecode.posonlyargcount, bytecode.kwonlyargcount = code.co_posonlyargcount, code.co_kwonlyargcount
        names: Sequence[str] = code.co_varnames
        bytecode.flags = CompilerFlags(code.co_flags)
        bytecode.cellvars, bytecode.freevars = list(code.co_cellvars), list(code.co_freevars)
    else:
        names = argnames
        bytecode.argcount = len(argnames)
        bytecode.flags = CompilerFlags(code.co_flags & ~0x0C)  # takes neither *args nor **kwargs
        bytecode.cellvars, bytecode.freevars = [], free_names(code)
    bytecode.argnames = list(names)[: argument_count(code) if argnames is None else len(names)]
    converter = _ConvertBytecodeToConcrete(bytecode)
    for name in names:
        converter.add_varname(name)
    concrete = converter.to_concrete_bytecode(compute_exception_stack_depths=False)
    return concrete.to_code(stacksize=stacksize, compute_exception_stack_depths=False)


def argument_count(code: CodeType) -> int:
    """How many of `co_varnames` are parameters."""
    return code.co_argcount + code.co_kwonlyargcount + bool(code.co_flags & 4) + bool(code.co_flags & 8)


def free_names(code: CodeType) -> list[str]:
    """The free variables of a resume function: the cells of the original, then its free variables."""
    return [*code.co_cellvars, *code.co_freevars]


@lru_cache(maxsize=1024)
def resume_code(
    code: CodeType, index: int, stack: tuple[Slot, ...], variables: tuple[str, ...], boxed: tuple[str, ...] = ()
) -> CodeType:
    """The code that goes on at instruction `index` of `code`.

    Its arguments are the objects of the stack (`STACK_ARGUMENT`i) and `variables`. Those in `boxed` come in a list of
    one, which is emptied: who calls holds the arguments until the call ends, and these are to die where they are let
    go.
    """
    origin = origin_of(code)
    if origin is not None:
        return resume_code(origin.code, index + origin.shift, stack, variables, boxed)
    names = [f"{STACK_ARGUMENT}{i}" for i, slot in enumerate(stack) if slot is not Slot.NULL]
    location = instruction_at(code, index).location
    start = [Instr("COPY_FREE_VARS", len(free_names(code)), location=location)] if free_names(code) else []
    start.append(Instr("RESUME", 0, location=location))
    for name in boxed:
        start += [Instr(*part, location=location) for part in _unboxed(name)]
    for i, slot in enumerate(stack):
        start += [Instr(*push, location=location) for push in push_slot(slot, f"{STACK_ARGUMENT}{i}")]
    start += [Instr("DELETE_FAST", name, location=location) for name in names]  # what the stack drops may die
    here = Label()
    start.append(Instr("JUMP_FORWARD", here, location=location))
    body, dropped = body_of(code, index, here)
    new = assemble([*start, *body], code, code.co_stacksize + 2, [*names, *variables])
    _ORIGINS[new] = Origin(code, dropped - len(start), index, len(start), boxed)
    return new


def _unboxed(name: str) -> list[tuple[Any, ...]]:
    """The instructions that put the item of the list in `name` there, and take it out of the list."""
    return [
        ("LOAD_FAST", name), ("UNPACK_SEQUENCE", 1), ("LOAD_FAST", name), ("LOAD_CONST", 0), ("DELETE_SUBSCR",),
        ("STORE_FAST", name),
    ]  # fmt: skip


def body_of(code: CodeType, index: int, here: Label) -> tuple[list[Any], int]:
    """The instructions of `code` after its first RESUME, the label `here` before number `index`; how many are dropped.
    """
    body: list[Any] = []
    position = dropped = 0
    in_prologue = True
    for item in disassembled(code):
        if not isinstance(item, Instr):
            body.append(item)
            continue
        if in_prologue:
            dropped += 1
            in_prologue = item.name != "RESUME"
        else:
            if position == index:
                body.append(here)
            body.append(_freed(item, code))
        position += 1
    return body, dropped


def _freed(item: Instr, code: CodeType) -> Instr:
    """An instruction on a cell of the original, on a free variable of the resume function. From 3.13 on the cell of a
    parameter is loaded like the parameter."""
    if isinstance(item.arg, CellVar):
        return Instr(item.name, FreeVar(item.arg.name), location=item.location)
    if isinstance(item.arg, str) and item.name in _ON_PLACES and item.arg in code.co_cellvars:
        return Instr(item.name, FreeVar(item.arg), location=item.location)
    return item


_ON_PLACES = ("LOAD_FAST", "LOAD_FAST_CHECK", "STORE_FAST", "LOAD_FAST_AND_CLEAR", "DELETE_FAST")
