"""How many Triton programs share a row of a reduction is a decision."""
from __future__ import annotations

import pytest
import torch
from ptdebug.artifacts.context import CompileContext

from ..programs import recording_context
from .programs import compiled, plan_of


@pytest.mark.parametrize("pieces", ["1", "4", "16"])
@pytest.mark.parametrize(("function", "shape"), [
    (lambda x: (x.sum(), x.amax()), (3, 7000)),
    (lambda x: x.sum(1), (5, 3001)),
    (lambda x: x.argmax(1), (2, 3001)),
    (lambda x: x.sum(0), (3001, 6)),
])  # fmt: skip
def test_values_are_right_in_any_number_of_pieces(function, shape, pieces):
    torch.manual_seed(0)
    x = torch.randn(shape)
    overrides = {"split-reduction:*": pieces}
    got = compiled(function, (x,), overrides)(x)
    expected = function(x)
    for one, other in zip(got, expected if isinstance(expected, tuple) else (expected,)):
        torch.testing.assert_close(one, other, rtol=1e-5, atol=1e-4)


def test_the_decision_is_recorded_with_the_default():
    from ptdebug.engine.codegen.triton import kernels_for_plan

    def decided(**settings):
        _, keeping = recording_context()
        context = CompileContext(recorder=keeping, recording=True, **settings)
        plan = plan_of(lambda x: x.sum(1), (torch.randn(4, 20_000),), context)
        kernels_for_plan(plan, context)
        return {d.kind: d for d in keeping.decisions}

    found = decided()
    split = found["split-reduction"]
    assert int(split.chosen) > 1 and f"split{split.chosen}" in found["tile"].chosen and split.origins
    found = decided(overrides={"split-reduction:*": "1"})
    assert "split" not in found["tile"].chosen and found["split-reduction"].forced
