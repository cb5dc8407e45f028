"""What the fuzz found: the smallest program of each cause, all compiled side by side as one graph."""
from __future__ import annotations

import math

import pytest
import torch

from .fuzz_graphs import check, results_of
from .fuzz_programs import V0, V1, A, B, C, Ref, given, program

LARGEST = torch.finfo(torch.float32).max
INDEX = given("b", (5,), torch.int64, fill="wrapped", bound=36)
FOUND = {
    "a mirrored image keeps its strides, from which a norm tells its format": program(
        [given("a", (2, 8, 1, 8), torch.bfloat16, (64, 1, 1, 8)), given("b", (8,), torch.bfloat16, fill="small"),
         given("c", (8,), torch.bfloat16, (0,), fill="index", bound=5)],
        ("torch.flip", (A, (-2,)), {}), ("F.batch_norm", (V0, B, C, None, None, False), {})),
    "pixels of one place, from which a kernel with a number makes rows": program(
        [given("a", (2, 8, 1, 1), stride=(8, 1, 8, 8)), given("b", (2, 8, 1, 1), torch.bool, (8, 1, 8, 8))],
        ("F.leaky_relu", (A, 0.1), {}), ("torch.clamp", (A, 0.0, 1.0), {}), ("F.elu", (A,), {}),
        ("torch.where", (B, A, A), {}), ("F.log_softmax", (A, 1), {}), ("torch.triu", (A,), {}),
        *[("F.interpolate", (Ref(f"v{i}"), None, 2.0), {}) for i in range(6)],
        results=tuple(f"v{6 + i}" for i in range(6))),
    "gradients of steps at NaN": program(
        [given("a", (19,)), given("b", (19,), data=torch.tensor([0.1, math.nan] * 9 + [math.nan]))],
        ("torch.ops.aten.hardswish_backward", (A, B), {}), ("torch.ops.aten.hardtanh_backward", (A, B, -1, 1), {}),
        ("torch.ops.aten.logit_backward", (A, B, 1e-3), {}), ("torch.ops.aten.hardshrink_backward", (A, B, 0.5), {}),
        ("torch.ops.aten.softshrink_backward", (A, B, 0.5), {}),
        ("torch.ops.aten.elu_backward", (A, 1.0, 1.0, 1.0, False, B), {}),
        results=("v0", "v1", "v2", "v3", "v4", "v5")),
    "nearest neighbours where a scale leaves a size as it is, or doubles it": program(
        [given("a", (1, 3, 20, 13)), given("b", (1, 4, 65, 70), stride=(18200, 1, 280, 4)),
         given("c", (1, 4, 3, 5, 6), stride=(360, 1, 120, 24, 4))],
        ("F.interpolate", (A, None, (1.03, 2.04)), {}), ("F.interpolate", (B, None, (1.01, 1.5)), {}),
        ("F.interpolate", (C, None, (2.1, 1.1, 0.7)), {}), ("F.interpolate", (A, None, 1.05, "nearest-exact"), {}),
        ("F.interpolate", (A, None, (8.01, 1.05)), {}), results=("v0", "v1", "v2", "v3", "v4")),
    "whole numbers between ends that are not": program(
        [given("a", (1,), torch.int64)], ("torch.arange", (-0.5, 4, 1.5), {"dtype": torch.int64}),
        ("torch.arange", (0, 5, 1.5), {"dtype": torch.int32}), ("torch.add", (V1, A), {}), results=("v0", "v2")),
    "neighbours of 16-bit floats": program(
        [given("a", (6,), torch.bfloat16, data=torch.tensor([1, 2, 0, -1, 3, -0.0], dtype=torch.bfloat16)),
         given("b", (1,), torch.bfloat16)], ("torch.nextafter", (A, B), {})),
    "a sum in 16 bits adds up rounded elements": program(
        [given("a", (4,), data=torch.tensor([7e4, -7e4, 1.0, 2.0]))], ("torch.sum", (A,), {"dtype": torch.float16}),
        ("torch.prod", (A, 0), {"dtype": torch.float16}), results=("v0", "v1")),
    "the gradient of a smooth loss keeps NaN": program(
        [given("a", (5,), data=torch.tensor([0.0, 1.0, math.nan, 3.0, -3.0])),
         given("b", (5,), data=torch.tensor([math.nan, 1.0, 0.0, math.inf, 0.5])), given("c", ())],
        ("torch.ops.aten.smooth_l1_loss_backward", (C, A, B, 1, 0.7), {})),
    "pads that move elements": program(
        [given("a", (5, 7))], ("F.pad", (A, (-1, 1, -1, 1)), {"value": 0.5}), ("torch.sin", (V0,), {})),
    "a sliced input that is written stays sliced: flatten copies": program(
        [given("a", (16, 5), stride=(6, 1), offset=1)], ("torch.relu_", (A,), {}), ("torch.flatten", (A,), {}),
        ("torch.Tensor.zero_", (V1,), {}), results=("v0",)),
    "a sliced input that is written through a view stays sliced": program(
        [given("a", (9, 2), stride=(6, 1))], ("torch.Tensor.view", (A, torch.float32), {}),
        ("torch.relu_", (V0,), {}), ("torch.reshape", (V1, (2, 9)), {}), ("torch.Tensor.zero_", (Ref("v2"),), {}),
        results=("v1",)),
    "memory with gaps that is written through a view keeps them": program(
        [given("a", (4, 9, 2))], ("torch.sin", (A,), {}), ("torch.narrow", (V0, 0, 1, 2), {}),
        ("torch.permute", (V1, (1, 0, 2)), {}), ("torch.neg_", (Ref("v2"),), {}),
        ("torch.flatten", (Ref("v3"), 1), {}), ("torch.Tensor.zero_", (Ref("v4"),), {}), results=("v0", "v3")),
    "a written result keeps its strides": program(
        [given("a", (8, 8), stride=(1, 8)), given("b", (8,), torch.bool)], ("torch.sub", (A, 0.5), {}),
        ("torch.Tensor.masked_fill_", (V0, B, -2), {})),
    "softmax of an expanded row": program([given("a", (102,), stride=(0,))], ("F.softmax", (A, 0), {})),
    "softmax of overlapping rows": program(
        [given("a", (5, 17), torch.float16, stride=(8, 1))], ("F.softmax", (A, 0), {})),
    "channels that are shuffled lie as in the image": program(
        [given("a", (2, 6, 4, 5), stride=(120, 1, 30, 6)), given("b", (2, 6, 4, 5))],
        ("F.channel_shuffle", (A, 3), {}), ("F.channel_shuffle", (B, 2), {}), results=("v0", "v1")),
    "signs of what is zero in 16 bits": program(
        [given("a", (5,), torch.float16), given("b", (5,), torch.float16)], ("torch.mul", (A, 1e-10), {}),
        ("torch.heaviside", (V0, B), {}), ("torch.mul", (A, -1e-10), {}), ("torch.sgn", (Ref("v2"),), {}),
        results=("v1", "v3")),
    "the middle of a cat reads nothing before its part": program(
        [given("a", (3, 7, 7), stride=(192, 24, 3)), given("b", (6,), torch.int64, fill="index", bound=7)],
        ("torch.index_select", (A, 2, B), {}), ("torch.cat", ([V0, V0, V0], 0), {}),
        ("torch.cat", ([V1, V1], 1), {})),
    "indices of 32 bits are copied with their common shape, which lays out what they read": program(
        [given("a", (5, 6)), given("b", (2,), torch.int32, fill="index", bound=5),
         given("c", (4, 2), torch.int32, (1, 4), fill="index", bound=5)],
        ("operator.getitem", (A, (B, C)), {}), ("operator.getitem", (A, (C, B)), {}), results=("v0", "v1")),
    "private rows read at places that data names": program(
        [given("a", (3, 4, 3)), INDEX], ("F.instance_norm", (A,), {}), ("torch.take", (V0, B), {})),
    "a view that merges and splits shares memory": program(
        [given("a", (16, 3, 2))], ("torch.sin", (A,), {}), ("torch.reshape", (V0, (3, 32)), {}), results=("v1", "v0")),
    "a view in another dtype shares memory": program(
        [given("a", (3, 4))], ("torch.sin", (A,), {}), ("torch.Tensor.view", (V0, torch.int32), {}),
        results=("v1", "v0")),
    "batch norm gives row-major results": program(
        [given("a", (9, 2, 17, 4), stride=(1, 612, 36, 9)), given("b", (2,)), given("c", (2,), fill="index", bound=5)],
        ("F.batch_norm", (A, B, C, None, None, False), {})),
    "batch norm of operands that are not whole has the suggested format": program(
        [given("a", (1, 4, 16, 2), stride=(1, 1, 8, 4)), given("b", (4,), fill="small"),
         given("c", (4,), fill="index", bound=5), given("d", (4,), stride=(3,))],
        ("F.batch_norm", (A, B, C, None, None, True), {}), ("F.batch_norm", (A, B, C, Ref("d"), None, True), {}),
        results=("v0", "v1")),
    "batch norm of every second row of channels last is channels last": program(
        [given("a", (2, 4, 3, 2), stride=(48, 1, 16, 4)), given("b", (4,)), given("c", (4,), fill="index", bound=5)],
        ("F.batch_norm", (A, B, C, None, None, False), {})),
    "batch norm of what is not dense subtracts the mean first": program(
        [given("a", (4, 3), stride=(1, 4)), given("b", (3,), fill="small"), given("c", (3,), data=torch.ones(3)),
         given("d", (3,), data=torch.full((3,), LARGEST)), given("e", (4, 3), fill="small")],
        ("F.batch_norm", (A, B, C, Ref("d"), None, False), {}),
        ("F.batch_norm", (Ref("e"), B, C, Ref("d"), None, False), {}), results=("v0", "v1")),
    "logsigmoid gives row-major results": program([given("a", (3, 4), stride=(1, 3))], ("F.logsigmoid", (A,), {})),
    "max_pool1d gives row-major results": program(
        [given("a", (3, 4, 5), stride=(20, 1, 4))], ("F.max_pool1d", (A, 3, 1, 0), {})),
    "copysign has the strides of elements": program(
        [given("a", (2, 3), torch.int16, stride=(1, 2)), given("b", (2, 1))], ("torch.copysign", (A, B), {})),
    "floor_divide has the strides of elements": program(
        [given("a", (4, 9, 1, 3), stride=(27, 3, 27, 1)), given("b", (4, 9, 1, 3), stride=(3, 12, 108, 1))],
        ("torch.floor_divide", (B, A), {})),
    "elements of what is not dense, which a fake kernel converts": program(
        [given("a", (9, 7, 1), torch.float16, stride=(7, 0, 1)), given("b", (9, 7, 1), torch.int32, stride=(1, 9, 9)),
         given("c", (9, 7, 1), torch.float16, stride=(1, 9, 9)), given("d", (9, 7, 1), torch.bool, stride=(0, 1, 1))],
        ("torch.minimum", (A, B), {}), ("torch.lt", (A, C), {}), ("torch.where", (Ref("d"), C, B), {}),
        results=("v0", "v1", "v2")),
    "one pixel that fills a block, and channels that are not moved, have memory of their own": program(
        [given("a", (2, 3, 1, 1)), given("b", (1, 1, 1, 1), stride=(1, 1, 1, 1)), given("c", (2, 3, 4, 5))],
        ("F.interpolate", (A, None, 2.0, "nearest"), {}), ("F.interpolate", (B, (1, 4), None, "nearest"), {}),
        ("F.channel_shuffle", (C, 1), {}), ("F.channel_shuffle", (C, 3), {}), ("torch.add", (Ref("v2"), 1), {}),
        results=("v0", "v1", "v2", "v3", "v4")),
    "a least common multiple has the strides of elements": program(
        [given("a", (3, 4, 1, 2), torch.int16, stride=(8, 1, 4, 4)), given("b", (3, 1, 1, 1), torch.int16)],
        ("torch.lcm", (B, A), {})),
    "a scaled difference of strange strides": program(
        [given("a", (6, 9, 3), stride=(10, 1, 10)), given("b", (6, 9, 3), torch.float64, stride=(1, 6, 54))],
        ("torch.sub", (A, B), {"alpha": 3})),
    "the norm of one element cannot overflow": program(
        [given("a", (5, 1, 2), data=torch.full((10,), 3e38))], ("torch.linalg.vector_norm", (A, 2, -2, False), {})),
    "a loss has the dtype of its first argument": program(
        [given("a", (4,)), given("b", (4,), torch.float64)], ("F.huber_loss", (A, B), {"reduction": "sum"}),
        ("F.soft_margin_loss", (A, B), {}), results=("v0", "v1")),
    "ldexp in 16 bits": program(
        [given("a", (4,), torch.bool), given("b", (), torch.bfloat16, fill="small")], ("torch.ldexp", (A, B), {})),
    "ldexp of doubles by one float32": program(
        [given("a", (3, 4), torch.float64), given("b", (), torch.float32, fill="small")], ("torch.ldexp", (A, B), {})),
    "ldexp of doubles in another layout": program(
        [given("a", (4, 1), torch.float64), given("b", (4, 3), stride=(1, 4))], ("torch.ldexp", (A, B), {})),
    "ldexp with whole exponents": program(
        [given("a", (2,)), given("b", (2,), torch.int64, data=torch.tensor([2**63 - 1, 3]))],
        ("torch.ldexp", (A, B), {})),
    "ldexp with whole exponents is laid out as its first argument": program(
        [given("a", (4, 2, 7), stride=(7, 0, 1)), given("b", (4, 2, 7), torch.int64, stride=(1, 4, 8), fill="small")],
        ("torch.ldexp", (A, B), {})),
    "a view of a view is written": program(
        [given("a", (17, 8, 7), torch.int64), given("b", (), torch.bool)], ("torch.abs", (A,), {}),
        ("torch.reshape", (V0, (2, 476)), {}), ("torch.permute", (Ref("v1"), (1, 0)), {}),
        ("torch.Tensor.masked_fill_", (Ref("v2"), B, -2), {}), results=("v0", "v2")),
    "scaled differences round once": program(
        [given("a", (4,), data=torch.full((4,), torch.finfo(torch.float32).max))],
        ("torch.sub", (A, A), {"alpha": 2.0})),
    "a sum of nothing looks nothing up": program(
        [given("a", (16, 7, 3)), given("b", (0,), torch.int64, fill="index", bound=7)],
        ("torch.index_select", (A, 1, B), {}), ("torch.sum", (V0,), {})),
    "a window on the memory of a gradient of softmax that is made row-major": program(
        [given("a", (4, 7, 4), stride=(28, 1, 7)), given("b", (4, 7, 4))],
        ("torch.ops.aten._softmax_backward_data", (A, B, 2, torch.float32), {}),
        ("torch.as_strided", (V0, (5, 2), (2, 1), 0), {})),
    "whole linspace": program([], ("torch.linspace", (-1.0, 2.5, 9), {"dtype": torch.int16})),
    "upsampled infinities": program(
        [given("a", (1, 1, 1, 1, 3), data=torch.tensor([1.0, math.inf, -2.0]))],
        ("F.interpolate", (A, None, 2.0, "trilinear"), {})),
    "slice_scatter of nothing into an expanded tensor": program(
        [given("a", (3, 8, 2), stride=(32, 0, 1)), given("b", (0, 8, 2))],
        ("torch.slice_scatter", (A, B, 0, 2, 2), {})),
    "an index of a tensor whose dimension of size 1 has a strange stride": program(
        [given("a", (1, 3, 1, 4), stride=(1, 8, 100, 2)), given("b", (2,), torch.int64, fill="index", bound=1)],
        ("torch.ops.aten.index.Tensor", (A, [None, None, B]), {})),
    "gradients have the strides of elements, in the order of the kernel": program(
        [given("a", (4, 1, 3, 4), stride=(16, 4, 4, 1)), given("b", (4, 1, 3, 4), stride=(12, 48, 1, 3))],
        ("torch.ops.aten.hardtanh_backward", (B, A, -1, 1), {}), ("torch.ops.aten.threshold_backward", (B, A, 0), {}),
        ("torch.ops.aten._log_softmax_backward_data", (B, A, 3, torch.float32), {}), results=("v0", "v1", "v2")),
    "255 is no -1 to bytes": program(
        [given("a", (4,), torch.uint8, data=torch.tensor([1, 7, 200, 255], dtype=torch.uint8))],
        ("torch.remainder", (A, -1), {}), ("torch.floor_divide", (A, -1), {}), ("torch.remainder", (A, 300), {}),
        ("torch.fmod", (A, 255), {}), ("torch.div", (A, 255), {"rounding_mode": "trunc"}),
        results=("v0", "v1", "v2", "v3", "v4")),
    "a roll that moves nothing is row-major": program(
        [given("a", (2, 3, 9, 8), stride=(216, 1, 24, 3))], ("torch.roll", (A, 0, -4), {})),
    "a variance of doubles whose squares overflow is infinite": program(
        [given("a", (5,), torch.float64, data=torch.tensor([-0.5, -1e306, 1, 3, 0], dtype=torch.float64))],
        ("torch.var", (A, 0), {})),
    "a view in another dtype of dimensions that a reshape drops": program(
        [given("a", (5, 1, 7)), given("b", (5, 1, 0, 7))], ("torch.sin", (A,), {}),
        ("torch.Tensor.view", (V0, torch.int32), {}), ("torch.reshape", (V1, (35,)), {}), ("torch.cummin", (B, -2), {}),
        ("operator.getitem", (Ref("v3"), 0), {}), ("torch.Tensor.view", (Ref("v4"), torch.int32), {}),
        ("torch.reshape", (Ref("v5"), (0,)), {}), results=("v2", "v6")),
    "16 bits that are viewed as integers, and become 16 bits": program(
        [given("a", (8, 2, 5), torch.bfloat16), given("b", (1, 1, 1), torch.bool, fill="small")],
        ("torch.Tensor.view", (A, torch.int16), {}), ("torch.where", (B, V0, A), {}),
        ("torch.cat", ([A, V1, V0], 1), {}), results=("v2",)),
    "elements of row-major tensors have new strides for dimensions of size 1": program(
        [given("a", (5, 33, 1, 1), stride=(33, 1, 33, 33))], ("torch.sub", (A, A), {}), ("torch.relu", (A,), {}),
        ("torch.stack", ([V0, V0, A], -2), {}), ("torch.stack", ([V1, V1, A], -2), {}), results=("v2", "v3")),
    "a sixth of a double is eager's": program(
        [given("a", (9,), torch.float64), given("b", (9,), torch.float64)],
        ("torch.ops.aten.hardsigmoid_backward", (A, B), {})),
    "a fill under a mask, and a gradient of gated halves, are row-major": program(
        [given("a", (3, 16, 1, 8), stride=(1, 24, 384, 3)), given("b", (16, 1, 8), torch.bool),
         given("c", (3, 8, 1, 8), stride=(1, 24, 384, 3))],
        ("torch.masked_fill", (A, B, 7.25), {}), ("torch.ops.aten.glu_backward", (C, A, 1), {}),
        results=("v0", "v1")),
    "a power of two by which is scaled is row-major": program(
        [given("a", (16, 1, 8)), given("b", (3, 16, 1, 8), stride=(1, 24, 384, 3))], ("torch.ldexp", (A, B), {})),
    "copies of numbers": program(
        [given("a", (3, 4), torch.float64), given("b", (4,), torch.uint8)], ("torch.Tensor.copy_", (A, 0.1), {}),
        ("torch.Tensor.copy_", (B, 300), {})),
    "what is cut to a whole number has no negative zero": program(
        [given("a", (40,))], ("torch.Tensor.to", (A, torch.int32), {}), ("torch.copysign", (2.5, V0), {}),
        ("torch.Tensor.to", (V0, torch.float32), {}), results=("v1", "v2")),
    "what is cut to a whole number has no negative zero in 16 bits, nor by way of a wider one": program(
        [given("a", (40,), torch.float16), given("b", (40,))], ("torch.Tensor.to", (A, torch.int32), {}),
        ("torch.copysign", (A, V0), {}), ("torch.Tensor.to", (B, torch.int32), {}),
        ("torch.Tensor.to", (Ref("v2"), torch.int64), {}), ("torch.copysign", (B, Ref("v3")), {}),
        results=("v1", "v4")),
    "one_hot is row-major": program(
        [given("a", (9, 2, 7), torch.int64, (1, 63, 9), fill="index", bound=4)], ("F.one_hot", (A, 5), {})),
    "a power of a number is row-major": program(
        [given("a", (8, 7), stride=(1, 8))], ("torch.ops.aten.pow.Scalar", (2, A), {}), ("torch.pow", (1, A), {}),
        results=("v0", "v1")),
    "written gradients keep the strides of their kernels": program(
        [given("a", (5, 2, 3), stride=(6, 1, 1)), given("b", (5, 2, 3)), given("c", (5, 2, 3), stride=(1, 5, 10))],
        ("torch.ops.aten.hardswish_backward", (B, A), {}), ("torch.Tensor.sigmoid_", (V0,), {}),
        ("torch.ops.aten._log_softmax_backward_data", (C, B, -1, torch.float32), {}),
        ("torch.Tensor.exp_", (Ref("v2"),), {}), results=("v0", "v2")),
    "paddings of images and volumes with their channels innermost": program(
        [given("a", (2, 3, 4, 5), stride=(60, 1, 15, 3)), given("b", (1, 2, 3, 4, 5), stride=(120, 1, 40, 10, 2))],
        ("F.pad", (A, (2, 0, 1, 0)), {"mode": "replicate"}), ("F.pad", (A, (2, 0, 1, 0)), {"mode": "reflect"}),
        ("F.pad", (B, (1, 0, 1, 0, 1, 0)), {"mode": "replicate"}), ("F.interpolate", (B, None, 2.0, "nearest"), {}),
        results=("v0", "v1", "v2", "v3")),
    "a comparison of tensors of other ranks": program(
        [given("a", (3, 3), torch.bool), given("b", (2, 1, 1, 3), torch.float64, (3, 1, 3, 1))],
        ("torch.gt", (A, B), {})),
    "a convolution of the square of one channel": program(
        [given("a", (8, 1, 9, 4), stride=(36, 1, 4, 1)), given("b", (3, 1, 3, 3))], ("torch.square", (A,), {}),
        ("F.conv2d", (V0, B), {})),
    "a view back in its own dtype shares memory": program(
        [given("a", (3, 4), torch.int32)], ("torch.add", (A, 1), {}), ("torch.Tensor.view", (V0, torch.float32), {}),
        ("torch.Tensor.view", (V1, torch.int32), {}), ("torch.select", (Ref("v2"), 0, 1), {}),
        results=("v2", "v0", "v3")),
    "a scatter into an expanded tensor keeps the order of its dimensions": program(
        [given("a", (2, 4, 5), stride=(0, 1, 4)), given("b", (1, 4, 5)), given("c", (4, 5)), given("d", (5, 2))],
        ("torch.slice_scatter", (A, B, 0, 0, 1), {}), ("torch.select_scatter", (A, C, 0, 1), {}),
        ("torch.diagonal_scatter", (A, Ref("d"), 0, 0, 1), {}), results=("v0", "v1", "v2")),
    "copies of what is not contiguous": program(
        [given("a", (3, 1, 4), stride=(1, 3, 3)), given("b", (4, 2), torch.int64, (1, 4), fill="index", bound=3),
         given("c", (2,), torch.int64, fill="index", bound=3)],
        ("torch.roll", (A, 1, 1), {}), ("torch.take", (A, B), {}), ("torch.index_fill", (A, 0, C, 0.5), {}),
        ("torch.isin", (A, C), {}), results=("v0", "v1", "v2", "v3")),
    "gradients of losses and activations that overflow on the way": program(
        [given("a", (16,), data=torch.zeros(16)), given("b", (16,), data=torch.tensor([LARGEST, -LARGEST] * 8)),
         given("c", (16,), data=torch.tensor([100.0, -100.0, 1.0, -88.5] * 4)), given("d", (16,))],
        ("torch.ops.aten.sigmoid_backward", (A, B), {}),
        ("torch.ops.aten.soft_margin_loss_backward", (Ref("d"), C, B, 0), {}),
        ("torch.ops.aten.soft_margin_loss_backward", (Ref("d"), C, Ref("d"), 1), {}), results=("v0", "v1", "v2")),
    "what is copied into another shape shares its memory with its views": program(
        [given("a", (1, 2, 3, 4, 5)), given("b", (1, 8, 3, 3)), given("c", (2, 3, 4, 6))],
        ("F.interpolate", (A, None, 2.0, "nearest"), {}), ("torch.broadcast_to", (V0, (3, 2, 6, 8, 10)), {}),
        ("F.pixel_shuffle", (B, 2), {}), ("torch.select", (Ref("v2"), 1, 1), {}), ("F.pixel_unshuffle", (C, 2), {}),
        ("torch.broadcast_to", (Ref("v4"), (3, 2, 12, 2, 3)), {}), results=("v1", "v2", "v3", "v5")),
    "a binary cross entropy's least divisor of doubles is a float's": program(
        [given("a", (8,), torch.float64, data=torch.tensor([0.0, 1.0] * 4).double()),
         given("b", (8,), torch.float64)],
        ("torch.ops.aten.binary_cross_entropy_backward", (B, A, B, None, 0), {})),
}


