"""An entry point of a package as data."""
from __future__ import annotations

from ...dependencies import msgspec
from ..graph_cache.half import Half
from .signature import Signature


class Entry(msgspec.Struct, frozen=True):
    """One entry point: its signature, its wrapper without the C++ source, and what the graph writes. `python_only` says
    why it has no C++ wrapper."""

    signature: Signature
    half: Half
    written: tuple[int, ...] = ()
    uncounted: tuple[int, ...] = ()
    python_only: str = ""
