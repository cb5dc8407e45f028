"""A program whose graph is traced a second time, when torch answers from its cache of fake results."""
from __future__ import annotations

from pathlib import Path

import ptdebug
import torch
from ptdebug.artifacts.records import Graph


def _joint(folder: Path) -> Graph:
    layer = torch.nn.LSTM(4, 5, batch_first=True)
    with ptdebug.record(out=str(folder)) as recording:
        ptdebug.compile(lambda x: layer(x)[0].sum())(torch.ones(2, 3, 4)).backward()
    found = recording.artifact(recording.compiles()[0].id, "joint", "")
    assert isinstance(found, Graph)
    return found


def test_the_joint_graph_of_an_lstm_is_the_same(tmp_path: Path) -> None:
    """Its backward returns one tensor for both biases; each gradient is a part of its own."""
    first, second = _joint(tmp_path / "a"), _joint(tmp_path / "b")
    assert first.nodes[-1].args == second.nodes[-1].args
    gradients = [part.node for part in first.nodes[-1].args[0][1:]]
    assert len(gradients) == len(set(gradients)) == 4
