"""Memory formats of convolutions (contiguous or channels-last), and of everything between them.

The cost of a convolution depends on the memory format of its image, and formats are shared: what one convolution
writes, a pointwise kernel reads, and the next convolution receives. So formats are assigned for the whole graph: a
convolution pays for a change of format between itself and the convolution before it. The search starts from the better
of the two uniform assignments and flips one convolution at a time while the total falls.

Only memory changes: each node keeps its shape, and results are copied to the strides that the fake tensors had. Graphs
with operators whose meaning depends on strides (as_strided) are left alone.
"""
from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import cast

import torch
import torch.fx

from ....artifacts.context import CompileContext
from ....artifacts.records import RuleMatch
from ....operators.unbacked import unbacked_in
from ...graphs.functional_graph import AtenGraph
from ...lowering.realization import kind_of
from ...lowering.registry import COMPOSITE, GATHER, POINTWISE
from ...toolchain.benchmarking import TOO_BUSY, timed_options
from ..freezing.parameters import frozen_nodes
from .convolution import CONTIGUOUS, LAST, PRODUCT, Convolution, as_product, recognize, widen
from .image_layouts import STRIDED, is_image, original_values, propagate, restore_layouts

aten = torch.ops.aten

GPU = "cuda"
DECIDED = "memory_format_decided"  # in a convolution's meta, once its memory format was chosen
TURNING = 4e9  # bytes read and written in a second when a kernel changes the layout of a tensor
WORTH = 0.97  # of the cost as it is, below which a change is made


def choose_layouts(graph: AtenGraph, context: CompileContext) -> list[RuleMatch]:
    """Give convolutions, and what is between them, the memory formats in which the graph is fastest here."""
    if any(n.target in STRIDED for n in graph.module.graph.nodes):
        return []
    _repeat_weights(graph.module.graph)
    matches = _widened(graph.module.graph)
    nodes, original = list(graph.module.graph.nodes), original_values(graph.module.graph)
    frozen = frozen_nodes(graph.module.graph)
    convolutions = [found for found in (recognize(node, frozen) for node in nodes) if found is not None]
    if not convolutions:
        return matches
    costs = {c.node: c.costs() for c in convolutions}
    before = _before(nodes, set(costs))
    ways = _decided(convolutions, costs, _search(convolutions, costs, before, _leaving_bytes(graph)), context)
    if all(way == CONTIGUOUS for way in ways.values()):
        return matches
    for found in convolutions:
        if ways[found.node] != CONTIGUOUS:
            why = f"{ways[found.node]} is the fastest together with its neighbours ({found.describe()})"
            matches.append(RuleMatch("layout", (found.node.name,), (found.node.name,), why))
    wanted, changed = _products(convolutions, ways, original)
    propagate(graph.module.graph, wanted, changed, original)
    restore_layouts(graph.module.graph, original)
    return matches


def turn_images(graph: AtenGraph, context: CompileContext) -> list[RuleMatch]:
    """On a GPU, give 2-d convolutions on tensor cores channels-last images, forward and backward.

    The library's fast kernels are for such images: it would convert others around each call, which takes as long as the
    call. What is decided in a joint graph, where the cost of the backward is seen, stands in both of its halves.
    """
    nodes = list(graph.module.graph.nodes)
    if any(n.target in STRIDED or unbacked_in(n.meta.get("val")) for n in nodes):  # these would be made a second time
        return []
    original = original_values(graph.module.graph)
    why = f"the GPU library's kernels for tensor cores need {LAST}, and would convert images on each call"
    wanted = {}
    slow = any(_is_slow_turned(node) for node in nodes)
    for node in nodes:
        if node.target is not aten.convolution.default or node.meta.get(DECIDED):
            continue
        node.meta[DECIDED] = True
        if _is_turned_inside(node, slow):
            options, origins = (LAST, CONTIGUOUS), (f"forward#{node.name}",)
            wanted[node] = context.decide("conv-layout", node.name, options, LAST, why, origins=origins) == LAST
    wanted = {node: last for node, last in wanted.items() if last}
    if wanted:
        propagate(graph.module.graph, wanted, set(), original)
        restore_layouts(graph.module.graph, original)
    return [RuleMatch("layout", (node.name,), (node.name,), why) for node in wanted]


