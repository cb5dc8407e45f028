"""Aligns matrix rows to 16 bytes, for products on a GPU.

A GPU's matrix product copies tiles by 16 bytes, and uses a kernel three to seven times slower where rows are not
aligned to that: the logits of a vocabulary of 50257 words, and their gradient. Three rewrites, each where it is
estimated to save more than it costs (`product_costs.py`):

- An operand with such rows gets zeros at the end of each, and so does the other one: by the loops that compute it, or
  in one copy for all products that read it (the gradient of the logits, which comes from outside).
- A product gets a weight with zero columns, and its result is the window without them: everything but the product that
  sums over them reads the window.
- A result that leaves the graph has to be dense: it is computed in interleaved products whose rows are aligned
  (`../../kernels/unaligned_product.py`), or copied from the window.
"""
from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, cast

import torch
import torch.fx

from ....artifacts.context import CompileContext
from ....artifacts.records import Option, RuleMatch
from ...graphs.aliasing import read_by_strides
from ...graphs.functional_graph import AtenGraph
from ...kernels import unaligned_product
from ...lowering.realization import kind_of
from ...lowering.registry import POINTWISE, RESHAPE, VIEW
from .product_costs import (
    LAUNCH,
    PIECE,
    alignment,
    by_tensor_cores,
    bytes_of,
    copy_time,
    product_time,
    with_hints,
)

aten = torch.ops.aten

GPU = "cuda"
SMALL = 1 << 31  # multiplications and additions of a product: below, padding does not pay
PADDED, INTERLEAVED, UNPADDED = "padded", "interleaved", "unpadded"


