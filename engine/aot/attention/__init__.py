"""Attention, kept whole: `choice.py` is what the tracers of graphs call in the place of torch's function, and of what
`written_out.py` finds."""
from __future__ import annotations

from .choice import FUNCTIONS, attend, attend_as_one
from .written_out import written_out

__all__ = ["FUNCTIONS", "attend", "attend_as_one", "written_out"]