def test_programs_that_were_wrong_give_eagers_results():
    failures = check(list(FOUND.values()), {})
    assert not failures, "\n".join(f"{f.program}\n# {f.what}" for f in failures)


def test_sizes_that_vary_where_a_kernel_wants_numbers():
    wide = program([given("a", (2, 2, 3, 4, 5)), given("b", (3, 4))],
                   ("F.interpolate", (A, None, 2.0, "trilinear"), {}), ("torch.sin", (B,), {}), results=("v0", "v1"))
    assert not check([wide], {}, dynamic=True)
    written = program([given("a", (9, 2, 5)), given("b", (2,), torch.int64, fill="index", bound=9)],
                      ("torch.Tensor.index_fill_", (A, 0, B, 7.25), {}))
    assert not check([written], {}, dynamic=True)


@pytest.mark.parametrize("call", (
    ("clamp_", 0.0, 1.0), ("cumsum_", 0), ("addcmul_", Ref("d"), V0), ("atan2_", Ref("c")), ("triu_",),
    ("masked_fill_", Ref("d"), 2.0), ("pow_", Ref("c")), ("nan_to_num_", 2.0),
), ids=lambda call: call[0])
def test_writes_at_sizes_that_vary_are_compiled(call):
    name, *args = call
    inputs = [given("a", (5, 7)), given("c", (7,)), given("d", (5, 7), torch.bool)]
    made = program(inputs, ("torch.sin", (A,), {}), (f"torch.Tensor.{name}", (A, *args), {}), results=("v0", "v1"))
    assert next(results_of([made], {}, dynamic=True))[0] == "kernels"  # not left to eager
    assert not check([made], {}, dynamic=True)


