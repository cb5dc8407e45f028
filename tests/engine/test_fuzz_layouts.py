"""Layouts that the fuzz found to be others than eager's: at sizes that vary, and around dimensions of size 1."""
from __future__ import annotations

import pytest
import torch

from .fuzz_graphs import check
from .fuzz_programs import V0, V1, A, B, C, Ref, given, program

LARGEST = torch.finfo(torch.float32).max
VARYING = {
    "windows that are copied, and expanded": program(
        [given("a", (5, 2, 5, 8), torch.float64)], ("F.unfold", (A, 3), {}),
        ("torch.broadcast_to", (V0, (2, 5, 18, 18)), {})),
    "a sum, in chunks, over a row that one index names": program(
        [given("a", (5, 3)), given("b", (), torch.int64, fill="index", bound=5), given("c", (3,))],
        ("F.embedding", (B, A), {}), ("torch.dot", (V0, C), {})),
    "a gradient of elements": program(
        [given("a", (8, 9, 1, 9), stride=(1, 8, 648, 72)), given("b", (8, 9, 1, 9))],
        ("torch.ops.aten.hardtanh_backward", (B, A, -1, 1), {})),
    "angles of complex numbers": program([given("a", (4, 3), torch.complex64, (1, 4))], ("torch.angle", (A,), {})),
    "a reshape of which cannot be told that sizes are equal shares memory": program(
        [given("a", (1, 2, 3, 4, 5), torch.float64)], ("F.max_pool3d", (A, 2, 2, 1), {}),
        ("torch.reshape", (V0, (3, 3, 4)), {}), results=("v0", "v1")),
    "rows of a gradient": program(
        [given("a", (5, 7), stride=(1, 5)), given("b", (5, 1)), given("c", (7,))],
        ("torch.ops.aten.native_layer_norm_backward", (A, A, [7], B, B, C, C, [True, True, True]), {}),
        ("operator.getitem", (V0, 0), {}), results=("v1",)),
    "loops over two inputs that a later one reads": program(
        [given("a", (1, 2, 4, 7)), given("b", (1, 2, 4, 7))], ("F.log_softmax", (A, 0), {}),
        ("torch.ops.aten._log_softmax_backward_data", (B, V0, 0, torch.float32), {}), results=("v1",)),
    "a gradient of softmax whose difference from the sum overflows": program(
        [given("a", (2, 3), data=torch.tensor([-LARGEST, 1.0, 2.0, LARGEST, 3.0, LARGEST])),
         given("b", (2, 3), data=torch.tensor([0.0, 0.5, 0.25, 1.0, 0.5, 0.75]))],
        ("torch.ops.aten._softmax_backward_data", (A, B, 0, torch.float32), {})),
    "a short row that threads share": program(
        [given("a", (7, 17))], ("torch.std_mean", (A, -2), {}), ("operator.getitem", (V0, 1), {}),
        ("F.log_softmax", (V1, -1), {}), ("torch.Tensor.view", (Ref("v2"), (17,)), {})),
    "a quotient of a size that is guarded to be 1": program(
        [given("a", (3, 3))], ("torch.Tensor.unfold", (A, 1, 2, 2), {}), ("torch.select", (V0, 2, 0), {}),
        ("torch.Tensor.expand", (V1, 3, 5), {}), ("torch.add", (Ref("v2"), 1), {})),
    "the smaller of two sizes is guarded to be 1": program(
        [given("a", (2, 1, 4, 8)), given("b", (2, 17, 1, 8))], ("torch.diagonal", (A, -1, -4, -1), {}),
        ("torch.add", (V0, B), {})),
    "an index": program(
        [given("a", (3, 1, 4, 5), stride=(1, 12, 3, 12)), given("b", (2,), torch.int64, fill="index", bound=3)],
        ("torch.ops.aten.index.Tensor", (A, [None, None, B]), {})),
    "a new dimension of size 1 before an expanded one": program(
        [given("a", (1, 2), torch.int64, (1, 1))], ("torch.broadcast_to", (A, (1, 3, 2)), {}),
        ("torch.exp", (V0,), {})),
}


