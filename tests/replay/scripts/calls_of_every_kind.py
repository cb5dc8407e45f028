import enum
import functools
import random

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn

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
