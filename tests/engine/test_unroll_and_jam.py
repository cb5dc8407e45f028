"""Reductions over rows that are taken in several at once: as one after the other, for any number of them."""
from __future__ import annotations

import pytest
import torch

from .cpp_checking import check


def over_rows(x, dim):
    return x.sum(dim), x.amax(dim), x.amin(dim), x.argmax(dim), (x > 0.5).any(dim), x.var(dim), (x * x).mean(dim)


@pytest.mark.parametrize("rows", [2, 3, 4, 5, 8, 9, 33, 70])
def test_any_number_of_rows(rows):
    x = torch.randn(rows, 40, generator=torch.Generator().manual_seed(rows))
    check(lambda x: (*over_rows(x, 0), x[:9].prod(0)), x, slack=4.0)
    x[rows - 1, 3], x[0, 1], x[1, 39], x[:, 7] = float("nan"), float("-inf"), float("inf"), float("nan")
    check(lambda x: over_rows(x, 0), x, slack=4.0)


@pytest.mark.parametrize("dtype", [torch.int64, torch.int8, torch.bool, torch.float64, torch.bfloat16, torch.float16])
def test_dtypes(dtype):
    x = (torch.randn(3, 13, 50, generator=torch.Generator().manual_seed(0)) * 9).to(dtype)
    check(lambda x: (x.sum(1), x.amax(1), x.amin((0, 1))), x)


@pytest.mark.parametrize("rows, lanes", [(2, 40), (3, 2000), (5, 40), (8, 2000)])
def test_few_rows_are_taken_at_once_and_what_a_lane_has_starts_in_a_register(rows, lanes):
    x = torch.randn(6, rows, lanes, generator=torch.Generator().manual_seed(rows))
    check(lambda x: (*over_rows(x, 1), x.prod(1), torch.softmax(x, 1)), x, slack=4.0)
    source = check(lambda x: x.amax(1), x).source.text
    assert f"#pragma GCC unroll {rows}\n" in source
    assert "[k] = -__builtin_inff();" not in source and "_now = -__builtin_inff();" in source
    x[2, rows - 1, 3], x[0, 0, 1] = float("nan"), float("inf")
    check(lambda x: (*over_rows(x, 1), x.prod(1)), x, slack=4.0)
    check(lambda x: (*over_rows(x, 1), x.amax((0, 2))), (x * 9).to(torch.bfloat16), slack=4.0)


@pytest.mark.parametrize("length", [2, 7, 8, 15])
def test_rows_that_fill_no_vector_are_taken_side_by_side(length):
    """Each lane is a row: its elements lie along memory, and vectors run over the rows."""
    x = torch.randn(150, length, generator=torch.Generator().manual_seed(length))
    programs = (
        lambda x: (*over_rows(x, 1), x.prod(1)),
        lambda x: (torch.softmax(x, 1), torch.log_softmax(x * 2, 1), torch.logsumexp(x, 1)),
        lambda x: (torch.nn.functional.normalize(x, dim=1), x - x.mean(1, keepdim=True), x.cumsum(1).amax(1)),
    )
    for program in programs:
        check(program, x, slack=4.0)
    made = check(lambda x: x.sum(1), x, overrides={"vector-axis:*": "lanes"})  # the choice, of up to eight elements
    assert "for (int64 i0_0 = 0;" in made.source.text and f"#pragma GCC unroll {length}\n" in made.source.text
    x[2, length - 1], x[149, 0], x[7] = float("nan"), float("inf"), float("-inf")
    check(programs[0], x, slack=4.0)
    check(programs[0], (x * 9).to(torch.bfloat16), slack=4.0)
    more = torch.randn(301, length, generator=torch.Generator().manual_seed(1))
    check(lambda x: (*over_rows(x, 1), torch.softmax(x, 1)), more, slack=4.0, again=(x.nan_to_num(0, 1, 1)[:77],))


@pytest.mark.parametrize("rows, columns", [(4096, 3), (4096, 10), (5000, 2), (5000, 15), (4099, 10)])
def test_many_rows_of_few_columns_are_taken_in_two_steps(rows, columns):
    x = torch.randn(rows, columns, generator=torch.Generator().manual_seed(columns))
    programs = (
        lambda x: (x.sum(0), x.mean(0), x.amax(0), x.amin(0, keepdim=True), (x > 2).any(0)),
        lambda x: (torch.sigmoid(x).sum(0), x.exp().mean(0, keepdim=True), (x > 0).sum(0), (x * 2).amax(0)),
    )
    for program in programs:
        made = check(program, x, slack=4.0)
    check(lambda x: (x * 1e-3 + 1).prod(0), x, slack=30.0)  # thousands of roundings, whose order is another
    alone = check(lambda x: x.sum(0), x, slack=4.0)
    assert sum(len(g.bodies) for g in alone.groups) == (2 if rows % 8 == 0 else 1), made.source.text
    x[rows - 1, 1], x[0, 0] = float("nan"), float("inf")
    check(programs[0], x, slack=4.0)
    check(programs[0], (x * 9).to(torch.bfloat16), slack=4.0)
    check(lambda x: (x.sum(0), x.amax(0), x.sum((0, 1))), (x.nan_to_num(0, 0, 0) * 9).to(torch.int32))
    check(lambda x: (x.sum(0), x.mean(0)), torch.randn(columns, rows).t(), slack=4.0)


def test_rows_shared_among_threads():
    x = torch.randn(4003, 48, generator=torch.Generator().manual_seed(0))
    x[4001, 5] = float("nan")
    made = check(lambda x: (x.sum(0), x.amax(0)), x, slack=4.0)
    assert "chunk" in made.source.text and "unroll" in made.source.text
    check(lambda x: x.view(4003, 2, 24).sum((0, 1)), x, slack=4.0)


def test_sizes_that_vary():
    check(lambda x: over_rows(x, 0), torch.randn(37, 30), slack=4.0, again=(torch.randn(66, 31),))


def test_no_rows_at_all():
    """A size that data says is 0 while the program runs, in a kernel whose lanes are those rows."""
    check(lambda x: (x.sum(1), x.amax(1)), torch.randn(70, 3), again=(torch.randn(0, 3),))
    check(lambda x: x.sum(0), torch.randn(70, 30), again=(torch.randn(70, 0),))


def test_rows_that_take_much_work_or_a_mask_are_taken_one_at_a_time():
    x = torch.randn(50, 40, generator=torch.Generator().manual_seed(0))
    made = check(lambda x: (x.sin().sum(0), torch.nn.functional.pad(x, (0, 0, 1, 2), value=2.0).amax(0)), x, slack=4.0)
    assert "unroll" not in made.source.text
