"""What the fuzz found on a GPU: the smallest program of each cause, where it shows in Triton's interpreter."""
from __future__ import annotations

import math
from collections.abc import Iterator

import pytest
import torch
from ptdebug.operators.layouts import indexed
from torch._subclasses.fake_tensor import FakeTensorMode

from .fuzz_compare import strides
from .fuzz_devices import choose
from .fuzz_graphs import check, results_of
from .fuzz_programs import V0, A, B, C, Ref, given, program

LARGEST = torch.finfo(torch.float32).max


@pytest.fixture(autouse=True)
def _as_on_a_gpu() -> Iterator[None]:
    choose("interpreter")
    yield
    choose("cpu")


IMAGE = given("a", (2, 5, 4, 3), stride=(60, 1, 15, 5))  # with its channels innermost
VOLUME = given("a", (1, 2, 3, 4, 5), stride=(120, 1, 40, 10, 2))
LAYOUTS = {  # of an H100's results
    "a replicated border": (program([IMAGE], ("F.pad", (A, (1, 1, 2, 1)), {"mode": "replicate"})), (175, 35, 5, 1)),
    "a mirrored border": (program([IMAGE], ("F.pad", (A, (0, 1, 1, 0)), {"mode": "reflect"})), (100, 20, 4, 1)),
    "a replicated border of a volume": (
        program([VOLUME], ("F.pad", (A, (1, 0, 0, 1, 1, 2)), {"mode": "replicate"})), (180, 30, 6, 1)),
    "what is rolled": (program([IMAGE], ("torch.roll", (A, -2, 0), {})), (60, 12, 3, 1)),
    "what is rolled along two dimensions": (program([IMAGE], ("torch.roll", (A, (1, 2), (2, 3)), {})), (60, 12, 3, 1)),
    "few channels between pixels": (
        program([IMAGE], ("F.interpolate", (A, None, 1.5, "bilinear", True), {})), (120, 1, 20, 5)),
    "pixels of few channels": (
        program([given("a", (2, 3, 4, 3), stride=(36, 1, 9, 3))], ("F.interpolate", (A, None, 2.0), {})),
        (144, 1, 18, 3)),
    "pixels of many channels": (
        program([given("a", (2, 8, 2, 3), stride=(48, 1, 24, 8))], ("F.pixel_shuffle", (A, 2), {})), (48, 24, 6, 1)),
    "many channels of pixels": (
        program([given("a", (2, 2, 4, 6), stride=(48, 1, 12, 2))], ("F.pixel_unshuffle", (A, 2), {})), (48, 6, 3, 1)),
    "channels in another order": (program([IMAGE], ("F.channel_shuffle", (A, 1), {})), (60, 12, 3, 1)),
    "waves in columns": (
        program([given("a", (2, 5, 4, 6), stride=(120, 24, 1, 4))], ("torch.fft.fft2", (A,), {})), (120, 24, 1, 4)),
    "bounds of other dtypes": (
        program([given("a", (3, 8), torch.float64, (0, 1)), given("b", (1, 1)),
                 given("c", (3, 8), torch.int64, (1, 3))], ("torch.clamp", (A, B, C), {})), (1, 3)),
}


@pytest.mark.parametrize("name", LAYOUTS)
def test_results_are_laid_out_as_by_a_gpus_kernels(name):
    made, expected = LAYOUTS[name]
    _, _, results, _ = next(results_of([made], {}))
    assert strides(results[0]) == list(expected)


def test_a_gpu_copies_indices_whose_strides_differ():
    """Seed 27001369: the result lies as the copies do."""
    with FakeTensorMode():
        for device, expected in (("cpu", (1, 2)), ("cuda", (2, 1))):
            x, rows = torch.empty(5, 16, device=device), torch.empty(2, 2, dtype=torch.int64, device=device)
            columns = torch.empty_strided((2, 2), (1, 2), dtype=torch.int64, device=device)
            out = torch.empty(2, 2, device=device)
            assert indexed(out, x, [columns, rows]) == expected
            assert indexed(out, x, [columns, columns]) == (1, 2)


def test_a_norm_of_known_statistics_multiplies_by_the_weight_before_the_scale():
    """Then infinities do not meet where an element is zero, and products overflow where eager's do."""
    inputs = [given("a", (2, 3), data=torch.tensor([0.0, 1.0, 2.5, 0.5, -1.5, LARGEST])),
              given("b", (3,), data=torch.tensor([3.0, -4.0, 0.0])),
              given("c", (3,), data=torch.tensor([3.0, 1.0, 9.0])),
              given("d", (3,), data=torch.tensor([-math.inf, LARGEST, 2.0]))]
    made = program(inputs, ("F.batch_norm", (A, B, C, Ref("d"), None, False), {}))
    _, _, results, _ = next(results_of([made], {}))
    assert results[0][:, :2].flatten().tolist() == [math.inf] * 4 and results[0][1, 2].item() == math.inf


@pytest.mark.parametrize("mode, shape, scale", (
    ("linear", (1, 2, 2), 1.2), ("bilinear", (1, 1, 2, 3), 1.2), ("bicubic", (1, 1, 3, 2), 1.2),
    ("linear", (1, 3, 1), 1.5),
))
def test_an_image_that_keeps_its_size_is_copied(mode, shape, scale):
    """Whatever the scale says, which a CPU's kernel asks."""
    values = torch.arange(1.0, 1 + math.prod(shape))
    values[0] = -math.inf
    made = program([given("a", shape, data=values)], ("F.interpolate", (A, None, scale, mode), {}))
    _, _, results, _ = next(results_of([made], {}))
    assert results[0].flatten().tolist() == values.tolist()


@pytest.mark.parametrize("mode", ("nearest", "nearest-exact"))
def test_neighbours_in_lines_that_keep_their_size_are_these_lines(mode):
    values = torch.arange(1.0, 7.0)
    made = program([given("a", (1, 1, 3, 2), data=values)], ("F.interpolate", (A, None, (1.2, 2.0), mode), {}))
    _, _, results, _ = next(results_of([made], {}))
    assert results[0].flatten().tolist() == values.repeat_interleave(2).tolist()


def test_a_line_that_keeps_its_size_in_an_image_that_grows_is_where_the_scale_says():
    made = program([given("a", (1, 1, 2, 3), data=torch.tensor([1.0, 1.0, 1.0, 5.0, 5.0, 5.0]))],
                   ("F.interpolate", (A, None, (1.25, 2.0), "bilinear"), {}))
    _, _, results, _ = next(results_of([made], {}))
    assert results[0].shape == (1, 1, 2, 6)
    assert torch.allclose(results[0][0, 0, :, 0], torch.tensor([1.0, 1 + 4 * 0.7]))


def test_a_similarity_in_16_bits_rounds_norms():
    low = given("b", (), torch.bfloat16, data=torch.tensor([-5.5312], dtype=torch.bfloat16))
    near = program([given("a", (5,), data=torch.tensor([26.0, 18.0, 14.0, 16.0, 24.0])), low],
                   ("torch.mul", (B, 1), {}), ("F.cosine_similarity", (A, V0, 0), {}), results=("v1",))
    assert not check([near], {})


def test_a_bound_that_a_dtype_does_not_have_wraps_around():
    assert not check([program([given("a", (7,), torch.uint8)], ("torch.clamp", (A, -1, 2), {}))], {})
