"""Quantized graphs (PT2E's: `quantize -> dequantize -> linear -> ...`) on the integers themselves, by oneDNN.

Walk through it so: `quantities.py` recognizes a quantized value, a quantized weight and a quantization; `dynamic.py`
writes out how a scale is chosen at each call; `sinking.py` lets what only moves or compares values work on the
integers; `post_ops.py` is the table of what oneDNN does to a result before it is stored; `convolution.py` and
`linear.py` write one call for what they find, `depthwise.py` one of ptdebug's kernel; here they are put together. Each
is a decision of kind "int8", with the reason where something in the graph keeps it from integers: then the numbers are
dequantized inside the loops that write the operand.

Weights are packed once: see `../../freezing/` (they are frozen whether or not the program asks for freezing, since
nothing trains them, and a change is noticed).
"""
from __future__ import annotations

import torch

from .....artifacts.context import CompileContext
from .....artifacts.records import RuleMatch
from ....graphs.functional_graph import AtenGraph
from ..image_layouts import STRIDED, original_values, propagate, restore_layouts
from . import dynamic
from .convolution import Convolution, convolution
from .depthwise import by_own_kernel
from .linear import linear
from .quantities import is_called, is_quantization
from .sinking import sunk

__all__ = ["use_integers"]

aten = torch.ops.aten

INT8, FLOATS = "int8", "dequantized"

LEFT = "neither its input nor its weight is quantized: the quantizer left it in float"

RULES = {
    aten.convolution.default: convolution,
    aten.mm.default: linear,
    aten.addmm.default: linear,
}
"""What writes a node as a call on integers, by the node's operator."""


def use_integers(graph: AtenGraph, context: CompileContext) -> list[RuleMatch]:
    """Rewrite `graph` in place: decisions of kind "int8"."""
    nodes = list(graph.module.graph.nodes)
    if not any(is_quantization(node) for node in nodes) or not torch.backends.mkldnn.is_available():
        return []
    original, turned, matches = original_values(graph.module.graph), {}, []
    operands: list[torch.fx.Node] = []
    strided = any(node.target in STRIDED for node in nodes)

    def may(node: torch.fx.Node, why: str) -> bool:
        origins = (f"forward#{node.name}",)
        return context.decide("int8", node.name, (INT8, FLOATS), INT8, why, origins=origins) == INT8

    for node in nodes:
        name = node.name
        if is_called(node, "choose_qparams", "tensor") and may(node, dynamic.WHY):
            scale = dynamic.written_out(node)
            if scale is not None:
                matches.append(RuleMatch("chosen-scale", (name,), (scale.name,), dynamic.WHY))
    nodes = list(graph.module.graph.nodes)
    for node in nodes:
        name, found_below = node.name, sunk(node, may)
        if found_below is not None:
            matches.append(RuleMatch("sunk-dequantization", (name,), (found_below[0].name,), found_below[1]))
    operands += [node for node in nodes if is_quantization(node)]
    nodes = list(graph.module.graph.nodes)
    for node in nodes:
        rule = RULES.get(node.target)
        if rule is None:
            continue
        found, why = rule(node)
        if not why and found is None:
            context.decide("int8", name, (FLOATS,), FLOATS, LEFT, origins=(f"forward#{name}",))
            continue
        if found is not None and found.turns and strided:
            found, why = None, "the graph has operators whose meaning depends on strides"
        options = (INT8, FLOATS) if found is not None else (FLOATS,)
        why = why or "its operands are quantized, with a weight that is packed once"
        origins = (f"forward#{node.name}",)
        if context.decide("int8", node.name, options, options[0], why, origins=origins) == FLOATS or found is None:
            continue
        if isinstance(found, Convolution):
            found = by_own_kernel(found, context)
        removed, last = tuple(n.name for n in found.nodes), found.nodes[-1]
        value = original.get(last)
        operands += found.operands()
        made = found.write()
        if found.turns and value is not None:
            original[made] = value
            turned[made] = True
        matches.append(RuleMatch("int8", removed, (made.name,), found.why))
    left = set(graph.module.graph.nodes)
    for node in reversed(operands):
        if node in left and not node.users:
            left.discard(node)
            graph.module.graph.erase_node(node)
    if turned:
        propagate(graph.module.graph, turned, set(turned), original)
        restore_layouts(graph.module.graph, original)
    return matches
