"""Whether float32 products and convolutions of a GPU may have TF32's 10 bits: not where values are compared, but where
kernels are made again, whose layouts depend on it."""
from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from typing import Any

import torch

from .state import settings_kept

_ALLOWED: ContextVar[tuple[bool | None, ...]] = ContextVar("allowed", default=())


@contextmanager
def in_full_precision() -> Iterator[None]:
    """Products and convolutions of float32 without TF32 while it lasts: which kernels make use of the 10 bits that a
    GPU is allowed depends on layouts, so that rungs would differ by more than roundings."""
    before = tuple(map(_allows_tf32, _flags()))
    held = _ALLOWED.set(before)
    try:
        with settings_kept():
            _allow((False, False))
            try:
                yield
            finally:
                _allow(before)
    finally:
        _ALLOWED.reset(held)


@contextmanager
def in_recorded_precision() -> Iterator[None]:
    """Inside of that, as it was around it: as when kernels were made."""
    if allowed := _ALLOWED.get():
        _allow(allowed)
    try:
        yield
    finally:
        if allowed:
            _allow((False, False))


def _flags() -> tuple[Any, ...]:
    return torch.backends.cuda.matmul, torch.backends.cudnn


def _allow(allowed: tuple[bool | None, ...]) -> None:
    for flag, one in zip(_flags(), allowed):
        if one is not None:
            flag.allow_tf32 = one


def _allows_tf32(flag: Any) -> bool | None:
    """None where the program has made use of torch's newer settings (`fp32_precision`): then torch does not say."""
    with suppress(RuntimeError):
        return bool(flag.allow_tf32)
    return None
