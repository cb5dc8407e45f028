"""Programs about nn.Module: state that changes, hooks, modes, structure, gradients."""
# ruff: noqa: B007 - programs as people write them

from __future__ import annotations

import collections
import functools
import threading
import types

import pytest
import torch
import torch.nn as nn
import torch.nn.functional as F
from ptdebug.tracer.runtime.statistics import STATISTICS

from ..checking import Programs, call, check

program = Programs()


@program
def counters(compile):
    class Net(nn.Module):
        def __init__(s):
            super().__init__()
            s.lin = nn.Linear(4, 4)
            s.calls = 0
            s.register_buffer("count", torch.zeros((), dtype=torch.long))
            s.register_buffer("avg", torch.zeros(4))

        def forward(s, x):
            s.calls += 1
            s.count += 1
            y = s.lin(x)
            s.avg = 0.9 * s.avg + 0.1 * y.mean(0)
            s.last = y
            return y * s.calls

    m = Net()
    f = compile(m)
    out = []
    with torch.no_grad():
        for _ in range(5):
            out.append(f(torch.randn(3, 4)))
    return out, m


@program
def buffers_that_say_whether_they_are_saved(compile):
    class Net(nn.Module):
        def __init__(s):
            super().__init__()
            s.register_buffer("a", torch.ones(2))
            s.register_buffer("b", torch.ones(2), persistent=False)

        def forward(s, x, left_out, saved):
            s.a, s.b, s.c = left_out, saved, saved
            if not hasattr(s, "d"):
                s.d = nn.Buffer(x * 2, persistent=False)
            s.d = s.d * 0.9
            return s.a + s.b + s.c + s.d

    m = Net()
    f = compile(m)
    out = [f(torch.ones(2), nn.Buffer(torch.ones(2) * i, persistent=False), nn.Buffer(torch.ones(2))) for i in range(2)]
    return out, list(m.state_dict()), sorted(m._non_persistent_buffers_set), list(m._buffers)


@program
def module_lists(compile):
    class Net(nn.Module):
        def __init__(s):
            super().__init__()
            s.blocks = nn.ModuleList([nn.Linear(4, 4) for _ in range(3)])
            s.heads = nn.ModuleDict({"a": nn.Linear(4, 2), "b": nn.Linear(4, 3)})
            s.blocks[2].weight = s.blocks[0].weight
            s.params = nn.ParameterList([nn.Parameter(torch.randn(4)) for _ in range(2)])

        def forward(s, x, *, which=("a", "b"), **kw):
            for i, b in enumerate(s.blocks[:-1] if kw.get("skip") else s.blocks):
                x = F.relu(b(x)) + s.params[i % 2]
            return {k: s.heads[k](x) for k in which if k in s.heads}

    m = Net().eval()
    f = compile(m)
    with torch.no_grad():
        x = torch.randn(2, 4)
        return f(x), f(x, which=["b"]), f(x, skip=True), f(x, which=("a", "zzz")), call(f, x, 3), f(torch.randn(5, 4))


@program
def hooks(compile):
    log = []
    m = nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 2))
    h1 = m[0].register_forward_hook(lambda mod, a, o: o * 2)
    h2 = m[2].register_forward_pre_hook(lambda mod, a: (a[0] + 1,))

    def log_hook(mod, a, o):
        log.append(o.shape[0])

    h3 = m.register_forward_hook(log_hook)
    f = compile(m)
    x = torch.randn(3, 4)
    with torch.no_grad():
        a = f(x)
        b = f(x)
        h1.remove()
        c = f(x)
        h3.remove()
        d = f(x)
        h2.remove()
        e = f(x)
    return a, b, c, d, e, log


@program
def hook_kwargs(compile):
    class M(nn.Module):
        def forward(s, x, scale=1):
            return x * scale

    m = M()
    m.register_forward_pre_hook(lambda mod, a, kw: (a, {**kw, "scale": 3}), with_kwargs=True)
    m.register_forward_hook(lambda mod, a, kw, o: (o, kw["scale"]), with_kwargs=True)
    f = compile(m)
    return f(torch.ones(2)), f(torch.ones(2), scale=5)


@program
def grads(compile):
    m = nn.Sequential(nn.Linear(3, 5), nn.Tanh(), nn.BatchNorm1d(5), nn.Linear(5, 1))
    f = compile(m)
    opt = torch.optim.SGD(m.parameters(), 0.1)
    losses = []
    for i in range(3):
        loss = F.mse_loss(f(torch.randn(4, 3)), torch.zeros(4, 1))
        opt.zero_grad()
        loss.backward()
        opt.step()
        losses.append(loss)
    return losses, m, [p.grad for p in m.parameters()]


