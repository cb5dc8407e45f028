"""How a memory format spreads through a graph: images that are turned, what lies between them, and the results, which
are copied to the strides that their fake tensors had.

An image is turned where its channels are innermost (channels last).
"""
from __future__ import annotations

import operator
from collections.abc import Callable, Mapping
from typing import Any, cast

import torch
import torch.fx

from ....operators.effects import is_random
from ...lowering.realization import kind_of
from ...lowering.registry import COMPOSITE, GATHER, POINTWISE, RESHAPE, VIEW

aten = torch.ops.aten

STRIDED = (aten.as_strided.default, aten.view.dtype, aten.view_as_real.default, aten.view_as_complex.default)
"""Operators whose meaning depends on strides: graphs with them are left alone."""


def propagate(
    graph: torch.fx.Graph, wanted: Mapping[torch.fx.Node, bool], changed: set[torch.fx.Node],
    original: Mapping[torch.fx.Node, torch.Tensor],
) -> None:
    """Turn images where convolutions want them turned, and let the nodes between follow the layout of their inputs.

    `changed` are the nodes whose layout is not what it was; what has meta["turns"] gives turned images whatever it is
    given. Random numbers are drawn in memory order: tensors
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
        elif (node in wanted or affected) and kind in (None, VIEW, RESHAPE) and not node.meta.get("turns"):
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


def original_values(graph: torch.fx.Graph) -> dict[torch.fx.Node, torch.Tensor]:
    """The tensors of a graph, in the layouts of their fakes."""
    values = [(node, node.meta.get("val")) for node in graph.nodes]
    return {node: value for node, value in values if isinstance(value, torch.Tensor)}


def restore_layouts(graph: torch.fx.Graph, original: Mapping[torch.fx.Node, torch.Tensor]) -> None:
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


def is_image(value: Any) -> bool:
    """Whether a tensor is a batch of images, or of rows, with channels."""
    return isinstance(value, torch.Tensor) and value.dim() in (3, 4) and all(isinstance(s, int) for s in value.shape)


def _turned(value: Any) -> bool:
    """Whether the channels of an image are innermost, and not just by there being one pixel or one channel."""
    if not is_image(value) or value.is_contiguous():
        return False
    return value.movedim(1, -1).is_contiguous()


def _channels_innermost(value: Any) -> bool:
    """Whether an image is turned, or a slice of one that is: its memory may have gaps."""
    if not is_image(value) or value.is_contiguous() or value.shape[1] == 1:
        return False
    strides = [step for size, step in zip(value.movedim(1, -1).shape, value.movedim(1, -1).stride()) if size != 1]
    return strides[-1] == 1 and strides == sorted(strides, reverse=True)


def _turn(value: Any) -> Any:
    """`value` with the channels of all images in it innermost; itself where there is nothing to change."""
    if isinstance(value, (tuple, list)):
        parts = [_turn(v) for v in value]
        return value if all(new is old for new, old in zip(parts, value)) else type(value)(parts)
    if not is_image(value) or not value.is_contiguous():
        return value
    turned = torch.empty_like(value.movedim(1, -1), memory_format=torch.contiguous_format).movedim(-1, 1)
    return turned if _turned(turned) else value