SPREAD = program(
    [given("a", (4, 2), data=torch.tensor([LARGEST, 0.0, LARGEST, 0.0, LARGEST, 0.0, -LARGEST, LARGEST]))],
    ("torch.std", (A, 0), {}))
DOUBLES = program([given("a", (3,), torch.float64, data=torch.tensor([1.7e227, 0.0, 0.0], dtype=torch.float64))],
                  ("torch.var", (A, 0), {}))
FORCED = {
    "a size that a float says": (
        {"decompose:*": "keep"}, True, program(
            [given("a", (2, 3, 6, 4))], ("F.interpolate", (A, None, 2.0, "area"), {}),
            ("torch.kthvalue", (V0, 1, 2), {}), ("operator.getitem", (V1, 0), {}))),
    "a kernel that asks for the format of one image": (
        {"lowering:*": "extern"}, False, program(
            [given("a", (1, 2, 2, 2, 3), stride=(24, 1, 12, 6, 2)), given("b", (2,))],
            ("F.group_norm", (A, 2, B), {}))),
    "running statistics in 16 bits are rounded once": (
        {"intermediate-precision:*": "eager"}, False, program(
            [given("a", (7, 64, 3, 17), torch.float16), given("b", (64,), torch.float16, fill="small"),
             given("c", (64,), torch.float16, fill="index", bound=5)],
            ("F.batch_norm", (A, B, C, None, None, True), {}), ("torch.clone", (C,), {}), results=("v1",))),
    "results of a convolution whose channels are innermost share memory": (
        {"conv-layout:*": "channels-last"}, False, program(
            [given("a", (5, 7, 8, 4)), given("b", (3, 7, 2, 2)), given("c", (3, 7, 2))],
            ("F.conv2d", (A, B), {}), ("torch.Tensor.expand", (V0, (4, 5, 3, 7, 3)), {}),
            ("torch.flatten", (V0, 1), {}), ("torch.select", (A, 3, 0), {}), ("F.conv1d", (Ref("v3"), C), {}),
            ("torch.permute", (Ref("v4"), (0, 2, 1)), {}), ("torch.select", (Ref("v4"), 0, 1), {}),
            results=("v1", "v2", "v0", "v5", "v6"))),
    "views alone of a convolution whose channels are innermost share memory": (
        {"conv-layout:*": "channels-last"}, False, program(
            [given("a", (2, 4, 7, 9)), given("b", (4, 1, 3, 1)), given("c", (4,))],
            ("F.conv2d", (A, B, C, 2, 1, 1, 4), {}), ("torch.ravel", (V0,), {}), ("torch.reshape", (V1, (64, 3)), {}),
            results=("v1", "v2"))),
    "random numbers for a convolution whose channels are innermost": (
        {"conv-layout:*": "channels-last"}, False, program(
            [given("a", (2, 4, 7, 7)), given("b", (4, 1, 1, 1))],
            ("F.conv2d", (A, B, None, 2, 2, 1, 4), {}), ("torch.randn_like", (V0,), {}), ("F.relu", (V0,), {}),
            ("F.dropout", (Ref("v2"), 0.5), {}), ("torch.rand_like", (Ref("v2"),), {}),
            ("F.rrelu", (V0,), {"training": True}), ("torch.sigmoid", (V0,), {}), ("torch.bernoulli", (Ref("v6"),), {}),
            results=("v1", "v3", "v4", "v5", "v7"))),
    "indices of a tensor without elements": (
        {"lowering:*": "extern"}, False, program(
            [given("a", (0, 0, 3)), given("b", (1,), torch.int64, fill="index"), given("c", (0, 1, 3))],
            ("torch.index_fill", (A, 1, B, 2.0), {}), ("torch.index_copy", (A, 1, B, C), {}),
            ("torch.index_add", (A, 1, B, C), {}), results=("v0", "v1", "v2"))),
    "a variance and a mean of infinities and of numbers whose sum overflows": (
        {"variance:*": "welford"}, False, program(
            [given("a", (2, 4), data=torch.tensor([LARGEST] * 3 + [1.0, 1.0, math.inf, 2.0, 3.0]))],
            ("torch.var_mean", (A, 1), {"correction": 0}), ("operator.getitem", (V0, 0), {}),
            ("operator.getitem", (V0, 1), {}), results=("v1", "v2"))),
    "a variance whose squares overflow, in one pass": ({"variance:*": "welford"}, False, SPREAD),
    "a variance of doubles whose squares overflow, in one pass": ({"variance:*": "welford"}, False, DOUBLES),
    "a variance whose squares overflow, in two passes": ({"variance:*": "two-pass"}, False, SPREAD),
    "a view of an expanded tensor in its dtype": (
        {"lowering:*": "extern"}, False, program(
            [given("a", (1, 1))], ("torch.sin", (A,), {}), ("torch.broadcast_to", (V0, (1, 3)), {}),
            ("torch.Tensor.view", (V1, torch.float32), {}))),
    "elements of which a row chooses, of strange strides at sizes that vary": (
        {}, True, program(
            [given("a", (9, 9, 4, 1, 2), stride=(36, 1, 9, 36, 324)), given("c", (2,), torch.bool),
             given("b", (9, 9, 4, 1, 2), stride=(72, 1, 18, 18, 9))], ("torch.where", (C, A, B), {}))),
    "places for windows of volumes whose sizes vary": (
        {"fuse:*": "separate"}, True, program(
            [given("a", (1, 2, 3, 4, 5), torch.float64), given("b", (1,), torch.int64, fill="index", bound=2),
             given("c", (1, 1, 2, 2, 3), torch.float64)],
            ("F.max_pool3d", (A, 3, 2, 1), {}), ("torch.index_copy", (V0, -4, B, C), {}))),
    "pads that meet a weight which is infinite": (
        {"conv-layout:*": "channels-last"}, False, program(
            [given("a", (2, 3, 9, 4)), given("b", (6, 1, 2, 1), data=torch.tensor([1.0, math.inf] * 6)),
             given("c", (6,))],
            ("F.conv2d", (A, B, None, 2, 2, 2, 3), {}), ("F.conv2d", (A, B, C, 1, "same", 1, 3), {}),
            results=("v0", "v1"))),
}


