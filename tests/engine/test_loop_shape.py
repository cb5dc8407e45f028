"""How the loops of a C++ kernel run, chosen by decisions: along which axis, on which threads, in how many pieces."""
from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F

from .cpp_checking import check
from .programs import recording_context

PROGRAMS = {
    "rows": (lambda x: (x.sum(1), x.amax(1)), ((400, 300),)),
    "columns": (lambda x: torch.softmax(x, 0), ((300, 400),)),
    "all": (lambda x: (x.sum(), x.amax(), x.argmax()), ((500, 301),)),
    "one long row": (lambda x: x.softmax(-1), ((2, 70_001),)),
    "a norm": (lambda x: F.layer_norm(x, (513,)), ((150, 513),)),
    "norm gradients": (lambda x, y: (x * y).sum(0) + (x.sum(1, keepdim=True) * y).sum(0), ((700, 100), (700, 100))),
    "short rows": (lambda x: x.view(-1, 3).var(1), ((300, 300),)),
    "small": (lambda x: x.sum(1) + 1, ((5, 40),)),
    "pointwise": (lambda x: torch.tanh(x) + x[:1], ((300, 301),)),
    "a scan": (lambda x: x.cumsum(1), ((200, 400),)),
}


def inputs(name: str) -> list[torch.Tensor]:
    torch.manual_seed(0)
    return [torch.randn(shape) for shape in PROGRAMS[name][1]]


def decisions(name: str, **settings):
    _, keeping = recording_context()
    made = check(PROGRAMS[name][0], *inputs(name), slack=4.0, recorder=keeping, recording=True, **settings)
    return made, [d for d in keeping.decisions if d.kind in
                  ("vector-axis", "parallel-loops", "split-reduction", "accumulators")]


@pytest.mark.parametrize("name", PROGRAMS)
def test_values_are_right_for_each_option_of_each_decision(name):
    """What is legal for every kernel is asked of all; the rest, of the decisions that have it."""
    made, found = decisions(name)
    assert found and all(d.origins and d.why for d in found)
    texts = {made.source.text}
    for decision in found:
        for option in decision.options:
            if option.name != decision.chosen:
                other, again = decisions(name, overrides={decision.id: option.name})
                assert any(d.id == decision.id and d.forced and d.chosen == option.name for d in again)
                texts.add(other.source.text)
    assert len(texts) > 1


def test_the_decisions_of_a_reduction_over_everything():
    _, found = decisions("all")
    kinds = {d.kind: d for d in found}
    assert kinds["parallel-loops"].chosen == "inner" and kinds["split-reduction"].chosen == "32"
    assert int(kinds["accumulators"].chosen) > 1


def test_serial_loops_start_no_threads():
    made, _ = decisions("rows", overrides={"parallel-loops:*": "serial"})
    assert "omp parallel" not in made.source.text
    made, found = decisions("small")
    assert "omp parallel" not in made.source.text
    assert "before a thread" in next(d.why for d in found if d.kind == "parallel-loops")
    made, _ = decisions("small", overrides={"parallel-loops:*": "outer"})
    assert "omp parallel" in made.source.text
