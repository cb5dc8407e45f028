"""Resume functions: the rest of a frame after a graph break, as a function of the stack and of the live variables.

A resume function has the code of the original with another start: push the stack that the break left, jump to where it
resumes. All cells of the original are its free variables. It is an ordinary function, so the frame hook captures it
like any other, and a break in it makes the next one.
"""
from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from types import CodeType
from typing import Any

from ..runtime.per_code import PerCode, cached_per_code
from ..sources.display_names import expression_of, line_of
from .assembly import OPCODES, Cell, Instr, Label, Operand, TryBegin, TryEnd, assemble, at
from .instructions import Instruction, code_info
from .unbound_slots import Slot, push_slot

STACK_ARGUMENT = ".ours_stack_"
"""Prefix of the names of a resume function's arguments that hold the stack."""
FIRST_ARGUMENT = ".ours_first"
"""The name of the resume function's first argument that holds the original's first argument, which is a cell."""


@dataclass(frozen=True)
class Origin:
    """Where the instructions of a resume function come from: instruction i is the original's i + `shift`, after the
    first `own`, which push the stack. It resumes at the original's `index`, with `stack` and `variables`. Arguments in
    `boxed` are passed in lists of one."""

    code: CodeType
    shift: int
    index: int
    own: int
    stack: tuple[Slot, ...]
    variables: tuple[str, ...]
    boxed: tuple[str, ...]


_ORIGINS: PerCode[Origin] = PerCode()


def origin_of(code: CodeType) -> Origin | None:
    """The origin of a resume function's code; None for any other code."""
    return _ORIGINS.get(code)


def resumed_line(code: CodeType) -> int:
    """The line at which a resume function resumes; the first line for any other code."""
    origin = origin_of(code)
    line = code_info(origin.code).instructions[origin.index].positions[0] if origin is not None else None
    return line if line is not None else code.co_firstlineno


def resume_name(code: CodeType) -> str:
    """The name of a resume function in records, like stock's; the qualified name of any other code."""
    if origin_of(code) is None:
        return code.co_qualname
    return f"torch_dynamo_resume_in_{code.co_name}_at_{resumed_line(code)}"


def resume_id(code: CodeType) -> str:
    """Identifies the function that a resume function continues, and the instruction; "" for any other code."""
    origin = origin_of(code)
    if origin is None:
        return ""
    return f"{origin.code.co_filename}:{origin.code.co_firstlineno}:{origin.code.co_qualname}+{origin.index}"


def name_stack_arguments(code: CodeType) -> Callable[[str], str]:
    """Returns a function that replaces the names of a resume function's stack arguments in a string: the last of them
    is the result of the previous instruction, `x.max().item()`, or the variables of a loop."""
    origin = origin_of(code)
    if origin is None:
        return str
    names = [name for name in code.co_varnames[: code.co_argcount] if name.startswith(STACK_ARGUMENT)]
    info = code_info(origin.code)
    last = info.instructions[origin.index - 1]
    place = info.location(last)
    text = expression_of(place) if place.line == place.end_line else ""  # of a whole `with` block, for example
    text = "" if text in ("break", "continue") else text  # the iterator of an outer loop
    targets: list[str] = []
    if last.opname == "FOR_ITER":
        text, targets = "the next item of the loop", _targets(line_of(place))

    def named(sentence: str) -> str:
        for name in origin.boxed:
            sentence = sentence.replace(f"{name}[0]", name)
        for index, target in enumerate(targets):
            item = "" if len(targets) == 1 else rf"\[{index}\]"
            sentence = re.sub(rf"{names[-1]}\b{item}", target, sentence)
        for name in names:
            what = text if name == names[-1] and text else f"a value from before line {resumed_line(code)}"
            if what is not text:  # a name in backquotes says no more than the words before it
                sentence = re.sub(rf" `{re.escape(name)}[^`]*`", "", sentence)
            sentence = re.sub(rf"{name}\b", what.replace("\\", r"\\"), sentence)
        return sentence

    return named


def _targets(line: str) -> list[str]:
    """The variables of a `for` loop that begins in `line`; none where they are not plain names."""
    found = re.match(r"(?:async )?for +\(?(\w+(?: *, *\w+)*)\)? +in\b", line)
    return re.split(r" *, *", found[1]) if found else []


def is_resume_code(code: CodeType) -> bool:
    """Whether this is the code of a resume function."""
    return code in _ORIGINS


@dataclass(frozen=True)
class Parts:
    """A code object as `assemble` takes it: `items` are its instructions (those with a number are in `instructions`),
    labels and try blocks. Immutable."""

    items: list[Instr | Label | TryBegin | TryEnd]
    instructions: list[Instr]


@cached_per_code(512)
def disassembled(code: CodeType) -> Parts:
    """`code` as `Parts`."""
    info = code_info(code)
    targets = {i.target for i in info.instructions if i.target >= 0} | {entry.target for entry in info.exceptions}
    labels = {target: Label() for target in sorted(targets)}
    between: dict[int, list[Label | TryBegin | TryEnd]] = {target: [label] for target, label in labels.items()}
    for entry in info.exceptions:
        begin = TryBegin(labels[entry.target], entry.lasti, entry.depth)
        between.setdefault(entry.start, []).append(begin)
        between.setdefault(entry.end, []).insert(0, TryEnd(begin))
    instructions = [_as_instr(code, i, labels) for i in info.instructions]
    items: list[Instr | Label | TryBegin | TryEnd] = []
    for index, instruction in enumerate(instructions):
        items += between.get(index, ())
        items.append(instruction)
    return Parts([*items, *between.get(len(instructions), ())], instructions)


