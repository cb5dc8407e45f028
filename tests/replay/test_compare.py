"""Verdicts: equal, rounding, different."""
from __future__ import annotations

import pytest
import torch
from ptdebug.replay.recorded.inputs import clones
from ptdebug.replay.repro import check
from ptdebug.replay.verdicts.compare import compare, worst
from ptdebug.replay.verdicts.unwritten import same_elements, written


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


def test_doubles_are_judged_by_what_a_nudge_of_the_inputs_does():
    def run(x):
        return (x - x.mean(0)).sum(0)  # what is left of zeros

    torch.manual_seed(0)
    x = torch.rand(300, 8, dtype=torch.float64)
    (nudged,) = clones((x,), dtype=torch.float64)
    eager, ours = run(x), (x.flip(0) - x.sum(0) / 300).sum(0)
    found = compare(ours, eager, run(nudged))
    assert found.verdict == "rounding" and found.max_rel < 1e20
    assert compare(ours + 1e-10, eager, run(nudged)).verdict == "different"
    assert compare(eager + 1e-15, eager, eager).verdict == "different"
    assert compare(x.sum() * (1 + 1e-14), x.sum(), nudged.sum()).verdict == "rounding"
    assert compare(x.sum() * (1 + 1e-9), x.sum(), nudged.sum()).verdict == "different"


def test_whole_numbers_are_not_nudged():
    x = torch.tensor([1.0, 0.5, -3.0, float("inf"), 1e-300, 0.0], dtype=torch.float64)
    (nudged,) = clones((x,), dtype=torch.float64)
    assert (nudged == x).tolist() == [True, False, True, True, False, True]
    torch.testing.assert_close(nudged, x, rtol=1e-15, atol=0)
    z = torch.complex(x[:3], x[:3])
    assert (clones((z,), dtype=torch.float64)[0] == z).tolist() == [True, False, True]
    assert torch.equal(clones((x.float(),), dtype=torch.float64)[0], x.float().double())


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


def test_numbers_read_out_of_tensors_are_judged_as_in_the_tensor():
    eager, ours = torch.tensor(0.25 - 2**-26).item(), 0.25
    assert compare(ours, eager, 0.25).verdict == "rounding"
    assert compare(0.26, eager, 0.25).verdict == "different"
    assert compare(float("nan"), eager, 0.25).verdict == "different"
    assert compare(float("nan"), float("nan")).verdict == "equal"
    assert compare(0.1, 0.1 + 1e-16, 0.1).verdict == "rounding"
    assert compare(0.1 + 1e-9, 0.1, 0.1).verdict == "different"
    assert compare(1, 1.0).verdict == "different"


@pytest.mark.parametrize(
    "dtype", [torch.float32, torch.bfloat16, torch.float64, torch.complex64, torch.complex128, torch.float8_e4m3fn])
def test_a_nan_of_eager_is_compared_and_what_nobody_has_written_is_not(dtype):
    eager, wrong = torch.tensor([torch.nan, 1.0, 2.0]).to(dtype), torch.tensor([0.0, 1.0, 2.0]).to(dtype)
    assert same_elements(eager, eager.clone()) is None
    again = torch.tensor([torch.nan, 1.0, 3.0]).to(dtype)
    assert torch.equal(written((wrong,), eager, again)[0].cfloat(), wrong[:2].cfloat())
    assert torch.equal(check.written(wrong, eager, again).cfloat(), wrong[:2].cfloat())
