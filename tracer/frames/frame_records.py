"""What recordings and decisions say of a frame: the function that it is of, its arguments, and its callers."""
from __future__ import annotations

import contextlib
import inspect
import types
from typing import Any

import torch

from ...artifacts.function_times import FunctionTimes
from ...artifacts.records import Argument, Frame, Location, TensorMeta
from ..bytecode.resume_function import is_resume_code, resume_id, resume_name, resumed_line
from ..guards.describe import describe, type_name
from ..runtime.global_modes import without_overrides
from ..runtime.skips import program_frames


def frame_record(
    frame: Any, status: str, reason: str, caller: types.FrameType | None, apart: bool, times: FunctionTimes,
) -> Frame:
    """Stage `frame`: the function, its arguments, its caller, and what tracing spent its time on."""
    code = frame.f_code
    function, file, line = named(frame)
    module = getattr(_wrapped(frame), "__module__", None) or frame.f_globals.get("__name__", "")
    names = code.co_varnames[: code.co_argcount + code.co_kwonlyargcount + bool(code.co_flags & 4)
                             + bool(code.co_flags & 8)]
    arguments = tuple(_argument(name, frame.f_locals[name]) for name in names if name in frame.f_locals)
    stack = tuple(map(location_of, program_frames(caller)))
    return Frame(
        function, file, line, str(module), arguments, stack, status, reason,
        resume_id(code), apart, traced=times.records(),
    )


def location_of(frame: types.FrameType) -> Location:
    """Where a frame is."""
    return Location(frame.f_code.co_filename, frame.f_lineno, frame.f_code.co_qualname)


def runs(running: types.CodeType, code: types.CodeType) -> bool:
    """Whether `running` is `code`, a rewritten form of it, or of what it continues."""
    return (running.co_filename, running.co_firstlineno, running.co_name) == (
        code.co_filename, code.co_firstlineno, code.co_name
    )


def named(frame: Any) -> tuple[str, str, int]:
    """(function, file, line) of a frame: for a decorator's wrapper, of the wrapped function; a method of a module that
    it wraps is named by the module's class."""
    function, file, line = _place(frame.f_code)
    wrapped = _wrapped(frame)
    if wrapped is None:
        return function, file, line
    name = wrapped.__qualname__
    first = next(iter(_positional(frame)), None)
    if isinstance(first, torch.nn.Module):
        name = f"{type(first).__qualname__}.{wrapped.__name__}"
    return name, wrapped.__code__.co_filename, wrapped.__code__.co_firstlineno


def subject_of(frame: Any) -> str:
    """What decisions about a frame are named after."""
    function, file, line = named(frame)
    return f"{function}@{file.rpartition('/')[2]}:{line}"


def _wrapped(frame: Any) -> types.FunctionType | None:
    """The function that the frame's function, made by a decorator, wraps: the only function in its closure."""
    code = frame.f_code
    if "<locals>" not in code.co_qualname or not code.co_flags & 4 or is_resume_code(code):
        return None
    inside = []
    for cell in frame.closure or ():
        with contextlib.suppress(ValueError):  # empty
            if isinstance(cell.cell_contents, types.FunctionType):
                inside.append(cell.cell_contents)
    if len(inside) != 1:
        return None
    with contextlib.suppress(ValueError):  # wrappers of each other
        function = inspect.unwrap(inside[0])
        if isinstance(function, types.FunctionType):
            return function
    return None


def _positional(frame: Any) -> list[Any]:
    """The positional arguments of a frame."""
    code = frame.f_code
    names = code.co_varnames[: code.co_argcount]
    more = code.co_varnames[code.co_argcount + code.co_kwonlyargcount]  # *args
    return [*(frame.f_locals[n] for n in names if n in frame.f_locals), *frame.f_locals.get(more, ())]


def _place(code: types.CodeType) -> tuple[str, str, int]:
    """(function, file, line) of a code object; of a resume function with the line where it resumes."""
    return resume_name(code), code.co_filename, resumed_line(code)


@without_overrides
def _argument(name: str, value: Any) -> Argument:
    tensor = None
    if issubclass(type(value), torch.Tensor) and value.layout is torch.strided:
        tensor = TensorMeta(
            str(value.dtype).removeprefix("torch."), tuple(value.shape), tuple(value.stride()), str(value.device),
            value.requires_grad, int(value.storage_offset()),
        )
    return Argument(name, type_name(type(value)), describe(value), tensor)
