"""What `ptdebug replay --time` measured, kept beside the recording: one file, of the latest measurement of each
compilation."""
from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from ..dependencies import msgspec
from .files import NotAFileOfIt, plain_file
from .recording import Recording
from .records import Schedule

FILE = "measured.json"
MOST_BYTES = 64 << 20


class MeasuredKernel(msgspec.Struct, frozen=True):
    """A kernel or library call, in the order of its part's schedule; `bandwidth` and `peak` are shares of what the
    device can do, 0 where that is unknown. `launched` are the kernels that ran on a GPU."""

    part: str
    name: str
    kind: str
    seconds: float
    eager_seconds: float | None = None
    bytes: int = 0
    bandwidth: float = 0.0
    flops: int = 0
    peak: float = 0.0
    launched: tuple[str, ...] = ()

    @property
    def text(self) -> str:
        """Its time, and how much of the device that is."""
        took = f"{self.seconds * 1e6:.1f} us" if self.seconds < 1e-3 else f"{self.seconds * 1e3:.2f} ms"
        if self.seconds <= 0:  # none of its launches was seen
            return took
        rates = [f"{self.bytes / self.seconds / 1e9:,.0f} GB/s, {self.bandwidth:.0%} of a copy"] if self.bytes else []
        if self.flops and self.kind == "extern":
            rates.append(f"{self.flops / self.seconds / 1e12:,.1f} TFLOP/s, {self.peak:.0%} of the peak")
        return f"{took}{''.join(f'; {rate}' for rate in rates)}"


class Measured(msgspec.Struct, frozen=True):
    """A compiled graph on a device, beside eager; `reasons` say why it is slower, where it is."""

    device: str
    what: str
    eager_seconds: float
    compiled_seconds: float
    kernels: tuple[MeasuredKernel, ...] = ()
    reasons: tuple[str, ...] = ()


def keep(folder: Path, found: dict[str, Measured]) -> None:
    """Add measurements by compilation; nothing happens where the recording cannot be written."""
    with suppress(OSError):
        temporary = folder / f"{FILE}.{os.getpid()}"
        temporary.write_bytes(msgspec.json.encode({**kept(folder), **found}))
        os.replace(temporary, folder / FILE)


def kept(folder: Path) -> dict[str, Measured]:
    """The measurements by compilation; none of a recording that was not measured, or whose file is damaged."""
    try:
        path = plain_file(folder, FILE)
        if path.stat().st_size > MOST_BYTES:
            return {}
        return msgspec.json.decode(path.read_bytes(), type=dict[str, Measured])
    except (NotAFileOfIt, OSError, msgspec.MsgspecError):
        return {}


def of_groups(recording: Recording, compile_id: str, measured: Measured) -> Iterator[tuple[str, str, MeasuredKernel]]:
    """The part and the id of each scheduled group, with its measurement; nothing of a part that was scheduled
    otherwise when it was measured."""
    for info in recording.artifacts(compile_id, "schedule"):
        record = recording.find(Schedule, compile_id, "schedule", info.name)
        own = [kernel for kernel in measured.kernels if kernel.part == info.name]
        if record is not None and [g.kernel for g in record.groups] == [kernel.name for kernel in own]:
            yield from ((info.name, group.id, kernel) for group, kernel in zip(record.groups, own))
