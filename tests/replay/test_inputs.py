"""The inputs of a graph: their names, and what is kept of those that have no values."""
from __future__ import annotations

from pathlib import Path

import ptdebug
import pytest
import torch
from ptdebug.artifacts.input_names import in_words
from ptdebug.artifacts.recording import Recording
from ptdebug.replay.ladder.replay import replay
from ptdebug.replay.recorded.graphs import ReplayError
from torch.testing._internal.two_tensor import TwoTensor


def test_names_are_the_programs() -> None:
    assert in_words("L['self']._modules['b']._modules['1']._parameters['weight']") == "self.b[1].weight"
    assert in_words("G['table']['_modules'].grad") == "table['_modules'].grad"


def test_parameters_on_the_meta_device_are_no_hindrance(tmp_path: Path) -> None:
    """Of a model that stands for many, whose parameters come with each call, as in ensembles."""
    model = torch.nn.Linear(3, 2)
    parameters = {name: p.detach() for name, p in model.named_parameters()}
    model = model.to("meta")
    with ptdebug.record("ensemble", out=str(tmp_path)):
        ptdebug.compile(lambda p, x: torch.func.functional_call(model, p, (x,)).tanh())(parameters, torch.ones(4, 3))
    with Recording.open(tmp_path / "ensemble") as recording:
        report = replay(recording, recording.compiles()[0].id)
    assert report.verdict in ("equal", "rounding")


def test_inputs_that_are_made_of_other_tensors_say_that_they_were_not_kept(tmp_path: Path) -> None:
    with ptdebug.record("pair", out=str(tmp_path)):
        ptdebug.compile(lambda x: torch.sin(x))(TwoTensor(torch.ones(3), torch.ones(3)))
    with Recording.open(tmp_path / "pair") as recording:
        with pytest.raises(ReplayError, match="an input is a TwoTensor"):
            replay(recording, recording.compiles()[0].id)