@pytest.mark.parametrize("name", FORCED)
def test_what_other_choices_lead_to(name):
    overrides, dynamic, forced = FORCED[name]
    assert not check([forced], overrides, dynamic)


@pytest.mark.parametrize("dtype", (torch.float16, torch.bfloat16))
def test_results_of_several_operations_are_rounded_where_eagers_are_asked_for(dtype):
    calls = (("F.softmax", (A, 1), {}), ("F.log_softmax", (A, 1), {}), ("F.layer_norm", (A, (8,)), {}),
             ("F.group_norm", (A, 2, B), {}), ("F.avg_pool2d", (A, 2), {}),
             ("torch.ops.aten.avg_pool2d_backward", (C, A, [3], [2], [1], False, False, None), {}))
    wide = [("torch.Tensor.to", (Ref(f"v{i}"), torch.float32), {}) for i in range(len(calls))]
    inputs = [given("a", (2, 4, 8, 8), dtype), given("b", (4,), dtype), given("c", (2, 4, 4, 4), dtype)]
    made = program(inputs, *calls, *wide, results=[f"v{len(calls) + i}" for i in range(len(calls))])
    for _, _, results, _ in results_of([made], {"intermediate-precision:*": "eager"}):
        for call, result in zip(calls, results):
            assert torch.equal(result, result.to(dtype).float()), call[0]
    assert not check([made], {"intermediate-precision:*": "eager"})


