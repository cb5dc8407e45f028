"""ATen graph to loop IR, define-by-run: a lowering is a Python function over lazy tensors that leaves loop bodies
behind.

Walk through it so: `../ir/affine.py` (index expressions and their simplification), `body.py` (a loop body being
written), `lazy_tensors.py` (lazy tensors and views), `registry.py` (the table of lowerings), then the lowerings
themselves (`pointwise.py`, `activations.py`, `creation.py`, `padding.py`, `views.py`, `reductions.py`, `scans.py`,
`products.py`, `normalization.py`, `indexing.py`, `concat.py`, `scatter.py`, `searching.py`, `pooling.py`,
`upsampling.py`, `quantization.py`; `extern.py` for what ATen does), and what ties them together: `graph.py` (what they
build a program with), `realization.py` and `stored_values.py` (which values are stored), `loop_splitting.py` (which
loops are cut) and `walk.py` (the walk over the graph); `describe.py` makes the records. To add an operator, add an
entry to a table in one of the lowering modules; whatever has none calls ATen.
"""
from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import Any

import torch.fx

from ...artifacts.context import CompileContext
from ..ir.ir import Program
from . import (
    activations,
    concat,
    creation,
    indexing,
    normalization,
    padding,
    pointwise,
    pooling,
    products,
    reductions,
    scans,
    scatter,
    searching,
    upsampling,
    views,
)
from .registry import LOWERINGS, Lowering
from .walk import Walk

__all__ = ["LOWERINGS", "activations", "concat", "creation", "indexing", "lower", "lowerings", "normalization",
           "padding", "pointwise", "pooling", "products", "reductions", "scans", "scatter", "searching", "upsampling",
           "views"]

QUANTIZED = "torch.ao.quantization.fx._decomposed"  # the module that defines the operators of `quantization.py`


def lowerings() -> Mapping[Any, Lowering]:
    """The table of lowerings, with those of operators that modules of torch's define when a program imports them."""
    if QUANTIZED in sys.modules:
        from . import quantization  # noqa: F401
    return LOWERINGS


def lower(module: torch.fx.GraphModule, context: CompileContext) -> Program:
    """Lower a functional ATen graph (see aten_graph.py) to a Program.

    Placeholders, get_attr tensors and calls carry their fake values in `meta["val"]`; `module.meta["mutations"]` maps
    the position of an output to the name of the placeholder whose new value it is. Never refuses a graph: an operator
    without a lowering, or with arguments that its lowering cannot take, becomes a call of ATen.
    """
    return Walk(module, context).run()
