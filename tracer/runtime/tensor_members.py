"""Members of torch.Tensor and nn.Parameter that the program has replaced: `torch.Tensor.shape = property(...)`.

Tracing, guards and generated code read tensors through these classes, as torch's own code does. A method of Python
that has no special name is inlined where the program calls it; for anything else, compiled functions run in eager while
it is replaced. What was compiled before a member was replaced, or put back, is forgotten. Members that torch does not
have are the program's own, and are traced as such.
"""
from __future__ import annotations

from types import FunctionType
from typing import Any

import torch

from .class_versions import version_tag

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


class Known:
    """What was replaced when the classes had the version `tag`."""

    tag = -1
    found: Found = {}


VERSION = version_tag(torch.nn.Parameter)
"""A change of torch.Tensor changes it, too."""


def has_changed() -> bool:
    """Whether other members are replaced than when this was asked last, or by others. Guards do not ask: where a signal
    handler raises in a guard written in Python, C++ drops the exception."""
    before = Known.found
    torch.nn.Parameter.shape  # noqa: B018 the look-up gives the class a version
    tag = VERSION[0]
    Known.found = now = replaced()
    Known.tag = tag or -1
    return now.keys() != before.keys() or any(before[key] is not member for key, member in now.items())


def member_in_the_way() -> str:
    """A replaced member that tracing cannot allow for, by its name; "" without one."""
    for (cls, name), member in (Known.found if VERSION[0] == Known.tag else replaced()).items():
        special = name.startswith("__") or name in _READ_BY_TORCH
        if special or not isinstance(member, FunctionType) or not callable(getattr(torch._C.TensorBase, name, len)):
            return f"{cls.__name__}.{name}"
    return ""
