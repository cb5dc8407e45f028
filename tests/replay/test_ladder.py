"""Replay of recordings that the engine made: verdicts, the place of the first difference, trust."""
from __future__ import annotations

import importlib.util
import json
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from ptdebug.artifacts.context import CompileContext
from ptdebug.artifacts.fx_graphs import graph_record, tensor_meta
from ptdebug.artifacts.recording import Recording
from ptdebug.artifacts.records import Location, SavedInput, SavedInputs
from ptdebug.artifacts.store import RecordingWriter
from ptdebug.engine.compile import compile_graph
from ptdebug.engine.lowering import LOWERINGS
from ptdebug.replay.ladder import ladder
from ptdebug.replay.ladder.replay import replay
from ptdebug.replay.recorded.graphs import ReplayError, resolve, size_value
from safetensors.torch import save_file

_spec = importlib.util.spec_from_file_location("engine_programs", Path(__file__).parents[1] / "engine" / "programs.py")
programs = importlib.util.module_from_spec(_spec)
sys.modules["engine_programs"] = programs
_spec.loader.exec_module(programs)


def record(folder: Path, program, *inputs, frozen: tuple[str, ...] = ()) -> Recording:
    """A recording of one graph, made by the engine with the real writer."""
    writer = RecordingWriter(folder, command=["test"], compiler="ptdebug")
    captured = programs.capture(program, *inputs)
    for number, node in enumerate(captured.module.graph.nodes):
        node.meta["stack"] = (Location("model.py", number + 1, "forward"),)
    context = CompileContext(recorder=writer, recording=True)
    writer.begin("0/0", "forward", "model.py", 1)
    context.record("capture", lambda: graph_record(captured.module.graph, "capture", "bytecode"))
    names = [n.name for n in captured.module.graph.nodes if n.op == "placeholder"]
    sources = tuple(f"L['m']._parameters['{n}']" if n in frozen else n for n in names)
    captured, context.freezing = replace(captured, input_names=sources), bool(frozen)
    tensors = {n: x for n, x in zip(names, inputs) if isinstance(x, torch.Tensor)}
    (folder / "tensors").mkdir(exist_ok=True)
    save_file({n: x.flatten() for n, x in tensors.items()}, folder / "tensors" / "0-0-inputs.safetensors")
    saved = [SavedInput(source, tensor_meta(tensors[n]), n) for source, n in zip(sources, names) if n in tensors]
    context.record("runtime", lambda: SavedInputs(tuple(saved), "tensors/0-0-inputs.safetensors"), "inputs")
    compile_graph(captured, context)
    writer.end("0/0", "compiled", "", context.seconds)
    writer.close(0)
    assert not context.fallback
    return Recording.open(folder)


def mlp(x, w, b):
    y = F.gelu(F.linear(x, w, b))
    z = torch.softmax(y, -1)
    x.mul_(2)
    return F.layer_norm(z, (16,)), x.t(), y.sum(0)


INPUTS = (torch.randn(8, 16), torch.randn(16, 16), torch.randn(16))


def test_every_rung_runs_and_none_is_different(tmp_path):
    report = replay(record(tmp_path / "r", mlp, *INPUTS), "0/0")
    stages = ["program", "capture", "forward", "passes", "loop_ir", "kernels", "wrapper"]
    assert [r.stage for r in report.rungs] == stages
    assert report.rungs[0].verdict == "absent", "there is no program behind this recording"
    assert {r.verdict for r in report.rungs[1:]} <= {"equal", "rounding"}
    assert report.rungs[2].verdict == "equal", "the ATen graph runs the same kernels as eager"
    assert report.first is None
    assert report.drift == ()
    document = report.document()
    assert document["verdict"] == report.verdict
    assert set(document) >= {"schema", "selector", "verdict", "first_difference", "rungs"}
    json.dumps(document, allow_nan=False)


def test_a_frozen_graph_is_replayed_frozen(tmp_path):
    def program(x, w):
        return F.linear(x, w.sin()).relu()

    inputs = torch.randn(64, 64), torch.randn(64, 64)
    recording = record(tmp_path / "rec", program, *inputs, frozen=("w",))
    report = ladder.Ladder(recording, "0/0").climb()
    verdicts = {rung.stage: rung.verdict for rung in report.rungs}
    stages = ("capture", "forward", "passes", "loop_ir", "kernels")
    assert {verdicts[stage] for stage in stages} <= {"equal", "rounding"}
    assert not report.drift and recording.artifact("0/0", "wrapper", "folding").lines


def test_a_wrong_lowering_is_found_with_its_node_and_line(tmp_path, monkeypatch):
    recording = record(tmp_path / "r", lambda x, w: (torch.relu(torch.tanh(x @ w)) * 3 + 1).sum(0), *INPUTS[:2])
    from ptdebug.engine.ir import interpreter

    monkeypatch.setitem(interpreter.ELEMENTWISE, "tanh", lambda a: torch.tanh(a) * 1.01)
    report = replay(recording, "0/0")
    verdicts = {r.stage: r.verdict for r in report.rungs}
    assert verdicts["forward"] != "different"
    assert verdicts["loop_ir"] == "different"
    assert verdicts["kernels"] != "different"
    assert report.first is not None
    assert report.first.stage == "loop_ir"
    assert report.first.location is not None
    assert report.first.location.file == "model.py"


def test_a_stage_that_comes_out_otherwise_is_reported_as_drift(tmp_path, monkeypatch):
    recording = record(tmp_path / "r", mlp, *INPUTS)
    gelu = torch.ops.aten.gelu.default
    monkeypatch.setitem(LOWERINGS, gelu, LOWERINGS[torch.ops.aten.sigmoid.default])
    assert "loop_ir" in replay(recording, "0/0").drift


def test_inputs_that_were_not_kept_are_an_error_that_says_what_to_do(tmp_path):
    recording = record(tmp_path / "r", mlp, *INPUTS)
    (recording.path / "tensors" / "0-0-inputs.safetensors").unlink()
    with pytest.raises(ReplayError, match="record again"):
        replay(recording, "0/0")


def test_recorded_targets_outside_torch_need_trust():
    for name in ("os.system", "subprocess.run", "builtins.eval", "builtins.exec"):
        with pytest.raises(ReplayError):
            resolve(name)
    assert resolve("torch.nn.functional.gelu") is F.gelu
    assert resolve("aten.add.Tensor") is torch.ops.aten.add.Tensor
    assert resolve("torch.Tensor.view") is torch.Tensor.view
    with pytest.raises(ReplayError, match="has no"):
        resolve("torch.no_such_function")


def test_recorded_conditions_may_be_joined():
    expected = {"(u0 < 8) & (u0 + 9 > 0)": (True, False, False), "(u0 >= 8) | Eq(u0, -9)": (False, True, True),
                "~(u0 < 8)": (False, True, False)}
    for text, holds in expected.items():
        assert tuple(size_value(text, {"u0": number}) for number in (3, 8, -9)) == holds


def test_recorded_sizes_are_arithmetic_only():
    assert size_value("2*s0 + (s1//3)", {"s0": 4, "s1": 10}) == 11
    assert size_value("Max(1, s0) - Mod(s1, 4)", {"s0": 4, "s1": 10}) == 2
    for evil in ("__import__('os')", "s0.__class__", "(lambda: 1)()", "unknown"):
        with pytest.raises(ReplayError):
            size_value(evil, {"s0": 1})
