"""Memory formats of convolutions (contiguous or channels-last), and of everything between them.

The cost of a convolution depends on the memory format of its image, and formats are shared: what one convolution
writes, a pointwise kernel reads, and the next convolution receives. So formats are assigned for the whole graph: a
convolution pays for a change of format between itself and the convolution before it. The search starts from the better
of the two uniform assignments and flips one convolution at a time while the total falls.

Only memory changes: each node keeps its shape, and results are copied to the strides that the fake tensors had. Graphs
with operators whose meaning depends on strides (as_strided) are left alone.
"""
from __future__ import annotations

import operator
from collections.abc import Callable, Mapping, Sequence
from typing import Any, cast

import torch
import torch.fx

from ....artifacts.context import CompileContext
from ....artifacts.records import RuleMatch
from ....operators.effects import is_random
from ....operators.unbacked import unbacked_in
from ...graphs.functional_graph import AtenGraph
from ...lowering.realization import kind_of
from ...lowering.registry import COMPOSITE, GATHER, POINTWISE, RESHAPE, VIEW
from ...toolchain.benchmarking import TOO_BUSY, timed_options
from ..freezing.parameters import frozen_nodes
from .convolution import CONTIGUOUS, LAST, PRODUCT, Convolution, as_product, recognize, widen

aten = torch.ops.aten

GPU = "cuda"
TURNING = 4e9  # bytes read and written in a second when a kernel changes the layout of a tensor
WORTH = 0.97  # of the cost as it is, below which a change is made
STRIDED = (aten.as_strided.default, aten.view.dtype, aten.view_as_real.default, aten.view_as_complex.default)


def choose_layouts(graph: AtenGraph, context: CompileContext) -> list[RuleMatch]:
    """Give convolutions, and what is between them, the memory formats in which the graph is fastest here."""
    if any(n.target in STRIDED for n in graph.module.graph.nodes):
        return []
    _repeat_weights(graph.module.graph)
    matches = _widened(graph.module.graph)
    nodes, original = list(graph.module.graph.nodes), _original_values(graph.module.graph)
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
    _propagate(graph.module.graph, wanted, changed, original)
    _restore_layouts(graph.module.graph, original)
    return matches


def turn_images(graph: AtenGraph, context: CompileContext) -> list[RuleMatch]:
    """On a GPU, give 16-bit 2-d convolutions channels-last images, forward and backward.

    The library has no other 16-bit kernels: it would convert images around each call, which takes as long as the call.
    """
    nodes = list(graph.module.graph.nodes)
    if any(n.target in STRIDED or unbacked_in(n.meta.get("val")) for n in nodes):  # these would be made a second time
        return []
    original = _original_values(graph.module.graph)
    why = f"the GPU library's 16-bit kernels need {LAST}, and would convert images on each call"
    wanted = {}
    for node in nodes:
        if node.target is aten.convolution.default and _is_turned_inside(node):
            options, origins = (LAST, CONTIGUOUS), (f"forward#{node.name}",)
            wanted[node] = context.decide("conv-layout", node.name, options, LAST, why, origins=origins) == LAST
    wanted = {node: last for node, last in wanted.items() if last}
    if wanted:
        _propagate(graph.module.graph, wanted, set(), original)
        _restore_layouts(graph.module.graph, original)
    return [RuleMatch("layout", (node.name,), (node.name,), why) for node in wanted]


def _is_turned_inside(node: torch.fx.Node) -> bool:
    image, weight = (n.meta["val"] for n in cast(tuple[torch.fx.Node, ...], node.args[:2]))
    plain = not node.kwargs and not node.args[6] and node.args[8] == 1
    return bool(plain and image.device.type == GPU and image.itemsize == 2 and image.dim() == weight.dim() == 4
                and _is_image(image) and image.is_contiguous())


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
        elif kind_of(node) in (POINTWISE, GATHER, COMPOSITE) and _is_image(node.meta.get("val")):
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


def _propagate(
    graph: torch.fx.Graph, wanted: Mapping[torch.fx.Node, bool], changed: set[torch.fx.Node],
    original: Mapping[torch.fx.Node, torch.Tensor],
) -> None:
    """Turn images where convolutions want them turned, and let the nodes between follow the layout of their inputs.

    `changed` are the nodes whose layout is not what it was. Random numbers are drawn in memory order: tensors
    that they fill are copied to the strides of their fakes.
    """
    for node in list(graph.nodes):
        if node.op != "call_function" or node.target is operator.getitem:
            continue
        if node in wanted:
            _turn_image(graph, node, wanted[node])
        affected = [n for n in node.all_input_nodes if n in changed]
        if affected and _draws(node):
            for source in affected:
                with graph.inserting_before(node):
                    copy = _copied(source)
                copy.meta.update(source.meta, val=original[source])
                node.replace_input_with(source, copy)
            continue
        kind = kind_of(node)
        if kind in (POINTWISE, GATHER, COMPOSITE):
            if any(_channels_innermost(n.meta["val"]) for n in affected) and node.target is not aten.clone.default:
                _set_value(node, _turn(node.meta["val"]), changed)
        elif (node in wanted or affected) and kind in (None, VIEW, RESHAPE):
            _set_value(node, _again(node), changed)


def _draws(node: torch.fx.Node) -> bool:
    """Whether the numbers of the result are random; attention has the tag for a dropout that it does not do here."""
    target: Any = node.target
    return is_random(target) and "attention" not in target.__name__


