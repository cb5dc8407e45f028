"""Fewer garbage collections while a frame is compiled.

A compilation makes many small objects that live until it ends. Python's collector starts after each 700 of them and
walks all young objects, and now and then all objects, the user's included: a tenth of the time of a large compilation.
"""
from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager

ALLOCATIONS = 20_000
"""Objects between two collections: a few megabytes may wait."""


@contextmanager
def fewer_collections() -> Iterator[None]:
    """Let the collector run only after each `ALLOCATIONS` new objects inside the block. The user's setting is restored
    afterwards, and kept throughout where it requests fewer collections or none, as is a setting that another thread
    makes meanwhile."""
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