def _is_turned_inside(node: torch.fx.Node, slow: bool) -> bool:
    image, weight = (n.meta["val"] for n in cast(tuple[torch.fx.Node, ...], node.args[:2]))
    fast = image.itemsize == 2 or (image.dtype is torch.float32 and _is_tf32_allowed() and not slow)
    return bool(fast and not node.kwargs and not node.args[6] and image.device.type == GPU
                and image.dim() == weight.dim() == 4 and is_image(image) and image.is_contiguous())


def _is_slow_turned(node: torch.fx.Node) -> bool:
    """Whether a node is the backward of a depthwise float32 convolution of large filters: of channels-last images it
    takes more than twice as long, which outweighs what the other convolutions gain."""
    if node.target is not aten.convolution_backward.default:
        return False
    image, weight = (n.meta["val"] for n in cast(tuple[torch.fx.Node, ...], node.args[1:3]))
    if image.dtype is not torch.float32 or weight.dim() != 4 or any(not isinstance(n, int) for n in weight.shape):
        return False
    return weight.shape[1] == 1 and max(weight.shape[2:]) > 3


def _is_tf32_allowed() -> bool:
    try:
        return bool(torch.backends.cudnn.allow_tf32)
    except RuntimeError:  # set by the newer interface, which the older one does not read
        return True


def _repeat_weights(graph: torch.fx.Graph) -> None:
    """Materialize expanded weights (a blur's), as ATen does internally: dense, they have a memory format."""
    for node in [n for n in graph.nodes if n.target is aten.convolution.default]:
        weight = node.args[1]
        value = weight.meta["val"]
        if value.device.type == "cpu" and any(isinstance(step, int) and step == 0 for step in value.stride()):
            with graph.inserting_before(node):
                copy = graph.call_function(aten.clone.default, (weight,), {"memory_format": torch.contiguous_format})
            copy.meta.update(weight.meta)
            copy.meta["val"] = value.clone(memory_format=torch.contiguous_format)
            node.replace_input_with(weight, copy)


def _widened(graph: torch.fx.Graph) -> list[RuleMatch]:
    matches = []
    for node in list(graph.nodes):
        wide = widen(node)
        if wide is not None:
            why = "a 1-d convolution is a 2-d one of height 1, whose memory format can be chosen"
            matches.append(RuleMatch("rows-as-images", (node.name,), (wide.name,), why))
            wide.meta["val"] = node.meta["val"]  # whose memory views of it have
            node.replace_all_uses_with(wide)
            graph.erase_node(node)
    return matches


# ---- the choice ------------------------------------------------------------------------------------------------------
def _before(nodes: Sequence[torch.fx.Node], convolutions: set[torch.fx.Node]) -> dict[torch.fx.Node, torch.fx.Node]:
    """The nearest convolution above each, through first arguments of other nodes."""
    nearest: dict[torch.fx.Node, torch.fx.Node] = {}
    above: dict[torch.fx.Node, torch.fx.Node] = {}
    for node in nodes:
        inputs = node.all_input_nodes
        if not inputs:
            continue
        found = next((above[i] for i in inputs if i in above), None)
        if node in convolutions:
            if found is not None:
                nearest[node] = found
            above[node] = node
        elif found is not None:
            above[node] = found
    return nearest


def _leaving_bytes(graph: AtenGraph) -> dict[torch.fx.Node, int]:
    """Bytes of the images that are results of the graph, by the convolution whose layout they would have."""
    nodes = list(graph.module.graph.nodes)
    above: dict[torch.fx.Node, torch.fx.Node] = {}
    for node in nodes:
        if recognize(node) is not None:
            above[node] = node
        elif kind_of(node) in (POINTWISE, GATHER, COMPOSITE) and is_image(node.meta.get("val")):
            found = next((above[i] for i in node.all_input_nodes if i in above), None)
            if found is not None:
                above[node] = found
    leaving: dict[torch.fx.Node, int] = {}
    for node in graph.module.graph.output_node().all_input_nodes:
        if node in above:
            value = node.meta["val"]
            leaving[above[node]] = leaving.get(above[node], 0) + value.numel() * value.itemsize
    return leaving


