"""Verdicts: equal, rounding, different."""
from __future__ import annotations

import torch
from ptdebug.replay.compare import compare, worst


def test_bits_decide_equality_and_signs_of_zero_do_not_count():
    x = torch.tensor([1.0, float("nan"), 0.0])
    assert compare(x.clone(), x).verdict == "equal"
    assert compare(torch.tensor([1.0, float("nan"), -0.0]), x).verdict == "equal"


def test_rounding_is_judged_by_the_distance_to_float64():
    exact = torch.rand(1000, dtype=torch.float64)
    eager = exact.float()
    ours = (exact + 3e-8).float()
    assert compare(ours, eager, exact).verdict == "rounding"
    assert compare((exact * 1.001).float(), eager, exact).verdict == "different"


def test_a_result_closer_to_float64_than_eagers_is_rounding_however_far_from_eager():
    exact = torch.ones(4, dtype=torch.float64)
    eager = torch.full((4,), 1.1)
    ours = torch.ones(4)
    found = compare(ours, eager, exact)
    assert found.verdict == "rounding"
    assert found.max_abs > 0.09


def test_the_largest_of_few_distances_may_be_further():
    exact = torch.zeros(16, dtype=torch.float64) + 1e-9
    exact[0] = 1.0
    eager, ours = (exact + 1e-6).float(), (exact + 3e-6).float()
    assert compare(ours, eager, exact).verdict == "rounding"
    many = [torch.cat([t] * 8) for t in (ours, eager, exact)]
    assert compare(*many).verdict == "different"


def test_what_is_never_rounding():
    x = torch.tensor([1.0, 2.0])
    assert compare(x.double(), x).verdict == "different"
    assert compare(x[:1], x).verdict == "different"
    assert compare(torch.tensor([1.0, float("nan")]), x).verdict == "different"
    assert compare(torch.tensor([1.0, float("inf")]), x).verdict == "different"
    assert compare(torch.tensor([1, 2]), torch.tensor([1, 3])).verdict == "different"
    assert compare(torch.rand(2, 3), torch.rand(3, 2).t()).verdict == "different"


def test_the_worst_comparison_wins():
    x = torch.tensor([1.0])
    assert worst([compare(x, x), compare(x + 1, x)]).verdict == "different"
    assert worst([]).verdict == "equal"
