"""Attention, kept whole: `choice.py` is what the tracers of graphs call in the place of torch's function."""
from __future__ import annotations

from .choice import FUNCTIONS, attend

__all__ = ["FUNCTIONS", "attend"]
