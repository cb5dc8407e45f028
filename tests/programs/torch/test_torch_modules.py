"""Programs about nn.Module as people use it: lazy, registered, shared, copied, made inside."""
# mypy: ignore-errors

from __future__ import annotations

import warnings

import pytest
import torch
import torch.nn as nn

from ..checking import Programs, call, check, trained

program = Programs()


@program
def lazy_modules(compile):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        m = nn.Sequential(nn.LazyLinear(4), nn.ReLU(), nn.LazyLinear(2))
        m(torch.ones(1, 3))
        torch.manual_seed(1)
        for p in m.parameters():
            nn.init.normal_(p)
        f = compile(m, fullgraph=True)
        fresh = nn.LazyLinear(2)
        g = compile(fresh)
        torch.manual_seed(2)
        return f(torch.randn(2, 3)), g(torch.ones(2, 5)), g(torch.ones(2, 5)), type(fresh).__name__


@program
def attributes_made_lazily(compile):
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.lin = nn.Linear(3, 3)
            self.cache = None
            self.register_buffer("late", None)

        def forward(self, x):
            if not hasattr(self, "scale"):
                self.scale = 2.0
            if self.cache is None:
                self.cache = torch.arange(3.0)
            if self.late is None:
                self.late = torch.ones(3)
            self.lin.note = "seen"
            self.history = [*getattr(self, "history", []), tuple(x.shape)]
            return self.lin(x) * self.scale + self.cache + self.late

    m = Net()
    f = compile(m)
    with torch.no_grad():
        return f(torch.ones(1, 3)), f(torch.ones(1, 3)), f(torch.ones(2, 3)), m


@program
def buffers_registered_inside(compile):
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.lin = nn.Linear(3, 3)

        def forward(self, x):
            if "mask" not in self._buffers:
                self.register_buffer("mask", torch.ones(3), persistent=False)
            self.mask = self.mask * 2
            self.lin.weight.data.mul_(1.0)
            return self.lin(x) * self.mask

    m = Net()
    f = compile(m)
    with torch.no_grad():
        return f(torch.ones(1, 3)), f(torch.ones(1, 3)), f(torch.ones(1, 3)), m


@program
def containers(compile):
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.pd = nn.ParameterDict({"a": nn.Parameter(torch.randn(3)), "b": nn.Parameter(torch.randn(3))})
            self.pl = nn.ParameterList([torch.randn(3) for _ in range(3)])
            self.md = nn.ModuleDict({"up": nn.Linear(3, 3), "down": nn.Linear(3, 3)})
            self.ml = nn.ModuleList(nn.Linear(3, 3) for _ in range(2))
            self.plain = [nn.Linear(3, 3), {"k": nn.Linear(3, 3)}]
            self.tied = self.ml[0]

        def forward(self, x, order=("down", "up")):
            for name in order:
                x = self.md[name](x)
            for key, p in self.pd.items():
                x = x * p if key == "a" else x + p
            for i, p in enumerate(self.pl):
                x = x + p * i
            for layer in reversed(self.ml):
                x = layer(x)
            x = self.plain[0](x) + self.plain[1]["k"](x) + self.tied(x)
            names = [n for n, _ in self.named_children()], len(self.ml), list(self.md.keys()), "up" in self.md
            return x, names, len(self.pl), sorted(self.pd.keys()), self.ml[-1] is self.ml[1]

    m = Net()
    f = compile(m, fullgraph=True)
    out = f(torch.randn(2, 3))
    return out, trained(m, out[0]), f(torch.randn(2, 3), order=("up",))


@program
def walking_a_model(compile):
    m = nn.Sequential(nn.Linear(3, 3), nn.Sequential(nn.BatchNorm1d(3), nn.ReLU()))

    def f(x):
        total = sum(p.abs().sum() for p in m.parameters())
        shapes = {n: tuple(p.shape) for n, p in m.named_parameters()}
        kinds = [type(c).__name__ for c in m.modules()]
        names = [n for n, _ in m.named_modules()]
        stats = [b.float().mean() for n, b in m.named_buffers() if "running" in n]
        return m(x) + total, shapes, kinds, names, stats, m.training, sum(p.numel() for p in m.parameters())

    f = compile(f, fullgraph=True)
    return f(torch.randn(4, 3)), f(torch.randn(4, 3)), m


