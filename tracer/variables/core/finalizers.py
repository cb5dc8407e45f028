"""User objects whose death is observable: Python runs a finalizer or a weak reference's callback, or a weak reference
is dead from then on."""
from __future__ import annotations

import gc
import io
import weakref
from collections.abc import Iterable
from types import BuiltinMethodType, CodeType, FrameType, FunctionType, GeneratorType, MethodType, ModuleType
from typing import Any

import torch

from ...breaks.reasons import Reason
from ...breaks.unsupported import Unsupported
from ...bytecode.instructions import code_info
from .base import Value
from .registry import is_library


def refuse_visible_deaths(dropped: Iterable[Value | None]) -> None:
    """Raises Unsupported where the death of an object removed from a container may be observable."""
    for value in dropped:
        if value is not None:
            refuse_visible_death(getattr(value, "real", None), value)


def refuse_visible_death(obj: Any, subject: object = None, member: str = "", detail: str = "") -> None:
    """Raises Unsupported where the program may see `obj` die, which it lets go of, or what dies with it: what
    `subject`, or `detail`, holds."""
    if object_dies_visibly(obj) or (not issubclass(type(obj), _LEFT_OUT) and brings_visible_death(obj)):
        raise Unsupported(Reason.OBSERVABLE_FINALIZER, subject, member, detail=detail)


def object_dies_visibly(obj: Any) -> bool:
    """Whether the death of this object, or of the object that it is a method of, may be observable."""
    if type(obj) in (MethodType, BuiltinMethodType):
        obj = obj.__self__
    return ends_something(obj) or has_finalizer(type(obj)) or is_watched(obj)


def ends_something(obj: Any) -> bool:
    """Whether an object that Python made acts when it dies: a generator that yields inside a `try` or `with` (when the
    graph runs, its position may be another), a memoryview that lets its buffer be resized again, a file that is written
    then at the latest."""
    if type(obj) is GeneratorType:
        frame = obj.gi_frame
        return frame is not None and code_info(frame.f_code).may_clean_up(frame.f_globals)
    return type(obj) in _ENDING


_ENDING = (memoryview, io.FileIO, io.BufferedWriter, io.BufferedRandom, io.TextIOWrapper)


_LOOKED_INTO = 1000
_LEFT_OUT = (type, ModuleType, FunctionType, CodeType, FrameType, torch.Tensor, torch.nn.Module)


def brings_visible_death(obj: Any) -> bool:
    """Whether the death of this object may be observable, or of one that it holds and that may die with it. Larger
    objects are looked into in part."""
    pending, seen = [obj], {id(obj)}
    for found in pending:
        if object_dies_visibly(found):
            return True
        for part in gc.get_referents(found):
            if id(part) not in seen and not issubclass(type(part), _LEFT_OUT) and len(pending) < _LOOKED_INTO:
                seen.add(id(part))
                pending.append(part)
    return False


def has_finalizer(cls: type) -> bool:
    """Whether Python runs a user-defined method when an object of this class dies."""
    return type(getattr(cls, "__del__", None)) is FunctionType


def is_watched(obj: Any) -> bool:
    """Whether something other than torch and the guards has a weak reference to an object. Not for tensors and modules,
    to which torch itself has many, nor for objects of libraries, which may have some themselves."""
    kind = type(obj)  # not `__class__`, which may run user code
    if is_library(kind.__module__) or issubclass(kind, (type, FunctionType, torch.Tensor, torch.nn.Module)):
        return False
    return any(not _is_internal(reference) for reference in weakref.getweakrefs(obj))


def _is_internal(reference: weakref.ref[Any]) -> bool:
    if type(reference) in weakref.ProxyTypes:  # proxies forward every attribute, and hide their callback
        return False
    module = getattr(reference.__callback__, "__module__", None)
    return isinstance(module, str) and module.startswith(("torch.", "ptdebug."))
