"""A 2-d convolution of quantized images with a quantized weight, what is added, an activation, and a quantization."""
from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import torch
import torch.fx

from ....kernels import int8
from .post_ops import AFTER_SUM, BOTH, PostOp, post_op
from .quantities import OTHERWISE, Quantity, Weight, is_quantization, like, only_user, quantity, quantized, weight

aten = torch.ops.aten


@dataclass(frozen=True)
class Convolution:
    """Nodes that become one call; `out` is None where the result stays float32."""

    nodes: tuple[torch.fx.Node, ...]
    image: Quantity
    weight: Weight
    other: Quantity | None
    post: PostOp
    out: Quantity | None
    turns = True  # images have their channels innermost

    def operands(self) -> list[torch.fx.Node]:
        """What it reads, and will not any more: each after what it is made of."""
        return [n for node in self.nodes for n in node.all_input_nodes if is_quantization(n)]

    @property
    def why(self) -> str:
        """What was joined, for the match's record."""
        parts = ["quantized operands"] + ["a quantized image is added"] * (self.other is not None)
        parts += [self.post.name] * (self.post.name != "none") + ["quantized"] * (self.out is not None)
        return f"one convolution of oneDNN on 8-bit integers: {', '.join(parts)}"

    @property
    def of_rows(self) -> bool:
        """Whether it is a product of rows, of pixels on their own, to which another image is added."""
        arguments: tuple[Any, ...] = self.nodes[0].args
        if self.other is None:
            return False
        ones, zeros = (*self.weight.node.meta["val"].shape[2:], *arguments[3], arguments[8]), arguments[4]
        return all(n == 1 for n in ones) and not any(zeros)

    def write(self) -> torch.fx.Node:
        """The call, which takes the place of the last node."""
        node, last = self.nodes[0], self.nodes[-1]
        arguments: tuple[Any, ...] = node.args
        _, _, bias, stride, padding, dilation, _, _, groups = arguments
        image, order = self.image, (stride, padding, dilation, groups)
        out = self.out or Quantity(last, 1.0, 0, last)
        dtype = torch.float32 if self.out is None else last.meta["val"].dtype
        value = torch.empty_like(last.meta["val"], dtype=dtype, memory_format=torch.channels_last)
        with node.graph.inserting_before(last):
            packed = self._packed(order)
            first = (image.node, image.scale, image.zero, packed, self.weight.scales, self.weight.zeros)
            if self.other is None:
                call = like(last, torch.ops.onednn.qconv_pointwise.default, *first, bias, *order, out.scale, out.zero,
                            dtype, self.post.name, list(self.post.numbers), self.post.algorithm, val=value)
            else:
                operator, geometry = (int8.ROWS_SUM, ()) if self.of_rows else (int8.SUM, order)
                call = like(last, operator, *first, self.other.node, bias, *geometry, out.scale, out.zero, dtype,
                            self.other.scale, self.other.zero, self.post.name, val=value)
        return self.put(call)

    def _packed(self, order: tuple[Any, ...]) -> torch.fx.Node:
        """The weight, in the layout that the call wants."""
        weight, image, shape = self.weight, self.image, _static(self.image.node.meta["val"].shape)
        operator, given = torch.ops.ptdebug.pack_int8_convolution.default, (image.scale, image.zero, *order, shape)
        arguments: tuple[Any, ...] = (weight.node, weight.scales, weight.zeros, *given)
        if self.of_rows:
            rows = None if shape is None else [shape[0] * shape[2] * shape[3], shape[1]]
            operator, arguments = torch.ops.ptdebug.pack_int8_linear.default, (weight.node, weight.zeros, rows)
        packed = like(self.nodes[0], operator, *arguments, val=weight.node.meta["val"])
        packed.meta["packed"] = True
        return packed

    def put(self, call: torch.fx.Node) -> torch.fx.Node:
        """Let `call` take the place of the last node."""
        node, last = self.nodes[0], self.nodes[-1]
        call.meta["turns"] = True
        call.meta["origins"] = tuple(dict.fromkeys(o for n in self.nodes for o in n.meta.get("origins", ())))
        last.replace_all_uses_with(call)
        for dead in reversed(self.nodes):
            node.graph.erase_node(dead)
        return call


def convolution(node: torch.fx.Node) -> tuple[Convolution | None, str]:
    """The quantized convolution that begins with `node`, or why it is none ("": nothing of it is quantized)."""
    arguments: tuple[Any, ...] = node.args
    image, filters, _, stride, padding, dilation, transposed, _, groups = arguments
    given, kernel = quantity(image), weight(filters)
    if given is None and kernel is None:
        return None, ""
    if given is None or given.dynamic or kernel is None:
        return None, f"its {'weight' if kernel is None else 'image'} is {OTHERWISE}"
    if given.node.meta["val"].dtype is not torch.uint8:
        return None, "its image is int8, and oneDNN's convolutions take uint8"
    if transposed or node.kwargs or node.meta["val"].dim() != 4:
        return None, "it is transposed, or not of images"
    if not all(type(number) is int for number in (*stride, *padding, *dilation, groups)):
        return None, "its stride, padding or dilation varies"
    if any(not isinstance(size, int) for size in filters.meta["val"].shape):
        return None, "the sizes of its weight vary"
    return _continued(Convolution((node,), given, kernel, None, PostOp(), None)), ""


def _continued(found: Convolution) -> Convolution:
    """With what follows and is read by nothing else: a sum, an activation, a quantization."""
    node = found.nodes[-1]
    user = only_user(node)
    other = _added(user, node)
    plus = found
    if user is not None and other is not None:
        plus = replace(found, nodes=(*found.nodes, user), other=other)
        node, user = user, only_user(user)
    post = post_op(user, BOTH if plus.other is None else AFTER_SUM)
    if user is not None and post is not None:
        plus = replace(plus, nodes=(*plus.nodes, user), post=post)
        node, user = user, only_user(user)
    out = quantized(user) if user is not None else None
    if user is not None and out is not None:
        same = plus.other is None or plus.other.node.meta["val"].dtype == user.meta["val"].dtype
        if same:
            return replace(plus, nodes=(*plus.nodes, user), out=out)
    if plus.other is not None or plus.post.hides_nan:  # without a quantization they are float32's, and the loops'
        return found
    return plus


def _added(user: torch.fx.Node | None, node: torch.fx.Node) -> Quantity | None:
    """What is added to the convolution's result, of the same shape, if it is quantized."""
    if user is None or user.target is not aten.add.Tensor or user.kwargs or len(user.args) != 2:
        return None
    left, right = user.args
    found = quantity(right if left is node else left) if left is not right else None
    fits = found is not None and not found.dynamic and found.node.meta["val"].shape == node.meta["val"].shape
    return found if fits else None


def _static(shape: Any) -> list[int] | None:
    return list(shape) if all(type(size) is int for size in shape) else None
