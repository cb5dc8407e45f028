"""Which inputs of a graph are frozen, and which of its nodes depend on them alone."""
from __future__ import annotations

import re
from typing import Any

import torch
import torch.fx

from ....artifacts.context import CompileContext
from ....operators.unbacked import unbacked_in
from ...graphs.functional_graph import AtenGraph, Captured
from ..dead_code import has_effect

_OF_A_MODULE = re.compile(r"\._(?:parameters|buffers)\['[^']*'\]$")
"""How the sources of a module's parameters and buffers end; a tensor that is an argument or a global is not frozen."""


def mark(aten: AtenGraph, captured: Captured, context: CompileContext) -> bool:
    """Set meta["frozen"] of the placeholders of `aten` that are frozen, or else meta["packable"] of quantized weights;
    whether any are frozen.

    A decision of kind "freezing" (options fold, keep): "keep" unless freezing is enabled.
    """
    found = [node for index, node in enumerate(_placeholders(aten)) if _can_be_frozen(index, node, aten, captured)]
    if not found:
        return False
    for node in found:
        node.meta["packable"] = bool(node.users) and all(map(_is_dequantization, node.users))
    asked = context.freezing
    why = "freezing is enabled" if asked else "freezing is not enabled"
    why = f"{len(found)} inputs are parameters and buffers that the graph does not write; {why}"
    if context.decide("freezing", "graph", ("fold", "keep"), "fold" if asked else "keep", why) == "keep":
        return False
    for node in found:
        node.meta["frozen"] = True
    return True


def is_packable(node: torch.fx.Node) -> bool:
    """Whether an input is frozen, or may be where it is only packed: a quantized weight, its scales or its zeros."""
    return bool(node.meta.get("frozen") or node.meta.get("packable"))


def _is_dequantization(node: torch.fx.Node) -> bool:
    return str(node.target) == "quantized_decomposed.dequantize_per_channel.default"


def _placeholders(aten: AtenGraph) -> list[torch.fx.Node]:
    return [node for node in aten.module.graph.nodes if node.op == "placeholder"]


def _can_be_frozen(index: int, node: torch.fx.Node, aten: AtenGraph, captured: Captured) -> bool:
    names, value = captured.input_names, node.meta.get("val")
    if index >= len(names) or _OF_A_MODULE.search(names[index]) is None or index in aten.mutations.values():
        return False
    # The changes of an inference tensor are not counted.
    return _is_plain(value) and not captured.inputs[index].is_inference()


def _is_plain(value: Any) -> bool:
    """Whether a value is a tensor on the CPU, of sizes that do not vary."""
    if not isinstance(value, torch.Tensor) or value.layout is not torch.strided or value.device.type != "cpu":
        return False
    return all(type(size) is int for size in (*value.shape, *value.stride(), value.storage_offset()))


def frozen_nodes(graph: torch.fx.Graph) -> frozenset[torch.fx.Node]:
    """The frozen inputs, and every node whose result depends on them and on constants alone.

    A node without inputs (arange) counts where the graph has frozen inputs: with one, it makes a frozen value. Of an
    input that is only packable the packed weight counts, nothing else.
    """
    placeholders = [n for n in graph.nodes if n.op == "placeholder" and is_packable(n)]
    found: set[torch.fx.Node] = set(placeholders)
    for node in graph.nodes if placeholders else ():
        if node.op == "get_attr" or (node.op == "call_function" and _is_fixed(node)):
            only_packed = not node.meta.get("packed") and any(not n.meta.get("frozen") for n in node.all_input_nodes
                                                              if n.op == "placeholder")
            if all(n in found for n in node.all_input_nodes) and not only_packed:
                found.add(node)
    return frozenset(found)


def _is_fixed(node: torch.fx.Node) -> bool:
    """Whether a node's result is one, or several, of sizes that do not vary, and follows from its arguments."""
    values = node.meta.get("val")
    values = values if isinstance(values, (tuple, list)) else (values,)
    if (has_effect(node) and not node.meta.get("packed")) or _varies((*node.args, *node.kwargs.values())):
        return False
    return all(v is None or _is_plain(v) for v in values) and not unbacked_in(node.meta.get("val"))


def _varies(argument: Any) -> bool:
    """Whether an argument is, or has in it, a number that other calls may give another value."""
    if isinstance(argument, (tuple, list)):
        return any(map(_varies, argument))
    return isinstance(argument, (torch.SymInt, torch.SymFloat, torch.SymBool))
