"""Operators from PyTorch's operator database against eager: some in CI, all with

    python tests/operators/sweep.py                # forward; prints a table
    python tests/operators/sweep.py --backward     # with gradients
    python -m pytest tests/operators -m slow

Half an hour each on an idle core. docs/coverage.md has the outcome.
"""
from __future__ import annotations

import logging
import warnings
from itertools import islice
from typing import Any

import ptdebug
import pytest
import torch
from ptdebug.cli import wiring
from ptdebug.engine.toolchain import cpp_build

from .compare import Seen, difference, differs
from .samples import differentiable, full_name, operators, sample_of, samples
from .sweep import Outcome, run, runs, sweep, verdict

pytest.importorskip("expecttest", reason="torch's operator database needs it")

FORWARD = """add cumsum index_put nn.functional.avg_pool2d nn.functional.interpolate.linear logical_and as_strided take
round.decimals_3 diagonal_scatter fft.ifft linalg.vector_norm nn.functional.instance_norm amax clamp
nn.functional.dropout nn.functional.max_unpool2d.grad sort masked.sum combinations corrcoef
nn.functional.triplet_margin_with_distance_loss nn.functional.gaussian_nll_loss""".split()
BACKWARD = """mul sum nn.functional.gelu nn.functional.layer_norm softmax nn.functional.max_pool2d cat index_select
nn.functional.batch_norm nn.functional.cross_entropy nn.functional.silu std var_mean""".split()


@pytest.fixture(autouse=True)
def unoptimized(monkeypatch):
    """What operators mean is looked at here; tests of kernels look at what g++ makes of them."""
    monkeypatch.setattr(cpp_build, "FLAGS", tuple("-O0" if flag == "-O2" else flag for flag in cpp_build.FLAGS))
    logging.getLogger("ptdebug").setLevel(logging.ERROR)
    yield
    logging.getLogger("ptdebug").setLevel(logging.NOTSET)


def _run(names: list[str], grad: bool) -> list[Outcome]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        known = {full_name(op): op for op in operators(names)}
        assert set(names) <= set(known), set(names) - set(known)
        group = []
        for name in names:
            group += islice((s for s in samples(known[name], grad=grad) if bool(s.tracked) == grad and runs(s)), 2)
        return run(group)


def test_some_operators_give_eagers_results():
    assert not [o for o in _run(FORWARD, False) if o.kind not in ("kernels", "library")]


def test_some_operators_give_eagers_gradients():
    assert not [o for o in _run(BACKWARD, True) if o.kind not in ("kernels", "library")]


def test_the_sweep_notices_what_is_wrong():
    one, exact = torch.tensor([1.0, 2.0]), torch.tensor([1.0, 2.0], dtype=torch.float64)
    assert differs(one, one, exact) == ""
    assert "error" in differs(one + 1e-3, one, exact)
    assert "strides" in differs(one.repeat(2, 1).t(), one.repeat(2, 1).t().contiguous(), None)
    assert "float64" in differs(one, one.double(), None)
    assert "nan" in differs(torch.tensor([float("nan"), 2.0]), one, exact)


def test_the_sweep_notices_shared_memory_changed_inputs_and_gradients():
    x, y = torch.ones(2), torch.ones(2)
    assert "shares memory" in difference("", Seen([x.view(2)], (x,)), Seen([torch.ones(2)], (y,)), None)
    assert "after the call" in difference("", Seen([], (x + 1,)), Seen([], (y,)), None)
    assert "None" in difference("", Seen([], (x,), ([x],)), Seen([], (x,), ([None],)), None)
    assert "gradient 0 of the first" in difference("", Seen([], (), ([x], [x])), Seen([], (), ([x], [x + 1])), None)


def test_what_runs_in_eager_is_told_from_what_is_compiled(monkeypatch):
    sample = sample_of(torch.sin, "sin", 0, (torch.randn(3),), {})
    breaks = sample_of(torch.allclose, "allclose", 1, (torch.ones(2), torch.ones(2)), {})
    assert [o.kind for o in run([sample])] == ["kernels"]
    assert [o.kind for o in run([sample, breaks])] == ["kernels", "break"]

    def refuses(captured: Any, context: Any) -> Any:
        context.decide("engine", "graph", ["compile", "eager"], "eager", "because")
        return captured.module.forward

    monkeypatch.setattr(wiring, "engine_backend", refuses)
    assert [(o.kind, o.why) for o in run([sample])] == [("eager", "because")]


@pytest.mark.parametrize(("function", "options"), (
    (torch.unique, {"dim": 1}),
    (torch.unique_consecutive, {"dim": -1, "return_counts": True}),
    (torch.fft.rfftn, {"dim": (0, 2)}),
    (torch.fft.ifft, {"dim": 1}),
), ids=("unique", "unique_consecutive", "rfftn", "ifft"))
def test_results_have_the_strides_of_eagers_kernels(function, options):
    x = torch.tensor([[[1.0, 1, 2], [1, 1, 2]], [[3, 3, 0], [3, 3, 0]]])
    sample = sample_of(function, function.__name__, 0, (x,), options)
    assert [(o.kind, "") for o in run([sample]) if o.kind != "library"] == []


def test_a_condition_on_data_raises_the_error_that_eager_raises():
    def loss(x, var, **options):
        try:
            return torch.nn.functional.gaussian_nll_loss(x, x * 2, var, **options)
        except ValueError as error:
            return str(error)

    x = torch.ones(2, 3)
    calls = ((x, x), (x, -x), (x, x[:, 0]), (x, x[:, :2]), (x, 0.5), (x, -0.5))
    compiled = ptdebug.compile(loss)
    for call in calls:
        expected, got = loss(*call, full=True), compiled(*call, full=True)
        assert got == expected if isinstance(expected, str) else torch.allclose(got, expected)


@pytest.mark.slow
@pytest.mark.parametrize(("backward", "wanted"), [(False, 0.99), (True, 0.97)])
def test_every_operator(backward, wanted):
    """The issue's target: 99 % of the operators that eager runs, and 97 % of those with gradients."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        ops = [op for op in operators() if not backward or differentiable(op)]
        kinds = {full_name(op): verdict(sweep(op, 0, backward)) for op in ops}
    failed = [name for name, kind in kinds.items() if kind == "failed"]
    assert len(failed) <= (1 - wanted) * len(kinds), failed
