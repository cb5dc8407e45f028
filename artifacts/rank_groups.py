"""Which recordings are the ranks of one distributed program."""
from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack

from .home import recordings
from .recording import Recording, RecordingError


def ranks_of(given: Sequence[Recording], opened: ExitStack) -> list[tuple[int, Recording]]:
    """The ranks, in order: those inside of one recording, several recordings as they are given, or those that lie
    beside one and were started by the same launcher; what is opened for that is closed with `opened`."""
    if len(given) > 1:
        return list(enumerate(given))
    recording = given[0]
    inside = [(rank, recording.of_rank(rank)) for rank in recording.ranks]
    if len(inside) != 1:
        return inside
    found = {inside[0][0]: recording}
    launcher = _launcher(recording)
    for path in recordings(recording.path.parent):
        if path == recording.path or launcher is None:
            continue
        try:
            other = opened.enter_context(Recording.open(path))
        except RecordingError:
            continue
        if _launcher(other) == launcher and len(other.ranks) == 1:
            found.setdefault(other.ranks[0], other)
    return sorted(found.items())


def _launcher(recording: Recording) -> tuple[object, ...] | None:
    """What the ranks of one run have in common: machine, parent process, and the name that torchrun gave it."""
    meta = recording.meta
    if not meta.get("parent_pid"):
        return None
    return meta.get("machine"), meta["parent_pid"], meta.get("environment", {}).get("TORCHELASTIC_RUN_ID")
