"""Objects of the program whose death it sees: Python runs a finalizer or a weak reference's callback, or the weak
reference is dead from then on."""
from __future__ import annotations

import io
import weakref
from collections.abc import Iterable
from types import BuiltinMethodType, FunctionType, GeneratorType, MethodType
from typing import Any

import torch

from ...breaks.reasons import Reason
from ...breaks.unsupported import Unsupported
from .base import Value
from .registry import is_library


def refuse_visible_deaths(dropped: Iterable[Value | None]) -> None:
    """Raises Unsupported where the program may see one of the objects that are taken out of a container die."""
    for value in dropped:
        if value is not None:
            refuse_visible_death(getattr(value, "real", None), value)


def refuse_visible_death(obj: Any, subject: object = None, member: str = "", detail: str = "") -> None:
    """Raises Unsupported where the program may see `obj` die, which it lets go of: what `subject`, or `detail`, holds.
    """
    if object_dies_visibly(obj):
        raise Unsupported(Reason.OBSERVABLE_FINALIZER, subject, member, detail=detail)


def object_dies_visibly(obj: Any) -> bool:
    """Whether the program may see when this object dies, or what it is a method of."""
    if type(obj) in (MethodType, BuiltinMethodType):
        obj = obj.__self__
    return type(obj) in ENDS_SOMETHING or has_finalizer(type(obj)) or is_watched(obj)


ENDS_SOMETHING = {GeneratorType, memoryview, io.FileIO, io.BufferedWriter, io.BufferedRandom, io.TextIOWrapper}
"""Types of objects that do something when they die: of a generator, nobody knows where it stands, a view of bytes lets
these grow again, and a file is written at the latest then."""


def has_finalizer(cls: type) -> bool:
    """Whether Python runs a method of the program when an object of this class dies."""
    return type(getattr(cls, "__del__", None)) is FunctionType


def is_watched(obj: Any) -> bool:
    """Whether something other than torch and our guards has a weak reference to an object. Not asked of tensors and
    modules, which torch itself holds in many ways, nor of objects of libraries, which may hold themselves."""
    kind = type(obj)  # not what `__class__` says, which may be the program's code
    if is_library(kind.__module__) or issubclass(kind, (type, FunctionType, torch.Tensor, torch.nn.Module)):
        return False
    return any(not _is_ours(reference) for reference in weakref.getweakrefs(obj))


def _is_ours(reference: weakref.ref[Any]) -> bool:
    if type(reference) in weakref.ProxyTypes:  # which hand every attribute on, and do not tell of a callback
        return False
    module = getattr(reference.__callback__, "__module__", None)
    return isinstance(module, str) and module.startswith(("torch.", "ptdebug."))