@program
def shared_weights(compile):
    class Tied(nn.Module):
        def __init__(self):
            super().__init__()
            self.emb = nn.Embedding(7, 4)
            self.out = nn.Linear(4, 7, bias=False)
            self.out.weight = self.emb.weight

        def forward(self, ids):
            return self.out(self.emb(ids)).log_softmax(-1), self.out.weight is self.emb.weight

    m = Tied()
    f = compile(m, fullgraph=True)
    out = f(torch.tensor([[1, 2, 3]]))
    grads = trained(m, out[0][..., 0])
    m.out.weight = nn.Parameter(torch.ones(7, 4))
    return out, grads, f(torch.tensor([[1, 2, 3]]))


@program
def functional_call(compile):
    m = nn.Sequential(nn.Linear(3, 3), nn.BatchNorm1d(3))

    def f(params, x):
        return torch.func.functional_call(m, params, (x,))

    params = {k: v.detach().clone().requires_grad_() for k, v in m.named_parameters()}
    f = compile(f, fullgraph=True)
    out = f(params, torch.randn(4, 3))
    out.pow(2).sum().backward()
    return out, {k: v.grad for k, v in params.items()}, m


@program
def train_and_eval_inside(compile):
    m = nn.Sequential(nn.Linear(3, 3), nn.Dropout(0.5), nn.BatchNorm1d(3))

    def f(x):
        m.eval()
        a = m(x)
        m.train()
        b = m(x)
        m[0].requires_grad_(False)
        return a, b, m.training

    f = compile(f)
    return f(torch.randn(4, 3)), f(torch.randn(4, 3)), m, [p.requires_grad for p in m.parameters()]


@program
def compiled_modules_asked_for_their_class(compile):
    from torch._dynamo import OptimizedModule

    parts = nn.Sequential(compile(nn.Linear(3, 3)), nn.ReLU())
    torch.manual_seed(1)
    for p in parts.parameters():
        nn.init.normal_(p)

    def f(x):
        for part in parts:
            x = x + 1 if isinstance(part, nn.ReLU | nn.Conv1d) else x
            original = part._orig_mod if isinstance(part, OptimizedModule) else part
            x = part(x) + isinstance(part, nn.Module) * (type(original) is nn.Linear) + part.training
            x = x * part.in_features if hasattr(part, "in_features") else x
        return x

    return compile(f, fullgraph=True)(torch.randn(2, 3))


@program
def modules_made_inside(compile):
    def f(x):
        act = nn.GELU(approximate="tanh")
        drop = nn.Dropout(0.0)
        return drop(act(x)), nn.Identity()(x), nn.Flatten(0)(x), nn.LayerNorm(3)(x)

    return compile(f)(torch.randn(2, 3))


@program
def modules_without_parameters_made_inside(compile):
    def f(x, size):
        pooled = nn.MaxPool1d(kernel_size=size, stride=size)(nn.ConstantPad1d((size - 1, 0), 0.5)(x))
        up = nn.Upsample(scale_factor=2, mode="nearest")(pooled)
        rows = nn.Flatten(0, 1)(nn.Identity("unused")(up))
        normed = nn.InstanceNorm1d(4)(x)
        return rows, normed, nn.CosineSimilarity(dim=0)(rows[0], rows[1]), nn.AdaptiveAvgPool1d(2)(x)

    f = compile(f, fullgraph=True)
    return f(torch.randn(2, 4, 8), 2), f(torch.randn(2, 4, 9), 3)


@program
def custom_call_and_getattr(compile):
    class Wrapper(nn.Module):
        def __init__(self, inner):
            super().__init__()
            self.inner = inner

        def __getattr__(self, name):
            try:
                return super().__getattr__(name)
            except AttributeError:
                return getattr(self.inner, name)

        def __call__(self, *args, **kwargs):
            return super().__call__(*args, **kwargs) * 2

        def forward(self, x):
            return self.inner(x) + self.bias.sum()

    m = Wrapper(nn.Linear(3, 3))
    return compile(m, fullgraph=True)(torch.ones(1, 3)), compile(lambda x: m(x), fullgraph=True)(torch.ones(1, 3))


