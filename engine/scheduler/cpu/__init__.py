"""How the kernels of a CPU run: from groups to loop nests.

`build.py` is the walk: `loop_shape.py` chooses which loops are parallel and which is vectorized, `distribution.py`
distributes bodies over inner nests (`nest_facts.py` says what is known of one), `storage.py` keeps internal buffers in
registers or scratch, `row_blocks.py` passes over short rows a block at a time, `welford.py` writes out variances,
`bitwise_copies.py` finds 16-bit floats that are only moved, `plain_loops.py` makes a nest as plain loops; `cost.py`
estimates work. Then come transformations, functions from a nest to a nest, each with its decision: `blocked_sums.py`,
`multiple_accumulators.py`, `index_set_splitting.py`, `half_precision.py`, `blocked_scans.py`, `nontemporal_stores.py`,
`prefetch.py`, `gather_prefetch.py`, `unroll_and_jam.py`, `threads_and_vectors.py`, `lane_masks.py`, `gather_loops.py`,
`masked_ends.py`; and of a whole kernel, `unmasked_loads.py`, `transpose_tiles.py`, `transposed_row_tiles.py`,
`scatter.py` and `vector_width.py`. `foreach.py` is for horizontally fused kernels. The result is a `LoopNest`
(`ir/loop_nest.py`), `describe.py` makes its record.
"""
from __future__ import annotations

from collections.abc import Sequence

from ....artifacts.context import CompileContext
from ...ir.ir import ExternCall, Foreach, Group, Program
from ...ir.loop_nest import LoopNest
from .build import loop_nest
from .foreach import shared_nest

__all__ = ["loop_nest", "loop_nests"]


def loop_nests(
    items: Sequence[Group | ExternCall], program: Program, context: CompileContext
) -> dict[str, LoopNest]:
    """The loop nests of all groups that run on a CPU, by the names of their kernels."""
    nests = {}
    for item in items:
        if isinstance(item, Foreach) and item.device.type == "cpu":
            nests[item.kernel] = shared_nest(item, program, context)
        elif isinstance(item, Group) and item.device.type == "cpu":
            nests[item.kernel] = loop_nest(item, program, context)
    return nests
