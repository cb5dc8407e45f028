"""Fewer runs of the garbage collector while a frame is compiled.

A compilation makes a great many small objects that live until it ends. Python's collector starts after each 700 of them
and walks all that are young, and now and then all there are, those of the program too: a tenth of a large compilation.
"""
from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager

ALLOCATIONS = 20_000
"""Objects between two runs: a few megabytes may wait."""


@contextmanager
def fewer_collections() -> Iterator[None]:
    """Let the collector run after each `ALLOCATIONS` new objects inside the block. What the program has set is in force
    again after it, and all the time where it wants fewer runs, or none; so is what another thread sets meanwhile."""
    before = gc.get_threshold()
    ours = (ALLOCATIONS, *before[1:])
    if not 0 < before[0] < ALLOCATIONS:
        yield
        return
    gc.set_threshold(*ours)
    try:
        yield
    finally:
        if gc.get_threshold() == ours:
            gc.set_threshold(*before)