@program
def threads(compile):
    def fn(x, n):
        for i in range(3):
            x = torch.sin(x) * n
        return x

    f = compile(fn)
    res = {}

    def work(k):
        res[k] = [f(torch.ones(k + 1), k) for _ in range(4)]

    ts = [threading.Thread(target=work, args=(k,)) for k in range(5)]
    [t.start() for t in ts]
    [t.join() for t in ts]
    return [res[k] for k in sorted(res)]


@program
def flags(compile):
    class M(nn.Module):
        def __init__(s):
            super().__init__()
            s.bn = nn.BatchNorm2d(3)
            s.d = nn.Dropout(0.2)
            s.use = True

        def forward(s, x):
            x = s.bn(x)
            x = s.d(x)
            return x.relu() if s.use else x

    m = M()
    f = compile(m)
    x = torch.randn(2, 3, 4, 4)
    r = []
    with torch.no_grad():
        r.append(f(x))
        m.eval()
        r.append(f(x))
        m.use = False
        r.append(f(x))
        m.train()
        r.append(f(x))
        r.append(f(x.to(memory_format=torch.channels_last)))
        m.bn.eval()
        r.append(f(x))
        m.bn.weight.data.mul_(2)
        r.append(f(x))
        m.bn.weight = nn.Parameter(torch.ones(3) * 3)
        r.append(f(x))
        m.double()
        r.append(f(x.double()))
    return r, m


@program
def kv_cache(compile):
    class Attn(nn.Module):
        def __init__(s):
            super().__init__()
            s.q = nn.Linear(4, 12)
            s.register_buffer("k", torch.zeros(1, 8, 4))
            s.register_buffer("v", torch.zeros(1, 8, 4))
            s.pos = 0

        def forward(s, x):
            q, k, v = s.q(x).chunk(3, -1)
            n = x.shape[1]
            s.k[:, s.pos : s.pos + n] = k
            s.v[:, s.pos : s.pos + n] = v
            s.pos += n
            a = q @ s.k[:, : s.pos].transpose(1, 2) / 2
            return a.softmax(-1) @ s.v[:, : s.pos]

    m = Attn()
    f = compile(m)
    with torch.no_grad():
        return [f(torch.randn(1, n, 4)) for n in (3, 1, 1, 1, 1)], m


@program
def properties(compile):
    class Desc:
        def __get__(s, o, t):
            return 7 if o is None else o.base + 1

    class Cached(nn.Module):
        d = Desc()
        __slots__ = ()

        def __init__(s):
            super().__init__()
            s.base = 2
            s.w = nn.Parameter(torch.ones(2))
            s.sub = nn.Identity()
            s.hist = collections.Counter()
            s.dd = collections.defaultdict(list)
            s.od = collections.OrderedDict(b=1, a=2)

        @functools.cached_property
        def cp(s):
            return s.base * 10

        @property
        def twice(s):
            return s.w * 2

        def __getattr__(s, n):
            if n == "magic":
                return 42
            return super().__getattr__(n)

        def forward(s, x):
            s.hist["n"] += 1
            s.dd["k"].append(s.hist["n"])
            s.od.move_to_end("b")
            s.__dict__["raw"] = s.base
            return (
                x * s.cp + s.twice + s.d + s.magic,
                list(s.od),
                type(s).d,
                hasattr(s, "nope"),
                getattr(s, "nope", None),
                dict(s.hist),
                [n for n, _ in s.named_parameters()],
                len(list(s.children())),
            )

    m = Cached()
    f = compile(m)
    with torch.no_grad():
        return [call(f, torch.ones(2)) for _ in range(3)], m


@program
def param_mutation(compile):
    m = nn.Linear(2, 2)

    def fn(x):
        with torch.no_grad():
            m.weight.mul_(0.5)
            m.bias.data = m.bias.data + 1
        return m(x)

    f = compile(fn)
    with torch.no_grad():
        return [call(f, torch.ones(1, 2)) for _ in range(3)], m


@program
def autocasts(compile):
    m = nn.Sequential(nn.Linear(4, 4), nn.LayerNorm(4), nn.Linear(4, 4))
    f = compile(m)
    x = torch.randn(2, 4)

    def fn(x):
        with torch.autocast("cpu", torch.bfloat16):
            y = m(x)
            s = y.softmax(-1)
            with torch.autocast("cpu", enabled=False):
                z = m(x.float())
        return y, s, z, torch.is_autocast_enabled("cpu")

    g = compile(fn)
    with torch.no_grad():
        a = f(x)
        with torch.autocast("cpu", torch.bfloat16):
            b = f(x)
        with torch.autocast("cpu", torch.float16):
            c = f(x)
        return a, b, c, f(x), g(x)


