"""Attention that a program writes out: two products around a softmax, which a fused kernel of a GPU computes as one.

Found in the captured graph, before autograd sees it. A row that sees nothing is NaN there and 0 in a kernel: so only
what has no mask, or one that depends on no input and hides what is after the query, is computed in another way.
"""
from __future__ import annotations

import operator
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import torch
import torch.fx

SIZES = range(16, 129)  # of heads for which kernels are known to be the faster ones
SHORTEST = 64  # keys
_PRODUCTS = frozenset((operator.matmul, torch.matmul, torch.bmm, "matmul", "bmm", "__matmul__"))
_SOFTMAXES = frozenset((torch.softmax, torch.nn.functional.softmax, "softmax"))
_CONVERSIONS = frozenset(("to", "type_as", "float", "half", "bfloat16"))
_PRECISE = (torch.float16, torch.bfloat16, torch.float32, torch.float64)  # less is meant by the program
_READING = frozenset(
    "matmul bmm linear transpose permute view reshape flatten unflatten contiguous expand split chunk unsqueeze "
    "squeeze getattr getitem mul add sub truediv div neg softmax dropout to type_as float half bfloat16 masked_fill "
    "tril triu arange ones zeros full ones_like zeros_like full_like logical_not invert lt le gt ge eq ne size slice "
    "narrow select where bool".split()
)
"""What does not change its arguments, between the two products."""


@dataclass(frozen=True)
class WrittenOut:
    """The nodes of an attention: `right` is the key, transposed; `hides` a mask of what is hidden, `added` one that is
    added to the scores; `scale` what the product is multiplied by before that."""

    query: torch.fx.Node
    right: torch.fx.Node
    value: torch.fx.Node
    scale: float
    hides: torch.fx.Node | None = None
    added: torch.fx.Node | None = None


def written_out(graph: torch.fx.Graph) -> dict[torch.fx.Node, WrittenOut]:
    """The attentions of a captured graph by their last nodes."""
    found = {}
    for node in graph.nodes:
        if _is(node, _PRODUCTS) and (one := _attention(node)) is not None:
            found[node] = one
    return found


def _is(node: Any, targets: Iterable[Any]) -> bool:
    return isinstance(node, torch.fx.Node) and node.op in ("call_function", "call_method") and node.target in targets


def _attention(last: torch.fx.Node) -> WrittenOut | None:
    weights, value = _operands(last)
    node = _skipping_conversions(weights)
    if _is(node, (torch.nn.functional.dropout,)) and node.args and _drops_nothing(node):
        node = _skipping_conversions(node.args[0])
    if not _is(node, _SOFTMAXES) or not node.args or not _is_over_rows(node):
        return None
    node, hides, added = _skipping_conversions(node.args[0]), None, None
    if _is(node, ("masked_fill",)) and len(node.args) == 3 and node.args[2] == float("-inf"):
        node, hides = _skipping_conversions(node.args[0]), node.args[1]
    elif _is(node, (operator.add, torch.add, "add")) and len(node.args) == 2 and not node.kwargs:
        node, added = _skipping_conversions(node.args[0]), node.args[1]
    scale = 1.0
    if _is(node, (operator.mul, torch.mul, "mul", operator.truediv, torch.div, "div")):
        number = node.args[1] if len(node.args) == 2 and not node.kwargs else None  # a quotient may be rounded
        if not isinstance(number, (int, float)) or not number > 0:
            return None
        scale = float(number) if node.target in (operator.mul, torch.mul, "mul") else 1.0 / number
        node = _skipping_conversions(node.args[0])
    if not _is(node, _PRODUCTS) or not _only_read(node, last):
        return None
    query, right = _operands(node)
    nodes = [n for n in (query, right, value, hides, added) if n is not None]
    if len(node.users) != 1 or not all(isinstance(n, torch.fx.Node) for n in nodes):
        return None
    return WrittenOut(query, right, value, scale, hides, added) if _fits(query, right, value, last) else None


def _operands(product: torch.fx.Node) -> tuple[Any, Any]:
    given: Any = product.args
    return (given[0], given[1]) if len(given) == 2 and not product.kwargs else (None, None)


def _skipping_conversions(node: Any) -> Any:
    """What a node was before it was converted, if it has one user each time; None for one that has more."""
    while isinstance(node, torch.fx.Node) and len(node.users) == 1 and node.op == "call_method" and (
        node.target in _CONVERSIONS and getattr(node.meta.get("val"), "dtype", None) in _PRECISE
    ):
        node = node.args[0]
    return node if isinstance(node, torch.fx.Node) and len(node.users) == 1 else None


def _drops_nothing(node: torch.fx.Node) -> bool:
    given: dict[str, Any] = {**dict(zip(("input", "p", "training", "inplace"), node.args)), **node.kwargs}
    return given.get("inplace", False) is False and bool(given.get("p") == 0 or given.get("training") is False)


def _is_over_rows(node: torch.fx.Node) -> bool:
    dim = node.kwargs.get("dim", node.args[1] if len(node.args) > 1 else None)
    value = node.meta.get("val")
    return isinstance(value, torch.Tensor) and dim in (-1, value.dim() - 1)


def _only_read(first: torch.fx.Node, last: torch.fx.Node) -> bool:
    """Whether nothing between two nodes changes a tensor in place."""
    node = first.next
    while node is not last:
        name = node.target if isinstance(node.target, str) else getattr(node.target, "__name__", "")
        written = node.kwargs.get("inplace") or "out" in node.kwargs or (name == "dropout" and not _drops_nothing(node))
        if name not in _READING or written:
            return False
        node = node.next
    return True


def _fits(query: Any, right: Any, value: Any, last: torch.fx.Node) -> bool:
    """Whether these are batches of matrices in 16 bits on a GPU, of sizes for which kernels are made."""
    tensors: list[Any] = [node.meta.get("val") for node in (query, right, value, last)]
    if not all(isinstance(t, torch.Tensor) and t.dim() in (3, 4) for t in tensors):
        return False
    q, k, v, result = tensors
    if any(t.dim() != q.dim() or t.dtype != q.dtype or t.device.type != "cuda" for t in tensors):
        return False
    keys, heads = k.shape[-1], (q.shape[-1], v.shape[-1])
    if q.dtype not in (torch.float16, torch.bfloat16) or not all(type(n) is int and n in SIZES for n in heads):
        return False
    if any(t.shape[:-2] != q.shape[:-2] for t in (k, v, result)) or result.shape[-2] != q.shape[-2]:
        return False  # a mask has more queries
    return type(keys) is not int or keys >= SHORTEST
