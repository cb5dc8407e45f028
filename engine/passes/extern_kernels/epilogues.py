"""Activations computed by the matrix product before them, on a GPU: cuBLASLt's epilogues.

cuBLASLt applies the GELU that is made of a hyperbolic tangent to what a product leaves in registers, which saves a pass
over the result. (The GELU of an error function is another function, and stays in loops.) Only where the product has no
other reader, and a library or the program reads the activation: loops that do compute it for nothing. Its ReLU makes
zeros of NaN, and is not used unless asked for.
"""
from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, cast

import torch
import torch.fx

from ....artifacts.context import CompileContext
from ....artifacts.records import RuleMatch
from ...graphs.functional_graph import AtenGraph
from ...lowering.realization import kind_of, leaving
from ...lowering.registry import RESHAPE, VIEW
from .product_costs import PIECE, alignment

aten = torch.ops.aten

GPU = "cuda"
RELU, GELU = "relu", "gelu"
BY_LIBRARY, BY_LOOPS = "library", "loops"
WHY = {
    GELU: "the library applies GELU to what the product leaves in registers",
    RELU: "the library's ReLU of NaN is 0, where eager's is NaN",
}
ROUNDED = (torch.float16, torch.bfloat16)
"""The dtypes whose rounding hides that the library's hyperbolic tangent is an approximation."""


@dataclass(frozen=True)
class Activation:
    """`node` is `kind` of `operand`; `nodes` are all that compute it."""

    node: torch.fx.Node
    kind: str
    operand: torch.fx.Node
    nodes: frozenset[torch.fx.Node]


def fuse_activations(graph: AtenGraph, context: CompileContext) -> list[RuleMatch]:
    """Let products compute the activations of their results, decisions of kind "epilogue"."""
    nodes = graph.module.graph
    matches: list[RuleMatch] = []
    stays: frozenset[str] | None = None
    for node in list(nodes.nodes):
        found = _activation(node)
        path = [] if found is None else _from_product(found)
        if found is None or not path:
            continue
        stays = leaving(nodes) if stays is None else stays
        if node.name not in stays:
            continue
        product, default = path[0], BY_LIBRARY if found.kind == GELU else BY_LOOPS
        why = WHY[found.kind]
        options, origins = (BY_LIBRARY, BY_LOOPS), (f"forward#{node.name}",)
        if context.decide("epilogue", node.name, options, default, why, origins=origins) == BY_LIBRARY:
            matches.append(RuleMatch(f"{found.kind}-epilogue", (product.name, node.name), (_fuse(found, path),), why))
    return matches


def _from_product(found: Activation) -> list[torch.fx.Node]:
    """The product that only the activation reads, and the views that lead from it to the operand; [] where none is."""
    path = [found.operand]
    if not set(found.operand.users) <= found.nodes:
        return []
    while kind_of(path[0]) in (VIEW, RESHAPE) and len(path[0].all_input_nodes) == 1:
        path.insert(0, path[0].all_input_nodes[0])
        if len(path[0].users) != 1:
            return []
    return path if _has_epilogues(path[0]) else []


def _has_epilogues(product: torch.fx.Node) -> bool:
    if product.target not in (aten.mm.default, aten.addmm.default) or product.kwargs:
        return False
    values: list[Any] = [n.meta.get("val") for n in (*product.all_input_nodes, product)]
    if any(not isinstance(v, torch.Tensor) or v.device.type != GPU or v.dtype != values[-1].dtype for v in values):
        return False
    if values[-1].dtype not in ROUNDED:
        return False
    if any(not isinstance(s, int) for v in values for s in (*v.shape, *v.stride())):
        return False
    *bias, left, right = [cast(torch.fx.Node, n).meta["val"] for n in product.args]
    if bias and (bias[0].dim() != 1 or not bias[0].is_contiguous() or bias[0].shape[0] != right.shape[1]):
        return False
    return min(*left.shape, *right.shape) > 1 and alignment(left, right, values[-1]) == PIECE


def _fuse(found: Activation, path: list[torch.fx.Node]) -> str:
    """Rewrite the activation; the name of the product that computes it."""
    product, node = path[0], found.node
    *bias, left, right = cast(tuple[torch.fx.Node, ...], product.args)
    with product.graph.inserting_before(node):
        if not bias:
            value = product.meta["val"]
            bias = [product.graph.call_function(aten.full.default, ([value.shape[1]], 0.0), {
                "dtype": value.dtype, "device": value.device})]
            bias[0].meta.update(product.meta, val=value.new_empty((value.shape[1],)))
        fused = product.graph.call_function(
            aten._addmm_activation.default, (*bias, left, right), {"use_gelu": found.kind == GELU})
        fused.meta.update(node.meta, val=product.meta["val"])
        last = fused
        for view in path[1:]:
            last = product.graph.call_function(cast(Any, view.target), (last, *view.args[1:]), view.kwargs)
            last.meta.update(node.meta, val=view.meta["val"])
    node.replace_all_uses_with(last)
    left_over = [*reversed(path), *found.nodes]
    for old in sorted(left_over, key=list(product.graph.nodes).index, reverse=True):
        if not old.users:
            product.graph.erase_node(old)
    return fused.name


