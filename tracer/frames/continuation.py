"""How the parts of a broken frame follow each other: a loop in the frame itself (a trampoline) instead of nested calls.

The frame that was called runs its own code up to the first break, then one resume function after the other. A resume
function that breaks does not call the next one: it returns a `Continuation`, and the frame calls that. So a loop that
breaks a million times needs the stack of one frame and one resume function.
"""
from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from functools import partial
from types import BuiltinFunctionType, FunctionType, ModuleType, NoneType
from typing import TYPE_CHECKING, Any

import torch

from ..bytecode.assembly import Label, TryBegin, TryEnd
from ..bytecode.resume_function import with_boxed
from ..interpreter.opcodes.control import JUMP_IF_FALSE
from ..runtime.eval_frame import skip_code
from ..runtime.tracebacks import without_first

if TYPE_CHECKING:
    from ..effects.reconstruct import Codegen

_RESULT = ".ours_result"
_ERROR = ".ours_error"
_NEXT = ".ours_next"
_BOXED = ".ours_boxed"


class Continuation(partial[Any]):
    """What a resume function returns where it breaks: the next resume function, with its arguments."""

    __slots__ = ()


class _Types(frozenset[type]):
    def __repr__(self) -> str:
        return "HOLDS_NOTHING"


HOLDS_NOTHING = _Types({
    NoneType, bool, int, float, complex, str, bytes, torch.Tensor, torch.nn.Parameter, torch.Size, torch.dtype,
    torch.device, type, ModuleType, BuiltinFunctionType,
})  # fmt: skip
"""Types of objects that hold no other whose death may be observable."""
_FEW = 16
"""Longer tuples and lists are not looked into."""


def boxed_result(function: FunctionType, name: str, result: Any) -> tuple[FunctionType, Any]:
    """A resume function, and what to pass it in its argument `name`: `result`, which the instruction at the break gave.
    What that is, is known only now: an object whose death may be observable, or that may hold one, is passed in a list
    of one, to a variant of the function."""
    if type(result) in (tuple, list) and len(result) <= _FEW and HOLDS_NOTHING.issuperset(map(type, result)):
        return function, result
    code = with_boxed(function.__code__, name)
    return FunctionType(code, function.__globals__, function.__name__, None, function.__closure__), [result]


skip_code(boxed_result.__code__)


def push_boxed(codegen: Codegen, results: list[str]) -> Callable[[], None]:
    """With a resume function on the stack: box those of the variables `results` that hold something. Returns what
    pushes the function that takes them."""
    codegen.emit("STORE_FAST", _NEXT)
    for name in results:
        known = Label()
        codegen.push_function(type)
        codegen.emit("LOAD_FAST", name)
        codegen.call(1)
        codegen.const(HOLDS_NOTHING)
        codegen.emit("CONTAINS_OP", 1)
        codegen.emit(JUMP_IF_FALSE, known)
        codegen.push_function(boxed_result)
        codegen.emit("LOAD_FAST", _NEXT)
        codegen.const(name)
        codegen.emit("LOAD_FAST", name)
        codegen.call(3)
        codegen.emit("STORE_FAST", _BOXED)
        for place, variable in enumerate((_NEXT, name)):
            codegen.emit("LOAD_FAST", _BOXED)
            codegen.const(place)
            codegen.emit("BINARY_SUBSCR")
            codegen.emit("STORE_FAST", variable)
        codegen.let_go([_BOXED])
        codegen.label(known)
    return partial(codegen.emit, "LOAD_FAST", _NEXT)


def drive(codegen: Codegen, start: Label, jump_if_false: str) -> None:
    """At `start`, with the result of a resume function on the stack: call continuations until a real result is
    returned."""
    done = Label()
    codegen.label(start)
    codegen.emit("STORE_FAST", _RESULT)
    codegen.push_function(type)
    codegen.emit("LOAD_FAST", _RESULT)
    codegen.call(1)
    codegen.const(Continuation)
    codegen.emit("IS_OP", 0)
    codegen.emit(jump_if_false, done)
    codegen.push_null()
    codegen.emit("LOAD_FAST", _RESULT)
    codegen.load_attr("func")
    codegen.push_null_above()
    codegen.emit("LOAD_FAST", _RESULT)
    codegen.load_attr("args")
    codegen.const(None)  # the arguments live no longer than the call needs them
    codegen.emit("STORE_FAST", _RESULT)
    codegen.emit("CALL_FUNCTION_EX", 0)
    codegen.emit("JUMP_BACKWARD", start)
    codegen.label(done)
    codegen.emit("LOAD_FAST", _RESULT)
    codegen.emit("RETURN_VALUE")


@contextlib.contextmanager
def rest_of_frame(codegen: Codegen) -> Iterator[None]:
    """The code emitted in the block calls the rest of the frame: tracebacks of what that raises do not show the call,
    wherever the user's code catches it or reads them."""
    handler = Label()
    begin = TryBegin(handler, False, 0)
    codegen.label(begin)
    yield
    codegen.label(TryEnd(begin))
    codegen.label(handler)
    codegen.emit("STORE_FAST", _ERROR)
    codegen.push_function(without_first)
    codegen.emit("LOAD_FAST", _ERROR)
    codegen.call(1)
    codegen.emit("POP_TOP")
    codegen.emit("LOAD_FAST", _ERROR)
    codegen.const(None)  # its traceback may hold the frame: they would keep each other alive
    codegen.emit("STORE_FAST", _ERROR)
    codegen.emit("RERAISE", 0)