def pad_rows(graph: AtenGraph, context: CompileContext) -> list[RuleMatch]:
    """Pad operands and results of products, decisions of kind "pad-mm"; the graph is rewritten in place."""
    nodes = graph.module.graph
    targets = (aten.mm.default, aten.addmm.default)
    products = [n for n in nodes.nodes if n.target in targets and _is_large(n) and not read_by_strides(n)]
    stays = _leaving(nodes) if products else frozenset()
    matches = []
    for made, readers in _misaligned(products).items():
        in_loops = kind_of(made) == POINTWISE and made not in stays and not read_by_strides(made)
        times = _operand_times(made, readers, in_loops)
        if _chosen(made, times, context) == PADDED:
            whole = _fill(made) if in_loops else _with_zeros(made, readers[0][0])
            changed = {reader: _over_zeros(reader, whole, turned) for reader, turned in readers}
            products = [changed.get(product, product) for product in products]
            stays |= {new for product, new in changed.items() if product in stays}
            matches.append(RuleMatch("padded-rows", (made.name,), (whole.name,), _why(made)))
    for product in products:
        if product.target in targets and product.meta["val"].shape[1] % (PIECE // product.meta["val"].itemsize):
            way = _chosen(product, _result_times(product, product in stays), context)
            if way != UNPADDED:
                new = _interleave(product) if way == INTERLEAVED else _widen(product, product in stays)
                matches.append(RuleMatch(f"{way}-rows", (product.name,), (new.name,), _why(product)))
    return matches


# ---- what is there ---------------------------------------------------------------------------------------------------
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
    """Whether a product without factors, for tensor cores, is on a GPU and has enough to do. Of its sizes only the
    number of rows may vary."""
    values: list[Any] = [n.meta.get("val") for n in (*cast(tuple[torch.fx.Node, ...], node.args), node)]
    if node.kwargs or any(not isinstance(v, torch.Tensor) or v.device.type != GPU for v in values):
        return False
    if any(v.dtype != values[0].dtype for v in values) or not by_tensor_cores(values[0].dtype):
        return False
    left, right, result = values[-3:]
    steps = (*left.stride(), *result.stride())
    if not _static(right) or any(not isinstance(step, int) for step in steps):
        return False
    rows, columns = with_hints(result).shape
    return bool(2 * rows * columns * right.shape[0] >= SMALL)


def _static(value: torch.Tensor) -> bool:
    return all(isinstance(s, int) for s in (*value.shape, *value.stride()))


def _misaligned(products: Iterable[torch.fx.Node]) -> dict[torch.fx.Node, list[tuple[torch.fx.Node, bool]]]:
    """The dense tensors with misaligned rows of which products read the matrix, or (True) its transpose, as the left
    operand."""
    found: dict[torch.fx.Node, list[tuple[torch.fx.Node, bool]]] = {}
    for product in products:
        left = cast(torch.fx.Node, product.args[-2])
        made = _source(left) if _static(left.meta["val"]) else None
        if made is not None and _padding(made.meta["val"]):
            found.setdefault(made, []).append((product, not left.meta["val"].is_contiguous()))
    return found


def _padding(value: torch.Tensor) -> int:
    """Elements that each row lacks for whole pieces; 0 for what is not stored by rows."""
    if value.dim() < 2 or not value.is_contiguous():
        return 0
    return -value.shape[-1] % (PIECE // value.itemsize)


def _source(node: torch.fx.Node) -> torch.fx.Node | None:
    """The node whose memory a matrix, or its transpose, is, with rows of the same length; None where there is none.

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
            return node if value.dim() >= 2 and value.shape[-1] == row else None
        node = node.all_input_nodes[0]


# ---- what it takes ---------------------------------------------------------------------------------------------------
def _operand_times(
    made: torch.fx.Node, readers: Iterable[tuple[torch.fx.Node, bool]], in_loops: bool
) -> dict[str, float]:
    """Seconds of all products that read `made`, padded (with the copies that are needed for that) and as they are."""
    times = {PADDED: 0.0 if in_loops else copy_time(made.meta["val"]), UNPADDED: 0.0}
    for product, turned in readers:
        left, right, result = _matrices(product)
        times[UNPADDED] += product_time((left, right, result), alignment(left, right, result))
        times[PADDED] += product_time((left, right, result), alignment(right, result))
        times[PADDED] += 0.0 if turned else copy_time(right)
    return times


def _result_times(product: torch.fx.Node, leaves: bool) -> dict[str, float]:
    """Seconds of a product with a result of misaligned rows, by each way that there is."""
    left, right, result = _matrices(product)
    best = alignment(left)
    times = {}
    if _static(product.meta["val"]):
        times[PADDED] = product_time((left, right, result), best) + copy_time(right)
        times[PADDED] += copy_time(result) if leaves else 0.0
    if leaves and _can_interleave(product):
        every = unaligned_product.interleaving(result.shape[1], result.itemsize)
        times[INTERLEAVED] = product_time((left, right, result), best, again=(every - 1) * bytes_of(right))
        times[INTERLEAVED] += (3 + every) * LAUNCH + (copy_time(right) if len(product.args) > 2 else 0.0)
    times[UNPADDED] = product_time((left, right, result), alignment(left, right, result))
    return times


def _can_interleave(product: torch.fx.Node) -> bool:
    """Whether both operands lie by sums, aligned: `left` by rows and `right` by columns."""
    left, right, _ = _matrices(product)
    ordered = left.stride(1) == 1 and right.stride(0) == 1 and len(product.args) in (2, 3)
    biased = len(product.args) == 2 or cast(torch.fx.Node, product.args[0]).meta["val"].shape == right.shape[1:]
    return bool(ordered and biased and alignment(left, right) == PIECE)


def _matrices(product: torch.fx.Node) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    left, right = (cast(torch.fx.Node, n) for n in product.args[-2:])
    return with_hints(left.meta["val"]), with_hints(right.meta["val"]), with_hints(product.meta["val"])


def _chosen(node: torch.fx.Node, times: dict[str, float], context: CompileContext) -> str:
    best = min(times, key=times.__getitem__)
    estimates = ", ".join(f"{way} {seconds * 1e6:.0f} us" for way, seconds in times.items())
    options = [Option(way, round(seconds * 1e6, 1), unit="us", better="lower") for way, seconds in times.items()]
    why = f"{_why(node)}; estimated: {estimates}"
    return context.decide("pad-mm", node.name, options, best, why, origins=(f"forward#{node.name}",))


def _why(node: torch.fx.Node) -> str:
    value = node.meta["val"]
    return f"rows of {value.shape[-1]} elements of {value.itemsize} bytes are not a multiple of {PIECE} bytes"


# ---- the rewrites ----------------------------------------------------------------------------------------------------
def _fill(made: torch.fx.Node) -> torch.fx.Node:
    """`made` with zeros at the end of each row; whatever reads `made` reads the window without them."""
    whole = _with_zeros(made, made)
    value = made.meta["val"]
    with made.graph.inserting_after(whole):
        window = _call(made, aten.slice.Tensor, whole, value.dim() - 1, 0, value.shape[-1])
    made.replace_all_uses_with(window, delete_user_cb=lambda user: user is not whole)
    _follow(window)
    return whole


def _with_zeros(made: torch.fx.Node, like: torch.fx.Node) -> torch.fx.Node:
    after = made
    while made.op == "placeholder" and after.next.op == "placeholder":
        after = after.next
    with made.graph.inserting_after(after):
        return _call(like, aten.constant_pad_nd.default, made, [0, _padding(made.meta["val"])])


def _over_zeros(product: torch.fx.Node, whole: torch.fx.Node, turned: bool) -> torch.fx.Node:
    """The product that sums over the zeros as well; the weight gets as many rows of them. Or, of the transpose, the
    product of the rows without zeros."""
    *bias, left, right = cast(tuple[torch.fx.Node, ...], product.args)
    rows, length = left.meta["val"].shape[turned], whole.meta["val"].shape[-1]
    with product.graph.inserting_before(product):
        matrix = _call(product, aten.reshape.default, whole, [rows, length])
        if turned:
            window = _call(product, aten.slice.Tensor, matrix, 1, 0, left.meta["val"].shape[0])
            columns = _call(product, aten.permute.default, window, [1, 0])
            total = _call(product, unaligned_product.OPERATOR, columns, right, *bias)
        else:
            more = [0, 0, 0, length - right.meta["val"].shape[0]]
            total = _call(product, product.target, *bias, matrix, _as_stored(right, more))
    product.replace_all_uses_with(total)
    product.graph.erase_node(product)
    return total


def _interleave(product: torch.fx.Node) -> torch.fx.Node:
    *bias, left, right = product.args
    with product.graph.inserting_before(product):
        total = _call(product, unaligned_product.OPERATOR, left, right, *bias)
    product.replace_all_uses_with(total)
    product.graph.erase_node(product)
    return total


def _follow(node: torch.fx.Node) -> None:
    for user in node.users:
        if kind_of(user) in (VIEW, RESHAPE):
            if user.target in (aten.view.default, aten._unsafe_view.default):  # which rows with a gap may not allow
                user.target = aten.reshape.default
            target = cast(Callable[..., Any], user.target)
            load = lambda n: n.meta["val"]
            user.meta["val"] = target(*torch.fx.node.map_arg(user.args, load),
                                      **torch.fx.node.map_arg(user.kwargs, load))
            _follow(user)


def _widen(node: torch.fx.Node, leaves: bool) -> torch.fx.Node:
    """Give the product more columns, of zeros; the window on its result, or a copy of that, that takes its place."""
    missing, columns = _padding(node.meta["val"]), node.meta["val"].shape[1]
    *bias, left, right = cast(tuple[torch.fx.Node, ...], node.args)
    with node.graph.inserting_before(node):
        wide = [b.meta["val"].shape[-1:] == (columns,) for b in bias]
        more = [_call(node, aten.constant_pad_nd.default, b, [0, missing]) if w else b for b, w in zip(bias, wide)]
        whole = _call(node, node.target, *more, left, _as_stored(right, [0, missing]))
        window = _call(node, aten.slice.Tensor, whole, 1, 0, columns)
        if leaves:
            window = node.graph.call_function(
                aten.clone.default, (window,), {"memory_format": torch.contiguous_format})
            window.meta.update(node.meta)
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
