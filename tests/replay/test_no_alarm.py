"""Right programs with arguments of every kind: replay finds nothing wrong with any of them, on any rung.

Two recordings for all programs. Of a call that cannot be told from others, the rung is absent, with that reason.
"""
from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

CALLS = '''
import enum, functools, random
import numpy as np
import torch
from torch import nn
import torch.nn.functional as F

torch.manual_seed(0)
x = torch.randn(4, 6)


class Kind(enum.Enum):
    HALF = 0.5
    TWICE = 2.0


class Config:
    def __init__(self, activation, scale):
        self.activation, self.scale = activation, scale


@torch.compile
def function_argument(x, function):
    return function(x) + 1


def multiplied_by(factor):
    def multiply(x):
        return x * factor
    return multiply


for function in (torch.sin, torch.cos, lambda v: v * 3, functools.partial(torch.add, other=3), multiplied_by(5),
                 multiplied_by(6)):
    function_argument(x, function)

activation = torch.relu


@torch.compile
def global_function(x):
    return activation(x) * 2


global_function(x)
activation = torch.sin
global_function(x)


@torch.compile
def type_argument(x, kind):
    if isinstance(kind, torch.dtype):
        return x.to(kind) * 2
    if isinstance(kind, Kind):
        return x * kind.value
    return x + (1 if kind is int else 2)


for kind in (torch.float64, torch.bfloat16, Kind.HALF, Kind.TWICE, int, str):
    type_argument(x, kind)


@torch.compile
def object_argument(x, config):
    return config.activation(x) * config.scale


for config in (Config(torch.sin, 2), Config(torch.cos, 2), Config(torch.cos, 3)):
    object_argument(x, config)


@torch.compile
def module_argument(x, module):
    return module(x).sum(0)


for module in (nn.ReLU(), nn.Tanh(), nn.LayerNorm(6), nn.Linear(6, 3)):
    module_argument(x, module)


@torch.compile
def flags(x, flag=False, mode="a", bias=None, *rest, **more):
    y = x * 2 if flag else x - 2
    y = y.exp() if mode == "a" else y.tanh()
    for one in rest:
        y = y + one
    return y if bias is None else y + bias, {name: y * value for name, value in more.items()}


flags(x), flags(x, True), flags(x, mode="b"), flags(x, False, "a", x[0]), flags(x, False, "b", None, 1, 2, k=3)


@torch.compile
def containers(x, items):
    return x + sum(items) * len(items) if isinstance(items, (list, tuple)) else x * items["a"]


containers(x, [1, 2]), containers(x, (1, 2)), containers(x, [1, 2, 3]), containers(x, {"a": 2}), containers(x, {"a": 3})


@torch.compile
def same_tensor_twice(a, b):
    a = a.clone()
    return a.add_(1) * b


same_tensor_twice(x, x), same_tensor_twice(x, x.clone())


@torch.compile
def written(a, b):
    a.add_(1)
    return b * 2


def shared():
    return torch.arange(12.0).view(3, 4)


a = shared()
written(a, a[1])
a = shared()
written(a, a.view(-1))
a = shared()
written(a, a.t())
a = shared()
written(a, a.detach())
a = shared().view(-1)
written(a[:6], a[4:10])
a = shared().view(-1)
written(a, a.view(torch.int32))
written(shared(), shared())


@torch.compile
def of_integers(x):
    x <<= 1
    x **= 2
    x //= 3
    x |= 5
    return x


of_integers(torch.arange(5))


@torch.compile
def unwritten(x):
    y, z = torch.empty(64), torch.empty_like(x)
    y[::2] = 1
    return y, y * 2, z.sort()[0], x + 1


dirt = [torch.full((64,), 1e3 * number) for number in range(9)]
del dirt
unwritten(x)


@torch.compile
def odd_tensors(number, empty, expanded, lazy, negative):
    return number * expanded + empty.sum(), lazy * 2, negative + 1


c = torch.randn(3, dtype=torch.complex64)
odd_tensors(torch.tensor(2.0), torch.empty(0, 3), x[:, :1].expand(4, 3), c.conj(), c.conj().imag)


@torch.compile
def draws(x):
    return F.dropout(x, 0.5) + torch.rand_like(x) * torch.randint(3, x.shape)


draws(x), draws(x)
torch.manual_seed(7)
draws(x[:2])


@torch.compile
def of_python(x):
    return x * random.random()


of_python(x)


@torch.compile
def of_numpy(array, x):
    return torch.from_numpy(array) + x


of_numpy(np.arange(6, dtype=np.float32), x), of_numpy(np.arange(6, dtype=np.float64), x)


@torch.compile
def pools(x):
    return F.max_pool1d(x, 2), F.adaptive_max_pool1d(x, 2), F.max_pool1d(x, 2, return_indices=True)[1]


pools(x[None])


@torch.compile
def sizes(x, n):
    return x.softmax(-1)[:, :n] * x.shape[0]


for rows in (4, 5, 6):
    sizes(torch.randn(rows, 6), rows - 1)


@torch.compile
def data_dependent(x):
    return x[x > 0].sum() + torch.nonzero(x).sum()


with torch.no_grad():
    data_dependent(x)


@torch.compile
def branches(x):
    return torch.cond(x.sum() > 0, lambda v: v.sin(), lambda v: v.cos(), (x,))


with torch.no_grad():
    branches(x), branches(-x)


@torch.compile
def modes(x):
    return x @ x.t() + torch.ones(4) * 2.5


with torch.no_grad():
    modes(x)
with torch.inference_mode():
    modes(x)
with torch.autocast("cpu", torch.bfloat16), torch.no_grad():
    modes(x)
torch.set_default_dtype(torch.float64)
modes(x)
torch.set_default_dtype(torch.float32)
torch.set_float32_matmul_precision("medium")
modes(x)
torch.set_float32_matmul_precision("highest")
torch.use_deterministic_algorithms(True)
modes(x)
torch.use_deterministic_algorithms(False)


def doubled(function):
    @functools.wraps(function)
    def wrapper(*args, **kwargs):
        return function(*args, **kwargs) * 2
    return wrapper


@torch.compile
@doubled
def decorated(x, y=1):
    return x + y


@torch.compile
@doubled
def decorated_too(x, y=1):
    return x - y


decorated_too(x), decorated(x), decorated(x, y=2)


@torch.compile
def later_calls(x, y):
    return x * y


for number in range(3):
    later_calls(x + number, x)
'''