def test_a_variance_of_rows_whose_number_varies_keeps_no_means():
    both = program([given("a", (1, 4, 16, 17), stride=(17, 17, 68, 1))], ("torch.sub", (A, -1.5), {}),
                   ("torch.std_mean", (A, -3), {}), ("operator.getitem", (V1, 1), {}), results=("v2", "v0"))
    assert not check([both], {"variance:*": "welford"}, dynamic=True)


def test_a_variance_of_fewer_elements_than_are_taken_off_divides_by_nothing():
    rows = program([given("a", (3, 5))], ("torch.var", (A, 0), {"correction": 4}))
    assert not check([rows], {}, dynamic=True)


def test_nearest_neighbours_by_a_scale_at_sizes_that_vary():
    modes = ("nearest", "bilinear", "bicubic")
    images = [program([given("a", (2, 3, 7, 10))], ("F.interpolate", (A, None, (1.05, 2.04), mode), {}),
                      ("F.interpolate", (A, (7, 9), None, mode), {}), results=("v0", "v1")) for mode in modes]
    for image in images:
        assert not check([image], {}, dynamic=True)


def test_a_row_of_pads_beside_a_weight_that_is_infinite():
    endless = torch.full((4, 1, 3), math.inf)
    inputs = [given("a", (3, 4, 7)), given("b", (4, 1, 3), data=endless)]
    rows = program(inputs, ("F.conv1d", (A, B, None, 1, 1, 1, 4), {}))
    assert not check([rows], {})


