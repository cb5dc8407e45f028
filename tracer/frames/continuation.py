"""How the parts of a broken frame follow each other: a loop in the frame itself (a trampoline) instead of nested calls.

The frame that was called runs its own code up to the first break, then one resume function after the other. A resume
function that breaks does not call the next one: it returns a `Continuation`, and the frame calls that. So a loop that
breaks a million times needs the stack of one frame and one resume function.
"""
from __future__ import annotations

import contextlib
from collections.abc import Iterator
from functools import partial
from types import BuiltinFunctionType, FunctionType, ModuleType, NoneType
from typing import TYPE_CHECKING, Any

import torch

from ..bytecode.assembly import Label, TryBegin, TryEnd
from ..bytecode.resume_function import with_boxed
from ..runtime.eval_frame import skip_code
from ..runtime.tracebacks import without_first

if TYPE_CHECKING:
    from ..effects.reconstruct import Codegen

_RESULT = ".ours_result"
_ERROR = ".ours_error"


class Continuation(partial[Any]):
    """What a resume function returns where it breaks: the next resume function, with its arguments."""

    __slots__ = ()


class _Types(frozenset[type]):
    def __repr__(self) -> str:
        return "types that hold nothing"


HOLDS_NOTHING = _Types({
    NoneType, bool, int, float, complex, str, bytes, torch.Tensor, torch.nn.Parameter, torch.Size, torch.dtype,
    torch.device, type, ModuleType, BuiltinFunctionType,
})  # fmt: skip
"""Types of objects that hold no other whose death may be observable."""
_FEW = 16
"""Longer tuples and lists are not looked into."""


def with_results(function: FunctionType, args: tuple[Any, ...], results: tuple[int, ...]) -> Continuation:
    """The Continuation of a resume function, of whose `args` those at `results` are what the instruction at the break
    gave. What that is, is known only now: an object whose death may be observable, or that may hold one, is passed in a
    list of one."""
    held = [place for place in results if not _holds_nothing(args[place])]
    if not held:
        return Continuation(function, *args)
    names = function.__code__.co_varnames
    code = with_boxed(function.__code__, tuple(names[place] for place in held))
    function = FunctionType(code, function.__globals__, function.__name__, None, function.__closure__)
    return Continuation(function, *([arg] if place in held else arg for place, arg in enumerate(args)))


def _holds_nothing(result: Any) -> bool:
    if type(result) in (tuple, list):
        return len(result) <= _FEW and HOLDS_NOTHING.issuperset(map(type, result))
    return type(result) in HOLDS_NOTHING


for _function in (with_results, _holds_nothing):
    skip_code(_function.__code__)


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
