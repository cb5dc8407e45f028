"""Compression of saved max-pooling indices.

The argmax is an int64 index into the whole plane, four times as large as the bfloat16 value. It lies in one window: its
offset there fits a byte, from which the backward reconstructs the index.
"""
from __future__ import annotations

import math
import operator
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
import torch.fx

from ....artifacts.context import CompileContext
from ...graphs.autograd_graphs import BACKWARD, JointGraph

aten = torch.ops.aten

GPU = "cuda"
MOST = 127  # places in a window that an int8 numbers

Node = torch.fx.Node


@dataclass(frozen=True)
class Windows:
    """How a 2-d pooling covers its plane: for both dimensions, the window's size, stride, padding and dilation."""

    size: tuple[int, int]
    stride: tuple[int, int]
    padding: tuple[int, int]
    dilation: tuple[int, int]
    width: int  # of the plane
    out: tuple[int, int]


def narrow_indices(joint: JointGraph, context: CompileContext) -> None:
    """Let the backward read the positions of pooling's maxima from bytes, on a GPU (decisions of kind "storage")."""
    for node in list(joint.module.graph.nodes):
        found = _windows(node)
        if found is None:
            continue
        readers = [user for user in node.users if user.meta.get("phase") == BACKWARD]
        why = f"an offset in a window of {found.size[0]} by {found.size[1]} fits a byte"
        options = ("int8", "int64")
        if readers and context.decide("storage", node.name, options, "int8", why,
                                      origins=(f"joint#{node.name}",)) == "int8":
            wide = _position(_place(node, found), found)
            for reader in readers:
                reader.replace_input_with(node, wide)


def _windows(node: Node) -> Windows | None:
    """The windows of the pooling whose indices `node` is; None for any other node."""
    if node.target is not operator.getitem or node.args[1] != 1:
        return None
    pooling: Any = node.args[0]
    value: Any = node.meta.get("val")
    if pooling.target is not aten.max_pool2d_with_indices.default or pooling.kwargs or value.device.type != GPU:
        return None
    image, size, *rest = pooling.args
    stride, padding, dilation = (*rest, *((), 0, 1)[len(rest):])[:3]
    plane = image.meta["val"].shape
    if not all(isinstance(n, int) for n in (*plane, *value.shape)) or math.prod(_pair(size)) > MOST:
        return None
    return Windows(_pair(size), _pair(stride or size), _pair(padding), _pair(dilation), plane[-1], value.shape[-2:])


def _pair(value: Any) -> tuple[int, int]:
    numbers: Sequence[int] = value if isinstance(value, (tuple, list)) else (value,)
    return numbers[0], numbers[-1]


def _place(index: Node, windows: Windows) -> Node:
    """The place in its window, a byte, of each position in the plane; after `index`."""
    write = _Writer(index, index)
    flat = write(aten._to_copy.default, index, dtype=torch.int32)
    row = write(aten.div.Scalar_mode, flat, windows.width, rounding_mode="trunc")
    column = write(aten.sub.Tensor, flat, write(aten.mul.Tensor, row, windows.width))
    places = []
    for dimension, position in enumerate((row, column)):
        within = write(aten.sub.Tensor, position, write.starts(windows, dimension))
        places.append(write(aten.div.Scalar_mode, within, windows.dilation[dimension], rounding_mode="trunc"))
    place = write(aten.add.Tensor, write(aten.mul.Tensor, places[0], windows.size[1]), places[1])
    return write(aten._to_copy.default, place, dtype=torch.int8)


def _position(place: Node, windows: Windows) -> Node:
    """The positions in the plane again, as int64."""
    write = _Writer(place, place)
    flat = write(aten._to_copy.default, place, dtype=torch.int32)
    row = write(aten.div.Scalar_mode, flat, windows.size[1], rounding_mode="trunc")
    column = write(aten.sub.Tensor, flat, write(aten.mul.Tensor, row, windows.size[1]))
    positions = []
    for dimension, within in enumerate((row, column)):
        moved = write(aten.mul.Tensor, within, windows.dilation[dimension])
        positions.append(write(aten.add.Tensor, moved, write.starts(windows, dimension)))
    position = write(aten.add.Tensor, write(aten.mul.Tensor, positions[0], windows.width), positions[1])
    return write(aten._to_copy.default, position, dtype=torch.int64)


class _Writer:
    """Adds nodes one after the other, with the provenance of `like`."""

    def __init__(self, after: Node, like: Node) -> None:
        self._last, self._like = after, like

    def __call__(self, target: Any, *args: Any, **kwargs: Any) -> Node:
        with self._last.graph.inserting_after(self._last):
            made = self._last.graph.call_function(target, args, kwargs)
        made.meta.update(self._like.meta)
        load = lambda n: n.meta["val"]
        with self._like.meta["val"].fake_mode:
            made.meta["val"] = target(*torch.fx.node.map_arg(args, load), **torch.fx.node.map_arg(kwargs, load))
        self._last = made
        return made

    def starts(self, windows: Windows, dimension: int) -> Node:
        """Where the windows begin in one dimension, as a tensor that broadcasts over planes."""
        count, stride = windows.out[dimension], windows.stride[dimension]
        first = -windows.padding[dimension]
        device = self._like.meta["val"].device
        line = self(aten.arange.start_step, first, first + count * stride, stride, dtype=torch.int32, device=device)
        return self(aten.view.default, line, [count, 1]) if dimension == 0 else line
