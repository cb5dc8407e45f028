"""A recording of a GPU, replayed on a CPU: made here from one of a CPU, whose records then name a GPU."""
from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import ptdebug
import pytest
import torch
import torch.nn.functional as F
from ptdebug.artifacts import records as r
from ptdebug.artifacts.recording import Recording
from ptdebug.artifacts.store import RecordingWriter
from ptdebug.dependencies import msgspec
from ptdebug.replay.ladder.ladder import replay
from ptdebug.replay.recorded.graphs import ReplayError, graph_module, on_device
from ptdebug.replay.recorded.inputs import recorded_devices

from .crafting import graph, node

GPU = "cuda:0"


def elsewhere(recording: Recording, folder: Path) -> Recording:
    """The recording as it would be of a GPU."""
    writer = RecordingWriter(folder, command=["step.py"])
    for one in recording.compiles():
        writer.begin(one.id, one.function, one.file, one.line)
        for artifact in recording.artifacts(one.id):
            record: Any = recording.artifact(one.id, artifact.stage, artifact.name)
            text = msgspec.json.encode(record).decode()
            old = '"device":"cpu"' if isinstance(record, r.SavedInputs) else '"cpu"'  # not in the names of its state
            moved = text.replace(old, old.replace("cpu", GPU))
            writer.record(one.id, artifact.stage, artifact.name, msgspec.json.decode(moved, type=type(record)))
        for _, decision in recording.decisions(one.id):
            writer.decision(one.id, decision)
        writer.end(one.id, one.status, one.reason, one.seconds)
    writer.close(0)
    shutil.copytree(recording.path / "tensors", folder / "tensors")
    return Recording.open(folder)


def step(x: torch.Tensor, target: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
    """A step that names devices: as objects, as text, and those of tensors."""
    places = torch.arange(4, device=x.device).view(1, 4, 1, 1)
    hidden = F.conv2d(x, weight, bias).relu() + places.to("cpu") * torch.ones((), device=torch.device("cpu"))
    with torch.autocast("cpu", dtype=torch.bfloat16):
        logits = hidden.flatten(1) @ hidden.flatten(1).t()
    return F.cross_entropy(logits.float(), target)


@pytest.mark.parametrize("training", [True, False])
def test_of_a_gpu_on_a_cpu(training: bool, tmp_path: Path) -> None:
    x, target = torch.randn(3, 2, 5, 5), torch.tensor([0, 2, 1])
    weight, bias = (torch.randn(size, requires_grad=training) for size in ((4, 2, 3, 3), (4,)))
    with ptdebug.record("here", out=str(tmp_path)) as recording:
        ptdebug.compile(step)(x, target, weight, bias)
    with elsewhere(recording, tmp_path / "there") as there:
        (id,) = [one.id for one in there.compiles()]
        assert recorded_devices(there, [id]) == {"cuda"}
        report = replay(there, id, "cpu")
    absent = {rung.stage for rung in report.rungs if rung.verdict == "absent"}
    assert report.verdict in ("equal", "rounding") and absent <= {"program", "passes"}, report
    assert {rung.device for rung in report.rungs} == {"cpu"} and report.drift == ()
    if not torch.cuda.is_available():
        with pytest.raises(ReplayError, match="no CUDA device"), Recording.open(tmp_path / "there") as again:
            replay(again, id, "cuda")


def test_devices_that_a_graph_names_are_those_of_the_replay() -> None:
    made = graph(node("to", r.NodeRef("x"), "cuda:1", op="call_method", name="a"),
                 node("cuda", r.NodeRef("a"), op="call_method", name="b"),
                 node("torch.zeros", 3, name="c", device={"torch": "cuda:0"}),
                 node("torch.zeros", 3, name="d", device={"torch": "meta"}))
    with on_device("cpu"):
        found = {n.name: n for n in graph_module(made, {}).graph.nodes}
    assert found["a"].args[1] == "cpu" and (found["b"].target, found["b"].args[1]) == ("to", "cpu")
    assert found["c"].kwargs["device"] == torch.device("cpu") and found["d"].kwargs["device"] == torch.device("meta")
    with on_device("cuda"):
        found = {n.name: n for n in graph_module(made, {}).graph.nodes}
    assert found["a"].args[1] == "cuda:1" and found["b"].target == "cuda"
    assert found["c"].kwargs["device"] == torch.device("cuda:0")