TRAINING = '''
import torch
from torch import nn
import torch.nn.functional as F
from torch.utils.checkpoint import checkpoint

torch.manual_seed(0)
x = torch.randn(4, 6)


class Lstm(nn.Module):
    def __init__(self):
        super().__init__()
        self.lstm = nn.LSTM(6, 5, batch_first=True)

    def forward(self, x):
        return self.lstm(x[None])[0]


class Checkpointed(nn.Module):
    def __init__(self):
        super().__init__()
        self.one, self.two = nn.Linear(6, 6), nn.Linear(6, 6)

    def forward(self, x):
        return self.two(checkpoint(lambda v: F.dropout(self.one(v).relu(), 0.3), x, use_reentrant=False))


class Cube(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x ** 3

    @staticmethod
    def backward(ctx, gradient):
        x, = ctx.saved_tensors
        return gradient * 3 * x * x


class Custom(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(6))

    def forward(self, x):
        return Cube.apply(x * self.weight)


class Normalized(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.utils.parametrizations.weight_norm(nn.Conv1d(1, 3, 1))
        self.norm = nn.BatchNorm1d(3)

    def forward(self, x):
        return self.norm(self.conv(x[:, None])).relu()


class Embedded(nn.Module):
    def __init__(self):
        super().__init__()
        self.table = nn.Embedding(10, 6)

    def forward(self, x):
        return self.table(x.abs().long() % 10).softmax(-1)


def trained(model, *options, steps=2, dynamic=None):
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    compiled = torch.compile(model, dynamic=dynamic)
    for step in range(steps):
        compiled(torch.randn(4 + step * bool(dynamic), 6)).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()


trained(nn.Sequential(nn.Linear(6, 8), nn.GELU(), nn.Dropout(0.2), nn.LayerNorm(8), nn.Linear(8, 3)))
trained(Lstm())
trained(Checkpointed())
trained(Custom())
trained(Normalized())
trained(Embedded(), dynamic=True)
with torch.autocast("cpu", torch.bfloat16):
    trained(nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 3)))


@torch.compile
def loss_under_autocast(linear, x, y):
    return F.mse_loss(linear(x), y)


linear = nn.Linear(6, 3)
with torch.autocast("cpu", torch.bfloat16):
    loss = loss_under_autocast(linear, x, torch.randn(4, 3))
loss.backward()


@torch.compile
def recorded_inside(x):
    y = x * 3
    with torch.enable_grad():
        z = x * 4
    return y, z


with torch.no_grad():
    _, recorded = recorded_inside(torch.randn(3, requires_grad=True))
recorded.sum().backward()


@torch.compile
def spread_gradients(a, x):
    return a + x.sum()


spread_gradients(torch.randn((), requires_grad=True), torch.randn(2, 3, requires_grad=True)).backward()


@torch.compile
def cancelled(x, w):
    return (x.float() * 1e10).sum(), (w @ torch.cat([w[:, :4], -w[:, :4]])).sum() / 3


with torch.no_grad():  # an operator whose second result is left out
    torch.compile(nn.MultiheadAttention(6, 2, batch_first=True).eval())(*[torch.randn(1, 3, 6)] * 3, need_weights=False)
cancelled(torch.tensor([2**63 - 1, -2**63, 5]), torch.randn(4, 4).repeat(1, 2))


class Tied(nn.Module):
    def __init__(self):
        super().__init__()
        self.one = nn.Linear(6, 6, bias=False)
        self.two = nn.Linear(6, 6, bias=False)
        self.two.weight = self.one.weight

    def forward(self, x):
        return self.two(self.one(x).relu())


trained(Tied())
'''
CANNOT_BE_TOLD = {"of_python": "random.random"}
"""Functions whose call nothing identifies."""


