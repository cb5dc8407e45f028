"""Calls of `compile` for one function share what is compiled, as far as their options are equal, and let go of it."""
from __future__ import annotations

import functools
import gc
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import ptdebug
import pytest
import torch
from ptdebug.tracer.frames import dispatch
from ptdebug.tracer.runtime.eval_frame import EntryGuards
from torch import nn


@pytest.fixture(autouse=True)
def fresh_start() -> Iterator[None]:
    dispatch.reset()
    yield
    dispatch.reset()


class Counting:
    """A backend that counts its graphs."""

    def __init__(self) -> None:
        self.graphs = 0

    def __call__(self, module: Any, inputs: Any) -> Any:
        self.graphs += 1
        return module.forward


class Owner:
    def __init__(self, scale: float) -> None:
        self.scale = scale

    def method(self, x: torch.Tensor) -> torch.Tensor:
        return x.sin() * self.scale

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        return x.cos() * self.scale


def function(x: torch.Tensor, scale: float = 2.0) -> torch.Tensor:
    return x.sin() * scale


OWNER = Owner(3.0)
AGAIN: dict[str, Callable[[], Any]] = {
    "function": lambda: function, "method": lambda: OWNER.method, "object": lambda: OWNER, "builtin": lambda: torch.sin,
    "partial": lambda: functools.partial(function, scale=3.0),
    "module": lambda: nn.Sequential(nn.Linear(4, 4), nn.ReLU()).eval(),
    "method of a module": lambda: nn.Linear(4, 4).forward,
}


@pytest.mark.parametrize("make", AGAIN.values(), ids=AGAIN.keys())
def test_wrapping_again_finds_what_was_compiled(make: Callable[[], Any]) -> None:
    backend, x = Counting(), torch.randn(2, 4)
    for _ in range(20):
        it = make()
        assert torch.equal(ptdebug.compile(it, backend=backend)(x), it(x))
    assert backend.graphs == 1


def test_wrapping_in_a_forward_finds_what_was_compiled() -> None:
    class Model(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return ptdebug.compile(function)(x) + 1

    model, x = Model(), torch.randn(3)
    for _ in range(5):
        assert torch.allclose(model(x), function(x) + 1)
    assert ptdebug.stats()["graphs"] == 1


def test_other_options_share_nothing() -> None:
    x, backend = torch.randn(3), Counting()
    options: list[dict[str, Any]] = [
        {}, {"dynamic": True}, {"fullgraph": True}, {"options": {"memory_budget": 0.5}}, {"backend": backend},
        {"backend": Counting()}, {"isolate_recompiles": True}, {"isolate_recompiles": True},
    ]
    for number, chosen in enumerate(options):
        before = ptdebug.stats()["graphs"]
        assert torch.allclose(ptdebug.compile(function, **chosen)(x), function(x))
        assert ptdebug.stats()["graphs"] == before + 1, (number, chosen)


def test_a_recording_has_what_is_compiled_in_it(tmp_path: Path) -> None:
    x = torch.randn(3)
    ptdebug.compile(function)(x)
    with ptdebug.record(out=str(tmp_path)) as recording:
        ptdebug.compile(function)(x)
        ptdebug.compile(function)(x)
        assert len(recording.compiles()) == 1


def entries() -> int:
    gc.collect()
    return sum(isinstance(thing, EntryGuards) and not thing.dead for thing in gc.get_objects())


@pytest.mark.parametrize("backend", [lambda: "ptdebug", Counting], ids=["ours", "a new one each"])
def test_what_nobody_uses_any_more_is_let_go(backend: Callable[[], Any]) -> None:
    x, before = torch.randn(2, 4), entries()
    for number in range(20):
        model = nn.Sequential(*[nn.Linear(4, 4) for _ in range(1 + number % 10)])
        compiled = ptdebug.compile(model, backend=backend())
        assert torch.allclose(compiled(x), model(x))
        del model, compiled
    assert entries() - before <= 9


def test_each_call_of_compile_has_a_limit_of_its_own() -> None:
    x, backend = torch.randn(2, 4), Counting()
    models = [nn.Sequential(*[nn.Linear(4, 4) for _ in range(1 + number)]) for number in range(12)]
    compiled = [ptdebug.compile(model, backend=backend) for model in models]
    for _ in range(2):
        for model, own in zip(models, compiled):
            assert torch.equal(own(x), model(x))
    assert backend.graphs == 12


def test_shared_code_has_the_parameters_of_each_module() -> None:
    x, compiled = torch.randn(32, 4, generator=torch.Generator().manual_seed(0)), []
    for seed in range(4):
        torch.manual_seed(seed)
        model = nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4), nn.Dropout(0.5)).train(seed % 2 == 0)
        compiled.append((model, ptdebug.compile(model)))
    for model, own in compiled:
        outcomes = []
        state = {name: value.clone() for name, value in model.state_dict().items()}
        for run in (model, own):
            model.load_state_dict(state)
            torch.manual_seed(0)
            model.zero_grad()
            result = run(x)
            result.sum().backward()
            outcomes.append([result, *(p.grad.clone() for p in model.parameters()), *model.buffers()])
            outcomes[-1] = [value.clone() for value in outcomes[-1]]
        for expected, got in zip(*outcomes):
            torch.testing.assert_close(got, expected)
    assert ptdebug.stats()["graphs"] == 2
