"""Whatever changes in a module between two calls is seen, also after calls without a change, when the guards look at
less where CPython tells of changes."""
from __future__ import annotations

import collections
import signal
import types
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from ptdebug.engine.toolchain.cpp_build import build
from ptdebug.tracer.frames import dispatch
from ptdebug.tracer.fx.backend_call import CompileOptions
from ptdebug.tracer.guards import fast_path, versions
from ptdebug.tracer.sources.roots import LocalSource
from ptdebug.tracer.sources.source import AttrSource
from torch import nn

CALLS = 12  # more than the guards' patience


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(4, 4)
        self.norm = nn.BatchNorm1d(4).eval()
        self.drop = nn.Dropout(0.0)
        self.scale, self.shifts, self.sizes = 2.0, [1.0, 2.0], (4, 4)
        self.config = types.SimpleNamespace(power=1)
        self.options: dict[str, int] = {}
        self.order = collections.OrderedDict(a=1, b=2)
        self.register_buffer("offset", torch.zeros(4))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.drop(self.norm(self.first(x))) * self.scale + self.offset
        x = x**self.config.power + self.shifts[0] * self.sizes[0]
        return x + (1 if self.training else 2) + len(self.options) + next(iter(self.order.values()))


class Other(Block):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return super().forward(x) - 7


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(Block() for _ in range(2))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for block in self.blocks:
            x = block(x)
        return x


def _replaced_dict(net: Any) -> None:
    kept = net.blocks[1].__dict__
    net.blocks[1].__dict__ = {**kept, "scale": 3.0}
    net.kept = kept


def _reordered(net: Any) -> None:
    net.blocks._modules["0"] = net.blocks._modules.pop("0")


def _resized(net: Any) -> None:
    with torch.no_grad():
        net.blocks[1].offset.resize_(1).fill_(3.0)


CHANGES: dict[str, Callable[[Any], Any]] = {
    "requires_grad_": lambda net: net.blocks[1].first.weight.requires_grad_(False),
    "data": lambda net: setattr(net.blocks[1].first.weight, "data", torch.ones(4, 8)[:, ::2]),
    "data of another dtype": lambda net: setattr(net.blocks[1].offset, "data", torch.ones(4, dtype=torch.float64)),
    "class": lambda net: setattr(net.blocks[1], "__class__", Other),
    "instance dict": _replaced_dict,
    "forward hook": lambda net: net.blocks[1].register_forward_hook(lambda m, a, out: out + 1),
    "pre-hook": lambda net: net.blocks[1].first.register_forward_pre_hook(lambda m, a: (a[0] * 2,)),
    "attribute": lambda net: setattr(net.blocks[1], "scale", 5.0),
    "attribute of another type": lambda net: setattr(net.blocks[1], "scale", 5),
    "attribute in the dict": lambda net: net.blocks[1].__dict__.update(scale=5.0),
    "item of a list": lambda net: net.blocks[1].shifts.__setitem__(0, 4.0),
    "tuple": lambda net: setattr(net.blocks[1], "sizes", (6, 6)),
    "attribute of an attribute": lambda net: setattr(net.blocks[1].config, "power", 2),
    "object": lambda net: setattr(net.blocks[1], "config", types.SimpleNamespace(power=2)),
    "own forward": lambda net: setattr(net.blocks[1], "forward", lambda x: x - 1),
    "training": lambda net: net.blocks[1].drop.train(False) and net.blocks[1].train(),
    "submodule": lambda net: setattr(net.blocks[1], "first", nn.Linear(4, 4, bias=False)),
    "submodule in _modules": lambda net: net.blocks[1]._modules.update(drop=nn.Tanh()),
    "parameter": lambda net: setattr(net.blocks[1].first, "weight", nn.Parameter(torch.ones(4, 4))),
    "no parameter": lambda net: setattr(net.blocks[1].first, "bias", None),
    "parameter's class": lambda net: net.blocks[1].first._parameters.update(bias=torch.ones(4)),
    "buffer": lambda net: net.blocks[1].register_buffer("offset", torch.ones(1)),
    "resized": _resized,
    "the same tensor twice": lambda net: setattr(net.blocks[1], "offset", net.blocks[0].offset),
    "another dict of parameters": lambda net: setattr(
        net.blocks[1].first, "_parameters", collections.OrderedDict(weight=torch.zeros(4, 4), bias=None)
    ),
    "submodule of a leaf": lambda net: net.blocks[1].first._modules.update({"relu": nn.ReLU()}),
    "buffers of a leaf": lambda net: net.blocks[1].drop._buffers.update({"p": torch.ones(1)}),
    "empty dict filled": lambda net: net.blocks[1].options.update({"more": 1}),
    "fewer blocks": lambda net: net.blocks.__delitem__(0),
    "more blocks": lambda net: net.blocks.append(Block()),
    "blocks in another order": _reordered,
    "one block twice": lambda net: net.blocks.__setitem__(1, net.blocks[0]),
    "order of items": lambda net: net.blocks[1].order.move_to_end("a"),
    "no attribute": lambda net: net.blocks[1].__dict__.pop("scale", None),
    "all attributes": lambda net: net.blocks[1].__dict__.clear(),
}


