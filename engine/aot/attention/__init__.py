"""Attention, kept whole: `choice.py` is what the tracers of graphs call in the place of torch's function, and of what
`written_out.py` finds.

A mask that hides nothing, or what is after the query, is left out: `constant_masks.py` computes it where it depends on
no input, `position_masks.py` reads it off the operators that make it. `kernels.py` has ATen's kernels for a GPU,
`measuring.py` times them, `target_kernels.py` says which take an attention on a GPU that is not there.
"""
from __future__ import annotations

from .choice import FUNCTIONS, attend, attend_as_one
from .written_out import written_out

__all__ = ["FUNCTIONS", "attend", "attend_as_one", "written_out"]
