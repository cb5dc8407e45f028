"""What is said of a recompilation: in the words of the program, about its own lines."""
from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import ptdebug
import pytest
import torch
from ptdebug.artifacts.recording import Recording
from ptdebug.artifacts.records import Recompile
from ptdebug.artifacts.summary import break_costs, breaks, limits, recompiles
from ptdebug.cli.main import main

X = torch.linspace(0.1, 1.2, 12).reshape(3, 4)
LOCAL = threading.local()
SETTINGS = {"depth": 2}


class Gate(torch.nn.Module):
    def forward(self, x):
        if x.sum() > 1000:
            x = x / 2
        return x + 1


class Gates(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.gates = torch.nn.ModuleList(Gate() for _ in range(2))

    def forward(self, x):
        for gate in self.gates:
            x = gate(x * 2)
        return x


def by_mode(x, mode):
    return getattr(x, mode)()


def by_setting(x):
    return x * SETTINGS["depth"] * LOCAL.factor


def plain(x):
    return x * 2


@pytest.fixture(scope="module")
def recording(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Recording]:
    folder = tmp_path_factory.mktemp("words")

    def compiled(function: Any, **options: Any) -> Any:
        return ptdebug.compile(function, backend=lambda graph, _: graph, **options)

    with ptdebug.record("words", out=folder), torch.no_grad():
        compiled(Gates())(X)
        many = compiled(by_mode)
        for mode in ("sum", "mean", "amax", "amin", "std", "var", "median", "prod", "exp", "sin"):
            many(X, mode)
        LOCAL.factor = 2
        settings = compiled(by_setting)
        settings(X)
        LOCAL.factor = 3
        settings(X)
        SETTINGS["depth"] = 5
        settings(X)
        module = torch.nn.Sequential(torch.nn.Linear(4, 4))
        grown = compiled(module)
        grown(X)
        module.append(torch.nn.Linear(4, 4))
        grown(X)
        module[0].weight.requires_grad_(False)
        grown(X)
        doubled = compiled(plain)
        doubled(X)
        doubled(X.bfloat16())
        with torch.inference_mode():
            doubled(X)
        with torch.device("cpu"):
            doubled(X)
    with Recording.open(folder / "words") as opened:
        yield opened


def changes(recording: Recording) -> dict[str, Recompile]:
    return {found.subject: found for _, found in recompiles(recording)}


def test_a_recompilation_is_told_in_the_words_of_the_program(recording: Recording) -> None:
    found = changes(recording)
    local, depth = found["LOCAL.factor"], found["SETTINGS['depth']"]
    assert (local.expected, local.actual) == ("2", "3") and (depth.expected, depth.actual) == ("2", "5")
    assert "from now on this number is an input" in depth.hint
    grown, frozen = found["the submodules of self"], found["self[0].weight.requires_grad"]
    assert (grown.expected, grown.actual) == ("['0']", "['0', '1']") and "completely" in grown.hint
    assert (frozen.expected, frozen.actual) == ("True", "False") and "freeze" in frozen.hint
    assert found["x.dtype"].hint.startswith("convert before the call (x.to(torch.float32))")
    assert (found["inference mode"].expected, found["inference mode"].actual) == ("off", "on")
    assert next(f.actual for what, f in found.items() if what.startswith("the default device")) == "device cpu"
    assert all(f.guard and f.expected != f.actual and f.hint for f in found.values())


def test_the_limit_is_said_once(recording: Recording, capsys: pytest.CaptureFixture[str]) -> None:
    ((_, why),) = limits(recording)
    assert why.startswith("was compiled 8 times") and "mode was 'prod', is 'exp'" in why
    assert main(["recompiles", str(recording.path)]) == 0
    assert capsys.readouterr().out.count("was compiled 8 times, the limit") == 1


def test_a_break_in_a_called_module_costs_all_its_calls(recording: Recording) -> None:
    found = [(place, cost) for place, cost in zip(breaks(recording), break_costs(recording))]
    ((_, gate, times), cost) = next(entry for entry in found if entry[0][1].expression == "x.sum() > 1000")
    assert Path(gate.location.file) == Path(__file__) and gate.location.function == "Gate.forward"
    assert times >= 2 and cost.graphs >= 1 and cost.passes >= 2