def _as_instr(code: CodeType, instruction: Instruction, labels: dict[int, Label]) -> Instr:
    opname, value, arg = instruction.opname, instruction.value, instruction.arg
    _, operand, shift, _, _ = OPCODES[opname]
    decoded: Any = value
    if operand is Operand.JUMP:
        decoded = labels[instruction.target]
    elif operand is Operand.NUMBER:
        decoded = arg
    elif operand is Operand.NAME and shift:
        decoded = arg & (1 << shift) - 1, value
    elif operand is Operand.CLOSURE or (operand is Operand.LOCAL and _is_cell(code, value)):
        decoded = Cell(value)
    return Instr(opname, decoded, instruction.positions)


def _is_cell(code: CodeType, name: str) -> bool:
    """Whether an instruction that accesses a variable by index refers to a cell. From 3.13 on cells are loaded like
    variables."""
    return name in code.co_cellvars or name not in code.co_varnames


def instruction_at(code: CodeType, index: int) -> Instr:
    """Instruction `index` (as in `instructions.code_info`) in the assembler's form."""
    return disassembled(code).instructions[index]


def argument_count(code: CodeType) -> int:
    """How many of `co_varnames` are parameters."""
    return code.co_argcount + code.co_kwonlyargcount + bool(code.co_flags & 4) + bool(code.co_flags & 8)


def first_argument(code: CodeType) -> str | None:
    """The variable in which `super()` without arguments finds the object, where `code` calls it: the first argument of
    a function, which must also be the first argument of a resume function. A cell is passed as `FIRST_ARGUMENT`."""
    if not code.co_argcount or "super" not in code.co_names or "__class__" not in code.co_freevars:
        return None
    return FIRST_ARGUMENT if code.co_varnames[0] in code.co_cellvars else code.co_varnames[0]


def resume_arguments(code: CodeType, stack: tuple[Slot, ...], variables: tuple[str, ...]) -> list[str]:
    """The arguments of `resume_code(code, ..., stack, variables)`, in order."""
    origin = origin_of(code)
    first = first_argument(code if origin is None else origin.code)
    objects = [f"{STACK_ARGUMENT}{i}" for i, slot in enumerate(stack) if slot is not Slot.NULL]
    return [*(v for v in variables if v == first), *objects, *(v for v in variables if v != first)]


def free_names(code: CodeType) -> list[str]:
    """The free variables of a resume function: the cells of the original, then its free variables."""
    return [*code.co_cellvars, *code.co_freevars]


@cached_per_code(1024)
def resume_code(
    code: CodeType, index: int, stack: tuple[Slot, ...], variables: tuple[str, ...], boxed: tuple[str, ...] = ()
) -> CodeType:
    """The code that resumes at instruction `index` of `code`.

    Its arguments are the objects of the stack (`STACK_ARGUMENT`i) and `variables`. Those in `boxed` are passed in a
    list of one, which is emptied: the caller keeps its arguments alive until the call ends, but these must die where
    they are dropped.
    """
    origin = origin_of(code)
    if origin is not None:
        return resume_code(origin.code, index + origin.shift, stack, variables, boxed)
    names = [f"{STACK_ARGUMENT}{i}" for i, slot in enumerate(stack) if slot is not Slot.NULL]
    here = Label()
    prologue: list[tuple[Any, ...]] = [("COPY_FREE_VARS", len(free_names(code)))] if free_names(code) else []
    prologue.append(("RESUME",))
    for name in boxed:
        prologue += _unboxed(name)
    for i, slot in enumerate(stack):
        prologue += push_slot(slot, f"{STACK_ARGUMENT}{i}")
    prologue += [("DELETE_FAST", name) for name in names]  # what is dropped from the stack may die
    prologue.append(("JUMP_FORWARD", here))
    start = at(instruction_at(code, index).location, prologue)
    body, dropped = body_of(code, index, here)
    new = assemble([*start, *body], code, code.co_stacksize + 2, resume_arguments(code, stack, variables))
    _ORIGINS[new] = Origin(code, dropped - len(start), index, len(start), stack, variables, boxed)
    return new


def with_boxed(code: CodeType, name: str) -> CodeType:
    """A resume function's code that takes its argument `name` in a list of one, too."""
    origin = origin_of(code)
    assert origin is not None
    return resume_code(origin.code, origin.index, origin.stack, origin.variables, (*origin.boxed, name))


def _unboxed(name: str) -> list[tuple[Any, ...]]:
    """The instructions that take the item out of the list in `name` and store it there."""
    return [
        ("LOAD_FAST", name), ("UNPACK_SEQUENCE", 1), ("LOAD_FAST", name), ("LOAD_CONST", 0), ("DELETE_SUBSCR",),
        ("STORE_FAST", name),
    ]  # fmt: skip


def body_of(code: CodeType, index: int, here: Label) -> tuple[list[Instr | Label | TryBegin | TryEnd], int]:
    """The instructions of `code` after its first RESUME, with the label `here` before instruction `index`; how many are
    dropped."""
    parts = disassembled(code)
    dropped = code_info(code).prologue + 1
    body: list[Instr | Label | TryBegin | TryEnd] = []
    position = 0
    for item in parts.items:
        if isinstance(item, Instr):
            if position == index:
                body.append(here)
            position += 1
            if position <= dropped:
                continue
        body.append(item)
    return body, dropped
