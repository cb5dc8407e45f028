"""Freezing: what an inference graph computes from parameters and buffers alone is computed once, not on each call.

It is enabled by `options={"freezing": True}`, PyTorch's own name for it, since a parameter changed without torch's
knowledge (through `.data`, or by other code that holds its memory) keeps its old value here. A change that torch counts
(in-place operators, optimizers, `load_state_dict`), another tensor or another address is noticed on the next call, and
the values are recomputed: nothing is baked into the compiled code, which several models may share.

Read `parameters.py` (which inputs are frozen, what depends on them alone), `batch_norm.py` (batch norm folded into
convolutions), `../extern_kernels/` (weights prepacked for MKL and oneDNN), `split.py` (splits the graph), `source.py`
(the part that runs once, as Python); `../../runtime/frozen_call.py` runs it and caches its values.
"""
from __future__ import annotations

import torch

from ....artifacts.context import CompileContext
from ...graphs.functional_graph import AtenGraph
from ..rewriting import Matches
from .batch_norm import fold_batch_norms
from .parameters import mark
from .split import split

__all__ = ["finish", "fold", "mark"]


def fold(aten: AtenGraph, context: CompileContext) -> tuple[AtenGraph, Matches]:
    """Rewrite `aten` in place for what its frozen inputs (see `mark`) allow."""
    with torch.no_grad():
        return aten, tuple(fold_batch_norms(aten))


def finish(aten: AtenGraph, context: CompileContext) -> tuple[AtenGraph, Matches]:
    """`aten` without what depends on frozen inputs alone: it takes those values as further inputs, and `folding` says
    how they are made."""
    after, matches = split(aten)
    return after, tuple(matches)