def test_strides_are_eagers_at_sizes_that_vary():
    failures = check(list(VARYING.values()), {}, dynamic=True)
    assert not failures, "\n".join(f"{f.program}\n# {f.what}" for f in failures)


def test_a_gradient_of_a_cubic_upsampling_lies_in_rows_at_sizes_that_vary():
    innermost = [given("a", (2, 3, 9, 8), stride=(216, 1, 24, 3))]
    kernel = "torch.ops.aten.upsample_bicubic2d_backward"
    assert not check([program(innermost, (kernel, (A, [9, 8], [2, 3, 6, 4], True), {}))], {}, dynamic=True)


STRANGE = ((2, 1, 2), (2, 1, 1), (2, 1, 4))


@pytest.mark.parametrize("stride", STRANGE)
@pytest.mark.parametrize("kernel, args", (
    ("sub.Scalar", (5, 2)), ("mul.Scalar", (5,)), ("remainder.Scalar", (5,)), ("neg", ()), ("deg2rad", ()),
    ("hardtanh", ()), ("nan_to_num", ()), ("isinf", ()), ("isfinite", ()), ("polygamma", ()),
))
def test_strides_of_dimensions_of_size_1_from_which_a_convolution_tells_its_format(kernel, args, stride):
    inputs = [given("a", (2, 2, 1), torch.float64, stride), given("b", (2, 2, 3), torch.float64, (2, 1, 4))]
    given_to = (1, A) if kernel == "polygamma" else (A, *args)
    made = program(inputs, (f"torch.ops.aten.{kernel}", given_to, {}), ("torch.Tensor.to", (V0, torch.float64), {}),
                   ("F.conv_transpose1d", (V1, B), {}))
    for dynamic in (False, True):
        assert not check([made], {}, dynamic)


def test_what_is_rolled_has_the_format_that_its_parts_suggest():
    strides = ((63, 1, 1, 9), (63, 1, 63, 9), (63, 1, 9, 9), (9, 1, 9, 9), (63, 7, 7, 1))
    images = [program([given("a", (1, 9, 1, 7), stride=stride)], ("torch.roll", (A, shift, dim), {}))
              for stride in strides for shift, dim in ((1, 3), (7, 3), (1, 0), ((1, 2), (1, 3)), ((0, 2), (1, 3)))]
    whole = [program([given("a", (2, 3, 4, 5), stride=(60, 1, 15, 3))], ("torch.roll", (A, shift, dim), {}))
             for shift, dim in ((1, 3), (-1, 1), (0, 2), ((1, 2), (1, 3)), ((0, 2), (1, 3)), ((2, 0), (1, 3)))]
    for dynamic in (False, True):
        assert not check([*images, *whole], {}, dynamic)


def test_what_several_operators_compute_has_eagers_strides_where_a_size_is_one():
    """From which a stack tells its memory format."""
    inputs = [given("a", (5, 13, 1, 1), stride=(28, 2, 2, 1)), given("b", (5, 13, 1, 1), stride=(13, 1, 13, 13))]
    made = program(inputs, ("torch.ops.aten.mish_backward", (B, A), {}), ("torch.stack", ([V0, B], -3), {}))
    assert not check([made], {})


@pytest.mark.parametrize("stride", ((120, 1, 30, 5), (120, 24, 1, 4), (0, 24, 6, 1)))
def test_what_keeps_no_layout_of_its_input_and_what_keeps_that_of_two(stride):
    image = given("a", (2, 5, 4, 6), stride=stride)
    kept = given("b", (2, 5, 4, 6), torch.bool)
    assert not check([program([image], ("F.rrelu", (A, 0.1, 0.2, False), {})),
                      program([image, kept], ("torch.ops.aten.native_dropout_backward", (A, B, 2.0), {}))], {})
