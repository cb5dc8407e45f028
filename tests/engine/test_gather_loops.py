"""Which loops that gather run in order, with a branch for each index."""
from __future__ import annotations

import pytest
import torch

from .cpp_checking import check

INDEX = torch.randint(0, 40, (6, 40), generator=torch.Generator().manual_seed(0))


def table(dtype: torch.dtype) -> torch.Tensor:
    return torch.arange(240).reshape(6, 40).to(dtype)


@pytest.mark.parametrize(("dtype", "function", "in_order"), [
    (torch.int8, lambda x, i: x.gather(1, i), True),
    (torch.float16, lambda x, i: x.gather(1, i) * x + 1, True),
    (torch.float32, lambda x, i: x.gather(1, i), True),
    (torch.float32, lambda x, i: x.gather(1, i).exp() + 1, False),
    (torch.float32, lambda x, i: x.gather(0, i % 6), False),
    (torch.float32, lambda x, i: x[i[0] % 6], False),
])
def test_which_loops_run_in_order(dtype, function, in_order):
    text = check(function, table(dtype), INDEX).source.text
    assert ("__builtin_expect" in text) == in_order


@pytest.mark.parametrize("shape", [(1, 7), (5, 1), (3, 40)])
def test_an_index_out_of_bounds_of_a_loop_in_order(shape):
    index = torch.zeros(shape, dtype=torch.int64)
    kernel = check(lambda x, i: x.gather(1, i), table(torch.int8)[: len(index)], index)
    index[-1, -1] = 40
    with pytest.raises(IndexError, match="gather"):
        kernel(table(torch.int8)[: len(index)], index)