@pytest.fixture(scope="module")
def library() -> versions.Versions:
    """What reads the versions of dicts."""
    if not versions.possible():
        pytest.skip("the dicts of this Python have no versions")
    found = versions.tried(build(versions.SOURCE, versions.FUNCTIONS).functions)
    assert found is not None
    return found


@pytest.fixture(autouse=True, params=["full", "brief"])
def looks(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[list[bool]]:
    """What comparing versions answered, without a library nothing; modules of any size are worth it."""
    answers: list[bool] = []
    dispatch.reset()
    if request.param == "brief":
        found = request.getfixturevalue("library")

        def look(table: bytearray, slots: list[Any]) -> bool:
            answers.append(found.look(table, slots))
            return answers[-1]

        monkeypatch.setattr(fast_path, "_WORTH_IT", 0)
        monkeypatch.setitem(OPTIONS, "versions", lambda: versions.Versions(found.take, look))
    yield answers
    dispatch.reset()


OPTIONS: dict[str, Any] = {}


def compiled(function: Callable[..., Any], graphs: list[Any]) -> Callable[..., Any]:
    def backend(captured: Any, context: Any) -> Any:
        graphs.append(captured)
        return captured.module.forward

    return dispatch.optimize(function, CompileOptions(backend, **OPTIONS))


def outcome(function: Callable[..., Any], x: torch.Tensor) -> Any:
    try:
        out = function(x)
    except Exception as error:
        return type(error)
    return out.dtype, out.requires_grad, out.shape, out.detach().tolist()


@pytest.mark.parametrize("what", CHANGES)
def test_changes_are_seen(what: str, looks: list[bool]) -> None:
    torch.manual_seed(0)
    net, x, graphs = Net(), torch.rand(2, 4), list[Any]()
    fast = compiled(net.forward, graphs)
    for _ in range(CALLS):
        fast(x)
    assert len(graphs) == 1 and looks[-3:] == ([True] * 3 if "versions" in OPTIONS else [])
    for _ in range(2):
        CHANGES[what](net)
        assert outcome(fast, x) == outcome(net, x)
        assert outcome(fast, x) == outcome(net, x)


def test_a_change_and_its_undoing_cost_one_compilation_each() -> None:
    net, x, graphs = Net().train(), torch.rand(2, 4), list[Any]()
    fast = compiled(net.forward, graphs)
    for _ in range(CALLS):
        fast(x)
        net.eval()
        fast(x)
        net.train()
        net.blocks.eval()
        net.blocks.train()
    assert len(graphs) == 2


def test_several_modules_of_one_kind_share_an_entry() -> None:
    nets, x, graphs = [Net() for _ in range(3)], torch.rand(2, 4), list[Any]()
    fast = compiled(lambda net, x: net(x), graphs)
    for _ in range(CALLS):
        for net in nets:
            assert torch.equal(fast(net, x), net(x))
    del net, nets[1]
    nets[1].blocks[0].scale = 9.0
    assert torch.equal(fast(nets[0], x), nets[0](x)) and torch.equal(fast(nets[1], x), nets[1](x))
    assert len(graphs) == 2


class Alarm(Exception):
    pass


class Interrupting(nn.Module):
    """Reading `number` raises a signal at the second time."""

    def __init__(self) -> None:
        super().__init__()
        self.reads = 0

    @property
    def number(self) -> int:
        self.__dict__["reads"] += 1
        if self.reads == 2:
            signal.raise_signal(signal.SIGUSR1)
        return 3


@pytest.mark.parametrize("error", [KeyboardInterrupt, Alarm])
def test_what_a_signals_handler_raises_while_guards_are_checked_is_the_programs(make_guards: Any, error: type) -> None:
    def handler(*_: Any) -> None:
        raise error

    before = signal.signal(signal.SIGUSR1, handler)
    try:
        module = Interrupting()
        guarded = make_guards(module).add(AttrSource(LocalSource("a"), "number"), "EQUALS_MATCH", 3)
        assert guarded.build() and guarded.accepts(module)
        fast = compiled(torch.neg, [])
        with pytest.raises(error):
            fast(torch.zeros(1))
        assert fast(torch.zeros(1)).item() == 0
    finally:
        signal.signal(signal.SIGUSR1, before)
