"""A linear layer of quantized rows with a quantized weight, an activation, and a quantization."""
from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
import torch.fx

from ....kernels import int8  # noqa: F401  # which defines the operators
from .post_ops import LINEAR, PostOp, post_op
from .quantities import OTHERWISE, Quantity, Weight, like, only_user, quantity, quantized, reshaped, weight

aten = torch.ops.aten
TRANSPOSED = (aten.t.default, aten.permute.default, aten.transpose.int)


@dataclass(frozen=True)
class Linear:
    """Nodes that become one call, reshapes of the result among them; `out` is None where it stays float32."""

    nodes: tuple[torch.fx.Node, ...]
    rows: Quantity
    reshapes: tuple[torch.fx.Node, ...]  # of the rows, before
    weight: Weight
    bias: Any
    post: PostOp
    out: Quantity | None
    turns = False

    def operands(self) -> list[torch.fx.Node]:
        """What it reads, and will not any more: each after what it is made of."""
        arguments: tuple[Any, ...] = self.nodes[0].args
        rows, columns = arguments[-2:]
        return [columns.args[0], columns, reshaped(rows)[0], *self.reshapes]

    @property
    def why(self) -> str:
        """What was joined, for the match's record."""
        parts = ["quantized operands"] + [self.post.name] * (self.post.name != "none")
        return f"one product of oneDNN on 8-bit integers: {', '.join(parts + ['quantized'] * (self.out is not None))}"

    def write(self) -> torch.fx.Node:
        """The call, and the reshapes of its result; what is last takes the place of the last node."""
        node, last = self.nodes[0], self.nodes[-1]
        out = self.out or Quantity(last, 1.0, 0, last)
        dtype = torch.float32 if self.out is None else last.meta["val"].dtype
        with node.graph.inserting_before(last):
            rows = self.rows.node
            for step in self.reshapes:
                rows = like(step, step.target, rows, *step.args[1:])
            shape = rows.meta["val"].shape
            sizes = list(shape) if all(type(size) is int for size in shape) else None
            packed = like(node, torch.ops.ptdebug.pack_int8_linear.default, self.weight.node, self.weight.zeros, sizes,
                          val=self.weight.node.meta["val"])
            packed.meta["packed"] = True
            products = torch.ops.onednn.qlinear_pointwise
            product = products.tensor if self.rows.dynamic else products.default
            made = like(node, product, rows, self.rows.scale, self.rows.zero, packed,
                        self.weight.scales, self.weight.zeros, self.bias, out.scale, out.zero, dtype, self.post.name,
                        list(self.post.numbers), self.post.algorithm,
                        val=torch.empty_like(node.meta["val"], dtype=dtype, memory_format=torch.contiguous_format))
            made.meta["origins"] = tuple(dict.fromkeys(o for n in self.nodes for o in n.meta.get("origins", ())))
            for step in reshaped_among(self.nodes):
                made = like(step, step.target, made, *step.args[1:])
        last.replace_all_uses_with(made)
        for dead in reversed(self.nodes):
            node.graph.erase_node(dead)
        return made


def linear(node: torch.fx.Node) -> tuple[Linear | None, str]:
    """The quantized linear layer that begins with `node`, or why it is none ("": nothing of it is quantized)."""
    arguments: tuple[Any, ...] = node.args
    if node.kwargs:
        return None, ""
    bias, rows, columns = (None, *arguments) if node.target is aten.mm.default else arguments
    source, reshapes = reshaped(rows)
    given, kernel = quantity(source), _transposed(columns)
    if given is None and kernel is None:
        return None, ""
    if given is None or kernel is None:
        return None, f"its {'rows are' if given is None else 'weight is'} {OTHERWISE}"
    if bias is not None and bias.meta["val"].dim() != 1:
        return None, "what is added is no row"
    return _continued(node, given, tuple(reshapes), kernel, bias), ""


def _transposed(columns: Any) -> Weight | None:
    """The weight, of which a linear layer takes the transpose."""
    if getattr(columns, "target", None) not in TRANSPOSED or columns.meta["val"].dim() != 2:
        return None
    if columns.target is not aten.t.default and {d % 2 for d in _dimensions(columns)} != {0, 1}:
        return None
    turned = columns.target is not aten.permute.default or list(columns.args[1]) in ([1, 0], [-1, -2], [-1, 0], [1, -2])
    return weight(columns.args[0]) if turned else None


def _dimensions(node: torch.fx.Node) -> tuple[int, ...]:
    arguments: tuple[Any, ...] = node.args[1:]
    return tuple(arguments[0]) if node.target is aten.permute.default else arguments


def _continued(
    node: torch.fx.Node, rows: Quantity, reshapes: tuple[torch.fx.Node, ...], kernel: Weight, bias: Any,
) -> Linear:
    """With what follows and is read by nothing else: an activation, then a quantization, through reshapes."""
    nodes, post, user = [node], PostOp(), only_user(node)
    ended: tuple[torch.fx.Node, ...] = (node,)
    out: Quantity | None = None
    while user is not None and out is None:
        _, steps = reshaped(user)
        found = post_op(user, LINEAR) if post.name == "none" else None
        out = quantized(user)
        if not steps and found is None and out is None:
            break
        nodes.append(user)
        post = found or post
        if found is not None or out is not None:
            ended = tuple(nodes)
        user = only_user(user)
    if out is None and post.hides_nan:
        ended, post = (node,), PostOp()
    return Linear(ended, rows, reshapes, kernel, bias, post, out)


def reshaped_among(nodes: tuple[torch.fx.Node, ...]) -> list[torch.fx.Node]:
    """The reshapes among nodes."""
    return [node for node in nodes if reshaped(node)[1]]
