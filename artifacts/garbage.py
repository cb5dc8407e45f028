"""Fewer garbage collections while a frame is compiled, and while modules are loaded.

Both make many small objects that live on. Python's collector starts after each 700 of them and walks all young objects,
and now and then all objects, the user's included: a tenth of the time of a large compilation, and a quarter of the time
that loading the tracer takes.
"""
from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager

ALLOCATIONS = 20_000
"""Objects between two collections: a few megabytes may wait."""

DESCRIBING = 1_000_000
"""The same while a stage is described: its records are written, and die, before there is much else to collect."""


@contextmanager
def fewer_collections(allocations: int = ALLOCATIONS) -> Iterator[None]:
    """Let the collector run only after each `allocations` new objects inside the block. The user's setting is restored
    afterwards, and kept throughout where it requests fewer collections or none, as is a setting that another thread
    makes meanwhile."""
    before = gc.get_threshold()
    ours = (allocations, *before[1:])
    if not 0 < before[0] < allocations:
        yield
        return
    gc.set_threshold(*ours)
    try:
        yield
    finally:
        if gc.get_threshold() == ours:
            gc.set_threshold(*before)


def loading(module: str, function: str, *arguments: str | bool) -> str:
    """A program for `python -c` that loads `module` with fewer collections, and calls a function of it."""
    call = f"{function}({', '.join(map(repr, arguments))})"
    loaded = f"with fewer_collections(): from {module} import {function}"
    return f"from {__name__} import fewer_collections\n{loaded}\n{call}"
