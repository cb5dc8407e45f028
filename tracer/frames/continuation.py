"""How the parts of a broken frame follow each other: a loop in the frame itself (a trampoline) instead of nested calls.

The frame that was called runs its own code up to the first break, then one resume function after the other. A resume
function that breaks does not call the next one: it returns a `Continuation`, and the frame calls that. So a loop that
breaks a million times needs the stack of one frame and one resume function.
"""
from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from ..bytecode.assembly import Label, TryBegin, TryEnd
from ..runtime.tracebacks import without_first

if TYPE_CHECKING:
    from ..effects.reconstruct import Codegen

_RESULT = ".ours_result"
_ERROR = ".ours_error"


class Continuation:
    """What a resume function returns where it breaks: the next resume function, with its arguments."""

    __slots__ = ("args", "function")

    def __init__(self, function: Callable[..., Any], args: tuple[Any, ...]) -> None:
        self.function = function
        self.args = args


def return_continuation(
    codegen: Codegen, push_function: Callable[[], None], arguments: list[str], moved: list[str]
) -> None:
    """Return the function that `push_function` pushes, and the variables `arguments`, to the frame that drives the
    loop; the returning frame deletes the variables `moved`."""
    codegen.push_function(Continuation)
    push_function()
    for name in arguments:
        codegen.emit("LOAD_FAST", name)
    codegen.build("BUILD_TUPLE", len(arguments))
    codegen.call(2)
    codegen.let_go(moved)
    codegen.emit("RETURN_VALUE")


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
    codegen.load_attr("function")
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
