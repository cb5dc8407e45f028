"""A record on its way into a recording, and the form in which it is stored there: made once, for all who keep it."""
from __future__ import annotations

import threading
from typing import Any

from ..dependencies import msgspec, zstandard
from .decode import revive
from .facts import facts_of
from .inner_graphs import graphs_in
from .records import AnyRecord, Graph, Pass
from .tables import content_hash

ITEMS = (
    "steps", "nodes", "instructions", "breaks", "guards", "statements", "candidates", "groups", "lines", "inputs",
    "kernels", "saved",
)
"""What counts as an item of a record, for the counts that lists show without reading it."""


class Stored(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A record as a recording stores it: `data` is its JSON, of `size` bytes, compressed, with that `hash`; `facts` are
    JSON; `files` are the source files of the program that it refers to."""

    stage: str
    name: str
    kind: str
    items: int
    facts: str
    files: tuple[str, ...]
    hash: bytes
    size: int
    data: bytes


class Artifact:
    """What a stage left under `name` ("" where it leaves one record): a record, or the stored form of one."""

    def __init__(self, stage: str, name: str, record: AnyRecord | Stored) -> None:
        self.stage = stage
        self.name = name
        self._record = None if isinstance(record, Stored) else record
        self._stored = record if isinstance(record, Stored) else None

    @property
    def record(self) -> AnyRecord:
        """The record. Raises what zstandard and msgspec do for a stored form that nothing wrote."""
        if self._record is None:
            content = zstandard.ZstdDecompressor().decompress(self.stored.data)
            self._record = revive(_decoder.decode(content))
        return self._record

    @property
    def stored(self) -> Stored:
        """Its stored form. Raises what msgspec does for text that is no Unicode."""
        if self._stored is None:
            self._stored = _stored(self.stage, self.name, self.record)
        return self._stored


_decoder: msgspec.json.Decoder[AnyRecord] = msgspec.json.Decoder(AnyRecord)


def _stored(stage: str, name: str, record: AnyRecord) -> Stored:
    content, facts = encode(record), facts_of(record)
    data = compress(content)
    return Stored(
        stage, name, type(record).__name__, _items(record), encode(facts).decode() if facts else "", _files(record),
        content_hash(data), len(content), data,
    )


def encode(value: Any) -> bytes:
    """`value` as JSON."""
    return msgspec.json.encode(value, enc_hook=repr)


class _Compressor(threading.local):
    """One for each thread: it takes longer to make one than to compress a small record."""

    def __init__(self) -> None:
        self.compress = zstandard.ZstdCompressor(level=1).compress


_compressor = _Compressor()


def compress(content: bytes) -> bytes:
    """A zstd frame, which says how long `content` is."""
    return _compressor.compress(content)


def _items(record: AnyRecord) -> int:
    counted = record.graph if isinstance(record, Pass) else record
    return next((len(getattr(counted, field)) for field in ITEMS if hasattr(counted, field)), 1)


def _files(record: AnyRecord) -> tuple[str, ...]:
    """Those of a graph's nodes: inlined functions may come from other files than the frame's."""
    if not isinstance(record, Graph):
        return ()
    stacks = {id(node.stack): node.stack for _, graph in graphs_in(record) for node in graph.nodes}
    return tuple(dict.fromkeys(place.file for stack in stacks.values() for place in stack))
