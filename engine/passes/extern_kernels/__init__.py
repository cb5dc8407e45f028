"""Which extern kernel computes a matrix product, a convolution or attention, and in which memory layout.

The last rewrites of an ATen graph, and the only ones that benchmark: each choice is a decision, and the times measured
on this machine (`../../toolchain/benchmarking.py`, kept on disk) are the scores of its options. In the order in which
they run: `int8/` computes on the integers of quantized graphs; `bmm_to_mm.py` folds a batched product with one shared
matrix into an `mm`; `tiled_products.py` decides which products are generated loops, on a GPU, where it measures each
with its surroundings (`surroundings.py`); `convolution.py` has the implementations of one convolution, and
`conv_layouts.py` assigns them for the whole graph, since neighbours share a memory format (`image_layouts.py` spreads
it); `weight_prepacking.py` packs frozen weights of convolutions for oneDNN; `weight_gradients.py` splits the backward
of depthwise convolutions; `addmm_unfusing.py` moves the bias of an `addmm`, and `conv_bias.py` that of a convolution on
a GPU, into the loops that read it; `epilogues.py` lets a product on a GPU compute an activation; `small_matmul.py`
multiplies small matrices in generated loops; `matmul.py` and `attention.py` choose between the libraries' kernels and
ptdebug's; `pad_mm.py` aligns rows for tensor cores, by the estimates of `product_costs.py`, also in a joint graph
before it is partitioned.
"""
from __future__ import annotations

from ....artifacts.context import CompileContext
from ...graphs.functional_graph import AtenGraph
from ..rewriting import Matches
from .addmm_unfusing import split_bias
from .attention import choose_attention
from .bmm_to_mm import join_batches
from .conv_bias import add_in_loops
from .conv_layouts import choose_layouts, turn_images
from .epilogues import fuse_activations
from .int8 import use_integers
from .matmul import choose_products
from .pad_mm import pad_rows
from .small_matmul import multiply_in_loops
from .tiled_products import choose_tiled
from .weight_gradients import part_gradients
from .weight_prepacking import pack_convolutions

__all__ = ["choose", "lay_out"]

def lay_out(aten: AtenGraph, context: CompileContext) -> tuple[AtenGraph, Matches]:
    """Layouts of matrices and images, chosen before a joint graph is partitioned, since both halves see them."""
    return aten, (*pad_rows(aten, context), *turn_images(aten, context))


def choose(aten: AtenGraph, context: CompileContext) -> tuple[AtenGraph, Matches]:
    """Rewrite `aten` in place for the fastest extern kernels here."""
    matches = (*use_integers(aten, context), *join_batches(aten, context), *choose_tiled(aten, context, _libraries))
    return aten, (*matches, *_libraries(aten, context))


def _libraries(aten: AtenGraph, context: CompileContext) -> Matches:
    """The rewrites that choose between kernels which are there already."""
    matches = (*choose_layouts(aten, context), *pack_convolutions(aten, context), *add_in_loops(aten, context),
               *fuse_activations(aten, context), *part_gradients(aten, context), *split_bias(aten, context),
               *multiply_in_loops(aten, context), *choose_products(aten, context), *choose_attention(aten, context))
    return *matches, *pad_rows(aten, context), *turn_images(aten, context)