def ptdebug(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "ptdebug", *arguments], cwd=folder, capture_output=True, text=True, timeout=600
    )


def record(folder: Path, name: str, script: str) -> Path:
    (folder / f"{name}.py").write_text(script)
    ran = ptdebug(folder, "run", "--quiet", "--inputs", "all", "--name", name, f"{name}.py")
    assert ran.returncode == 0, ran.stderr
    return folder


def rungs_by_function(folder: Path, name: str) -> dict[str, list[dict[str, Any]]]:
    """All rungs of the compilations of each function."""
    ran = ptdebug(folder, "replay", name, "--program", "--json")
    assert ran.returncode in (0, 1) and not ran.stderr, ran.stderr
    compiles = json.loads(ptdebug(folder, "show", name, "--json").stdout)["compiles"]
    functions = {one["id"]: one["function"] for one in compiles}
    found: dict[str, list[dict[str, Any]]] = {}
    for rung in json.loads(ran.stdout)["rungs"]:
        found.setdefault(functions[rung["compile"]], []).append(rung)
    return found


@pytest.fixture(scope="module")
def calls(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return record(tmp_path_factory.mktemp("calls"), "calls", CALLS)


@pytest.fixture(scope="module", params=["calls", "training"])
def replayed(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[Any]]:
    if request.param == "calls":
        return rungs_by_function(request.getfixturevalue("calls"), "calls")
    return rungs_by_function(record(tmp_path_factory.mktemp("training"), "training", TRAINING), "training")


def test_nothing_is_wrong(replayed: dict[str, list[dict[str, Any]]]) -> None:
    wrong = [(function, rung) for function, rungs in replayed.items() for rung in rungs
             if rung["verdict"] == "different" or rung["class"] == "bug"]
    assert not wrong, [(function, rung["compile"], rung["stage"], rung["why"]) for function, rung in wrong]


def test_the_program_is_met_at_the_recorded_call(replayed: dict[str, list[dict[str, Any]]]) -> None:
    for function, rungs in replayed.items():
        told = [rung for rung in rungs if rung["class"] == "uninitialized-memory"]
        assert ["empty (calls.py:" in rung["explanation"] for rung in told] == [True] * (function == "unwritten"), told
        for rung in (rung for rung in rungs if rung["stage"] == "program"):
            if function in CANNOT_BE_TOLD:
                assert rung["verdict"] == "absent" and CANNOT_BE_TOLD[function] in rung["why"], rung
            elif function == "unwritten":
                assert rung["verdict"] == "equal" or "nothing has written: empty (calls.py:" in rung["why"], rung
            elif not function.startswith("torch_dynamo_resume"):
                assert rung["verdict"] == "equal", (function, rung)


ABSENT = ("no pass changed the graph", "shares memory", "lazily conjugated", "random.random", "after a graph break",
          "nothing has written")


def test_every_rung_runs(replayed: dict[str, list[dict[str, Any]]]) -> None:
    absent = [(function, rung["compile"], rung["stage"], rung["why"]) for function, rungs in replayed.items()
              for rung in rungs if rung["verdict"] == "absent" and not any(why in rung["why"] for why in ABSENT)]
    assert not absent
