"""Cases and what comes of them: the kinds of outcomes, signatures, files."""
from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import msgspec
import ptdebug
import pytest
import torch
import torch.nn.functional as F
from ptdebug.artifacts.recording import Recording
from ptdebug.artifacts.records import Autocast, TensorMeta
from ptdebug.engine import compile
from ptdebug.engine.lowering import LOWERINGS
from ptdebug.replay.failures.case import Case
from ptdebug.replay.failures.decisions import Decisions
from ptdebug.replay.failures.observe import Run, _compare, observe
from ptdebug.replay.failures.outcome import Outcome
from ptdebug.replay.failures.rebuild import rebuild
from ptdebug.replay.failures.signature import Signature, normalized
from ptdebug.replay.recorded.graphs import ReplayError
from ptdebug.replay.recorded.state import read_state
from ptdebug.replay.reduce.subgraph import eager_values, with_graph
from ptdebug.replay.repro.graphs import emit_graph
from ptdebug.replay.repro.state_source import state_lines

from .cases import case_of
from .faults import RELU, raising_relu, sometimes_wrong, wrong_relu


@pytest.fixture(autouse=True)
def right_again() -> Iterator[None]:
    kept = LOWERINGS[RELU]
    yield
    LOWERINGS[RELU] = kept


def chain(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    return torch.relu(F.layer_norm(x @ w, (4,))).exp() + x


X, W = torch.randn(8, 4), torch.randn(4, 4)


def test_a_right_graph_passes_and_tells_its_decisions():
    case = case_of(chain, X, W)
    kept = Decisions(case.graph)
    assert observe(case, kept).passed
    assert {"fuse", "lowering"} <= {made.decision.kind for made in kept.made()}


def test_training_compares_gradients():
    def loss(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        return torch.relu(x @ w).sum()

    case = case_of(loss, X, W.clone().requires_grad_(), training=True)
    assert observe(case).passed
    wrong_relu()
    assert observe(case).kind == "values"


def test_random_numbers_start_as_at_the_recorded_call(tmp_path):
    def f(x: torch.Tensor) -> torch.Tensor:
        return F.dropout(x, 0.5) + torch.rand_like(x)

    torch.manual_seed(7)
    torch.rand(3)
    with ptdebug.record("r", out=tmp_path) as recording:
        found = ptdebug.compile(f, backend="eager")(X)
    case = Case.from_recording(recording, recording.compiles()[0].id)
    case.save(tmp_path / "case")
    for one in case, Case.load(tmp_path / "case"), with_graph(case, case.graph.nodes):
        values = eager_values(one)
        assert any(torch.equal(value, found) for value in values.values() if isinstance(value, torch.Tensor))
        assert observe(one).passed
    assert "random:cpu" in case.inputs.flats and "random:cpu" not in {item.tensor for item in case.inputs.records}


def test_a_compilation_that_did_not_end_has_inputs_of_its_graph(tmp_path, monkeypatch):
    with ptdebug.record("r", out=tmp_path) as recording:
        ptdebug.compile(lambda x: x.sin(), backend="eager")(X)
    found = Recording.artifacts
    monkeypatch.setattr(Recording, "artifacts", lambda self, *which, **by: [
        info for info in found(self, *which, **by) if info.name != "inputs"])
    case = Case.from_recording(recording, recording.compiles()[0].id)
    assert case.made_up and case.inputs.values()[0].shape == X.shape


def test_the_state_around_the_call_is_restored():
    cast = {"cpu": Autocast(True, "bfloat16")}
    state = msgspec.structs.replace(read_state(), autocast=cast, dtype="float64", flags={"mkldnn_enabled": False})
    case = case_of(lambda x, w: (x @ w, torch.full((2,), 0.5)), X, W, state=state)
    assert observe(case).passed and not torch.is_autocast_enabled("cpu")
    assert Case.of_header(case.header(), case.inputs.flats).state == state
    assert replace(case, state=None).key() != case.key()
    lines = state_lines(state)
    assert [line.partition("(")[0] for line in lines] == [
        "torch.set_default_dtype", "torch.set_autocast_enabled", "torch.set_autocast_dtype",
        "torch._C._set_mkldnn_enabled"]
    assert all(line in emit_graph(case) for line in lines)


def test_what_eager_has_not_written_is_not_compared():
    """The last element is unwritten in eager, too; then another one is wrong as well."""
    case = case_of(lambda x: x + 1, torch.ones(2))
    run = lambda *values: Run((torch.tensor(values),), (), ())
    eager, again = run(1.0, 2.0, 3e38), run(1.0, 2.0, -1.5)
    for ran, kind in ((run(1.0, 2.0, 7.0), "passed"), (run(1.0, 5.0, 7.0), "values")):
        assert _compare(case, ran, eager, None).failed
        assert _compare(case, ran, eager, eager, again).kind == kind


def test_inputs_that_are_written_and_need_gradients():
    def step(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        y = x * w
        y.mul_(2)
        w.add_(1)
        return y.sum()

    weight = torch.randn(8, 4, requires_grad=True)
    assert observe(case_of(step, X, torch.randn(8, 4))).passed
    assert observe(case_of(step, X, weight, training=True)).passed
    eager = observe(case_of(step, X.clone().requires_grad_(), weight, training=True))
    assert eager.kind == "invalid" and "modified by an inplace operation" in eager.detail


def test_a_wrong_lowering_is_values_and_one_that_raises_an_exception():
    case = case_of(chain, X, W)
    wrong_relu()
    wrong = observe(case)
    assert (wrong.kind, wrong.node) == ("values", "result 0")
    assert observe(replace(case, forced={"compile:graph": "eager"})).passed
    raising_relu()
    raised = observe(case)
    assert raised.kind == "exception" and "a planted fault" in raised.detail
    assert not Signature.of(raised).matches(wrong)


def test_what_fails_now_and_then_fails_when_repeated(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(compile, "_infer", compile._infer)  # set back afterwards
    sometimes_wrong()
    assert observe(case_of(chain, X, W)).passed
    assert observe(case_of(chain, X, W, repeat=3)).kind == "nan"


def test_what_eager_cannot_run_is_invalid():
    assert observe(case_of(chain, X, torch.randn(5, 5))).kind == "invalid"


def test_data_dependent_sizes():
    assert observe(case_of(lambda x: x[x > 0].exp().sum() * x.nonzero().sum(), X)).passed


def test_dynamic_sizes_are_symbols_as_they_were():
    case = case_of(lambda x, y: (torch.relu(x) * y).sum(0), torch.randn(5, 3), torch.randn(5, 3))
    meta = TensorMeta("float32", ("s0", 3), (3, 1), "cpu")
    nodes = [msgspec.structs.replace(n, value=meta) if n.op == "placeholder" else n for n in case.graph.nodes]
    dynamic = replace(case, graph=msgspec.structs.replace(case.graph, nodes=tuple(nodes)))
    x, y = rebuild(dynamic, dynamic.inputs.values()).inputs
    assert isinstance(x.shape[0], torch.SymInt) and x.shape[0].node.expr == y.shape[0].node.expr
    assert observe(dynamic).passed
    wrong_relu()
    assert observe(dynamic).kind == "values"


def test_torchs_own_compiler_is_a_rung():
    assert observe(case_of(chain, X, W, compiler="torch:eager")).passed
    assert observe(case_of(chain, X, W, compiler="torch:aot_eager")).passed


def test_a_case_is_a_file(tmp_path: Path):
    case = case_of(chain, X, W, forced={"fuse:*": "separate"}, options={"freezing": True})
    case.save(tmp_path / "case.safetensors")
    again = Case.load(tmp_path / "case.safetensors")
    assert again.key() == case.key() and again.forced == case.forced
    assert torch.equal(again.inputs.values()[0], X)
    assert replace(case, forced={}).key() != case.key()
    (tmp_path / "other").write_text("nothing")
    with pytest.raises(ReplayError, match="cannot be read"):
        Case.load(tmp_path / "other")


def test_signatures_leave_out_what_a_reduction_changes():
    one = Outcome("exception", "RuntimeError: node add_17 has size [3, 4, 5] at 0x7f00, /tmp/a.py")
    other = Outcome("exception", "RuntimeError: node add_2 has size [9] at 0x8e11, /home/b.py\nmore")
    assert Signature.of(one).matches(other)
    assert not Signature.of(one).matches(Outcome("exception", "RuntimeError: another"))
    assert not Signature.of(one).matches(Outcome("exception", one.detail.replace("RuntimeError", "TypeError")))
    assert normalized("") == ""
    shape = Outcome("values", "torch.float32[3] is not torch.float32[3, 1]")
    assert not Signature.of(shape).matches(Outcome("values", "distance to float64: 3, allowed 1"))
