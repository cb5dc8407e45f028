"""What torch's profiler saw of a run (`ptdebug run --profile`), kept beside the recording: one file."""
from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from ..dependencies import msgspec
from .files import NotAFileOfIt, plain_file

FILE = "profile.json"
MOST_BYTES = 256 << 20
_PREFIX = "ptdebug "


def span_name(owner: str, part: str, kernel: str = "") -> str:
    """How the profiler knows a graph's call, or a kernel's."""
    return f"{_PREFIX}{owner} {part or '-'} {kernel}".rstrip()


def span_of(name: str) -> tuple[str, str, str] | None:
    """The compilation, part and kernel ("" for a whole graph) of a span; None for what is no span."""
    words = name.removeprefix(_PREFIX).split(" ")
    if not name.startswith(_PREFIX) or len(words) < 2:
        return None
    return words[0], "" if words[1] == "-" else words[1], " ".join(words[2:])


class ProfiledEvent(msgspec.Struct, frozen=True, array_like=True):
    """Something that ran. `kind`: "graph" (a call of a compiled graph), "kernel" (on a GPU: its launch), "operator" (of
    ATen, called by a graph), "gpu" (a kernel that ran there). `start` in seconds of Unix time; `thread`: of the
    system, or the stream. `compile`, `part` and `kernel` say what of the recording it is."""

    kind: str
    name: str
    start: float
    seconds: float
    thread: int
    compile: str
    part: str = ""
    kernel: str = ""


class Profile(msgspec.Struct, frozen=True):
    """The events from `started` on; `ended` says why there are no later ones."""

    started: float
    seconds: float
    ended: str
    events: tuple[ProfiledEvent, ...] = ()

    def of(self, kind: str) -> Sequence[ProfiledEvent]:
        """The events of one kind."""
        return [event for event in self.events if event.kind == kind]


def keep(folder: Path, profile: Profile) -> None:
    """Write the profile beside the recording. Raises OSError."""
    (folder / FILE).write_bytes(msgspec.json.encode(profile))


def kept(folder: Path) -> Profile | None:
    """The profile of a recording; None where there is none, or its file is damaged."""
    with suppress(OSError, NotAFileOfIt, msgspec.DecodeError):
        path = plain_file(folder, FILE)
        if path.stat().st_size <= MOST_BYTES:
            return msgspec.json.decode(path.read_bytes(), type=Profile)
    return None
