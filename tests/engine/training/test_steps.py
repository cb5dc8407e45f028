"""Twenty steps of SGD with momentum: eager, compiled, and both again in float64.

Rounding errors grow over steps, so float32 runs are not compared with each other but with float64. One run's distance
is a matter of luck (eager's and the compiled one differ up to three times, either way), so parameters, gradients and
buffers are trained from several starts, and the geometric mean of the compiled runs' distances is at most half as much
again as eager's. (A mean of squares is that of the one start in which a gradient nearly vanishes: on a processor
without AVX-512 it told 2.9 times where the geometric mean is 1.01.) No run is five times as far away as eager's worst.
In float64 itself, compiled and eager agree to rounding, which no wrong gradient, however small, would survive for
twenty steps.
"""
from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from .checking import compile

Tensor = torch.Tensor
STEPS, STARTS = 20, 5


class Perceptron(nn.Module):
    """LayerNorm, GELU and dropout, whose masks every run draws alike."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(12, 24), nn.LayerNorm(24), nn.GELU(), nn.Dropout(0.2), nn.Linear(24, 5))

    def forward(self, x: Tensor, target: Tensor) -> Tensor:
        return F.cross_entropy(self.layers(x), target)


class Convolutions(nn.Module):
    """Batch norm, whose running statistics are buffers that each step changes."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.norm = nn.Conv2d(3, 8, 3, padding=1, bias=False), nn.BatchNorm2d(8)
        self.second, self.last = nn.Conv2d(8, 8, 3, stride=2), nn.Linear(8, 5)

    def forward(self, x: Tensor, target: Tensor) -> Tensor:
        hidden = F.max_pool2d(F.relu(self.norm(self.first(x))), 2)
        return F.cross_entropy(self.last(F.relu(self.second(hidden)).mean((2, 3))), target)


class Transformer(nn.Module):
    """Causal attention; the embedding is also the output's matrix, so that two gradients are added."""

    def __init__(self, vocabulary: int = 17, width: int = 16, heads: int = 2) -> None:
        super().__init__()
        self.heads, self.embedding = heads, nn.Embedding(vocabulary, width)
        self.before, self.between = nn.LayerNorm(width), nn.LayerNorm(width)
        self.mix, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 2 * width), nn.Linear(2 * width, width)

    def forward(self, ids: Tensor) -> Tensor:
        x = self.embedding(ids)
        batch, length, width = x.shape
        parts = self.mix(self.before(x)).view(batch, length, 3, self.heads, width // self.heads)
        query, key, value = parts.permute(2, 0, 3, 1, 4).unbind(0)
        mixed = F.scaled_dot_product_attention(query, key, value, is_causal=True)
        x = x + self.out(mixed.transpose(1, 2).reshape(batch, length, width))
        x = x + self.down(F.gelu(self.up(self.between(x)), approximate="tanh"))
        logits = F.linear(x, self.embedding.weight)
        return F.cross_entropy(logits[:, :-1].reshape(-1, logits.shape[-1]), ids[:, 1:].reshape(-1))


class Recurrent(nn.Module):
    """An LSTM; its last state is regressed."""

    def __init__(self) -> None:
        super().__init__()
        self.lstm, self.last = nn.LSTM(6, 10, batch_first=True), nn.Linear(10, 3)

    def forward(self, x: Tensor, target: Tensor) -> Tensor:
        hidden, _ = self.lstm(x)
        return F.mse_loss(self.last(hidden[:, -1]), target)


def _classified(*size: int) -> tuple[Any, ...]:
    return torch.randn(*size), torch.randint(0, 5, (size[0],))


CASES: dict[str, tuple[Callable[[], nn.Module], Callable[[], tuple[Any, ...]]]] = {
    "perceptron": (Perceptron, lambda: _classified(16, 12)),
    "convolutions": (Convolutions, lambda: _classified(6, 3, 9, 9)),
    "transformer": (Transformer, lambda: (torch.randint(0, 17, (3, 8)),)),
    "recurrent": (Recurrent, lambda: (torch.randn(4, 5, 6), torch.randn(4, 3))),
}


def _train(model: nn.Module, loss_of: Callable[..., Tensor], inputs: tuple[Any, ...]) -> dict[str, Tensor]:
    """What twenty steps leave: the losses, and every parameter, gradient and buffer."""
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-2, momentum=0.9)
    losses = []
    for step in range(STEPS):
        torch.manual_seed(step)
        optimizer.zero_grad()
        loss = loss_of(*inputs)
        loss.backward()
        optimizer.step()
        losses.append(loss.detach())
    return {"losses": torch.stack(losses), **dict(_state(model))}


def _state(model: nn.Module) -> Iterator[tuple[str, Tensor]]:
    for name, parameter in model.named_parameters():
        yield name, parameter.detach()
        assert parameter.grad is not None, name
        yield f"gradient of {name}", parameter.grad
    yield from model.named_buffers()


def _distance(state: dict[str, Tensor], exact: dict[str, Tensor], key: str) -> Tensor:
    """Mean square of the errors of `key`, relative to its largest value in float64."""
    return (state[key].double() - exact[key]).square().mean() / exact[key].abs().max().square().clamp_min(1e-300)


class _Both:
    """A model like `model`, compiled once: each call trains another model and this one, from the other's start."""

    def __init__(self, model: nn.Module) -> None:
        self.ours = copy.deepcopy(model)
        self.compiled = compile(self.ours)

    def __call__(self, model: nn.Module, inputs: tuple[Any, ...]) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
        """(eager, compiled). A fallback to eager is an error."""
        self.ours.load_state_dict(model.state_dict())
        results = _train(model, model, inputs), _train(self.ours, self.compiled, inputs)
        assert len(self.compiled.contexts) == 1 and not self.compiled.fallbacks
        return results


def _double(value: Any) -> Any:
    return value.double() if value.is_floating_point() else value


@pytest.mark.parametrize("name", CASES)
def test_twenty_steps(name: str) -> None:
    make, draw = CASES[name]
    squares: dict[str, list[tuple[Tensor, Tensor]]] = {}
    both = _Both(make())
    for start in range(STARTS):
        torch.manual_seed(start)
        model, inputs = make(), draw()
        exact = _train(double := copy.deepcopy(model).double(), double, tuple(map(_double, inputs)))
        eager, compiled = both(model, inputs)
        assert eager.keys() == compiled.keys() == exact.keys()
        for key in exact:
            assert compiled[key].stride() == eager[key].stride(), key
            assert compiled[key].dtype == eager[key].dtype, key
            squares.setdefault(key, []).append((_distance(eager, exact, key), _distance(compiled, exact, key)))
    floor = torch.finfo(torch.float32).eps / 4  # below it, eager is exact by luck
    for key, pairs in squares.items():
        distances = torch.tensor(pairs).sqrt().clamp_min(floor)
        of_eager, ours = distances.log().mean(0).exp().tolist()
        assert ours <= 1.5 * of_eager, f"{key}: {ours:.2e} away, eager {of_eager:.2e}"
        of_eager, ours = distances.amax(0).tolist()
        assert ours <= 5 * of_eager, f"{key}: {ours:.2e} away at worst, eager {of_eager:.2e}"


@pytest.mark.parametrize("name", CASES)
def test_twenty_steps_in_float64(name: str) -> None:
    make, draw = CASES[name]
    torch.manual_seed(0)
    model, inputs = make().double(), tuple(map(_double, draw()))
    eager, compiled = _Both(model)(model, inputs)
    for key, reference in eager.items():
        assert torch.allclose(compiled[key], reference, rtol=1e-9, atol=1e-12), key
