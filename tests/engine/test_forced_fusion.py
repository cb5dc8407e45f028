"""Pairs that are legal but not worth it can be fused all the same; illegal ones cannot, and the person is told."""
from __future__ import annotations

import pytest
import torch
from ptdebug.artifacts.context import CompileContext
from ptdebug.engine.scheduler import describe

from .cpp_checking import built, check
from .programs import recording_context
from .triton.programs import compiled

PROGRAMS = {
    "rows and columns": (lambda x: (x.amax(0), x.amax(1)), ((300, 300),)),
    "little in common": (lambda x, y: (x + y[0], (x * 0.5).sum(1), y * 2), ((8, 20), (400, 20))),
    "other loops": (lambda x: ((x * 2).sum(1), x.reshape(-1).sum()), ((70, 130),)),
    "a long row": (lambda x: (x - x.mean(1, keepdim=True), x.sum(1)), ((2, 300_000),)),
    "an expensive value": (lambda x: torch.tanh(x.reshape(-1, 3)).sum(1), ((3000,),)),
    "a transposition": (lambda x: (x.t().contiguous() + 1, torch.softmax(x, 1)), ((120, 90),)),
    "pieces": (lambda x, y: (torch.cat([x, y]) * 2).sum(0), ((60, 90), (50, 90))),
}

FEWER = {"rows and columns": (slice(130), slice(140)), "a long row": (slice(2), slice(70_000)),
         "an expensive value": (slice(600),)}
"""Triton's interpreter takes ten seconds for all of them."""


def inputs(name: str) -> list[torch.Tensor]:
    torch.manual_seed(0)
    return [torch.randn(shape) for shape in PROGRAMS[name][1]]


def candidates(name: str, **settings):
    _, keeping = recording_context()
    made = built(PROGRAMS[name][0], *inputs(name), recorder=keeping, recording=True, **settings)
    return {stage: record for stage, _, record in describe(made.plan)}["fusion"].candidates, keeping


@pytest.mark.parametrize("name", PROGRAMS)
def test_everything_legal_can_be_fused_in_cpp(name):
    check(PROGRAMS[name][0], *inputs(name), slack=4.0, overrides={"fuse:*": "fuse"})


@pytest.mark.parametrize("name", PROGRAMS)
@pytest.mark.parametrize("option", ["fuse", "separate"])
def test_everything_legal_can_be_fused_in_triton(name, option):
    function, given = PROGRAMS[name][0], inputs(name)
    if name in FEWER:
        given = [given[0][FEWER[name]].contiguous()]
    expected = function(*given)
    got = compiled(function, given, {"fuse:*": option})(*given)
    for one, other in zip(got, expected if isinstance(expected, tuple) else (expected,)):
        torch.testing.assert_close(one, other, rtol=2e-5, atol=2e-5 * float(other.abs().max()))


@pytest.mark.parametrize("name", ["rows and columns", "little in common", "other loops"])
def test_a_pair_that_is_not_worth_it_is_a_decision(name):
    found, keeping = candidates(name)
    refused = next(c for c in found if not c.fused and c.legal)
    assert refused.why.startswith("not profitable: ") and f'"{refused.decision}" = "fuse"' in refused.why
    decision = next(d for d in keeping.decisions if d.id == refused.decision)
    assert decision.default == decision.chosen == "separate"
    fuse, separate = decision.options
    assert fuse.score <= separate.score and "memory traffic" in fuse.unit and fuse.better == "higher"
    assert decision.origins == (f"loop_ir:{refused.first}", f"loop_ir:{refused.second}")
    function, given = PROGRAMS[name][0], inputs(name)
    before = check(function, *given, slack=4.0)
    forced = check(function, *given, slack=4.0, overrides={refused.decision: "fuse"})
    assert len(forced.groups) == len(before.groups) - 1


def test_an_illegal_pair_is_refused_at_its_decision_and_said():
    function = lambda x: (x.cumsum(0).flip(0) * x.amax(), )
    x = torch.randn(300, 40)
    _, keeping = recording_context()
    made = built(function, x, recorder=keeping, recording=True)
    refused = next(c for c in made.plan.candidates if not c.fused and not c.legal)
    assert refused.why.startswith("illegal: ") and not refused.decision
    name = f"fuse:{refused.id}"
    _, keeping = recording_context()
    notes: list[str] = []
    met: set[str] = set()
    check(function, x, slack=4.0, recorder=keeping, recording=True, overrides={name: "fuse"}, notes=notes, met=met)
    decision = next(d for d in keeping.decisions if d.id == name)
    assert decision.chosen == "separate" and [o.name for o in decision.options] == ["separate"]
    assert "refused" in decision.why and "illegal: " in decision.why
    assert met == {name} and len(notes) == 1 and name in notes[0] and "illegal: " in notes[0]


def test_no_verdicts_are_made_where_nobody_asks():
    made = built(PROGRAMS["rows and columns"][0], *inputs("rows and columns"))
    assert made.plan.candidates == () and not CompileContext().asked
