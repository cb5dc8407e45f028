"""Members of torch.Tensor and nn.Parameter that the program has replaced: `torch.Tensor.shape = property(...)`.

Tracing, guards and generated code read tensors through these classes, as torch's own code does. A method of Python
that has no special name is inlined where the program calls it; for anything else, compiled functions run in eager while
it is replaced. Members that torch does not have are the program's own, and are traced as such.
"""
from __future__ import annotations

import weakref
from collections.abc import Callable
from types import FunctionType
from typing import Any

import torch

from .class_versions import unchanged

CLASSES = (torch.Tensor, torch.nn.Parameter)
_ORIGINAL = {cls: dict(vars(cls)) for cls in CLASSES}
_SHOWN = frozenset(
    "__annotations__ __deepcopy__ __dir__ __doc__ __format__ __module__ __reduce__ __reduce_ex__ __repr__ __str__"
    " __firstlineno__ __static_attributes__".split()
)
"""How tensors are shown and stored: no graph depends on it."""
_READ_BY_TORCH = frozenset(
    "as_strided clone contiguous detach dim element_size is_complex is_contiguous is_floating_point is_inference"
    " ndimension numel requires_grad_ set_ size storage_offset stride untyped_storage view_as".split()
)
"""Methods that torch and ptdebug call themselves."""

Found = dict[tuple[type, str], Any]


def replaced() -> Found:
    """What the classes have now in the place of torch's members; None for one that was deleted."""
    found: Found = {}
    for cls, original in _ORIGINAL.items():
        now = vars(cls)
        for name in now.keys() | original.keys():
            if now.get(name) is not original.get(name) and name not in _SHOWN and _is_of_torch(cls, name):
                found[cls, name] = now.get(name)
    return found


def _is_of_torch(cls: type, name: str) -> bool:
    bases = cls.__mro__
    return any(name in (_ORIGINAL[base] if base in _ORIGINAL else vars(base)) for base in bases)


def member_in_the_way() -> str:
    """A replaced member that tracing cannot allow for, by its name; "" without one."""
    if _NONE_REPLACED(None):
        return ""
    for (cls, name), member in replaced().items():
        special = name.startswith("__") or name in _READ_BY_TORCH
        if special or not isinstance(member, FunctionType) or not callable(getattr(torch._C.TensorBase, name, len)):
            return f"{cls.__name__}.{name}"
    return ""


def names_replaced() -> str:
    """For messages."""
    found = () if _NONE_REPLACED(None) else replaced()
    return ", ".join(sorted(f"{cls.__name__}.{name}" for cls, name in found)) or "none"


def as_now() -> Callable[[object], bool]:
    """A check that the same members are replaced, by the same."""
    if _NONE_REPLACED(None):
        return _NONE_REPLACED
    found = {key: _reference(member) for key, member in replaced().items()}

    def same() -> bool:
        now = replaced()
        return now.keys() == found.keys() and all(found[key]() is member for key, member in now.items())

    return unchanged(CLASSES, same)


def _reference(member: Any) -> Callable[[], Any]:
    return weakref.ref(member) if isinstance(member, FunctionType) else lambda: member


_NONE_REPLACED = unchanged(CLASSES, lambda: not replaced())
