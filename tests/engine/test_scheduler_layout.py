"""Transposed copies of operands: same values, and only where they pay."""
from __future__ import annotations

import torch

from .cpp_checking import built, check


def distances(x, c):
    return (x[:, None, :] - c[None]).pow(2).sum(-1)


def test_a_short_reduction_runs_over_many_results_at_once():
    x, c = torch.randn(200, 7), torch.randn(40, 7)
    made = check(distances, x, c)
    assert "arg1_turned" in made.source.text or any("turned" in b for b in made.plan.program.buffers)
    check(lambda x, c: distances(x, c).min(1).indices, x, c)
    check(lambda x, c: (distances(x, c).amin(1), (x[:, None] * c[None] * 2).amax(-1)), x, c)
    check(distances, x.bfloat16(), c.bfloat16())


def test_long_rows_and_few_results_are_left_as_they_are():
    for x, c in ((torch.randn(3, 7), torch.randn(40, 7)), (torch.randn(200, 300), torch.randn(40, 300))):
        made = check(distances, x, c)
        assert not any("turned" in b for b in made.plan.program.buffers)
    x, c = torch.randn(200, 7), torch.randn(40, 7)
    made = built(distances, x, c, overrides={"operand-layout:*": "as-is"})
    assert not any("turned" in b for b in made.plan.program.buffers)
