"""The calls of int8 layers that take more than their operator's arguments: of ptdebug's depthwise convolution
(`kernels/int8_depthwise.py`), and of a residual sum."""
from __future__ import annotations

from dataclasses import replace
from typing import Any

import sympy
import torch

from ...ir.ir import Buffer, ExternCall, View
from ...kernels import int8
from ...unsupported import NoCppWrapper
from ..cpp.indices import c_expression
from .calls import double
from .layouts import is_channels_last, is_contiguous


def task(call: ExternCall, result: Buffer | None) -> str:
    """The numbers of a depthwise convolution, as its kernel's `Task` has them. Raises NoCppWrapper."""
    image, _, x_zero, *_, stride, padding, _, out_zero, low, high = call.args
    dense = [view for view in operands(call)[1:] if view is not None]
    images = result is not None and is_channels_last(image) and is_channels_last(result)
    if result is None or not images or not all(map(is_contiguous, dense)):
        raise NoCppWrapper("a depthwise convolution of other strides")
    numbers: tuple[Any, ...] = (
        *image.size, *result.size[2:], stride, *padding, x_zero, out_zero, low, high)
    return ", ".join([c_expression(sympy.sympify(number)) for number in numbers])


def operands(call: ExternCall) -> list[View | None]:
    """What a depthwise convolution reads: the images, the packed weight, its scales, and the bias."""
    image, _, _, weight, scales, bias, *_ = call.args
    return [image, weight, scales, bias]


def scales(call: ExternCall) -> tuple[str, str]:
    """The C++ of the scales of the images and of the result."""
    return double(call.args[1]), double(call.args[8])


def sum_over(call: ExternCall, added: Buffer) -> ExternCall:
    """A residual sum that adds to, and overwrites, `added`."""
    arguments = list(call.args)
    arguments[int8.ADDED] = View(added.name, added.size, added.stride)
    target, given = int8.sum_in_place(call.target, tuple(arguments))
    return replace(call, target=target, args=given)


def rows_sum(call: ExternCall) -> ExternCall:
    """A residual sum of single pixels, as a call of oneDNN's product of rows. Raises NoCppWrapper."""
    arguments = int8.rows_arguments(call.args, _rows)
    return replace(call, target=torch.ops.onednn.qlinear_pointwise.binary, args=arguments)


def _rows(image: View) -> View:
    """The pixels of images, whose channels are innermost, as rows."""
    if not is_channels_last(image):
        raise NoCppWrapper("a residual sum of other strides")
    batch, channels, height, width = image.size
    return View(image.buffer, (batch * height * width, channels), (channels, sympy.S.One), image.offset)
