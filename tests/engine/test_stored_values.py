"""Each value between two operators is stored or inlined by a decision, and right either way."""
from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F

from .cpp_checking import check
from .programs import recording_context
from .triton.programs import compiled

PROGRAMS = {
    "a chain": (lambda x: ((x + 1).abs().sqrt() * 2,), ((40, 50),)),
    "a broadcast": (lambda x: torch.tanh(x[:1]) * x, ((300, 64),)),
    "two readers": (lambda x: (torch.exp(x).sum(0), torch.exp(x).amax(1)), ((120, 70),)),
    "a softmax": (lambda x: torch.softmax(torch.sin(x), 1), ((30, 70),)),
    "windows": (lambda x: F.max_pool2d(torch.sin(x), 3, 2), ((2, 3, 20, 20),)),
    "means of windows": (lambda x: F.avg_pool2d(torch.sin(x), 3, 1), ((2, 3, 20, 20),)),
    "a variance": (lambda x: torch.exp(x).var(1), ((30, 200),)),
    "edges": (lambda x: F.pad(torch.sin(x), (2, 3), "reflect"), ((20, 30),)),
    "upsampling": (lambda x: F.interpolate(torch.sin(x), scale_factor=2, mode="bilinear"), ((1, 2, 12, 12),)),
    "a norm": (lambda x: F.layer_norm(torch.sin(x), (70,)), ((30, 70),)),
}


def inputs(name: str) -> list[torch.Tensor]:
    torch.manual_seed(0)
    return [torch.randn(shape) for shape in PROGRAMS[name][1]]


@pytest.mark.parametrize("name", PROGRAMS)
@pytest.mark.parametrize("option", ["realize", "inline"])
def test_values_are_right_either_way_in_cpp(name, option):
    check(PROGRAMS[name][0], *inputs(name), slack=4.0, overrides={"realize:*": option})


@pytest.mark.parametrize("name", ["a chain", "a broadcast", "two readers", "a softmax", "windows", "a variance"])
@pytest.mark.parametrize("option", ["realize", "inline"])
def test_values_are_right_either_way_in_triton(name, option):
    function, given = PROGRAMS[name][0], inputs(name)
    expected = function(*given)
    got = compiled(function, given, {"realize:*": option})(*given)
    for one, other in zip(got, expected if isinstance(expected, tuple) else (expected,)):
        torch.testing.assert_close(one, other, rtol=2e-5, atol=2e-5)


def decisions(function, *given, **settings):
    _, keeping = recording_context()
    made = check(function, *given, slack=4.0, recorder=keeping, recording=True, **settings)
    return made, {d.subject: d for d in keeping.decisions if d.kind == "realize"}


def test_each_value_has_one_decision_that_can_be_forced():
    function, given = PROGRAMS["a chain"][0], inputs("a chain")
    before, found = decisions(function, *given)
    assert list(found) == ["add", "abs_1", "sqrt"] and {d.chosen for d in found.values()} == {"inline"}
    assert all(d.origins == (f"forward#{d.subject}",) for d in found.values())
    after, found = decisions(function, *given, overrides={"realize:abs_1": "realize", "fuse:*": "separate"})
    assert found["abs_1"].forced and found["abs_1"].chosen == "realize" and found["sqrt"].chosen == "inline"
    assert len(before.groups) == 1 and len(after.groups) == 2


def long(x):
    for n in range(150):
        x = x * 0.9 + n
    return x


def test_a_long_expression_is_cut_by_decisions_and_only_so_far_can_that_be_forced():
    x = torch.randn(64)
    before, found = decisions(long, x)
    cut = [d for d in found.values() if d.chosen == "realize"]
    assert cut and all("operations in one expression" in d.why for d in cut)
    after, found = decisions(long, x, overrides={"realize:*": "inline"})
    refused = [d for d in found.values() if "refused" in d.why]
    assert refused and all(d.chosen == "realize" and "illegal" in d.why for d in refused)
    assert len(after.plan.program.steps) < len(before.plan.program.steps)
