"""Which kernels prefetch rows of a table that an index in memory names: those whose table no cache of a core holds."""
from __future__ import annotations

import re

import pytest
import torch
import torch.nn.functional as F
from ptdebug.engine.scheduler.cpu import gather_prefetch

from .cpp_checking import check


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """A second-level cache that holds next to nothing."""
    monkeypatch.setattr(gather_prefetch, "MEMORY", 1 << 16)


TABLE = torch.randn(500, 96, generator=torch.Generator().manual_seed(0))
ROWS = torch.randint(0, 500, (7, 33), generator=torch.Generator().manual_seed(1))


_FETCH = re.compile(
    r"if \((\w+) \+ (\d+) < .*\n"  # the step of the loop, and how far on the row is
    r".* = \w+\[.*\b\1 \+ (\d+).*\];\n"
    r".*\n *__builtin_prefetch\((\w+?)_1_"
)


def fetched(function, *inputs, **settings) -> list[tuple[str, int]]:
    """The rows that a compiled function, which must be right, asks for: the table, and how many steps before."""
    text = check(function, *inputs, **settings).source.text
    found = _FETCH.findall(text)
    assert all(ahead == step for _, ahead, step, _ in found) and len(found) == text.count("__builtin_prefetch(")
    return [(table, int(ahead)) for _, ahead, _, table in found]


def normalized(table, rows):
    return F.layer_norm(F.embedding(rows, table) * 3, (96,))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
@pytest.mark.parametrize("index", [torch.int64, torch.int32])
def test_rows_of_an_embedding(dtype, index):
    ahead = -(-gather_prefetch.AHEAD // (96 * dtype.itemsize))
    assert fetched(normalized, TABLE.to(dtype), ROWS.to(index)) == [("table", ahead)]


def test_both_ends_of_edges_and_sums_of_several_rows():
    assert fetched(lambda x, a, b: (x[a] - x[b]).pow(2).sum(-1), TABLE, ROWS[0], ROWS[1]) == [("x", 11), ("x", 11)]
    assert fetched(lambda x, i: x[i].sum(1), TABLE, ROWS) == [("x", 11)]


def test_once_in_a_kernel_however_often_the_row_is_read():
    assert len(fetched(lambda x, i: torch.softmax(x[i], -1) + x[i], TABLE, ROWS)) == 1


def test_a_table_whose_size_varies_may_be_small():
    again = TABLE[:90, :64].contiguous(), ROWS[:5, :9].contiguous() % 90
    assert fetched(lambda x, i: (x[i] * 2).sum(-1), TABLE, ROWS, again=again) == []


def test_negative_rows_and_the_last_row_of_the_index():
    assert len(fetched(lambda x, i: (x[i] * 2).amax(-1), TABLE, -ROWS - 1)) == 1


def test_small_tables_short_rows_and_rows_that_lie_across_memory_are_left():
    assert fetched(normalized, TABLE[:100], ROWS % 100) == []
    assert fetched(lambda x, i: x[i] * 2, TABLE.reshape(-1, 4), ROWS) == []
    assert fetched(lambda x, i: (x.t()[i % 96] * 2).sum(-1), TABLE, ROWS) == []


def test_rows_whose_index_is_computed_are_left():
    assert fetched(lambda x, i: (x[i // 2] * 2).sum(-1), TABLE, ROWS) == []


def test_it_is_a_decision():
    assert fetched(normalized, TABLE, ROWS, overrides={"prefetch:*:gathered": "none"}) == []
