"""The inputs of a script: recorded values in a file beside it (small ones in its text), or made up from metadata."""
from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch

from ...artifacts.records import TensorMeta
from ...artifacts.render_graph import tensor_text
from ..recorded.graphs import ReplayError, argument, dtype

INLINE = 16  # elements; the values of a smaller tensor stand in the script,
LONGEST = 80  # if they take no more characters
_PLAIN = (torch.float32, torch.float64, torch.int64, torch.int32, torch.bool)
_MADE_UP_INTEGERS = 2  # exclusive: indices that fit into any dimension but those of size 1


@dataclass
class Tensors:
    """What makes the values of a script, as expressions, and what they load: `file` by key."""

    recorded: bool = True
    file: dict[str, torch.Tensor] = field(default_factory=dict)
    _storages: dict[int, str] = field(default_factory=dict)

    def expression(self, name: str, value: Any, requires_grad: bool = False, device: str = "cpu") -> str:
        """An expression for one value, on `device`; tensors that share memory go on sharing it."""
        if not isinstance(value, torch.Tensor):
            finite = not isinstance(value, float) or math.isfinite(value)
            return repr(value) if finite else f"float({str(value)!r})"
        if self.recorded:
            text = self._tensor(name, value.detach()) + ("" if device == "cpu" else f".to({device!r})")
        else:
            text = made_up(value, device)
        return text + (".requires_grad_()" if requires_grad else "")

    def shared(self, values: Sequence[Any]) -> None:
        """Find out which of the values share memory: their storages are saved as a whole, under one key."""
        seen: set[int] = set()
        for value in values:
            if isinstance(value, torch.Tensor) and value.layout is torch.strided and not value.is_meta:
                place = value.untyped_storage().data_ptr()
                if place and place in seen:
                    self._storages.setdefault(place, "")
                seen.add(place)

    def constant(self, name: str, data: Any) -> str:
        """An expression for a constant of a graph, as the record holds it."""
        return Tensors(file=self.file).expression(name, argument(data, {}, {}))

    def has_shared(self) -> bool:
        """Whether some values share memory."""
        return bool(self._storages)

    def _tensor(self, name: str, value: torch.Tensor) -> str:
        if value.layout is not torch.strided:
            raise ReplayError(f"{name} is a tensor of layout {value.layout}, which no file of tensors holds")
        if value.is_meta:
            return f"torch.empty_strided({tuple(value.shape)}, {value.stride()}, dtype={value.dtype}, device='meta')"
        place = value.untyped_storage().data_ptr()
        if place in self._storages:
            return self._window(name, value, place)
        whole = _dense(value)
        literal = _literal(value) if whole and value.dtype in _PLAIN else ""
        if literal:
            return literal
        if whole:
            self.file[name] = value.cpu().contiguous().clone()
            return f"saved[{name!r}]"
        span = sum((size - 1) * step for size, step in zip(value.shape, value.stride())) + 1 if value.numel() else 0
        self.file[name] = value.cpu().as_strided((span,), (1,), value.storage_offset()).clone()
        return f"saved[{name!r}].as_strided({tuple(value.shape)}, {tuple(value.stride())})"

    def _window(self, name: str, value: torch.Tensor, place: int) -> str:
        """A tensor on memory that others use too."""
        key = self._storages[place]
        if not key:
            key = self._storages[place] = f"memory_of_{name}"
            count = value.untyped_storage().nbytes() // value.element_size()
            self.file[key] = value.cpu().as_strided((count,), (1,), 0).clone()
        view = "" if self.file[key].dtype == value.dtype else f".view({value.dtype})"
        sizes = f"{tuple(value.shape)}, {tuple(value.stride())}, {value.storage_offset()}"
        return f"saved[{key!r}]{view}.as_strided({sizes})"


def meta_of(value: torch.Tensor) -> TensorMeta:
    """The metadata of a tensor as a record."""
    return TensorMeta(str(value.dtype).removeprefix("torch."), tuple(value.shape), tuple(value.stride()),
                      str(value.device), value.requires_grad, int(value.storage_offset()))


def described(value: Any) -> str:
    """A comment: `float32[4, 8]`, or the type of a number."""
    if isinstance(value, torch.Tensor):
        return tensor_text(meta_of(value.detach()))
    return type(value).__name__


def made_up(value: torch.Tensor, device: str = "cpu") -> str:
    """An expression for a tensor of which only the metadata counts: normal numbers, integers that index anything."""
    shape, kind = tuple(value.shape), value.dtype
    where = "" if device == "cpu" else f", device={device!r}"
    if kind.is_floating_point or kind.is_complex:
        is_drawn = kind.itemsize >= 2 and kind is not torch.complex32
        type_ = "" if kind is torch.float32 or not is_drawn else f", dtype={kind}"
        text = f"torch.randn({shape}{type_}{where})" + ("" if is_drawn else f".to({kind})")
    elif kind is torch.bool:
        text = f"(torch.rand({shape}{where}) < 0.5)"
    else:
        text = f"torch.randint({_MADE_UP_INTEGERS}, {shape}, dtype={kind}{where})"
    if _dense(value):
        return text
    return f"torch.empty_strided({shape}, {value.stride()}, dtype={kind}{where}).copy_({text})"


def random_tensor(meta: TensorMeta) -> torch.Tensor:
    """Such a tensor, on the CPU, always the same."""
    shape, stride = (tuple(int(n) for n in numbers) for numbers in (meta.shape, meta.stride))
    kind = dtype(meta.dtype)
    random = torch.Generator().manual_seed(0)
    if kind.is_floating_point or kind.is_complex:
        values = torch.randn(shape, generator=random, device="cpu")
    else:
        values = torch.randint(_MADE_UP_INTEGERS, shape, generator=random, device="cpu")
    return torch.empty_strided(shape, stride, dtype=kind, device="cpu").copy_(values)


def _literal(value: torch.Tensor) -> str:
    """A constant tensor, or one of a few numbers, as an expression; "" for others."""
    dtype = "" if value.dtype in (torch.float32, torch.int64, torch.bool) else f", dtype={value.dtype}"
    shape = tuple(value.shape)
    if value.numel() == 0:
        return f"torch.empty({shape}, dtype={value.dtype})"
    first = value.flatten()[0]
    if value.numel() > 1 and bool((value == first).all()):
        number, plain = first.item(), value.dtype is torch.float32
        if number in (0, 1) and not math.copysign(1.0, number) < 0:
            return f"torch.{'ones' if number else 'zeros'}({shape}{'' if plain else f', dtype={value.dtype}'})"
        return f"torch.full({shape}, {_numbers(number, value.dtype)}, dtype={value.dtype})"
    if value.numel() > INLINE:
        return ""
    text = _numbers(value.tolist(), value.dtype)
    return f"torch.tensor({text}{dtype})" if len(text) <= LONGEST else ""


def _numbers(tree: Any, dtype: torch.dtype) -> str:
    """Numbers as short as their dtype allows."""
    if isinstance(tree, list):
        return "[" + ", ".join(_numbers(part, dtype) for part in tree) + "]"
    if tree - tree != 0:
        return f"float({str(tree)!r})"
    return str(np.float32(tree)) if dtype is torch.float32 else repr(tree)


def _dense(value: torch.Tensor) -> bool:
    """Contiguous, with the strides that a new tensor has."""
    return value.stride() == torch.empty(value.shape, device="meta").stride()
