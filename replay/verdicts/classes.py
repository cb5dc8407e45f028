"""The classes of differences, beyond the verdict: what made two values differ, where that was proven.

`equal`, `rounding` and `bug` need no more proof than the verdict. docs/replay.md says how each of the others is proven.
"""
from __future__ import annotations

ELIDED = "elided-rounding"
"""Values between fused operations keep more digits than eager, which rounds each to bfloat16 or float16: with these
roundings emulated the difference is gone."""
ORDER = "reduction-order"
"""A sum in another order, which later operations amplify: with ATen's own reductions the difference is small."""
RANDOM = "random-numbers"
"""Random operators drew other numbers than in eager: with eager's in their place the difference is gone."""
UNINITIALIZED = "uninitialized-memory"
"""Results depend on what was in memory before."""
OUT_OF_BOUNDS = "out-of-bounds"
"""A kernel wrote outside of its buffers, or its results depend on what lies there."""
NONDETERMINISM = "nondeterminism"
"""The same run gives other results the second time."""
MEMORY_PLAN = "memory-plan"
"""Right where each buffer has memory of its own, wrong where buffers share it as planned."""
BUG = "bug"

DIFFERENT = (RANDOM, UNINITIALIZED, OUT_OF_BOUNDS, NONDETERMINISM, MEMORY_PLAN, BUG)
"""Those that are no rounding."""
