"""A program with functions and modules of many kinds, which test_repro.py records and writes scripts of."""
import dataclasses
import math

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn

torch.manual_seed(0)
SCALE = 2.5
TABLE = torch.randn(10, 4)


class Block(nn.Module):
    def __init__(self, width, act=torch.tanh):
        super().__init__()
        self.up = nn.Linear(width, width * 2)
        self.down = nn.Linear(width * 2, width)
        self.act = act
        self.norm = nn.LayerNorm(width)
        self.drop = nn.Dropout(0.1)

    def forward(self, x):
        hidden = self.act(self.up(self.norm(x)))
        return x + self.drop(self.down(hidden))


class Stack(nn.Module):
    def __init__(self, depth=2, width=8):
        super().__init__()
        self.blocks = nn.ModuleList(Block(width) for _ in range(depth))
        self.register_buffer("offset", torch.arange(width) * 0.5)

    def forward(self, x, mask=None):
        for block in self.blocks:
            x = block(x)
        if mask is not None:
            x = x.masked_fill(mask, 0.0)
        return x - self.offset


class ConvNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(3, 4, 3, padding=1)
        self.norm = nn.BatchNorm2d(4)

    def forward(self, x):
        return F.max_pool2d(F.relu(self.norm(self.conv(x))), 2).flatten(1)


def gelu(x):
    return 0.5 * x * (1 + torch.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x ** 3)))


def helper_of_helper(x, k=2):
    y = gelu(x) * SCALE
    return y + k


@torch.compile
def functions(x):
    a = helper_of_helper(x)
    b = a[:, 1:] - a[:, :-1]
    return {"b": b, "mean": b.mean(0, keepdim=True)}


@torch.compile
def mutates(x, y):
    x.add_(1)
    x[0] = y[0] * 2
    y[:, 1] *= 3
    return x @ y.t(), y.t()


@torch.compile
def views(x, v):
    x.mul_(2)
    return v + 1


class Square(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x * x
    @staticmethod
    def backward(ctx, g):
        x, = ctx.saved_tensors
        return g * 2 * x


@torch.compile
def custom(x):
    return Square.apply(x.sin()).sum()


@torch.compile
def mixed(x, w):
    with torch.autocast("cpu", dtype=torch.bfloat16):
        h = x @ w
        h = torch.relu(h)
    with torch.no_grad():
        scale = x.abs().max()
    return h.float() / scale


@torch.compile
def branches(x):
    return torch.cond(x.sum() > 0, lambda t: t.sin() + 1, lambda t: t.cos() - 1, (x,))


@torch.compile
def embeds(ids, lengths):
    rows = TABLE[ids]
    rows = rows.to(torch.float64) * lengths[:, None, None]
    return rows.cumsum(1), torch.nn.functional.one_hot(ids, 10)


@torch.compile
def containers(batch, config):
    x, (y, z) = batch["x"], batch["pair"]
    if config.flip:
        x = x.flip(0)
    return x * config.gain + y - z


@dataclasses.dataclass
class Config:
    gain: float = 1.5
    flip: bool = True


@torch.compile
def closure_maker_call(x, act):
    return act(x) * 2


@torch.compile
def complex_numbers(x):
    z = torch.fft.fft(x)
    return (z * 1j).real, z.abs() + float("inf") * 0


@torch.compile(dynamic=True)
def dynamic(x, n):
    rows = x.reshape(x.shape[0] * 2, -1)
    return rows[: n] + x.shape[0], torch.zeros(x.shape[0] // 2 + 1)


@torch.compile
def arrays(a):
    return np.tanh(a) * 2 + a.sum()


@torch.compile
def branches_on_data(x, y):
    a = helper_of_helper(x)
    if a.sum() > 3:
        a = a - 1
    return a + y.relu()


class Plain:
    def __init__(self, w):
        self.w = w
        self.steps = 3

    def run(self, x):
        for i in range(self.steps):
            x = torch.tanh(x @ self.w) + i
        return x


def main():
    net = Stack()
    compiled = torch.compile(net)
    out = compiled(torch.randn(4, 8), torch.rand(4, 8) > 0.5)
    out.pow(2).mean().backward()
    conv = torch.compile(ConvNet())
    conv(torch.randn(2, 3, 8, 8)).sum().backward()
    conv.eval()
    with torch.no_grad():
        conv(torch.randn(2, 3, 8, 8))
    functions(torch.randn(3, 5))
    mutates(torch.randn(3, 4), torch.randn(3, 4))
    base = torch.randn(4, 4)
    views(base, base.t()[1:])
    custom(torch.randn(5, requires_grad=True)).backward()
    mixed(torch.randn(3, 4, requires_grad=True), torch.randn(4, 4, requires_grad=True)).sum().backward()
    branches(torch.randn(4))
    embeds(torch.tensor([[1, 2], [3, 9]]), torch.tensor([1.0, 2.0], dtype=torch.float64))
    containers({"x": torch.randn(2, 3), "pair": (torch.randn(3), torch.ones(2, 3))}, Config())
    closure_maker_call(torch.randn(3), torch.sin)
    closure_maker_call(torch.randn(3), gelu)
    complex_numbers(torch.randn(6))
    dynamic(torch.randn(4, 6), 3)
    arrays(np.arange(6.0).reshape(2, 3))
    branches_on_data(torch.randn(3, 8), torch.randn(3, 8))
    branches_on_data(torch.randn(5, 8), torch.randn(5, 8))
    plain = Plain(torch.randn(4, 4))
    torch.compile(plain.run)(torch.randn(2, 4))
    lstm = torch.compile(nn.LSTM(4, 5, batch_first=True))
    lstm(torch.randn(2, 3, 4))[0].sum().backward()
if __name__ == "__main__":
    main()
