"""The maximum of windows without its places: eager's values to the bit, NaN, infinities and signed zeros included."""
from __future__ import annotations

import subprocess

import ptdebug
import pytest
import torch
import torch.nn.functional as F
from ptdebug.engine.compile import compile_graph
from ptdebug.engine.toolchain.cpp_build import FLAGS, find_compiler

from .cpp_checking import check
from .programs import capture, recording_context

SPECIAL = torch.tensor([0.0, -0.0, float("inf"), float("-inf"), float("nan"), 1.0, -1.0, 3e-39])


@pytest.mark.parametrize("layout", [torch.contiguous_format, torch.channels_last])
@pytest.mark.parametrize("kernel, stride, padding, dilation", [
    (3, 2, 1, 1), (2, 2, 0, 1), ((3, 2), 1, (1, 0), 2), (5, 1, 2, 1), ((5, 7), (1, 2), (2, 3), 1), (5, 1, 2, 2),
])
def test_windows_of_special_values(layout, kernel, stride, padding, dilation):
    def program(x):
        return F.max_pool2d(x, kernel, stride, padding, dilation)

    torch.manual_seed(0)
    x = SPECIAL[torch.randint(len(SPECIAL), (2, 18, 9, 8))].to(memory_format=layout)
    context, keeping = recording_context()
    (result,) = compile_graph(capture(program, x), context)(x)
    expected = program(x)
    assert result.stride() == expected.stride()
    assert torch.equal(result.isnan(), expected.isnan())
    there = ~expected.isnan()
    assert torch.equal(result[there].view(torch.int32), expected[there].view(torch.int32))
    lines = [line.text for line in keeping.records["wrapper", ""].lines]
    assert not any("max_pool" in line and "aten" in line for line in lines)


def test_integers():
    def program(x):
        return F.max_pool2d(x, 2), F.max_pool2d(x, 3, 1, 1).relu()

    x = torch.randint(-2**31, 2**31 - 1, (2, 4, 6, 6), dtype=torch.int32)
    x[0, 0] = -2**31
    context, _ = recording_context()
    for result, expected in zip(compile_graph(capture(program, x), context)(x), program(x)):
        assert torch.equal(result, expected)


@pytest.mark.parametrize("layout, dtype", [
    (torch.contiguous_format, torch.float32), (torch.channels_last, torch.float32),
    (torch.channels_last, torch.bfloat16), (torch.contiguous_format, torch.float64),
], ids=str)  # fmt: skip
@pytest.mark.parametrize("options", [
    (7, 1, 3), (7, 1, 3, False, False), (5, 2, 1, True), ((6, 5), 1, (0, 2), False, True, 3), ((7, 1), 1), ((1, 7), 1),
], ids=str)  # fmt: skip
def test_means_of_windows_that_share_most_of_their_elements(options, layout, dtype):
    check(lambda x: F.avg_pool2d(x, *options), torch.randn(2, 3, 12, 13).to(dtype).to(memory_format=layout))


def test_windows_of_volumes():
    x = torch.randn(2, 3, 9, 10, 11)
    check(lambda x: (F.avg_pool3d(x, 5, 1, 2), F.max_pool3d(x, (3, 5, 3), 1, 1)), x)


def loads(function, *inputs) -> int:
    """How many loads the bodies of a compiled function have, which must be right."""
    groups = check(function, *inputs).groups
    return sum(s.op == "load" for g in groups for b in g.bodies for s in b.statements)


def test_two_passes_read_less_than_one():
    x = torch.randn(2, 3, 12, 13)
    assert loads(lambda x: F.avg_pool2d(x, 7, 2, 3), x) == 7 + 7
    assert loads(lambda x: F.avg_pool2d(x, 3, 1, 1), x) == 9  # as do these in one
    assert loads(lambda x: F.avg_pool2d(x, 5), x) == 25


@pytest.mark.parametrize("options, dtype", [
    *((options, torch.float32) for options in ((3, 2, 1), (2, 2), (3, 1, 1, 1, True), (3, 2, 1, 2), (2, 1), (2, 3))),
    *((options, dtype) for options in ((3, 2, 1), (2, 3)) for dtype in (torch.float64, torch.bfloat16)),
], ids=str)  # fmt: skip
def test_places_and_gradients_of_maxima(options, dtype):
    """Where windows overlap, too; with NaNs, and windows of nothing but the least value."""
    for size in ((2, 3, 9, 40), (1, 2, 5, 6, 7)):
        pool = F.max_pool2d if len(size) == 4 else F.max_pool3d
        plain = torch.randn(size).to(dtype)
        with_nan, lowest = plain.round(), torch.full_like(plain, -torch.inf)
        with_nan[with_nan > 1], lowest[..., 3] = torch.nan, 1
        for x in (plain, with_nan, lowest):
            def results(pooled, x=x):
                leaf = x.clone().requires_grad_()
                values, places = pooled(leaf)
                weight = torch.arange(values.numel(), dtype=dtype).sin().reshape(values.shape)
                return values.detach(), places, torch.autograd.grad(values, leaf, weight)[0]

            def function(x, pool=pool):
                return pool(x, *options, return_indices=True)

            mine, eager = results(ptdebug.compile(function)), results(function)
            assert torch.equal(mine[1], eager[1]) and mine[2].stride() == eager[2].stride()
            torch.testing.assert_close(mine[0], eager[0], rtol=0, atol=0, equal_nan=True)
            loose = {"rtol": 0.1, "atol": 0.05} if dtype is torch.bfloat16 else {"rtol": 0, "atol": 0}
            torch.testing.assert_close(mine[2], eager[2], **loose)


def test_maxima_with_places_are_found_in_vectors(tmp_path):
    def pool(x):
        return torch.ops.aten.max_pool2d_with_indices(x.relu(), [3, 3], [2, 2], [1, 1])

    text = check(pool, torch.randn(4, 8, 56, 56)).source.text
    compiler = find_compiler()
    if "clang" in compiler:
        pytest.skip("asks gcc which loops became vectors")
    (tmp_path / "pool.cpp").write_text(text)
    command = [compiler, *FLAGS, "-fopt-info-vec-optimized", "pool.cpp", "-o", "pool.so"]
    said = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=True).stderr
    loop = "for (int64 i3 = 1; i3 < 28; i3++) {"
    (line,) = [n for n, written in enumerate(text.splitlines(), 1) if written.strip() == loop]
    assert any(f"pool.cpp:{at}:" in said for at in (line, line + 1)), said
