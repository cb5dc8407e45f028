"""Folding of batch norm into the convolution before it, in inference.

`(conv(x, w) + b - mean) * s * gamma + beta` with `s = 1 / sqrt(var + eps)` is `conv(x, w * s * gamma) + b'` (Ioffe and
Szegedy, 2015, section 3.1; torch/nn/utils/fusion.py). The new weight is rounded once more, as in PyTorch's.
"""
from __future__ import annotations

import operator
from typing import Any, cast

import torch
import torch.fx

from ....artifacts.records import RuleMatch
from ...graphs.functional_graph import AtenGraph
from .parameters import frozen_nodes

aten = torch.ops.aten

DTYPES = (torch.float32, torch.float64)
"""In 16 bits the weight would lose what the normalization, computed in 32, keeps."""


def fold_batch_norms(graph: AtenGraph) -> list[RuleMatch]:
    """Replace each batch norm whose input is a convolution, all with frozen parameters, by the convolution alone."""
    frozen = frozen_nodes(graph.module.graph)
    matches = []
    for norm in list(graph.module.graph.nodes):
        if norm.target is not aten._native_batch_norm_legit_no_training.default or not _folds(norm, frozen):
            continue
        convolution, result = norm.args[0], next(iter(norm.users))
        whole = _with_norm(norm)
        result.replace_all_uses_with(whole)
        for dead in (result, norm, convolution):
            graph.module.graph.erase_node(dead)
        why = f"scale and shift of {norm.name} are folded into weight and bias of {convolution.name}"
        matches.append(RuleMatch("batch-norm", (convolution.name, norm.name), (whole.name,), why))
    return matches


def _folds(norm: torch.fx.Node, frozen: frozenset[torch.fx.Node]) -> bool:
    convolution, *parameters = norm.args[:5]
    if not isinstance(convolution, torch.fx.Node) or convolution.target is not aten.convolution.default:
        return False
    if convolution.kwargs or norm.kwargs or convolution.args[6]:  # transposed: its channels are the weight's second
        return False
    of_both = [n for n in (*parameters, *convolution.args[1:3]) if n is not None]
    if len(convolution.users) != 1 or not all(n in frozen for n in of_both):
        return False
    values = [cast(torch.fx.Node, n).meta["val"] for n in (convolution, *of_both)]
    if values[0].dtype not in DTYPES or any(v.dtype != values[0].dtype for v in values):
        return False
    results = list(norm.users)
    first = len(results) == 1 and results[0].target is operator.getitem and results[0].args[1] == 0
    return bool(first and results[0].meta["val"].stride() == values[0].stride())


def _with_norm(norm: torch.fx.Node) -> torch.fx.Node:
    """The convolution with the normalization in it, before the normalization's node."""
    arguments: tuple[Any, ...] = norm.args
    convolution, gamma, beta, mean, variance, _, epsilon = arguments
    image, weight, bias, *rest = convolution.args

    def call(target: Any, *args: Any) -> torch.fx.Node:
        made = norm.graph.call_function(target, args)
        made.meta.update(norm.meta)
        made.meta["val"] = target(*torch.fx.node.map_arg(args, lambda n: n.meta["val"]))
        return made

    with norm.graph.inserting_before(norm):
        factor = call(aten.rsqrt.default, call(aten.add.Tensor, variance, epsilon))
        factor = factor if gamma is None else call(aten.mul.Tensor, factor, gamma)
        shape = [-1, *[1] * (weight.meta["val"].dim() - 1)]
        scaled = call(aten.mul.Tensor, weight, call(aten.view.default, factor, shape))
        term = call(aten.neg.default, mean) if bias is None else call(aten.sub.Tensor, bias, mean)
        term = call(aten.mul.Tensor, term, factor)
        term = term if beta is None else call(aten.add.Tensor, term, beta)
        whole = call(aten.convolution.default, image, scaled, term, *rest)
    whole.meta.update({**convolution.meta, "origins": _origins(convolution, norm)})
    return whole


def _origins(*nodes: torch.fx.Node) -> tuple[str, ...]:
    return tuple(dict.fromkeys(origin for node in nodes for origin in node.meta.get("origins", ())))
