"""Which rank of a distributed program this process is, noted in its recording as soon as it is known."""
from __future__ import annotations

import os
import sys

from ..artifacts.store import RecordingWriter
from .session import Session


def note_rank(session: Session) -> None:
    """Keep the rank and the number of ranks, once for each process."""
    recorder, process = session.recorder, os.getpid()
    if session.rank_noted == process or not isinstance(recorder, RecordingWriter):
        return
    found = _rank()
    if found is not None:
        session.rank_noted = process
        recorder.set_meta("rank", found[0])
        recorder.set_meta("ranks", found[1])


def _rank() -> tuple[int, int] | None:
    """What torch.distributed says, or else what a launcher put into the environment."""
    distributed = sys.modules.get("torch.distributed")
    try:
        if distributed is not None and distributed.is_available() and distributed.is_initialized():
            return distributed.get_rank(), distributed.get_world_size()
        return int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    except (KeyError, ValueError, RuntimeError):
        return None
