"""What random programs use of torch: modules with hooks and state, functions with gradients of their own, tensors of a
class of their own."""
from __future__ import annotations

MODULES = '''

import warnings
import numpy as np
import torch.utils.checkpoint
from torch.nn.utils import parametrize


def filled(module):
    with torch.no_grad():
        for i, parameter in enumerate(module.parameters()):
            parameter.copy_((torch.arange(parameter.numel()).reshape(parameter.shape) - i) * 0.1)
    return module


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = torch.nn.Linear(3, 3)
        self.layers = torch.nn.ModuleList([torch.nn.Linear(3, 3, bias=False), torch.nn.Tanh()])
        self.named = torch.nn.ModuleDict({"a": torch.nn.LayerNorm(3), "b": torch.nn.Identity()})
        self.scale = torch.nn.Parameter(torch.ones(3))
        self.register_buffer("total", torch.zeros(3))
        self.count = 0
        self.seen = []

    def forward(self, a, n=1, *, key="a"):
        self.count += 1
        a = self.linear(a) * self.scale * n
        for layer in self.layers:
            a = layer(a)
        if self.training:
            self.total += a.detach().sum(0)
        self.seen.append(key)
        return self.named[key](a)


class Noisy(torch.nn.Module):
    def forward(self, a):
        print("noisy module", a.dim())
        return torch.nn.functional.dropout(a, 0.5, self.training) + 1


class Lazily(torch.nn.Module):
    def forward(self, a):
        if not hasattr(self, "first"):
            self.first = a.detach() + 1
        return a * self.first


class Doubled(torch.nn.Module):
    def forward(self, weight):
        return weight * 2


class Straight(torch.autograd.Function):
    @staticmethod
    def forward(ctx, a, factor):
        ctx.save_for_backward(a)
        ctx.factor = factor
        return a.round() * factor

    @staticmethod
    def backward(ctx, grad):
        a, = ctx.saved_tensors
        return grad * a * ctx.factor, None


class Noted(torch.autograd.Function):
    @staticmethod
    def forward(ctx, a, total):
        ctx.total = total
        return a * 2

    @staticmethod
    def backward(ctx, grad):
        ctx.total.add_(grad)
        return grad * 2, None


class Tagged(torch.Tensor):
    pass


class Counting(torch.Tensor):
    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        out = super().__torch_function__(func, types, args, kwargs or {})
        if isinstance(out, Counting):
            out.steps = max([getattr(a, "steps", 0) for a in args if isinstance(a, Counting)] + [0]) + 1
        return out


class Quantity:
    def __init__(self, data, unit="m"):
        self.data, self.unit = data, unit

    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        return cls(func(*[a.data if isinstance(a, cls) else a for a in args], **(kwargs or {})), func.__name__)


class Swapped(torch.overrides.TorchFunctionMode):
    def __init__(self, table):
        self.table = table

    def __torch_function__(self, func, types, args=(), kwargs=None):
        return self.table.get(func, func)(*args, **(kwargs or {}))


def plainly(tensor):
    with torch._C.DisableTorchFunctionSubclass():
        return tensor.as_subclass(torch.Tensor)


def noted(grad, total):
    total.add_(grad)


def hooked(tensor, factor):
    tensor.register_hook(lambda g: g * factor)
    return tensor * 2


@contextlib.contextmanager
def default_dtype(dtype):
    before = torch.get_default_dtype()
    torch.set_default_dtype(dtype)
    try:
        yield dtype
    finally:
        torch.set_default_dtype(before)


def before_forward(module, args):
    LOG.append("pre " + type(module).__name__)
    return (args[0] + 1, *args[1:])


def after_forward(module, args, out):
    LOG.append("post " + type(module).__name__)
    return out * 2


def reading_hook(module, args, out):
    TABLE["hooked"] = TABLE.get("hooked", 0) + 1


def leaf(a):
    return a.detach().clone().requires_grad_(True)


def checkpointed(function, a):
    return torch.utils.checkpoint.checkpoint(function, a, use_reentrant=False)


TOTAL = torch.zeros(2, 3)
NET = filled(Net())
HOOKED = filled(torch.nn.Sequential(torch.nn.Linear(3, 3), torch.nn.ReLU(), torch.nn.Linear(3, 3)))
HOOKED[1].register_forward_pre_hook(before_forward)
HOOKED.register_forward_hook(after_forward)
TIED = filled(torch.nn.Sequential(torch.nn.Linear(3, 3), torch.nn.Sigmoid(), torch.nn.Linear(3, 3)))
TIED[2].weight = TIED[0].weight
NORM = torch.nn.BatchNorm1d(3)
HALVED = filled(torch.nn.Linear(3, 3))
parametrize.register_parametrization(HALVED, "weight", Doubled())
LAZILY = Lazily()
NOISY = Noisy()
'''
