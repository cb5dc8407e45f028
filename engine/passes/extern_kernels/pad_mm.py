"""Pads matrix rows to a multiple of 16 bytes, for products on a GPU.

A GPU's matrix product copies tiles by 16 bytes, and uses a kernel three times slower where rows are not aligned to
that: the logits of a vocabulary of 30522 words, and their gradient. A product gets a weight with zero columns, and its
result is the window without them; what loops compute is computed with the zeros, and everything but the product that
sums over them reads the window.
"""
from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

import torch
import torch.fx

from ....artifacts.context import CompileContext
from ....artifacts.records import RuleMatch
from ...graphs.functional_graph import AtenGraph
from ...lowering.realization import kind_of
from ...lowering.registry import POINTWISE, RESHAPE, VIEW

aten = torch.ops.aten

GPU = "cuda"
PIECE = 16  # bytes
SMALL = 1 << 31  # multiplications and additions of a product: below, padding does not pay
PADDED, UNPADDED = "padded", "unpadded"


def pad_rows(graph: AtenGraph, context: CompileContext) -> list[RuleMatch]:
    """Pad operands and results of products, decisions of kind "pad-mm"; the graph is rewritten in place."""
    nodes = graph.module.graph
    products = [n for n in nodes.nodes if n.target in (aten.mm.default, aten.addmm.default) and _is_large(n)]
    stays = _leaving(nodes) if products else frozenset()
    padded: dict[torch.fx.Node, torch.fx.Node] = {}
    matches: list[RuleMatch] = []
    for product in products:
        left = cast(torch.fx.Node, product.args[-2])
        made, by_rows = _made_by_loops(left), left.meta["val"].is_contiguous()
        if made is not None and made not in stays and _padding(made.meta["val"]) and _wanted(made, context):
            padded[made] = _fill(made)
            matches.append(RuleMatch("padded-rows", (made.name,), (padded[made].name,), _why(made)))
        if by_rows and made in padded:
            product = _over_zeros(product, padded[made])
        if product not in stays and _padding(product.meta["val"]) and _wanted(product, context):
            window = _widen(product)
            matches.append(RuleMatch("padded-rows", (product.name,), (window.name,), _why(product)))
    return matches


def _leaving(nodes: torch.fx.Graph) -> frozenset[torch.fx.Node]:
    """The nodes whose memory, or a window on it, the graph returns."""
    found: set[torch.fx.Node] = set()
    for node in nodes.output_node().all_input_nodes:
        found.add(node)
        while kind_of(node) in (VIEW, RESHAPE):
            node = node.all_input_nodes[0]
            found.add(node)
    return frozenset(found)


def _is_large(node: torch.fx.Node) -> bool:
    """Whether a product without factors, in 16 bits and of static sizes, is on a GPU and has enough to do."""
    values: list[Any] = [n.meta.get("val") for n in (*node.all_input_nodes, node)]
    if node.kwargs or any(not isinstance(v, torch.Tensor) or v.device.type != GPU or v.itemsize != 2 for v in values):
        return False
    if any(not isinstance(s, int) for v in values for s in (*v.shape, *v.stride())):
        return False
    rows, columns = node.meta["val"].shape
    return bool(2 * rows * columns * values[-2].shape[0] >= SMALL)


