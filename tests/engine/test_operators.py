"""Operators from PyTorch's operator database against eager: some in CI, all with

    python tests/engine/operator_sweep.py                # forward; prints a table
    python tests/engine/operator_sweep.py --backward     # with gradients
    python -m pytest tests/engine/test_operators.py -m slow

Half an hour each on an idle core.
"""
from __future__ import annotations

import warnings
from typing import Any

import pytest
import torch
from ptdebug.artifacts.context import CompileContext
from ptdebug.engine import build

from . import operator_sweep
from .operator_sweep import differentiable, differs, operators, reference, run, sample_of, samples, sweep, verdict

pytest.importorskip("expecttest", reason="torch's operator database needs it")

FORWARD = """add cumsum index_put nn.functional.avg_pool2d nn.functional.interpolate.linear logical_and as_strided take
round.decimals_3 diagonal_scatter fft.ifft linalg.vector_norm nn.functional.instance_norm amax clamp""".split()
BACKWARD = """mul sum nn.functional.gelu nn.functional.layer_norm softmax nn.functional.max_pool2d cat index_select
nn.functional.batch_norm nn.functional.cross_entropy nn.functional.silu std""".split()


@pytest.fixture(autouse=True)
def unoptimized(monkeypatch):
    """What operators mean is looked at here; tests of kernels look at what g++ makes of them."""
    monkeypatch.setattr(build, "FLAGS", tuple("-O0" if flag == "-O2" else flag for flag in build.FLAGS))


def _run(names: list[str], grad: bool) -> list[Any]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        known = {operator_sweep.full_name(op): op for op in operators(names)}
        assert set(names) <= set(known), set(names) - set(known)
        pairs = []
        for name in names:
            found = [s for s in samples(known[name], grad=grad) if bool(s.tracked) == grad][:2]
            pairs += [(s, r) for s in found if (r := reference(s)) is not None]
        return run([s for s, _ in pairs], [r for _, r in pairs])


def test_some_operators_give_eagers_results():
    outcomes = _run(FORWARD, False)
    assert not [o for o in outcomes if o.kind in ("failed", "eager")]


def test_some_operators_give_eagers_gradients():
    outcomes = _run(BACKWARD, True)
    assert not [o for o in outcomes if o.kind in ("failed", "eager")]


def test_the_sweep_notices_what_is_wrong():
    one, exact = torch.tensor([1.0, 2.0]), torch.tensor([1.0, 2.0], dtype=torch.float64)
    assert differs(one, one, exact) == ""
    assert "error" in differs(one + 1e-3, one, exact)
    assert "strides" in differs(one.repeat(2, 1).t(), one.repeat(2, 1).t().contiguous(), None)
    assert "float64" in differs(one, one.double(), None)
    assert "nan" in differs(torch.tensor([float("nan"), 2.0]), one, exact)


def test_a_graph_that_falls_back_is_told_from_one_that_compiles(monkeypatch):
    sample = sample_of(torch.sin, "sin", 0, (torch.randn(3),), {})
    assert [o.kind for o in run([sample], [reference(sample)])] == ["kernels"]

    def refuses(captured: Any, context: CompileContext) -> Any:
        context.fallback = "because"
        return captured.module

    monkeypatch.setattr(operator_sweep, "compile_graph", refuses)
    assert [(o.kind, o.why) for o in run([sample], [reference(sample)])] == [("eager", "because")]


@pytest.mark.slow
@pytest.mark.parametrize(("backward", "wanted"), [(False, 0.99), (True, 0.97)])
def test_every_operator(backward, wanted):
    """The issue's target: 99 % of the operators that eager runs, and 97 % of those with gradients."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        kinds = {}
        for op in operators():
            if not backward or differentiable(op):
                kinds[operator_sweep.full_name(op)] = verdict(sweep(op, 0, backward))
    failed = [name for name, kind in kinds.items() if kind == "failed"]
    assert len(failed) <= (1 - wanted) * len(kinds), failed
