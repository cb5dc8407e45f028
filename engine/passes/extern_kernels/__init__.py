"""Which library call computes a matrix product, a convolution or attention, and in which memory layout.

The last rewrites of an ATen graph, and the only ones that look at the machine: each choice is a decision of kind
"library" whose options carry a cost in microseconds. Walk: `benchmarking.py` runs a call once on this machine and keeps
what it cost on disk; `bmm_to_mm.py` joins products with one matrix; `addmm_unfusing.py` takes the bias out of products
whose consumers are loops; `small_matmul.py` multiplies small matrices in loops; `convolution.py` knows the ways of
computing one convolution; `conv_layouts.py` chooses among them for a whole graph, as a layout is shared by neighbours;
`weight_prepacking.py` packs frozen weights of convolutions; `weight_gradients.py` takes the gradients of depthwise
convolutions apart; `attention.py` takes our own kernel where it is faster than the library's; `matmul.py` does so for a
matrix product, among the libraries and our own; `pad_mm.py` lays out its matrices, also in a joint graph.
"""
from __future__ import annotations

import time

from ....artifacts.context import CompileContext
from ....artifacts.fx_graphs import graph_record
from ....artifacts.records import Pass, RuleMatch
from ...graphs.functional_graph import AtenGraph
from .addmm_unfusing import split_bias
from .attention import choose_attention
from .bmm_to_mm import join_batches
from .conv_layouts import choose_layouts, turn_images
from .matmul import choose_products
from .pad_mm import pad_rows
from .small_matmul import multiply_in_loops
from .weight_gradients import part_gradients
from .weight_prepacking import pack_convolutions

__all__ = ["choose", "lay_out"]


def lay_out(aten: AtenGraph, context: CompileContext) -> None:
    """What must be known before a joint graph is cut, as both halves see it: the layout of matrices and images."""
    start = time.perf_counter()
    _record(aten, context, (*pad_rows(aten, context), *turn_images(aten, context)), start)


def choose(aten: AtenGraph, context: CompileContext) -> None:
    """Rewrite `aten` in place for the library calls that are cheapest here; recorded as a pass if it changed."""
    start = time.perf_counter()
    matches = (*join_batches(aten, context), *choose_layouts(aten, context), *pack_convolutions(aten, context),
               *part_gradients(aten, context), *split_bias(aten, context), *multiply_in_loops(aten, context),
               *choose_products(aten, context), *choose_attention(aten, context))
    _record(aten, context, (*matches, *pad_rows(aten, context), *turn_images(aten, context)), start)


def _record(aten: AtenGraph, context: CompileContext, matches: tuple[RuleMatch, ...], start: float) -> None:
    if matches:
        seconds = time.perf_counter() - start
        describe = lambda: Pass("library", graph_record(aten.module.graph, "library", "capture"), matches, seconds)
        context.record("passes", describe, "library")