# ---- activations -----------------------------------------------------------------------------------------------------
def _activation(node: torch.fx.Node) -> Activation | None:
    if node.target is aten.relu.default:
        return Activation(node, RELU, cast(torch.fx.Node, node.args[0]), frozenset((node,)))
    if node.target is aten.gelu.default:
        tanh = node.kwargs.get("approximate", node.args[1] if len(node.args) > 1 else "none") == "tanh"
        return Activation(node, GELU, cast(torch.fx.Node, node.args[0]), frozenset((node,))) if tanh else None
    return _written_out(node) if node.target is aten.mul.Tensor else None


def _written_out(node: torch.fx.Node) -> Activation | None:
    """`0.5 * x * (1 + tanh(sqrt(2 / pi) * (x + 0.044715 * x ** 3)))`, as models write it themselves."""
    used: set[torch.fx.Node] = set()
    half, factors = _product(node, used)
    sums = [(f, s) for f in factors if (s := _plus_one(f, used)) is not None and s.target is aten.tanh.default]
    if not _near(half, 0.5) or len(factors) != 2 or len(sums) != 1:
        return None
    (one_more, tanh), = sums
    x = factors[0] if factors[1] is one_more else factors[1]
    used.update((one_more, tanh))
    scale, inner = _product(cast(torch.fx.Node, tanh.args[0]), used)
    if not _near(scale, math.sqrt(2 / math.pi)) or not (_cubic(inner, x, used) or _factored(inner, x, used)):
        return None
    used.discard(x)
    inside = all(set(n.users) <= used for n in used if n is not node)
    return Activation(node, GELU, x, frozenset(used)) if inside else None


def _cubic(inner: list[torch.fx.Node], x: torch.fx.Node, used: set[torch.fx.Node]) -> bool:
    """`x + 0.044715 * x ** 3`"""
    if len(inner) != 1 or inner[0].target is not aten.add.Tensor or inner[0].kwargs or x not in inner[0].args:
        return False
    used.add(inner[0])
    rest = [a for a in inner[0].args if a is not x]
    return len(rest) == 1 and isinstance(rest[0], torch.fx.Node) and _is_power(rest[0], x, 3, used)


def _factored(inner: list[torch.fx.Node], x: torch.fx.Node, used: set[torch.fx.Node]) -> bool:
    """`x * (1 + 0.044715 * x ** 2)`"""
    if len(inner) != 2 or x not in inner:
        return False
    other = inner[0] if inner[1] is x else inner[1]
    power = _plus_one(other, used)
    used.add(other)
    return power is not None and _is_power(power, x, 2, used)


def _is_power(node: torch.fx.Node, x: torch.fx.Node, exponent: int, used: set[torch.fx.Node]) -> bool:
    scale, factors = _product(node, used)
    return _near(scale, 0.044715) and factors == [x] * exponent


def _product(node: torch.fx.Node, used: set[torch.fx.Node]) -> tuple[float, list[torch.fx.Node]]:
    """A product as a number and its other factors; the nodes that multiply are added to `used`."""
    operands = node.args
    if any(not isinstance(a, (torch.fx.Node, int, float)) for a in operands):  # of a size that varies nobody asks
        return 1.0, [node]
    if node.target is aten.pow.Tensor_Scalar and operands[1] in (2, 3):
        used.add(node)
        scale, factors = _product(cast(torch.fx.Node, operands[0]), used)
        return scale ** cast(int, operands[1]), factors * int(cast(int, operands[1]))
    if node.target is not aten.mul.Tensor:
        return 1.0, [node]
    used.add(node)
    scale, factors = 1.0, []
    for a in operands:
        own, more = _product(a, used) if isinstance(a, torch.fx.Node) else (float(cast(float, a)), [])
        scale, factors = scale * own, factors + more
    return scale, factors


def _plus_one(node: torch.fx.Node, used: set[torch.fx.Node]) -> torch.fx.Node | None:
    """What 1 is added to in a node."""
    if node.target is not aten.add.Tensor or node.kwargs or len(node.args) != 2:
        return None
    terms = [a for a in node.args if isinstance(a, torch.fx.Node)]
    ones = [a for a in node.args if isinstance(a, (int, float)) and a == 1]
    return terms[0] if len(terms) == len(ones) == 1 else None


def _near(number: float, wanted: float) -> bool:
    return abs(number - wanted) < 1e-6