class Config:
    """Settings as libraries of models have them."""

    def __init__(self):
        self.width, self.kinds, self.names = 3, ["a", "b"], {0: "zero"}
        self.same = self.kinds

    def __setattr__(self, name, value):
        object.__setattr__(self, name, value)


@program
def configs_copied(compile):
    import copy

    config = Config()

    def f(x):
        own = copy.deepcopy(config)
        own.kinds.append("c")
        own.width = 5
        shallow = copy.copy(config)
        shallow.width = 7
        tree = copy.deepcopy({"k": [config.kinds, config.kinds], "t": (1, (2,)), "s": {1}})
        parts = own.same is own.kinds, shallow.kinds is config.kinds, tree["k"][0] is tree["k"][1]
        return x * own.width + shallow.width, own.kinds, config.kinds, own, shallow, tree, parts

    f = compile(f, fullgraph=True)
    return f(torch.ones(2)), f(torch.ones(2)), config


@program
def state_dict_inside(compile):
    m = nn.Linear(2, 2)

    def f(x):
        sd = m.state_dict()
        return m(x), sorted(sd), sd["weight"].sum(), m.weight.data.sum(), m.bias.detach() + 1

    return compile(f)(torch.ones(1, 2))


@program
def compiled_parts_of_a_compiled_module(compile):
    part, act = compile(nn.Linear(2, 2)), compile(lambda x, scale=1.0: x.sin() * scale)

    class Whole(nn.Module):
        def __init__(self):
            super().__init__()
            self.part = part

        def forward(self, x):
            return act(self.part(x), scale=2.0)

    whole = Whole()
    f = compile(lambda x: whole(x), fullgraph=True)
    out = [f(torch.ones(1, 2)), part(torch.ones(1, 2))]
    hook = part.register_forward_hook(lambda module, args, result: result + 1)
    out.append(compile(lambda x: whole(x))(torch.ones(1, 2)))
    hook.remove()
    return out


@program
def registered_parts_replaced(compile):
    class Swapping(nn.Module):
        def __init__(self):
            super().__init__()
            self.a, self.b = nn.Linear(2, 2), nn.Tanh()
            self.p, self.q = nn.Parameter(torch.ones(2)), nn.Parameter(torch.zeros(2))
            self.register_buffer("mean", torch.ones(2))
            self.register_buffer("late", None)

        def forward(self, x):
            self.a, self.b = self.b, self.a
            self.p, self.q = self.q, self.p
            self.mean = self.mean * 0.5 + x.detach().mean(0)
            self.late = x.detach() * 3
            listed = [name for name, _ in self.named_buffers()], [type(m).__name__ for m in self.children()]
            total = sum(p.sum() for p in self.parameters()) + sum(b.sum() for b in self.buffers())
            return self.a(self.b(x)) + self.p * total, listed, self._buffers["mean"] + 1

    m, other = Swapping(), nn.Parameter(torch.eye(2))
    f = compile(m, fullgraph=True)
    out = [f(torch.ones(3, 2)), f(torch.ones(3, 2)), list(m._modules), m]

    def borrowed(x):
        own, linear.weight = linear.weight, other
        y = linear(x)
        linear.weight = own
        return y, linear(x)

    linear = nn.Linear(2, 2)
    return out, compile(borrowed, fullgraph=True)(torch.ones(1, 2)), linear


@program
def wrong_kinds_of_parts(compile):
    m = nn.Linear(2, 2)

    def f(x, name, value):
        setattr(m, name, value)
        return m(x)

    f = compile(f)
    wrong = [("weight", torch.ones(2, 2)), ("bias", 3), ("bias", None), ("in_features", 5)]
    return [call(f, torch.ones(1, 2), name, value) for name, value in wrong], m, m.in_features


@program
def lazy_parts_of_a_module(compile):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        m = nn.Sequential(nn.Sequential(nn.LazyConv2d(2, 3), nn.LazyBatchNorm2d()), nn.Flatten(), nn.LazyLinear(2))
        f = compile(m, fullgraph=True)
        return [f(torch.randn(2, 1, 5, 5)) for _ in range(3)], m, [type(part).__name__ for part in m.modules()]


@pytest.mark.parametrize("name", program)
def test_a_program_with_modules_is_the_program(name: str) -> None:
    check(program[name])