def _set_value(node: torch.fx.Node, value: Any, changed: set[torch.fx.Node]) -> None:
    if value is node.meta["val"]:
        return
    node.meta["val"] = value
    changed.add(node)
    for user in node.users:
        if user.target is operator.getitem:
            user.meta["val"] = value[user.args[1]]
            changed.add(user)


def _turn_image(graph: torch.fx.Graph, node: torch.fx.Node, last: bool) -> None:
    image: Any = node.args[0]
    if _turned(image.meta["val"]) == last:
        return
    layout = torch.channels_last if last else torch.contiguous_format
    with graph.inserting_before(node):
        copy = graph.call_function(aten.clone.default, (image,), {"memory_format": layout})
    copy.meta.update(image.meta)
    copy.meta["val"] = image.meta["val"].clone(memory_format=layout)
    node.replace_input_with(image, copy)
    for reader in [n for n in image.users if n.target is aten.convolution_backward.default]:
        if reader.args[1:3] == (image, node.args[1]):  # the backward of the same convolution
            reader.replace_input_with(image, copy)


def _again(node: torch.fx.Node) -> Any:
    """The fake result of a library call or a view on the layouts that its arguments have now.

    A view that the new layout does not allow keeps its own: loops read through it all the same.
    """
    load, target = (lambda n: n.meta["val"]), cast(Callable[..., Any], node.target)
    try:
        return target(*torch.fx.node.map_arg(node.args, load), **torch.fx.node.map_arg(node.kwargs, load))
    except (RuntimeError, ValueError):
        if kind_of(node) is None:
            raise
        return node.meta["val"]


def _original_values(graph: torch.fx.Graph) -> dict[torch.fx.Node, torch.Tensor]:
    """The tensors of a graph, in the layouts of their fakes."""
    values = [(node, node.meta.get("val")) for node in graph.nodes]
    return {node: value for node, value in values if isinstance(value, torch.Tensor)}


def _restore_layouts(graph: torch.fx.Graph, original: Mapping[torch.fx.Node, torch.Tensor]) -> None:
    """Copy results whose layout has changed to the strides of their fakes: the memory that they are
    views of, and then the views again, so that results share memory as before."""
    output = graph.output_node()
    made: dict[torch.fx.Node, torch.fx.Node] = {}
    results = {n: _views(n, original) for n in _results(graph) if n in original}
    changed = {
        views[0] for n, views in results.items()
        if any(original[node].stride() != node.meta["val"].stride() for node in (n, views[0]))
    }  # fmt: skip
    for result, views in results.items():
        if views[0] not in changed:
            continue
        for node, source in zip(views, [None, *views]):
            if node not in made:
                with graph.inserting_before(output):
                    made[node] = _copied(node) if source is None else _taken_again(node, made[source])
                value = original[node] if source is None else _again(made[node])
                made[node].meta.update(node.meta, val=value)
        output.replace_input_with(result, made[result])


def _copied(node: torch.fx.Node) -> torch.fx.Node:
    return node.graph.call_function(aten.clone.default, (node,), {"memory_format": torch.contiguous_format})


def _taken_again(view: torch.fx.Node, source: torch.fx.Node) -> torch.fx.Node:
    return view.graph.call_function(cast(Any, view.target), (source, *view.args[1:]), view.kwargs)


def _views(node: torch.fx.Node, original: Mapping[torch.fx.Node, torch.Tensor]) -> list[torch.fx.Node]:
    """A node whose memory is its own, and the views that lead from it to `node`, which is last."""
    views = [node]
    while True:
        part = [views[0]]
        if part[0].target is operator.getitem:  # of a split
            part.insert(0, cast(torch.fx.Node, part[0].args[0]))
        if kind_of(part[0]) not in (VIEW, RESHAPE):
            return views
        source = cast(torch.fx.Node, part[0].args[0])
        if source not in original or not _one_memory(original[source], original[part[-1]]):
            return views
        views[:1] = [source, *part]


def _one_memory(one: torch.Tensor, other: torch.Tensor) -> bool:
    return one.untyped_storage()._cdata == other.untyped_storage()._cdata


def _results(graph: torch.fx.Graph) -> tuple[Any, ...]:
    results: Any = graph.output_node().args[0]
    return tuple(results) if isinstance(results, (tuple, list)) else (results,)


def _is_image(value: Any) -> bool:
    """Whether a tensor is a batch of images, or of rows, with channels."""
    return isinstance(value, torch.Tensor) and value.dim() in (3, 4) and all(isinstance(s, int) for s in value.shape)


def _turned(value: Any) -> bool:
    """Whether the channels of an image are innermost, and not just by there being one pixel or one channel."""
    if not _is_image(value) or value.is_contiguous():
        return False
    return value.movedim(1, -1).is_contiguous()


def _channels_innermost(value: Any) -> bool:
    """Whether an image is turned, or a slice of one that is: its memory may have gaps."""
    if not _is_image(value) or value.is_contiguous() or value.shape[1] == 1:
        return False
    strides = [step for size, step in zip(value.movedim(1, -1).shape, value.movedim(1, -1).stride()) if size != 1]
    return strides[-1] == 1 and strides == sorted(strides, reverse=True)


def _turn(value: Any) -> Any:
    """`value` with the channels of all images in it innermost; itself where there is nothing to change."""
    if isinstance(value, (tuple, list)):
        parts = [_turn(v) for v in value]
        return value if all(new is old for new, old in zip(parts, value)) else type(value)(parts)
    if not _is_image(value) or not value.is_contiguous():
        return value
    turned = torch.empty_like(value.movedim(1, -1), memory_format=torch.contiguous_format).movedim(-1, 1)
    return turned if _turned(turned) else value
