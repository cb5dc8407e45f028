"""Whether to run what a recording from elsewhere says: the person is asked, once, before anything of it runs."""
from __future__ import annotations

import sys

from ..artifacts.listing import printable
from ..artifacts.recording import Recording
from .errors import CommandError


def confirmed(recording: Recording, trust: bool, verb: str) -> bool:
    """Whether the recording is trusted: `--trust` says so, or the person when asked. False for one that this user made
    here, which needs none. Raises CommandError where it is from elsewhere and nobody can be asked, or the answer is no.
    """
    from ..replay.program.program import was_made_here  # imports torch

    if trust or was_made_here(recording):
        return trust
    what = f"{printable(recording.name)} was not recorded by you on this machine"
    advice = f"to {verb} it runs code that it names: --trust does so"
    if sys.stdin is None or sys.stderr is None or not (sys.stdin.isatty() and sys.stderr.isatty()):
        raise CommandError(f"{what}, and {advice}")
    sys.stderr.write(f"ptdebug: {what}. To {verb} it runs code that it names. Do it? [y/N] ")
    sys.stderr.flush()
    if sys.stdin.readline().strip().lower() not in ("y", "yes"):
        raise CommandError(f"{what}: nothing was run")
    return True
