"""Describes the user's objects in a few words, for guards, recompilation reasons and frame records.

Never runs user code: no `repr` or `str` of objects whose class is user-defined.
"""
from __future__ import annotations

import enum
import os
import types
from typing import Any

import numpy as np
import torch

from ..runtime.compile_wrappers import is_compiled
from ..runtime.global_modes import without_overrides

_PLAIN = (int, float, complex, bool, str, bytes, type(None), torch.dtype, torch.device, torch.layout,
          torch.memory_format, slice, range,
          *(kind for kind in set(np.sctypeDict.values()) if issubclass(kind, (np.number, np.bool_))))
_LIMIT = 80


def describe(value: Any) -> str:
    """A short description of any object: a constant's repr, a tensor's metadata, a function's location, else its
    type."""
    if type(value) in _PLAIN:
        text = repr(value)
        return text if len(text) <= _LIMIT else text[: _LIMIT - 1] + "…"
    if issubclass(type(value), torch.Tensor):  # not `__class__`, which may run user code
        return describe_tensor(value)
    if type(value) in (list, tuple, torch.Size):
        if len(value) <= 8 and all(type(item) in _PLAIN for item in value):
            text = ", ".join(map(describe, value))
            return f"[{text}]" if type(value) is list else f"({text}{',' if len(value) == 1 else ''})"
        return f"a {type(value).__name__} of {len(value)}"
    if type(value) in (dict, set, frozenset):
        return f"a {type(value).__name__} of {len(value)}"
    return subject(value)


@without_overrides
def describe_tensor(tensor: torch.Tensor) -> str:
    """`float32[3, 4] on cpu`; with the class where it is not Tensor or Parameter."""
    dtype = str(tensor.dtype).removeprefix("torch.")
    kind = "" if type(tensor) in (torch.Tensor, torch.nn.Parameter) else f"{type(tensor).__name__} "
    return f"{kind}{dtype}{list(tensor.shape)} on {tensor.device}"


def subject(value: Any) -> str:
    """An object as the user would call it: "the function `act` in model.py:3"."""
    kind = type(value)
    if issubclass(kind, types.MethodType):
        return f"the method `{getattr(value.__func__, '__qualname__', '?')}`{_place(value.__func__)}"
    if issubclass(kind, types.FunctionType) and is_compiled(value):
        return f"what torch.compile made of {subject(value.__dict__['_ptdebug_original'])}"
    if issubclass(kind, types.FunctionType):
        return f"the function `{value.__qualname__}`{_place(value)}"
    if issubclass(kind, types.CodeType):
        return f"the code of `{value.co_qualname}` in {os.path.basename(value.co_filename)}:{value.co_firstlineno}"
    if issubclass(kind, enum.Enum):
        return f"{type(value).__name__}.{value.name}"
    if issubclass(kind, type):
        return f"the class `{type_name(value)}`"
    if issubclass(kind, types.ModuleType):
        return f"the module `{value.__name__}`"
    if issubclass(kind, types.BuiltinFunctionType):
        of_torch = getattr(torch, value.__name__, None) is value
        return f"the {'function `torch.' if of_torch else 'builtin `'}{value.__name__}`"
    if issubclass(kind, torch.nn.Module):
        return f"a {type(value).__qualname__} module"
    return f"an object of class `{type_name(type(value))}`"


def type_name(cls: type) -> str:
    """`int`, `torch.nn.Linear`, `model.Config`: with the module, except for builtins."""
    module = cls.__module__
    if module in ("builtins", "__main__"):
        return cls.__qualname__
    return f"{module}.{cls.__qualname__}"


def _place(function: Any) -> str:
    code = getattr(function, "__code__", None)
    if code is None:
        return ""
    return f" in {os.path.basename(code.co_filename)}:{code.co_firstlineno}"
