"""Dynamic quantization: the scale and zero of a value, from its least and its largest element, as ATen operators.

`quantized_decomposed.choose_qparams` is a dozen of small calls in Python; written out, they are one reduction and what
the quantization reads (`determine_qparams` in torch/ao/quantization/utils.py, for an affine scheme).
"""
from __future__ import annotations

import operator
from typing import Any

import torch
import torch.fx

from .quantities import is_called, like

aten = torch.ops.aten

WHY = "its least and largest element are one reduction, in generated loops"


def written_out(node: torch.fx.Node) -> torch.fx.Node | None:
    """The node that gives the scale in place of `node`'s first result; None where it is no such choice."""
    if not is_called(node, "choose_qparams", "tensor") or any(u.target is not operator.getitem for u in node.users):
        return None
    arguments: tuple[Any, ...] = node.args
    x, low, high, eps, _dtype = arguments
    if x.meta["val"].dtype is not torch.float32 or not isinstance(eps, float):
        return None

    def call(target: Any, *args: Any) -> torch.fx.Node:
        return like(node, target, *args)

    with node.graph.inserting_before(node):
        least, most = call(aten.amin.default, x), call(aten.amax.default, x)
        below, above = call(aten.clamp_max.default, least, 0.0), call(aten.clamp_min.default, most, 0.0)
        scale = call(aten.div.Tensor, call(aten.sub.Tensor, above, below), float(high - low))
        scale = call(aten.clamp_min.default, scale, eps)
        steps = call(aten.round.default, call(aten.div.Tensor, below, scale))
        steps = like(node, aten._to_copy.default, steps, keywords={"dtype": torch.int32})
        steps = call(aten.clamp.default, call(aten.rsub.Scalar, steps, low), low, high)
        wide = like(node, aten._to_copy.default, scale, keywords={"dtype": torch.float64})
        whole = like(node, aten._to_copy.default, steps, keywords={"dtype": torch.int64})
        results = [call(aten.view.default, each, [1]) for each in (wide, whole)]
    for user in list(node.users):
        which: Any = user.args[1]
        user.replace_all_uses_with(results[which])
        node.graph.erase_node(user)
    node.graph.erase_node(node)
    return results[0]
