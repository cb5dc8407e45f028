"""How a wrapper subclass is made of plain tensors: enough to flatten one, and to unflatten it again."""
from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensor
from torch.utils._python_dispatch import is_traceable_wrapper_subclass


@dataclass(frozen=True, eq=False)
class Layout:
    """A wrapper tensor without its inner tensors: their names, with the layouts of those that are wrappers too, and
    what its class wants to know beside them."""

    cls: Any
    context: Any
    size: tuple[Any, ...]
    stride: tuple[Any, ...]
    inner: tuple[tuple[str, Layout | Held | None], ...]

    @classmethod
    def of(cls, value: Any) -> Layout | None:
        """That of a value; None of what is no wrapper."""
        if not is_wrapper(value):
            return None
        names, context = value.__tensor_flatten__()
        inner = tuple([(name, _inner(getattr(value, name))) for name in names])
        return cls(type(value), context, tuple(value.shape), tuple(value.stride()), inner)

    def numbers(self) -> Iterator[torch.SymInt]:
        """The sizes and strides that vary, in the order in which `put_together` wants their values."""
        for _, part in self.inner:
            yield from () if part is None else part.numbers()
        yield from filter(varies, (*self.size, *self.stride))

    def put_together(self, tensors: Iterator[Any], numbers: Iterator[int] | None = None) -> torch.Tensor:
        """A wrapper of the next of `tensors`, with the next of `numbers` in the places of sizes that vary. Autograd
        knows nothing of it yet."""
        parts: dict[str, Any] = {
            name: next(tensors) if part is None else part.put_together(tensors, numbers) for name, part in self.inner
        }
        size, stride = self.size, self.stride
        if numbers is not None:
            size, stride = [tuple([next(numbers) if varies(n) else n for n in group]) for group in (size, stride)]
        made: torch.Tensor = self.cls.__tensor_unflatten__(parts, self.context, size, stride)
        return made.requires_grad_(False) if made.requires_grad else made

    def is_like(self, other: Any) -> bool:
        """Whether wrappers of the other layout are as good for a graph that was traced for this one."""
        if type(other) is not Layout or other.cls is not self.cls or not self._knows(other.context):
            return False
        pairs = zip((*self.size, *self.stride), (*other.size, *other.stride))
        if len(self.size) != len(other.size) or any(type(n) is int and n != m for n, m in pairs):
            return False
        if [name for name, _ in self.inner] != [name for name, _ in other.inner]:
            return False
        inner = [(a, b) for (_, a), (_, b) in zip(self.inner, other.inner)]
        return all(type(a) is type(b) and (a is None or a.is_like(b)) for a, b in inner)

    def _knows(self, context: Any) -> bool:
        asked = getattr(self.cls, "__metadata_guard__", None)
        try:
            same = self.context == context if asked is None else asked(self.context, context)
        except Exception:  # tensors of several elements are neither equal nor not
            return False
        return same if type(same) is bool else False


@dataclass(frozen=True, eq=False)
class Held:
    """What a wrapper holds that is no tensor (a mesh of devices)."""

    value: Any

    def numbers(self) -> Iterator[torch.SymInt]:
        """It has none."""
        yield from ()

    def put_together(self, tensors: Iterator[Any], numbers: Iterator[int] | None = None) -> Any:
        """It needs none."""
        return self.value

    def is_like(self, other: Any) -> bool:
        """Whether another is as good."""
        return other.value is self.value or bool(other.value == self.value)


def _inner(value: Any) -> Layout | Held | None:
    return Layout.of(value) if isinstance(value, torch.Tensor) else Held(value)


def varies(size: Any) -> bool:
    """Whether a size is a symbol, and no ragged one of a nested tensor."""
    return isinstance(size, torch.SymInt) and not size.node.is_nested_int()


def take_apart(value: Any, into: list[Any]) -> None:
    """Append the plain tensors of which a value is made; what is no wrapper is one itself."""
    if not is_wrapper(value):
        into.append(value)
        return
    for name in value.__tensor_flatten__()[0]:
        inner = getattr(value, name)
        if isinstance(inner, torch.Tensor):
            take_apart(inner, into)


def is_wrapper(value: Any) -> bool:
    """Whether a value is a tensor that is made of others."""
    return type(value) not in _PLAIN and isinstance(value, torch.Tensor) and is_traceable_wrapper_subclass(value)


def below_overrides(values: Iterable[Any]) -> AbstractContextManager[Any]:
    """Around operators on wrappers, whose `__torch_function__` the tracer has asked: not that of torch's own classes
    (nested tensors), which is part of what the operators do."""
    asked = any(is_wrapper(value) and _has_torchs_overrides(type(value)) for value in values)
    return nullcontext() if asked else torch._C.DisableTorchFunctionSubclass()


def _has_torchs_overrides(cls: Any) -> bool:
    found = getattr(cls.__torch_function__, "__func__", None)
    return found is not None and found is not _DEFAULT and found.__module__.partition(".")[0] == "torch"


_DEFAULT: Any = torch.Tensor.__dict__["__torch_function__"].__func__
_PLAIN = (FakeTensor, torch.Tensor, torch.nn.Parameter)
