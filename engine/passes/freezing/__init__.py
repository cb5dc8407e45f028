"""Freezing: what an inference graph computes from parameters and buffers alone is computed once, not on each call.

It is enabled by `options={"freezing": True}`, PyTorch's own name for it, since a parameter changed without torch's
knowledge (through `.data`, or by other code that holds its memory) keeps its old value here. A change that torch counts
(in-place operators, optimizers, `load_state_dict`), another tensor or another address is noticed on the next call, and
the values are recomputed: nothing is baked into the compiled code, which several models may share.

Read `parameters.py` (which inputs are frozen, what depends on them alone), `batch_norm.py` (batch norm folded into
convolutions), `../extern_kernels/` (weights prepacked for MKL and oneDNN), `split.py` (splits the graph), `source.py`
(the part that runs once, as Python), `call.py` (runs it and caches its values).
"""
from __future__ import annotations

import time

import torch

from ....artifacts.context import CompileContext
from ....artifacts.fx_graphs import graph_record
from ....artifacts.records import Pass
from ...graphs.functional_graph import AtenGraph
from .batch_norm import fold_batch_norms
from .parameters import mark
from .split import split

__all__ = ["finish", "fold", "mark"]


def fold(aten: AtenGraph, context: CompileContext) -> None:
    """Rewrite `aten` in place for what its frozen inputs (see `mark`) allow; recorded as a pass if it changed."""
    start = time.perf_counter()
    with torch.no_grad():
        matches = tuple(fold_batch_norms(aten))
    if matches:
        seconds = time.perf_counter() - start
        record = lambda: Pass("freezing", graph_record(aten.module.graph, "freezing", "capture"), matches, seconds)
        context.record("passes", record, "freezing")


def finish(aten: AtenGraph, context: CompileContext) -> AtenGraph:
    """`aten` without what depends on frozen inputs alone: it takes those values as further inputs, and `folding` says
    how they are made."""
    start = time.perf_counter()
    after, matches = split(aten)
    if matches:
        graph, seconds = after.module.graph, time.perf_counter() - start
        record = lambda: Pass("runtime-folding", graph_record(graph, "runtime-folding", "capture"), matches, seconds)
        context.record("passes", record, "runtime-folding")
        assert after.folding is not None
        context.record("wrapper", after.folding.source.record, "folding")
    return after
