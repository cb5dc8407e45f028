"""Generators in flight: one that the trace has run up to a yield becomes a real generator suspended there.

The real one has the code of the original with another start, as resume functions have: push the stack, yield once (to
the code that rebuilds it), then resume after the original's yield with the value that is sent. So the rest of the
program cannot distinguish it from the generator that eager would have made.
"""
from __future__ import annotations

from collections.abc import Iterator, Sequence
from types import CodeType, FunctionType, GeneratorType
from typing import Any

from ..breaks.reasons import Reason
from ..breaks.unsupported import Unsupported
from ..bytecode.assembly import Instr, Label, TryBegin, TryEnd, assemble, at
from ..bytecode.liveness import live_at, unbound_cell_read
from ..bytecode.resume_function import (
    FIRST_ARGUMENT,
    STACK_ARGUMENT,
    body_of,
    disassembled,
    first_argument,
    free_names,
    instruction_at,
    resume_arguments,
)
from ..bytecode.unbound_slots import Slot, push_slot
from ..effects.reconstruct import Codegen
from ..effects.stack_slots import ensure_traceback, push_object, slot_of
from ..runtime.per_code import cached_per_code
from ..variables.core.base import Value
from ..variables.core.late import late
from ..variables.python.exceptions import Handling
from ..variables.python.functions import FunctionValue
from .generators import GeneratorValue
from .interpreter import Interpreter


def push_generator(codegen: Codegen, generator: GeneratorValue) -> None:
    """Push a generator that resumes where the traced one is suspended."""
    if generator.finished:
        codegen.push_function(_exhausted)
        codegen.call(0)
    elif generator.started:
        _push_started(codegen, generator.frame)
    else:
        _push_new(codegen, generator.frame)


late.push_generator = push_generator


def _exhausted() -> Iterator[Any]:
    """An exhausted generator."""
    nothing: tuple[Any, ...] = ()
    generator = (item for item in nothing)
    next(generator, None)
    return generator


# ---- at a yield ------------------------------------------------------------------------------------------------------
def _push_started(codegen: Codegen, frame: Interpreter) -> None:
    if frame.info.reuses_cells or unbound_cell_read(frame.info, frame.index, frame.bound_cells()):
        raise Unsupported(Reason.GENERATOR, detail=frame.code.co_qualname)
    live, first = live_at(frame.info, frame.index), first_argument(frame.code)
    if first == FIRST_ARGUMENT:
        raise Unsupported(Reason.GENERATOR, detail=frame.code.co_qualname)
    wanted = [name for name in frame.code.co_varnames if name in live or name == first]
    variables = tuple(name for name in wanted if name in frame.locals)
    slots = tuple(slot_of(value) for value in frame.stack)
    codegen.push_function(_resumed)
    codegen.const(suspended_code(frame.code, frame.index, slots, variables))
    codegen.const(frame.f_globals)
    cells: list[Value] = [frame.cells[name] for name in free_names(frame.code)]
    _push_tuple(codegen, cells)
    held = {f"{STACK_ARGUMENT}{i}": value for i, value in enumerate(frame.stack) if slots[i] is not Slot.NULL}
    arguments = resume_arguments(frame.code, slots, variables)
    raised = []
    for number, name in enumerate(arguments):
        value = held.get(name, frame.locals.get(name))
        if isinstance(value, Handling) and value.exception.source is None:
            raised.append(number)
            value = value.exception
        assert value is not None
        push_object(codegen, value)
    codegen.build("BUILD_TUPLE", len(arguments))
    codegen.const(tuple(raised))
    codegen.call(5)


def _push_tuple(codegen: Codegen, values: Sequence[Value]) -> None:
    for value in values:
        codegen(value)
    codegen.build("BUILD_TUPLE", len(values))


def _resumed(
    code: CodeType, f_globals: dict[str, Any], closure: tuple[Any, ...], args: tuple[Any, ...], raised: tuple[int, ...]
) -> Any:
    """The generator of a suspended code, run up to its yield. Exceptions that it handles, those in its arguments
    `raised`, were raised in it: a traceback through another user frame would keep that alive."""
    generator = FunctionType(code, f_globals, code.co_name, None, closure or None)(*args)
    next(generator)
    for number in raised:
        ensure_traceback(args[number], generator.gi_frame)
    return generator


@cached_per_code(1024)
def suspended_code(code: CodeType, index: int, stack: tuple[Slot, ...], variables: tuple[str, ...]) -> CodeType:
    """The code of a generator suspended before instruction `index` of `code`, the RESUME after a yield."""
    yields, resumes = instruction_at(code, index - 1), instruction_at(code, index)
    location = yields.location
    prologue: list[tuple[Any, ...]] = [("COPY_FREE_VARS", len(free_names(code)))] if free_names(code) else []
    prologue += [("RETURN_GENERATOR",), ("POP_TOP",), ("RESUME",)]
    for i, slot in enumerate(stack):
        prologue += push_slot(slot, f"{STACK_ARGUMENT}{i}")
    start: list[Any] = [*at(location, prologue)]
    handled = _try_around(code, index - 1)
    if handled is not None:
        start.append(handled)
    start.append(Instr("LOAD_CONST", 0, location=location))  # the value for the code that rebuilds the generator
    start += [Instr(item.name, item.arg, location) for item in (yields, resumes)]
    if handled is not None:
        start.append(TryEnd(handled))
    here = Label()
    start.append(Instr("JUMP_FORWARD", here, location=location))
    body, _ = body_of(code, index + 1, here)
    return assemble([*start, *body], code, code.co_stacksize + 3, resume_arguments(code, stack, variables))


def _try_around(code: CodeType, index: int) -> TryBegin | None:
    """A try block like the innermost one around instruction `index`, with the same handler."""
    around: TryBegin | None = None
    position = 0
    for item in disassembled(code).items:
        if isinstance(item, TryBegin):
            around = item
        elif isinstance(item, TryEnd):
            around = None
        elif isinstance(item, Instr):
            if position == index:
                break
            position += 1
    return TryBegin(around.target, around.lasti, around.depth) if around is not None else None


# ---- before the start ------------------------------------------------------------------------------------------------
def _push_new(codegen: Codegen, frame: Interpreter) -> None:
    """Call the function again: nothing of the body has run."""
    code = frame.code
    function = frame.function
    if not isinstance(function, FunctionValue):
        raise Unsupported(Reason.GENERATOR, detail=code.co_qualname)
    count = code.co_argcount + code.co_kwonlyargcount
    names = code.co_varnames
    codegen.push_function(_called)
    codegen(function)
    _push_tuple(codegen, [frame.locals[name] for name in names[: code.co_argcount]])
    _push_tuple(codegen, [frame.locals[name] for name in names[code.co_argcount : count]])
    after = count
    for flag, empty in ((4, ()), (8, None)):
        if code.co_flags & flag:
            codegen(frame.locals[names[after]])
            after += 1
        else:
            codegen.const(empty)
    codegen.call(5)


def _called(
    function: Any,
    args: tuple[Any, ...],
    keyword_only: tuple[Any, ...],
    rest: tuple[Any, ...],
    more: dict[str, Any] | None,
) -> GeneratorType[Any, Any, Any]:
    code = function.__code__
    names = code.co_varnames[code.co_argcount : code.co_argcount + code.co_kwonlyargcount]
    return function(*args, *rest, **dict(zip(names, keyword_only)), **(more or {}))
