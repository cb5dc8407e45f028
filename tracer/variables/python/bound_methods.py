"""Methods written in C that user code holds bound to their object: `append = rows.append`, `table.get` as argument.

Such a method is a new object each time it is read, so its parts are guarded: its name, and its owner like any other
object that is read.
"""
from __future__ import annotations

import inspect
from collections import Counter, OrderedDict, defaultdict, deque
from types import MethodDescriptorType, MethodWrapperType, ModuleType, WrapperDescriptorType
from typing import TYPE_CHECKING, Any

import torch

from ...sources.source import AttrSource, Source
from ..core.base import Value
from ..core.constant import BoundBuiltin
from ..core.registry import build, builds, from_python, is_stable
from .builtin_functions import BOUND, BuiltinValue, build_builtin

if TYPE_CHECKING:
    from ..core.base import Translator

_OWNERS = frozenset((
    str, bytes, int, float, complex, bool, range, tuple, list, dict, set, frozenset, deque, OrderedDict, defaultdict,
    Counter, torch.Tensor, torch.nn.Parameter,
))  # fmt: skip
"""Exact types of owners whose Values have the methods."""


@builds(MethodWrapperType)
def build_bound(tx: Translator, method: Any, source: Source | None) -> Value:
    """A method with its owner; functions of modules are handled as other callables."""
    owner = getattr(method, "__self__", None)
    if type(owner) is frozenset and is_stable(source):  # keyword.iskeyword
        return BoundBuiltin(from_python(tx, owner), method.__name__, source)
    if source is None or isinstance(owner, (ModuleType, type(None))) or type(owner) in BOUND or is_stable(source):
        return build_builtin(tx, method, source)
    tx.guards.add(source, "TYPE_MATCH", type(method))
    tx.guards.add(AttrSource(source, "__name__"), "EQUALS_MATCH", method.__name__)
    whose = AttrSource(source, "__self__")
    if type(owner) in _OWNERS and _is_found(owner, method):
        return BoundBuiltin(build(tx, owner, whose), method.__name__, source)
    tx.guards.add(whose, "ID_MATCH", owner)
    return BuiltinValue(method, source)


def _is_found(owner: Any, method: Any) -> bool:
    """Whether reading the name from the owner gives this method: a subclass may override it."""
    name = method.__name__
    found = inspect.getattr_static(type(owner), name, None)
    if not isinstance(found, (MethodDescriptorType, WrapperDescriptorType)) or name in getattr(owner, "__dict__", ()):
        return False
    return bool(found.__get__(owner) == method)
