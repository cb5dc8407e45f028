"""What files of `tracer/variables/` call of files that build on them: each slot has its function."""
from __future__ import annotations

from ptdebug.tracer.frames import dispatch
from ptdebug.tracer.variables.core.late import Late, late


def test_every_slot_is_filled() -> None:
    assert dispatch is not None  # importing it imports all that fill them
    assert not [name for name in Late.__annotations__ if not hasattr(late, name)]