def _padding(value: torch.Tensor) -> int:
    """Elements that each row lacks for whole pieces; 0 for what is not stored by rows."""
    if value.dim() < 2 or not value.is_contiguous():
        return 0
    return -value.shape[-1] % (PIECE // value.itemsize)


def _made_by_loops(node: torch.fx.Node) -> torch.fx.Node | None:
    """The node whose loops fill a matrix, or its transpose, by rows of the same length; None for another origin.

    Between the two are only views that name the same elements in the same order.
    """
    value = node.meta["val"]
    if not value.is_contiguous() and value.t().is_contiguous() and kind_of(node) in (VIEW, RESHAPE):
        node = node.all_input_nodes[0]
    row, count = max(value.stride()), value.numel()
    while True:
        value = node.meta.get("val")
        if not isinstance(value, torch.Tensor) or not value.is_contiguous() or value.numel() != count:
            return None
        if kind_of(node) not in (VIEW, RESHAPE):
            return node if kind_of(node) == POINTWISE and value.dim() >= 2 and value.shape[-1] == row else None
        node = node.all_input_nodes[0]


def _wanted(node: torch.fx.Node, context: CompileContext) -> bool:
    options = (PADDED, UNPADDED)
    chosen = context.decide("pad-mm", node.name, options, PADDED, _why(node), origins=(f"forward#{node.name}",))
    return chosen == PADDED


def _why(node: torch.fx.Node) -> str:
    value = node.meta["val"]
    return f"rows of {value.shape[-1]} elements of {value.itemsize} bytes are not a multiple of {PIECE} bytes"


def _fill(made: torch.fx.Node) -> torch.fx.Node:
    """`made` with zeros at the end of each row; whatever reads `made` reads the window without them."""
    value = made.meta["val"]
    with made.graph.inserting_after(made):
        whole = _call(made, aten.constant_pad_nd.default, made, [0, _padding(value)])
    with made.graph.inserting_after(whole):
        window = _call(made, aten.slice.Tensor, whole, value.dim() - 1, 0, value.shape[-1])
    made.replace_all_uses_with(window, delete_user_cb=lambda user: user is not whole)
    _follow(window)
    return whole


def _over_zeros(product: torch.fx.Node, whole: torch.fx.Node) -> torch.fx.Node:
    """The product that sums over the zeros as well; the weight gets as many rows of them."""
    *bias, left, right = cast(tuple[torch.fx.Node, ...], product.args)
    length = whole.meta["val"].shape[-1]
    with product.graph.inserting_before(product):
        matrix = _call(product, aten.reshape.default, whole, [left.meta["val"].shape[0], length])
        more = [0, 0, 0, length - right.meta["val"].shape[0]]
        total = _call(product, product.target, *bias, matrix, _as_stored(right, more))
    product.replace_all_uses_with(total)
    product.graph.erase_node(product)
    return total


def _follow(node: torch.fx.Node) -> None:
    for user in node.users:
        if kind_of(user) in (VIEW, RESHAPE):
            target = cast(Callable[..., Any], user.target)
            load = lambda n: n.meta["val"]
            user.meta["val"] = target(*torch.fx.node.map_arg(user.args, load),
                                      **torch.fx.node.map_arg(user.kwargs, load))
            _follow(user)


def _widen(node: torch.fx.Node) -> torch.fx.Node:
    """Give the product more columns, of zeros; the window on its result that takes its place."""
    missing, columns = _padding(node.meta["val"]), node.meta["val"].shape[1]
    *bias, left, right = cast(tuple[torch.fx.Node, ...], node.args)
    with node.graph.inserting_before(node):
        more = [_call(node, aten.constant_pad_nd.default, b, [0, missing]) if b.meta["val"].shape[-1] == columns else b
                for b in bias]
        whole = _call(node, node.target, *more, left, _as_stored(right, [0, missing]))
        window = _call(node, aten.slice.Tensor, whole, 1, 0, columns)
    node.replace_all_uses_with(window)
    node.graph.erase_node(node)
    _follow(window)
    return window


def _as_stored(weight: torch.fx.Node, more: list[int]) -> torch.fx.Node:
    """The weight with zeros around it, in its own memory layout: by columns where that is."""
    made, old = _call(weight, aten.constant_pad_nd.default, weight, more), weight.meta["val"]
    value = made.meta["val"]
    if old.stride(0) < old.stride(1):
        made.meta["val"] = value.new_empty_strided(value.shape, (1, value.shape[0]))
    return made


def _call(like: torch.fx.Node, target: Any, *args: Any) -> torch.fx.Node:
    """A new node with the provenance of `like`."""
    made = like.graph.call_function(target, args)
    made.meta.update(like.meta)
    made.meta["val"] = target(*torch.fx.node.map_arg(args, lambda n: n.meta["val"]))
    return made
