"""What a break is about, as the program would write it, and the objects by which hints for it are found."""
from __future__ import annotations

import inspect
import sys
from collections.abc import Iterator
from types import CodeType, FunctionType, MethodType, ModuleType
from typing import Any, Protocol, TypeGuard, runtime_checkable

import numpy as np
import torch

from ..runtime.skips import is_installed, is_program
from ..sources.display_names import display_name
from ..sources.source import Source


@runtime_checkable
class Described(Protocol):
    """A Value of the tracer."""

    source: Source | None

    def describe(self) -> str:
        """A few words: "a list of 3", "the module `self.layers`"."""

    def python_type(self) -> type:
        """The type the program would see."""

    def represents(self) -> object:
        """The callable or class that it is; None for any other object."""


def is_value(subject: object) -> TypeGuard[Described]:
    """Whether a subject is a Value of the tracer; a class of Values is none."""
    return isinstance(subject, Described) and not isinstance(subject, type)


def name_of_subject(subject: object, member: str = "") -> str:
    """The text of a subject, or of its attribute `member`."""
    if is_value(subject):
        return _described(subject, member)
    if isinstance(subject, type):
        return f"{subject.__qualname__}.{member}" if member else f"the class {_with_module(subject)}"
    name = _name(subject)
    return f"{name}.{member}" if member else name


def _described(value: Described, member: str) -> str:
    """`LOCK.acquire` (a lock) where the object has a name, else "a list of 3.sort"."""
    text = value.describe()
    if not member:
        return text
    name = display_name(value.source) if value.source is not None else ""
    if name and text[:2] in ("a ", "an") and text.endswith(f" `{name}`"):
        return f"`{name}.{member}` ({text.removesuffix(f' `{name}`')})"
    return f"{text}.{member}"


def _name(subject: object) -> str:
    if isinstance(subject, ModuleType):
        return subject.__name__
    if isinstance(subject, Source):
        return display_name(subject)
    if isinstance(subject, CodeType):
        return subject.co_qualname
    if isinstance(subject, str):
        return subject
    if isinstance(subject, (torch._ops.OpOverload, torch._ops.OpOverloadPacket)):
        return str(subject)
    if isinstance(subject, torch._ops.HigherOrderOperator):
        return f"torch.ops.higher_order.{subject.name()}"
    return _with_module(subject)


PYBIND = "pybind11_detail_function_record"
"""How the name begins of the object to which pybind11 binds functions of extensions."""


def _with_module(function: Any) -> str:
    """`pickle.dumps`: the module that the program imports, not the one in C behind it."""
    name = getattr(function, "__qualname__", None) or getattr(function, "__name__", None) or repr(function)
    module = getattr(function, "__module__", None) or ""
    if isinstance(getattr(function, "__self__", None), type) and function.__self__.__module__ == "torch._C":
        return f"torch.{function.__name__}"  # of the class of torch's functions, which has no module
    owner = getattr(function, "__objclass__", None)
    if owner is not None and issubclass(owner, torch._C.TensorBase):
        return f"Tensor.{function.__name__}"
    if module.partition(".")[0] == "torch" and getattr(torch, name, None) is function:
        return f"torch.{name}"
    if module.startswith("numpy.random") and hasattr(np.random, name.rpartition(".")[2]):
        return f"numpy.random.{name.rpartition('.')[2]}"
    if isinstance(function, np.ufunc):
        return f"numpy.{name}"
    if name.startswith(PYBIND):
        name = name.rpartition(".")[2]
    if "<locals>" in name or _is_of_program(module):
        return name.rpartition("<locals>.")[2]
    if module.startswith("_") and module.lstrip("_").partition(".")[0] in sys.stdlib_module_names:
        module = module.lstrip("_")
    return name if module in ("", "builtins") or name.startswith(f"{module}.") else f"{module}.{name}"


def _is_of_program(module: str) -> bool:
    """Whether the program's own files define a module: its names need no module before them."""
    file = getattr(sys.modules.get(module), "__file__", None)
    return module == "__main__" or (isinstance(file, str) and is_program(file) and not is_installed(file))


def keys_of(subject: object, member: str) -> Iterator[object]:
    """The objects by which a hint is found, the closest first: the callable, its class and those above."""
    found = subject.represents() if is_value(subject) else subject
    cls = None
    if found is None:
        cls = type_of(subject)
    elif isinstance(found, ModuleType) and member:
        found = getattr(found, member, None)
    elif isinstance(found, type):
        cls = found
    if cls is not None:
        if member and (attribute := inspect.getattr_static(cls, member, None)) is not None:
            yield bare(attribute)
        yield from cls.__mro__[:-1]
        return
    yield bare(found)
    if (owner := getattr(found, "__objclass__", None)) is not None:
        yield owner
    own = getattr(found, "__self__", None)
    if own is not None and not isinstance(own, ModuleType):
        for holder in (own, type(own)) if isinstance(own, type) else (type(own),):
            attribute = inspect.getattr_static(holder, getattr(found, "__name__", ""), None)
            if attribute is not None:
                yield bare(attribute)
        yield from (own if isinstance(own, type) else type(own)).__mro__[:-1]


def bare(function: Any) -> Any:
    """The function itself, without what wraps it."""
    function = getattr(function, "__func__", function) if isinstance(function, (MethodType, classmethod)) else function
    if not isinstance(function, FunctionType):
        return function
    return inspect.unwrap(getattr(function, "_torchdynamo_orig_callable", function))


def type_of(subject: object) -> type | None:
    """The class of the object that a Value is, where it is known."""
    if not is_value(subject):
        return None
    try:
        return subject.python_type()
    except Exception:  # a Value that is nothing the program could have
        return None


def modules_of(keys: list[object]) -> Iterator[str]:
    """The names of the modules in which they are, each followed by the packages around it."""
    for key in keys:
        module = key.__name__ if isinstance(key, ModuleType) else getattr(key, "__module__", None)
        if not isinstance(module, str) and callable(key):
            module = getattr(getattr(key, "__self__", None), "__name__", None)
        parts = module.split(".") if isinstance(module, str) else []
        for count in range(len(parts), 0, -1):
            yield ".".join(parts[:count])