def test_places_that_are_looked_up_in_parts_of_a_row_are_in_range():
    inputs = [given("a", (8, 16), torch.float64), given("b", (4, 16), torch.int64, fill="index", bound=8)]
    chosen = program(inputs, ("torch.gather", (A, 0, B), {}), ("torch.cat", ([V0, V0, V0], -1), {}),
                     ("torch.triu", (V1, -2), {}))
    assert not check([chosen], {})


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_numbers_beside_converted_ones_keep_the_bits_of_nans(dtype):
    bits = given("a", (51,), torch.int16, data=torch.arange(-40, 11, dtype=torch.int16))
    beside = program([bits], ("torch.Tensor.view", (A, dtype), {}), ("torch.cat", ([V0, A], 0), {}),
                     ("torch.Tensor.view", (V1, torch.int16), {}))
    assert not check([beside], {})


def test_statistics_in_16_bits_are_not_read_as_32():
    sixteen = [given("a", (2, 3, 6, 4), torch.bfloat16), given("b", (3,), torch.bfloat16, fill="small"),
               given("c", (3,), torch.bfloat16, fill="index", bound=5)]
    for overrides in ({}, {"decompose:*": "keep"}):
        assert not check([program(sixteen, ("F.batch_norm", (A, B, C, None, None, True), {}))], overrides)