def _search(
    convolutions: Sequence[Convolution], costs: Mapping[torch.fx.Node, Mapping[str, float]],
    before: Mapping[torch.fx.Node, torch.fx.Node], leaving: Mapping[torch.fx.Node, int],
) -> dict[torch.fx.Node, bool]:
    """For each convolution whether it is channels-last at the lowest total found; for none where a cost is unknown."""
    images = {c.node: 2 * 4 * torch.Size(c.image).numel() / TURNING for c in convolutions}
    after: dict[torch.fx.Node, list[torch.fx.Node]] = {}
    for node, earlier in before.items():
        after.setdefault(earlier, []).append(node)

    def own(node: torch.fx.Node, last: bool) -> float:
        ways = costs[node]
        if not last:
            return ways[CONTIGUOUS]
        return min(ways[LAST], ways.get(PRODUCT, ways[LAST])) + 2 * leaving.get(node, 0) / TURNING

    def arriving(chosen: Mapping[torch.fx.Node, bool], node: torch.fx.Node) -> bool:
        """Whether the channels of the image that a convolution is given are innermost; the program's own are not."""
        return node in before and chosen[before[node]]

    def around(chosen: Mapping[torch.fx.Node, bool], node: torch.fx.Node, last: bool) -> float:
        """The cost of one convolution and of the format conversions next to it."""
        turned = images[node] if arriving(chosen, node) != last else 0.0
        turned += sum(images[later] for later in after.get(node, ()) if chosen[later] != last)
        return own(node, last) + turned

    def total(chosen: Mapping[torch.fx.Node, bool]) -> float:
        changes = sum(images[n] for n, last in chosen.items() if last != arriving(chosen, n))
        return sum(own(n, last) for n, last in chosen.items()) + changes

    nothing, best = ({c.node: last for c in convolutions} for last in (False, True))
    if not all(costs.values()):
        return nothing
    if total(nothing) <= total(best):
        best = dict(nothing)
    for _ in range(3):
        for found in convolutions:
            node = found.node
            if around(best, node, not best[node]) < around(best, node, best[node]):
                best[node] = not best[node]
    return best if total(best) < WORTH * total(nothing) else nothing


def _decided(
    convolutions: Sequence[Convolution], costs: Mapping[torch.fx.Node, Mapping[str, float]],
    last: Mapping[torch.fx.Node, bool], context: CompileContext,
) -> dict[torch.fx.Node, str]:
    """The implementation of each convolution: decisions of kind "conv-layout"."""
    ways = {}
    for found in convolutions:
        node, known = found.node, costs[found.node]
        default = CONTIGUOUS
        if last[node]:
            default = min((w for w in known if w != CONTIGUOUS), key=known.__getitem__)
        each = ", ".join(f"{w} {s * 1e6:.0f} us" for w, s in known.items())
        why = f"lowest total over the graph (a change has to save 3 %); here {each}"
        why = why + ", plus conversions of memory format between convolutions" if known else TOO_BUSY
        options = timed_options(known, found.ways)
        ways[node] = context.decide("conv-layout", node.name, options, default, why, origins=(f"forward#{node.name}",))
    return ways


# ---- the rewrite -----------------------------------------------------------------------------------------------------
def _products(
    convolutions: Sequence[Convolution], ways: Mapping[torch.fx.Node, str], original: dict[torch.fx.Node, torch.Tensor]
) -> tuple[dict[torch.fx.Node, bool], set[torch.fx.Node]]:
    """Replace convolutions by matrix products, also in `original`; (which of those left are channels-last,
    products)."""
    wanted: dict[torch.fx.Node, bool] = {}
    products: set[torch.fx.Node] = set()
    for found in convolutions:
        node = found.node
        if ways[node] != PRODUCT:
            wanted[node] = ways[node] == LAST
            continue
        result = as_product(found)
        products.add(result)
        original[result] = original.pop(node)
        node.replace_all_uses_with(result)
        node.graph.erase_node(node)
    return wanted, products
