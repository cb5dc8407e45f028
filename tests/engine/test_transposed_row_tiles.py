"""Reductions over rows that lie across memory, taken in tiles: the values are those of the rows one by one."""
from __future__ import annotations

import ptdebug
import pytest
import torch
import torch.nn.functional as F

from .cpp_checking import built, check

FORCED = {"tile:*": "tiles"}


def norm(x, weight, bias):
    return F.layer_norm(x.transpose(1, 2), weight.shape, weight, bias)


def residual(x, y, weight, bias):
    z = x.transpose(1, 2) + y.transpose(1, 2)
    return z, F.layer_norm(z, weight.shape, weight, bias) + y.transpose(1, 2)


def arguments(batch, columns, rows, dtype=torch.float32):
    draw = torch.Generator().manual_seed(0)
    x = torch.randn(batch, columns, rows, generator=draw).to(dtype)
    y = torch.randn(batch, rows, columns, generator=draw).to(dtype).transpose(1, 2)
    return x, y, *(torch.randn(columns, generator=draw).to(dtype) for _ in range(2))


@pytest.mark.parametrize("shape, dtype", [
    (shape, dtype) for shape in ((4, 64, 64), (4, 77, 49), (1, 13, 130), (4, 1024, 20), (2, 8, 9))
    for dtype in (torch.float32, torch.bfloat16, torch.float16, torch.float64)
    if dtype is torch.float32 or shape in ((4, 77, 49), (2, 8, 9))
], ids=str)  # fmt: skip
def test_layer_norms_of_rows_across_memory(shape, dtype):
    x, y, weight, bias = arguments(*shape, dtype)
    made = check(norm, x, weight, bias, overrides=FORCED)
    assert "transposed<" in made.source.text
    made = check(residual, x, y, weight, bias, overrides=FORCED)
    assert made.source.text.count("transposed<") == 2  # of x, read, and of the sum, which has its layout


def test_tiles_are_chosen_where_memory_runs_both_ways_and_rows_are_long():
    x, y, weight, bias = arguments(2, 64, 128)
    assert "transposed<" in check(norm, x, weight, bias).source.text
    assert "transposed<" in check(residual, x, y, weight, bias).source.text
    all_across = check(lambda x: torch.softmax(x, 1), x)
    assert "transposed<" not in all_across.source.text  # lanes of rows read and write along memory
    short, _, weight, bias = arguments(2, 12, 128)
    assert "transposed<" not in check(norm, short, weight, bias).source.text


@pytest.mark.parametrize("columns", [200, 1024])
def test_lanes_whose_lines_fall_into_few_sets_of_the_cache_are_no_lanes(columns):
    x, y, *_ = arguments(2, columns, 64)
    y = y.contiguous()
    made = check(lambda x, y: F.layer_norm((x + y).transpose(1, 2), (columns,)), x, y)
    assert ("transposed<" in made.source.text) == (columns == 1024)


def test_long_rows_are_fewer_in_a_tile():
    x, y, *_ = arguments(2, 8192, 20)
    made = check(lambda x, y: torch.softmax(x.transpose(1, 2) * y.transpose(1, 2), -1), x, y, overrides=FORCED)
    assert "i2_0 += 8" in made.source.text
    x, y, *_ = arguments(2, 40000, 20)
    made = check(lambda x, y: torch.softmax(x.transpose(1, 2) * y.transpose(1, 2), -1), x, y)
    assert "transposed<" not in made.source.text


def test_values_do_not_depend_on_the_tiles():
    x, y, *_ = arguments(3, 200, 50)
    function = lambda x, y: torch.softmax((x.transpose(1, 2) * y.transpose(1, 2)) + y.transpose(1, 2), -1)
    tiles, rows = (built(function, x, y, overrides={"tile:*": way}) for way in ("tiles", "rows"))
    assert "transposed<" in tiles.source.text and "transposed<" not in rows.source.text
    assert torch.equal(tiles(x, y)[0], rows(x, y)[0])


@pytest.mark.parametrize("dtype", [torch.int64, torch.int32, torch.int8, torch.bool], ids=str)
def test_other_reductions_and_dtypes(dtype):
    x, y, *_ = (t.mul(9) for t in arguments(2, 40, 70))
    x, y = x.to(dtype), y.to(dtype)

    def function(x, y):
        z = x.transpose(1, 2) | y.transpose(1, 2)
        return z, z.sum(-1), z.amax(-1), z.to(torch.int64).argmin(-1), (z == 0).any(-1)

    check(function, x, y, overrides=FORCED)


def test_positions_and_not_a_number():
    x, y, *_ = arguments(2, 48, 33)
    x[0, 5, 3], x[1, :, 32] = float("nan"), float("-inf")
    check(lambda x, y: (torch.softmax(x.transpose(1, 2) + y.transpose(1, 2), -1), x.argmax(1), x.amin(1)), x, y,
          overrides=FORCED)


def test_sizes_that_vary():
    x, y, *_ = arguments(2, 64, 37)
    again = arguments(3, 64, 90)[:2]
    made = check(lambda x, y: F.layer_norm(x.transpose(1, 2) * y.transpose(1, 2), (64,)), x, y, again=again)
    assert "transposed<" in made.source.text


def test_what_is_read_and_then_written_over():
    x, y, weight, bias = arguments(4, 64, 100)

    def function(x, y, weight, bias):
        return norm(x.add_(y), weight, bias)

    mine, theirs = x.clone(), x.clone()
    compiled = ptdebug.compile(function)
    torch.testing.assert_close(compiled(mine, y, weight, bias), function(theirs, y, weight, bias))
    assert torch.equal(mine, theirs)


def test_masked_and_shifted_reads_of_what_a_tile_holds():
    x, y, *_ = arguments(2, 64, 40)

    def function(x, y):
        z = x.transpose(1, 2)
        moved = F.pad(z, (0, 0, 1, 0))[:, :-1]
        turned = z.flip(-1) + z.roll(3, -1)
        return torch.softmax(z + moved + turned + y.transpose(1, 2), -1)

    check(function, x, y, overrides=FORCED)


def test_elements_that_data_names():
    x, y, *_ = arguments(2, 64, 40)
    index = torch.randint(0, 64, (64,), generator=torch.Generator().manual_seed(0))
    check(lambda x, y, i: torch.softmax(x.transpose(1, 2)[..., i] + x.transpose(1, 2) + y.transpose(1, 2), -1),
          x, y, index, overrides=FORCED)


def test_threads_share_tiles():
    x, y, weight, bias = arguments(4, 128, 333)
    made = check(residual, x, y, weight, bias)
    assert "collapse(2)" in made.source.text