@pytest.mark.parametrize("way", ("two-pass", "welford"))
def test_a_running_mean_of_infinities_is_infinite(way):
    """As in eager's batch norm; its variances have NaN there."""
    channels = [given("a", (4, 2), data=torch.tensor([1.0, 2.0, math.inf, -math.inf, 3.0, 4.0, 1.0, -math.inf])),
                given("b", (2,)), given("c", (2,), fill="index", bound=5)]
    normal = program(channels, ("F.batch_norm", (A, B, C, None, None, True), {}))
    who, _, results, inputs = next(results_of([normal], {"variance:*": way}))
    assert who == "kernels" and results[0].isnan().all()
    assert inputs[1].tolist() == [math.inf, -math.inf]


def test_a_variance_of_single_elements_is_nan_for_infinities():
    one = program([given("a", (1, 4), data=torch.tensor([1.0, math.inf, math.nan, 2.0]))],
                  ("torch.var", (A, (0,)), {"correction": 0}))
    assert not check([one], {"variance:*": "welford"})


@pytest.mark.parametrize("function, bounds", (
    ("F.relu", ()), ("F.hardtanh", (0.0, 6.0)), ("torch.clamp", (0.0, 1.0)), ("torch.clamp_min", (0.0,)),
    ("torch.clamp_max", (0.0,)), ("F.softshrink", (0.5,)),
))
def test_zeros_keep_the_signs_that_eager_gives_them(function, bounds):
    zeros = given("a", (64,), data=torch.tensor([-0.0, 0.0, -0.25, math.nan] * 16))
    assert not check([program([zeros], (function, (A, *bounds), {}), ("torch.reciprocal", (V0,), {}))], {})


def test_chosen_elements_of_a_norm_that_have_fewer_dimensions():
    places = [given(name, (7,), torch.int64, fill="wrapped", bound=bound) for name, bound in zip("cde", (16, 1, 17))]
    chosen = program([given("a", (16, 1, 17, 1), stride=(17, 8, 1, 1)), given("b", (1,)), *places],
                     ("F.instance_norm", (A, None, None, B, None), {}),
                     ("operator.getitem", (V0, (C, Ref("d"), Ref("e"), slice(None))), {}))
    assert not check([chosen], {})


def test_equal_parts_of_one_stack_at_sizes_that_vary():
    """Which cannot share a kernel, and have one name."""
    made = program([given("a", (5, 3))], ("torch.stack", ([A] * 6, 0), {}))
    assert not check([made], {}, dynamic=True)
