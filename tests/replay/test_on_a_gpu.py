"""What was recorded on one device, replayed on it and on the other: each rung is equal, or off by roundings."""
# mypy: ignore-errors
from __future__ import annotations

import ast
import copy
from pathlib import Path

import ptdebug
import pytest
import torch
from ptdebug.replay.ladder.replay import replay
from ptdebug.replay.recorded.inputs import recorded_devices

from tests.devices import GPU

pytestmark = GPU
EXAMPLES = Path(ptdebug.__file__).parent / "examples"


def classes_of(name: str) -> dict[str, type]:
    """The classes of an example, without what its main part does."""
    tree = ast.parse((EXAMPLES / name).read_text())
    tree.body = [node for node in tree.body if isinstance(node, (ast.Import, ast.ImportFrom, ast.ClassDef))]
    found: dict[str, type] = {"__name__": name.removesuffix(".py")}
    exec(compile(tree, str(EXAMPLES / name), "exec"), found)
    return found


def transformer(device: str):
    """A step of training of the transformer example: forward and backward, then the optimizer's step."""
    model = classes_of("train_transformer.py")["Model"]()
    model = model.to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    loss_of, step = ptdebug.compile(model), ptdebug.compile(optimizer.step)
    tokens = (torch.arange(8).view(8, 1) + torch.arange(32)).to(device) % 64
    with torch.device(device):
        loss_of(tokens).backward()
    step()


def convolutions(device: str):
    """A step of training of the convolution net, whose statistics move; and what it gives afterwards."""
    model = classes_of("conv_classifier.py")["Classifier"]().to(device)
    images, labels = torch.randn(8, 3, 32, 32).to(device), torch.arange(8).to(device)
    trained, asked = ptdebug.compile(model), ptdebug.compile(copy.deepcopy(model).eval())
    torch.nn.functional.nll_loss(trained(images), labels).backward()
    with torch.no_grad():
        asked(images)


def dropout(device: str):
    """Random numbers are the device's own: those of another are not asked for."""
    model = torch.nn.Sequential(torch.nn.Linear(16, 32), torch.nn.Dropout(0.5), torch.nn.Linear(32, 4)).to(device)
    ptdebug.compile(model)(torch.randn(5, 16).to(device)).square().sum().backward()


@pytest.mark.parametrize("target", ["cuda", "cpu"])
@pytest.mark.parametrize("source", ["cuda", "cpu"])
@pytest.mark.parametrize("program", [transformer, convolutions, dropout])
def test_recorded_there_and_replayed_here(program, source, target, tmp_path):
    if program is dropout and source != target:
        pytest.skip("draws other numbers")
    torch.manual_seed(0)
    with ptdebug.record(out=str(tmp_path)) as recording:
        program(source)
    compiles = [c for c in recording.compiles() if c.reason != "it has no tensor operation"]
    assert {(c.status, c.reason) for c in compiles} == {("compiled", "")}
    assert recorded_devices(recording, [compiles[0].id]) == {source}
    for compiled in compiles:
        report = replay(recording, compiled.id, target)
        told = [(rung.stage, rung.verdict, rung.why) for rung in report.rungs]
        assert report.verdict in ("equal", "rounding"), (compiled.id, told, report.first)
        ran = {rung.stage for rung in report.rungs if rung.verdict != "absent"}
        assert {"capture", "forward", "loop_ir", "kernels"} <= ran, told
