"""What rungs are held against: eager in float64, eager rounded at random, and halves that are cut as recorded."""
# mypy: ignore-errors
from __future__ import annotations

from dataclasses import replace

import ptdebug
import pytest
import torch
from ptdebug.artifacts.context import CompileContext
from ptdebug.engine.aot.autograd import costs
from ptdebug.replay.ladder.replay import replay
from ptdebug.replay.ladder.rungs import run_graph
from ptdebug.replay.recorded.precision import in_full_precision, in_recorded_precision
from torch import nn


def test_what_is_made_of_numbers_is_in_float64_too():
    sdpa, graph = torch.nn.functional.scaled_dot_product_attention, torch.fx.Graph()
    q, ones = graph.placeholder("q"), graph.call_function(torch.ones, (3,), {"dtype": torch.int64})
    mask = graph.call_function(torch.triu, (graph.call_function(torch.full, ((3, 3), float("-inf"))), 1))
    graph.output((graph.call_function(sdpa, (q, q, q, mask)), graph.call_function(torch.div, (ones, 3))))
    query = torch.randn(2, 4, 3, 8, dtype=torch.float64)
    ran = run_graph(torch.fx.GraphModule({}, graph), (query,), wide=True)
    causal, third = sdpa(query, query, query, is_causal=True), torch.ones(3, dtype=torch.float64) / 3
    torch.testing.assert_close(ran.outputs, (causal, third), rtol=1e-12, atol=1e-12)
    assert torch.get_default_dtype() == torch.float32


def test_random_numbers_in_float64_are_those_of_eager():
    graph = torch.fx.Graph()
    graph.output(tuple([graph.call_function(torch.rand, (4,), kwargs) for kwargs in ({}, {"dtype": torch.float32})]))
    module, runs = torch.fx.GraphModule({}, graph), []
    for wide in (False, True):
        torch.manual_seed(0)
        runs.append(run_graph(module, (), wide=wide).outputs)
    assert all(torch.equal(narrow.double(), wide) for narrow, wide in zip(*runs))


def test_rounding_at_random_is_drawn_on_the_cpu():
    """Whatever the default device: the program's, at the recorded call."""
    module = torch.fx.symbolic_trace(lambda x: x.sin())
    x = torch.rand(100)
    with torch.device("meta"):
        drawn = run_graph(module, (x,), noise=torch.Generator().manual_seed(0)).outputs[0]
    torch.testing.assert_close(drawn, x.sin())
    assert not torch.equal(drawn, x.sin())


@pytest.mark.parametrize("dynamic", [None, True])
def test_the_cut_is_the_recorded_one_and_on_another_device_its_halves_still_run(dynamic, tmp_path, monkeypatch):
    """Where costs are other ones, as they are there."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(8, 32), nn.GELU(), nn.LayerNorm(32), nn.Linear(32, 4), nn.Tanh())
    with ptdebug.record("r", out=str(tmp_path)) as recording:
        ptdebug.compile(model, dynamic=dynamic)(torch.randn(6, 8)).square().sum().backward()
    (compiled,) = recording.compiles()
    cost_of = costs._cost
    monkeypatch.setattr(costs, "_cost", lambda node: replace(cost_of(node), work=0))
    assert "kernels" not in replay(recording, compiled.id).drift
    monkeypatch.setattr(CompileContext, "recorded", property(lambda self: {}, lambda self, value: None), raising=False)
    report = replay(recording, compiled.id)
    told = {rung.stage: (rung.verdict, rung.why) for rung in report.rungs}
    assert "kernels" in report.drift, report.drift
    ran = {stage for stage, (verdict, _) in told.items() if verdict in ("equal", "rounding")}
    assert {"forward", "backward", "passes", "loop_ir", "kernels"} <= ran, told


def test_a_kernel_alone_may_round_by_what_it_reads(tmp_path):
    """The logarithm of a sum near 1: no float64 is more exact than that of the kernel."""
    x = torch.randn(64, 64, generator=torch.Generator().manual_seed(0)) + 31 * torch.eye(64)
    with ptdebug.record("r", out=str(tmp_path)) as recording:
        ptdebug.compile(lambda x: nn.functional.cross_entropy(x, torch.arange(64)))(x)
    (compiled,) = recording.compiles()
    alone = [kernel for rung in replay(recording, compiled.id).rungs for kernel in rung.kernels]
    assert alone and all(kernel.comparison.verdict != "different" for kernel in alone), alone


def test_the_numbers_of_data_dependent_symbols_are_no_drift(tmp_path):
    """Before a branch breaks the frame, the tracer has asked for a number of which the graph knows nothing."""
    def clipped(x):
        norm = x.norm().item()
        return x * 2 if norm > 1e4 else x + 1

    with ptdebug.record("r", out=str(tmp_path)) as recording:
        ptdebug.compile(clipped)(torch.ones(3))
    reports = [replay(recording, one.id) for one in recording.compiles() if one.status == "compiled" and not one.reason]
    assert reports and all(report.drift == () for report in reports), [report.drift for report in reports]


def test_kernels_are_made_with_the_precision_that_values_are_not_compared_in():
    cudnn, matmul = torch.backends.cudnn, torch.backends.cuda.matmul
    before = cudnn.allow_tf32, matmul.allow_tf32
    try:
        cudnn.allow_tf32, matmul.allow_tf32 = True, False
        with in_recorded_precision(), in_full_precision():
            assert (cudnn.allow_tf32, matmul.allow_tf32) == (False, False)
            with in_recorded_precision():
                assert (cudnn.allow_tf32, matmul.allow_tf32) == (True, False)
            assert not cudnn.allow_tf32
        assert (cudnn.allow_tf32, matmul.allow_tf32) == (True, False)
    finally:
        cudnn.allow_tf32, matmul.allow_tf32 = before
