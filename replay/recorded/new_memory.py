"""What is in memory that nobody has written, where the C library is glibc: so that a read of it shows each time."""
from __future__ import annotations

import ctypes
import sys
from collections.abc import Iterator
from contextlib import contextmanager

HUGE, SMALL = 0x80, 0x40
"""Patterns; memory is filled with the complement: as float32, 3.4e38 and -1.5."""
_PERTURB = -6  # M_PERTURB of malloc.h


def fill_new_memory(pattern: int = HUGE) -> None:
    """Memory that is allocated from now on is full of `pattern`; 0: as it happens to be."""
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None and sys.platform == "linux":
        mallopt(_PERTURB, pattern)


@contextmanager
def filled(pattern: int) -> Iterator[None]:
    """The same meanwhile."""
    fill_new_memory(pattern)
    try:
        yield
    finally:
        fill_new_memory(0)
