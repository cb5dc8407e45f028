"""Products of small matrices as generated loops: points times a rotation, each matrix of a batch times a vector.

A library packs its operands and calls a kernel for each matrix, which costs more than the few multiplications. Products
of few terms are unrolled; a longer row times one vector is a reduction. Loops fuse with what comes before and after, so
an operand that would be recomputed for each row or column of the other must have few of these. A quantized weight, of
bytes that become floats, is read as it is.
"""
from __future__ import annotations

from collections.abc import Callable
from functools import reduce
from typing import Any

import torch
import torch.fx

from ....artifacts.context import CompileContext
from ....artifacts.records import RuleMatch
from ...graphs.functional_graph import AtenGraph
from ...lowering.realization import ONCE_MORE, kind_of
from ...lowering.registry import COMPOSITE, GATHER, POINTWISE, RESHAPE, VIEW

aten = torch.ops.aten

TERMS = 8  # that are added one after the other
TERMS_OF_VECTOR = 16  # the same where one side is a vector
RESULTS = 256  # elements of the result of one product of a batch
ROWS_OF_BYTES = 2  # with a matrix of bytes: for more, the library reads its floats as fast
NARROW, LONG = 8, 256  # a product of two matrices has a side up to the first, and one from the second on
CASTS = (aten._to_copy.default, torch.ops.prims.convert_element_type.default)
EXACT_ENOUGH = (torch.float32, torch.float64)  # of 16 bits, the library rounds once
HALVES = (torch.bfloat16, torch.float16)  # which hold all bytes: with a matrix of these, sums are float32, rounded once

Call = Callable[..., torch.fx.Node]


def multiply_in_loops(graph: AtenGraph, context: CompileContext) -> list[RuleMatch]:
    """Replace products of small matrices by loops, each a decision of kind "lowering"."""
    nodes = graph.module.graph
    matches = []
    for node in [n for n in nodes.nodes if n.target in (aten.bmm.default, aten.mm.default) and _is_small(n)]:
        why = "the matrices are so small that a library call costs more than the multiplications" if (
            not _from_bytes(node.args[1])) else "few rows times a quantized matrix, which loops read as it is"
        options, origins = ("loops", "extern"), (f"forward#{node.name}",)
        if context.decide("lowering", node.name, options, "loops", why, origins=origins) == "extern":
            continue
        made = _in_loops(node)
        matches.append(RuleMatch("small-product", (node.name,), tuple([n.name for n in made]), why))
        node.replace_all_uses_with(made[-1])
        nodes.erase_node(node)
    return matches


def _is_small(node: torch.fx.Node) -> bool:
    left, right = (argument.meta["val"] for argument in node.args)  # type: ignore[union-attr]
    if left.device.type != "cpu" or left.dtype not in (*EXACT_ENOUGH, *HALVES):
        return False
    if any(not isinstance(size, int) or size == 0 for size in (*left.shape, *right.shape)):
        return False
    (rows, terms), columns = left.shape[-2:], right.shape[-1]
    of_bytes = left.dim() == 2 and rows <= ROWS_OF_BYTES and _from_bytes(node.args[1])
    if left.dtype in HALVES and not of_bytes:
        return False
    if left.dim() == 2:
        few = terms <= TERMS and min(rows, columns) <= NARROW and max(rows, columns) >= LONG
        few = few or of_bytes
    elif min(rows, columns) == 1:
        few = left.shape[0] > 1
    else:
        few = left.shape[0] > 1 and terms <= TERMS and rows * columns <= RESULTS
    again = zip(node.args, (columns, rows))
    return few and all(times <= ONCE_MORE or not _in_the_making(operand) for operand, times in again)


def _from_bytes(value: Any) -> bool:
    """Whether a matrix is one of bytes in memory that become floats (a weight that is quantized): a loop reads them
    once, where the library wants four bytes for each, written and read."""
    while kind_of(value) in (VIEW, RESHAPE):
        value = value.args[0]
    if value.target not in CASTS:
        return False
    source = value.args[0]
    while kind_of(source) in (VIEW, RESHAPE):
        source = source.args[0]
    return not _in_the_making(source) and source.meta["val"].dtype in (torch.int8, torch.uint8)


def _bytes_as_floats(value: Any, call: Call) -> torch.fx.Node:
    """A matrix of bytes (see `_from_bytes`) that become float32 at once."""
    views = []
    while kind_of(value) in (VIEW, RESHAPE):
        views.append(value)
        value = value.args[0]
    wide = call(aten._to_copy.default, value.args[0], dtype=torch.float32)
    for view in reversed(views):
        wide = call(view.target, wide, *view.args[1:])
    return wide


def _in_the_making(value: Any) -> bool:
    """Whether loops compute a value where it is read, instead of finding it in memory."""
    while kind_of(value) in (VIEW, RESHAPE):
        value = value.args[0]
    return kind_of(value) in (POINTWISE, GATHER, COMPOSITE)


def _in_loops(node: torch.fx.Node) -> list[torch.fx.Node]:
    """The nodes instead of the product; the last one is its result, in the same memory layout."""
    left, right = node.args
    wanted, made = node.meta["val"], []

    def call(target: torch._ops.OpOverload, *args: Any, **kwargs: Any) -> torch.fx.Node:
        new = node.graph.call_function(target, args, kwargs)
        new.meta.update(node.meta)
        new.meta["val"] = target(*torch.fx.node.map_arg(args, lambda n: n.meta["val"]), **kwargs)
        made.append(new)
        return new

    (rows, terms), columns = left.meta["val"].shape[-2:], wanted.shape[-1]  # type: ignore[union-attr]
    with node.graph.inserting_before(node):
        if wanted.dtype in HALVES:
            left, right = call(aten._to_copy.default, left, dtype=torch.float32), _bytes_as_floats(right, call)
        if terms <= (TERMS_OF_VECTOR if min(rows, columns) == 1 else TERMS):
            products = [call(aten.mul.Tensor, call(aten.slice.Tensor, left, -1, term, term + 1),
                             call(aten.slice.Tensor, right, -2, term, term + 1)) for term in range(terms)]
            result = reduce(lambda one, other: call(aten.add.Tensor, one, other), products)
        else:
            columns_last = call(aten.mul.Tensor, call(aten.unsqueeze.default, left, -1),
                                call(aten.unsqueeze.default, right, -3))
            result = call(aten.sum.dim_IntList, columns_last, [-2])
        if wanted.dtype in HALVES:
            result = call(aten._to_copy.default, result, dtype=wanted.dtype)
        if result.meta["val"].stride() != wanted.stride():
            call(aten.clone.default, result, memory_format=torch.contiguous_format)
    made[-1].meta["val"] = wanted  # whose memory views of it have
    return made
