"""Sums over columns that share a kernel with loops over rows."""
from __future__ import annotations

import pytest
import torch
from ptdebug.engine.ir.ir import Group

from .cpp_checking import Built, built, check


def backward(x: torch.Tensor, g: torch.Tensor, w: torch.Tensor) -> tuple[torch.Tensor, ...]:
    """Gradients of a normalization: for each element, and summed over columns."""
    y = g * w
    centered = x - x.mean(-1, keepdim=True)
    gx = y - y.mean(-1, keepdim=True) - centered * (y * centered).mean(-1, keepdim=True)
    rows = tuple(range(x.dim() - 1))
    return gx, (g * centered).sum(rows), g.sum(rows)


def main_group(made: Built) -> Group:
    return max(made.groups, key=lambda g: len(g.bodies))


@pytest.mark.parametrize("shape", [(512, 96), (67, 1000), (256, 256), (64, 8, 80), (4, 128, 128)], ids=str)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_column_sums_run_in_the_pass_over_the_rows(shape, dtype):
    torch.manual_seed(0)
    x, g, w = torch.randn(shape).to(dtype), torch.randn(shape).to(dtype), torch.randn(shape[-1]).to(dtype)
    made = check(backward, x, g, w)
    assert len(added(made)) == 2 and set(added(made)) <= {b.name for b in main_group(made).bodies}
    assert "_chunks" in made.source.text


@pytest.mark.parametrize("threads", [1, 2, 5])
def test_the_sums_do_not_depend_on_the_number_of_threads(threads):
    torch.manual_seed(0)
    inputs = torch.randn(700, 130), torch.randn(700, 130), torch.randn(130)
    made = built(backward, *inputs)
    before, expected = torch.get_num_threads(), made(*inputs)
    torch.set_num_threads(threads)
    try:
        assert all(torch.equal(a, b) for a, b in zip(made(*inputs), expected))
    finally:
        torch.set_num_threads(before)


def test_what_needs_the_whole_sum_waits_for_it():
    def function(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        y = torch.exp(x)
        total = y.sum(0)
        return y / total, total + x[:256].t()[:256, 0], (y * total).sum(0)

    assert not added(check(function, torch.randn(256, 256)))
    assert not added(check(function, torch.randn(300, 256)))


def test_short_rows_of_unknown_length_set_up_no_more_lanes_than_they_have():
    def function(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        return (a[:, :, :, None] * b[:, None]).sum(2)

    made = check(function, torch.randn(70, 3, 3), torch.randn(70, 3, 3), again=(torch.randn(5, 40, 40),) * 2)
    (line,) = [line for line in made.source.text.split("\n") if "= lanes_each(" in line]
    assert line.split(", ")[1] == made.source.text.split("i2_1 = i2_0 + lanes < ")[1].split(" ")[0]


def added(made: Built) -> list[str]:
    return [b.name for g in made.groups for b in g.bodies if any(s.mode == "add" for s in b.statements)]


def test_a_lone_column_sum_and_small_ones_stay_as_they_are():
    assert not added(check(lambda x: x.sum(0), torch.randn(2000, 64)))
    assert not added(check(backward, torch.randn(40, 8), torch.randn(40, 8), torch.randn(8)))


def test_sums_over_what_lies_side_by_side_stay_as_they_are():
    assert not added(check(lambda x: (x.sum((0, 2, 3)), x * 2), torch.randn(16, 5, 20, 30)))
    assert not added(check(lambda x: (x.t().sum(0), x * 2), torch.randn(300, 200)))


def test_an_override_keeps_the_loop_over_columns():
    inputs = torch.randn(512, 96), torch.randn(512, 96), torch.randn(96)
    names = added(built(backward, *inputs))
    assert len(names) == 2
    keep = {f"column-sum:{names[0].removesuffix('_sums')}": "by-columns"}
    assert added(check(backward, *inputs, overrides=keep)) == names[1:]
