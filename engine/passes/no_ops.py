"""No-op elimination: operators whose result equals an argument in value, shape, strides and dtype."""
from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.fx

from ...artifacts.records import RuleMatch
from ..graphs.aliasing import inputs_reach, kept, outputs_reach, read_by_strides, returns_alias
from ..graphs.functional_graph import AtenGraph
from .choices import May, always

aten = torch.ops.aten


def _always(node: torch.fx.Node) -> bool:
    return True


def _second_is(number: float) -> Callable[[torch.fx.Node], bool]:
    def check(node: torch.fx.Node) -> bool:
        factor: Any = node.args[1] if len(node.args) > 1 else None
        plain = type(factor) in (int, float) and factor == number and not node.kwargs
        return plain and not node.meta["val"].dtype.is_complex

    return check


def _pads_nothing(node: torch.fx.Node) -> bool:
    """Negative pads may keep the shape, too, by moving the elements."""
    return all(type(pad) is int and pad == 0 for pad in node.args[1])  # type: ignore[union-attr]


# Adding 0 is not here: -0.0 + 0 is 0.0. Multiplying and dividing by 1 is exact, NaN included, but for complex numbers:
# to them it is 1 + 0i, whose 0 makes NaN of an infinity.
NO_OPS: dict[Any, Callable[[torch.fx.Node], bool]] = {
    aten.alias.default: _always,
    aten.detach.default: _always,
    aten.lift_fresh_copy.default: _always,
    aten.view.default: _always,
    aten.reshape.default: _always,
    aten.expand.default: _always,
    aten.slice.Tensor: _always,
    aten.permute.default: _always,
    aten.transpose.int: _always,
    aten.squeeze.dims: _always,
    aten.clone.default: _always,
    aten._to_copy.default: _always,
    aten.constant_pad_nd.default: _pads_nothing,
    aten.mul.Tensor: _second_is(1),
    aten.mul.Scalar: _second_is(1),
    aten.div.Tensor: _second_is(1),
    aten.pow.Tensor_Scalar: _second_is(1),
}


def remove_no_ops(graph: AtenGraph, may: May = always) -> list[RuleMatch]:
    """Let users of a no-op read its argument.

    A no-op that makes new memory (clone) stays where the program can see that it did: when it is a result, or when it
    keeps a value for the backward that the program may change meanwhile (an input's, or a result's); and where its
    memory is read by strides, which begins elsewhere in the argument's.
    """
    matches = []
    visible = outputs_reach(graph.module.graph)
    changeable = visible | inputs_reach(graph.module.graph)
    for node in list(graph.module.graph.nodes):
        check = NO_OPS.get(node.target) if node.op == "call_function" else None
        if check is None or not check(node):
            continue
        argument = node.args[0]
        if not isinstance(argument, torch.fx.Node) or not _same_value(node, argument):
            continue
        if not returns_alias(node) and (
                node in visible or (argument in changeable and kept(node)) or read_by_strides(node)):
            continue
        if not may(node):
            continue
        node.replace_all_uses_with(argument)
        graph.module.graph.erase_node(node)
        matches.append(RuleMatch("no-op", (node.name,), (argument.name,), f"{node.target} changes nothing here"))
    return [*matches, *_undo_copies(graph.module.graph, may)]


def _undo_copies(graph: torch.fx.Graph, may: May) -> list[RuleMatch]:
    """Let users of a copy that gives a copy the layout of the original again read the original."""
    matches = []
    visible = outputs_reach(graph)
    changeable = visible | inputs_reach(graph)
    for last in graph.find_nodes(op="call_function", target=aten.clone.default):
        window, first = _permuted_copy(last)
        if window is None or first is None:
            continue
        original: torch.fx.Node = first.args[0]  # type: ignore[assignment]
        if last in visible or (original in changeable and kept(last)) or read_by_strides(last):
            continue
        with first.meta["val"].fake_mode:
            seen = window.target(original.meta["val"], *window.args[1:])  # type: ignore[operator]
        if _sizes(seen.stride()) != _sizes(last.meta["val"].stride()) or not may(last):
            continue
        window.replace_input_with(first, original)
        window.meta["val"] = seen
        last.replace_all_uses_with(window)
        for node in (last, first):
            graph.erase_node(node)
        matches.append(RuleMatch("no-op", (last.name, first.name), (window.name,), "the second copy undoes the first"))
    return matches


def _permuted_copy(last: torch.fx.Node) -> tuple[torch.fx.Node | None, torch.fx.Node | None]:
    """The permutation that a copy is of, and the copy that it permutes, if nothing else reads them."""
    window = last.args[0]
    if not isinstance(window, torch.fx.Node) or window.target not in (aten.permute.default, aten.transpose.int):
        return None, None
    first = window.args[0]
    if not isinstance(first, torch.fx.Node) or first.target is not aten.clone.default:
        return None, None
    return (window, first) if len(window.users) == len(first.users) == 1 else (None, None)


def _same_value(node: torch.fx.Node, argument: torch.fx.Node) -> bool:
    """Whether result and argument agree in shape, strides, offset, dtype and device; then the values agree as well:

    a view with the same geometry is the same window, unless it permutes or slices equal-sized pieces, which the
    comparison of strides and of offset rules out.
    """
    a, b = node.meta.get("val"), argument.meta.get("val")
    if not isinstance(a, torch.Tensor) or not isinstance(b, torch.Tensor):
        return False
    if a.dtype != b.dtype or a.device != b.device or a.dim() != b.dim() or a.layout != b.layout:
        return False
    if a.is_conj() != b.is_conj() or a.is_neg() != b.is_neg():
        return False
    same = _sizes(a.shape) == _sizes(b.shape) and _sizes(a.stride()) == _sizes(b.stride())
    if not same:
        return False
    if node.target in _VIEWS:
        return _sizes((a.storage_offset(),)) == _sizes((b.storage_offset(),))
    return True


_VIEWS = frozenset(
    {aten.view.default, aten.reshape.default, aten.expand.default, aten.slice.Tensor, aten.permute.default,
     aten.transpose.int, aten.squeeze.dims}
)


def _sizes(values: Any) -> tuple[Any, ...]:
    return tuple(v.node.expr if isinstance(v, torch.SymInt) else v for v in values)
