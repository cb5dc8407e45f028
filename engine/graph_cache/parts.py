"""A compiled graph as data: its wrappers, and what calls them."""
from __future__ import annotations

from collections.abc import Callable

from ...dependencies import msgspec
from ..aot.autograd.function import AutogradMetadata
from ..runtime.entry import EntryFacts
from .flow import Flow
from .half import FoldingPart, Half, decode_as


class Parts(msgspec.Struct, frozen=True):
    """A compiled graph. Of an inference graph `call` and `entry` are there; of a training graph `call` is its forward.

    `conditions` are those on sizes that vary which compiling the graph has added to its guards, as Python. `stages` is
    what its stages recorded (see artifacts/kept_stages.py), where it was compiled in a run that records. `flow`: in the
    place of `call` where the graph has control flow.
    """

    call: Half
    entry: EntryFacts | None = None
    backward: Half | None = None
    outside: Half | None = None
    node: AutogradMetadata | None = None
    conditions: tuple[str, ...] = ()
    folding: FoldingPart | None = None
    stages: bytes = b""
    flow: Flow | None = None


MakeParts = Callable[[], Parts]
"""Describes what was compiled; raises Uncacheable where it cannot be kept."""


def decode(content: bytes) -> Parts:
    """The parts that `encode` wrote. Raises msgspec.DecodeError for anything else."""
    return decode_as(content, Parts)