@program
def nested_compile(compile):
    inner = compile(lambda x: x * 2)

    @compile
    def outer(x):
        return inner(x) + 1

    class M(nn.Module):
        def __init__(s):
            super().__init__()
            s.a = compile(nn.Linear(2, 2))
            s.b = nn.Linear(2, 2)

        def forward(s, x):
            return s.a(x) + s.b(x)

    m = M()
    f = compile(m)
    with torch.no_grad():
        return outer(torch.ones(2)), f(torch.ones(1, 2)), m(torch.ones(1, 2)), outer(torch.ones(3))


@program
def changing_structure(compile):
    m = nn.Sequential(nn.Linear(2, 2))
    f = compile(m)
    x = torch.ones(1, 2)
    r = []
    with torch.no_grad():
        r.append(f(x))
        m.append(nn.ReLU())
        r.append(f(x))
        m[0] = nn.Linear(2, 3)
        r.append(f(x))
        m.insert(0, nn.Tanh())
        r.append(f(x))
        del m[1]
        r.append(f(x))
        m.forward = types.MethodType(lambda s, z: z * 9, m)
        r.append(f(x))
        del m.forward
        r.append(f(x))
        m[0].forward = lambda z: z + 5
        r.append(f(x))
    return r



@program
def modules_made_in_the_function(compile):
    def kept(x, taken):
        act, loss = nn.Tanh(), nn.MSELoss(reduction="sum")
        taken.append(act)
        return act(x), loss(x, x * 2), lambda: loss, [act, act], act is loss

    def broken(x, taken):
        drop = nn.Dropout(0.5)
        print("here")
        was = drop.training
        taken.append(drop.eval())
        return drop(x), was

    def hooked(x, taken):
        act = nn.ReLU()
        act.register_forward_hook(lambda m, args, out: out + 1)
        taken.append(act)
        return act(x), len(act._forward_hooks)

    def marked(x, taken):
        act = nn.GELU(approximate="tanh")
        hooks, act.tag = act._forward_hooks, "mine"
        hooks[0] = lambda m, args, out: out * 2
        return act(x), act.tag, hooks is act._forward_hooks

    def drawn(x, taken):
        return sum(p.sum() for p in nn.MultiheadAttention(2, 1).parameters()) + torch.rand(1)

    out = []
    for f in (kept, broken, hooked, marked, drawn):
        fn, taken = compile(f), []
        out += [fn(torch.ones(2, 3) * i, taken) for i in range(3)]
        out.append(taken)
    return out


@program
def slices_of_modules(compile):
    class Net(nn.Module):
        def __init__(s):
            super().__init__()
            s.layers, s.seq = (kind([nn.ReLU(), nn.Tanh(), nn.Sigmoid()]) for kind in (nn.ModuleList, _sequential))

    def kept(n, x):
        first = n.layers[:2]
        return first, [a is b for a, b in zip(first, n.layers)], first is n.layers[:2], n.seq[1:](x)

    def grown(n, x):
        first = n.layers[:2]
        first.append(nn.ReLU())
        return len(first), len(n.layers), x + 1

    def replaced(n, x):
        first = n.seq[:2]
        n.seq[0] = n.layers[2]
        return first, first(x), n.seq[:2](x)

    nets = [Net() for _ in range(3)]
    return [fn(n, torch.ones(2)) for fn in map(compile, (kept, grown, replaced)) for n in nets]


def _sequential(layers):
    return nn.Sequential(*layers)


@pytest.mark.parametrize("name", program)
def test_a_compiled_program_is_the_program(name):
    check(program[name])


def test_loops_over_slices_of_modules_go_on_after_a_break():
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.layers = nn.ModuleList([nn.ReLU(), nn.Tanh(), nn.Sigmoid(), nn.Softsign()])

        def forward(self, x, count):
            seen = []
            for layer in self.layers[:count]:
                x = layer(x)
                print(type(layer).__name__)
            for function in (layer.forward for layer in self.layers[::-1]):
                x = function(x)
                print(function.__qualname__)
            for name, layer in self.layers[1:].named_children():
                print(name)
                seen.append(layer)
                x = layer(x)
            return x, [a is b for a, b in zip(seen, self.layers[1:])], len(self.layers)

    def use(compile):
        f = compile(Net())
        return f(torch.ones(3), 3), f(torch.ones(3), 2)

    STATISTICS.clear()
    check(use)
    assert STATISTICS.reasons and not any("made again" in reason for reason in STATISTICS.reasons)
