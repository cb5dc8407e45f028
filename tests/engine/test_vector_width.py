"""Which kernels get vectors of half the width: those that wait for memory alone."""
from __future__ import annotations

import torch

from .cpp_checking import check

ROWS = 1200, 1000


def narrow(function, *inputs, **settings):
    """Whether the first kernel of a compiled function, which must be right, gets them."""
    source = check(function, *inputs, kernels=1, **settings).source.text
    return "NARROW static int64" in source


def test_what_moves_much_memory_and_does_little_gets_them():
    x = torch.randn(ROWS, generator=torch.Generator().manual_seed(0))
    assert narrow(lambda x: x.flip(1), x) and narrow(lambda x, y: (x + y).relu(), x, x) and narrow(torch.neg, x.long())
    assert narrow(lambda x: x * 2, x.double()[:600])


def test_what_computes_or_stays_in_the_cache_does_not():
    x = torch.randn(ROWS, generator=torch.Generator().manual_seed(0))
    assert not narrow(torch.exp, x) and not narrow(lambda x: x / 3, x) and not narrow(torch.neg, x[:100])
    assert not narrow(torch.tril, x) and not narrow(lambda x: x.bfloat16(), x) and not narrow(lambda x: x > 0, x)
    assert not narrow(lambda x: x.sum(1), x) and not narrow(lambda x: x[:, torch.arange(9)], x)


def test_the_width_is_a_decision():
    x = torch.randn(ROWS)
    assert not narrow(lambda x: x + 1, x, overrides={"vector-width:*": "512-bit"})
