import torch
import torch.nn.functional as F
from torch import nn
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
