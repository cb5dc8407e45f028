"""What a call of the program computes, line by line: where it first has a value that the captured graph has not."""
from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from types import FrameType
from typing import Any

import torch
from torch.utils._pytree import tree_leaves

MOST = 200
"""Values that are kept of a call: a place is looked for, not a record made."""
LARGEST = 1 << 20
"""Elements of a value that is kept."""
CLOSE = 1e-3
"""Relative: the results are known to differ by more than rounding."""


class Lines:
    """A trace function of one frame, which keeps the tensors that each line stores in a variable, or returns; those
    that need a gradient get a hook that keeps it, if `gradients` are asked for. `seen` hears of each line's end."""

    def __init__(self, frame: FrameType, gradients: bool = False, seen: Callable[[int], None] | None = None) -> None:
        self.kept: dict[str, torch.Tensor] = {}
        self.gradients: dict[str, torch.Tensor] | None = {} if gradients else None
        self._told = seen
        self._seen = {name: _state(value) for name, value in frame.f_locals.items()}
        self._line = frame.f_lineno
        frame.f_trace = self
        sys.settrace(lambda *_: None)

    def __call__(self, frame: FrameType, event: str, argument: Any) -> Any:
        """A line has ended: the next one begins, or the function returns."""
        if event in ("line", "return"):
            for name, value in frame.f_locals.items():
                if self._seen.get(name) != _state(value):
                    self._seen[name] = _state(value)
                    self._keep(value)
            if event == "return":
                self._keep(argument)
                sys.settrace(None)
            if self._told is not None:
                self._told(self._line)
            self._line = frame.f_lineno
        return self

    def _keep(self, value: Any) -> None:
        for leaf in tree_leaves(value):
            usual = isinstance(leaf, torch.Tensor) and leaf.layout is torch.strided and not leaf.is_meta
            if usual and not leaf.is_quantized and leaf.numel() <= LARGEST and len(self.kept) < MOST:
                key = f"{len(self.kept)}:{self._line}"
                self.kept[key] = leaf.detach().cpu().resolve_conj().resolve_neg().contiguous().clone()
                if self.gradients is not None and leaf.requires_grad:
                    leaf.register_hook(partial(self.gradients.__setitem__, key))


def _state(value: Any) -> Any:
    return (id(value), value._version) if isinstance(value, torch.Tensor) and not value.is_inference() else id(value)


def first_unknown(kept: Iterable[tuple[str, torch.Tensor]], known: Sequence[Any]) -> int:
    """The first line with a value that is none of those that are `known`; 0 for none."""
    tensors = [value for value in known if isinstance(value, torch.Tensor) and value.layout is torch.strided]
    in_order = sorted(kept, key=lambda item: int(item[0].partition(":")[0]))
    unknown = (key for key, value in in_order if not any(same(value, one) for one in tensors))
    return int(next(unknown, ":0").partition(":")[2])


def same(one: torch.Tensor, other: torch.Tensor) -> bool:
    """Whether two values are the same but for rounding."""
    if one.shape != other.shape or one.dtype != other.dtype:
        return False
    other = other.detach().cpu()
    if not one.is_floating_point() and not one.is_complex():
        return torch.equal(one, other)
    size = float(one.abs().nan_to_num().max()) if one.numel() else 0.0
    return torch.allclose(other, one, rtol=CLOSE, atol=CLOSE * size, equal_nan=True)
