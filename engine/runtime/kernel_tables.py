"""The tables of a `Foreach` kernel of a GPU (`../codegen/triton/foreach.py`), as data and in memory."""
from __future__ import annotations

import ctypes
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy
import torch

from .cuda_graphs.capture import keep


@dataclass(frozen=True)
class Table:
    """What a kernel over many members finds in memory: for each, places among the signature's buffers, sizes, programs.
    """

    places: tuple[tuple[int, ...], ...]
    sizes: tuple[tuple[int, ...], ...]
    blocks: tuple[int, ...]


class Tables:
    """`programs` and `rows` of one kernel on one device, see `foreach.py` there.

    The rows of the last call are kept: parameters and the states of an optimizer stay where they are. `scalars` are the
    buffers that stand in memory of the CPU, with the number of their bytes: their values travel with the rows.
    """

    def __init__(self, table: Table, scalars: Sequence[tuple[int, int]], device: torch.device) -> None:
        self._device, self._scalars = device, scalars
        self._places = numpy.array(table.places, dtype=numpy.int64).reshape(len(table.places), -1)
        self._sizes = numpy.array(table.sizes, dtype=numpy.int64).reshape(len(table.sizes), -1)
        member = numpy.repeat(numpy.arange(len(table.blocks)), table.blocks)
        first = numpy.cumsum([0, *table.blocks[:-1]])
        block = numpy.arange(len(member)) - first[member]
        self.programs = torch.from_numpy(numpy.stack([member, block], 1).astype(numpy.int32)).to(device)
        self._latest: tuple[tuple[Any, ...], torch.Tensor] = (), torch.empty(0)  # one attribute: threads share it

    def rows(self, pointers: Sequence[int], stream: int) -> torch.Tensor:
        """The rows for buffers at these addresses, ready on the current stream, which is `stream`."""
        key = (stream, *pointers)
        known, latest = self._latest
        if key == known and not self._scalars:
            return latest
        addresses = numpy.array(pointers, dtype=numpy.int64)
        count, width = len(self._places), self._places.shape[1] + self._sizes.shape[1]
        rows = torch.empty(count * width + 2 * len(self._scalars) + 1, dtype=torch.int64, device=self._device)
        start = -(-(rows.data_ptr() + 8 * count * width) // 16) * 16  # of the scalars
        values = numpy.zeros(len(rows), dtype=numpy.int64)
        for k, (place, size) in enumerate(self._scalars):
            at = start + 16 * k
            number = int.from_bytes(ctypes.string_at(pointers[place], size), "little", signed=size == 8)
            values[(at - rows.data_ptr()) // 8] = number
            addresses[place] = at
        values[: count * width] = numpy.concatenate([addresses[self._places], self._sizes], 1).reshape(-1)
        rows.copy_(torch.from_numpy(values), non_blocking=True)  # the values are taken before it returns
        self._latest = key, rows
        return rows

    def kept_rows(self, pointers: Sequence[int]) -> torch.Tensor:
        """The rows for a capture, which reads them at each replay: outside of its memory, and written now."""
        with torch.cuda.stream(torch.cuda.Stream(self._device)):
            rows = self.rows(pointers, 0)
            torch.cuda.current_stream(self._device).synchronize()
        self._latest = (), rows
        keep(rows)
        return rows
