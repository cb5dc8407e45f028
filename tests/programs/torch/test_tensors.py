"""Programs about tensors: aliasing, mutation, random numbers, modes, dtypes, data-dependent control flow."""
# ruff: noqa: B007 - programs as people write them

from __future__ import annotations

import collections
import math

import numpy as np
import ptdebug
import pytest
import torch
import torch.nn as nn
import torch.nn.functional as F
from ptdebug.tracer.runtime.statistics import STATISTICS

from ..checking import Programs, call, check

program = Programs()


@program
def mutate_args(compile):
    def fn(x, lst, d, s, dq):
        lst.append(x + 1)
        lst[0] = x * 2
        lst.extend([1, 2])
        lst.insert(1, "z")
        lst.pop()
        d["new"] = x
        d.update(k=3)
        d.setdefault("dd", []).append(x)
        d.pop("gone", None)
        del d["old"]
        s.add(5)
        s.discard(1)
        s |= {9}
        dq.appendleft(x - 1)
        dq.rotate(1)
        x += 1
        x.mul_(2)
        return lst, len(d), x

    f = compile(fn)
    out = []
    for i in range(3):
        a = (torch.ones(3), [0, 1], {"old": 1, "gone": 2}, {1, 2}, collections.deque([1], maxlen=2))
        out.append((f(*a), a))
    return out


@program
def views_alias(compile):
    def fn(x, y):
        v = x.view(-1)[2:6]
        t = x.t()
        v.add_(1)
        y[1].zero_()
        y[:, ::2] *= 3
        z = torch.zeros(4, 4)
        w = z[1:3]
        w.fill_(7)
        e = z.expand(2, 4, 4)
        u = z.unfold(0, 2, 1)
        return (
            v,
            t,
            x,
            x[0],
            y.diagonal(),
            z,
            w,
            e,
            u,
            y.detach(),
            y.view_as(y),
            x.select(1, 2),
            x.squeeze(),
            x.contiguous(),
            y.reshape(2, 8),
            y.t().reshape(16),
            x.unsqueeze(0),
            x.chunk(2),
            x.split(3, 1),
        )

    f = compile(fn)
    with torch.no_grad():
        return [f(torch.arange(16.0).view(4, 4), torch.arange(16.0).view(4, 4).t()) for _ in range(2)]


@program
def datadep(compile):
    def fn(x):
        total = 0
        for i in range(4):
            with torch.no_grad():
                if x.sum() > 2:
                    x = x - 1
                    print("dec", i)
                else:
                    try:
                        if x.min() < -1:
                            raise ValueError(f"min {x.min().item():.2f}")
                        x = x + 0.5
                    except ValueError as e:
                        print("caught", e)
                        total += 1
                        continue
                    finally:
                        print("f", i)
            total += int(x.sum().item())
        return x, total, x.tolist()

    f = compile(fn)
    return [f(torch.full((2,), v)) for v in (3.0, -2.0, 0.3)]


@program
def shapes(compile):
    def fn(x):
        b, t, c = x.shape
        h = 2
        q = x.view(b, t, h, c // h).transpose(1, 2)
        n = x.numel() // b
        s = x.size()
        m = max(b, t)
        pos = torch.arange(t)
        mask = torch.tril(torch.ones(t, t)).bool()
        att = (q @ q.transpose(-2, -1)) / math.sqrt(c)
        att = att.masked_fill(~mask, float("-inf")).softmax(-1)
        if b > 2:
            att = att + 1
        return (
            att @ q,
            s,
            n,
            m,
            pos + m,
            x.reshape(-1, c),
            [t * 2, b % 2, -b, b**2, b / 2, float(t), f"{b}x{t}", str(s), b == t, tuple(s)],
            x.dim(),
            x.stride(),
            torch.zeros(b, t),
            x.new_zeros(t),
            torch.Size([b, 2]),
            len(s),
            s[-1],
            s[:2],
            list(range(b)),
        )

    f = compile(fn)
    return [f(torch.randn(b, t, 4)) for b, t in [(2, 3), (3, 5), (4, 5), (1, 1), (2, 1), (5, 3)]]


@program
def list_cache(compile):
    def step(x, past=None):
        if past is None:
            past = []
        past = [*past, (x * 2, x + 1)]
        k = torch.cat([p[0] for p in past], 0)
        return k.sum(0), past

    f = compile(step)
    past = None
    r = []
    for i in range(4):
        y, past = f(torch.ones(1, 3) * i, past)
        r.append(y)
    return r, past


@program
def shared_out(compile):
    def fn(x):
        y = x + 1
        d = {"a": y, "b": [y, y.view(-1)], "c": (x, x)}
        d["self"] = d["b"]
        return d, d["b"], y

    f = compile(fn)
    return [f(torch.ones(2, 2)) for _ in range(2)]


@program
def inplace_ops(compile):
    def fn(x, y):
        x.add_(y).mul_(2).clamp_(max=5)
        x[0].copy_(y[0])
        x[:, 1] = -1
        x.t()[0] += 3
        y.transpose_(0, 1) if False else None
        z = x.clone()
        z.fill_diagonal_(0)
        z.index_fill_(0, torch.tensor([1]), 4)
        z.masked_fill_(z > 4, 1)
        z.scatter_(0, torch.zeros(1, 3).long(), 8.0)
        w = torch.empty(3, 3)
        torch.add(x, y, out=w)
        w.sub_(1)
        v = z.relu_()
        z.exp_()
        z.tril_()
        torch.sigmoid_(w)
        F.relu(y, inplace=True)
        u = y.squeeze_(0)
        x.zero_()
        x += 1
        x.requires_grad_(False)
        return x, y, z, w, v is z, v, u is y, x._version if False else 0

    f = compile(fn)
    return [call(f, torch.arange(9.0).view(3, 3), torch.randn(3, 3)) for _ in range(2)]


@program
def dynamic_loop(compile):
    m = nn.Linear(4, 5)

    def gen(ids, n):
        for _ in range(n):
            logits = m(F.one_hot(ids, 4).float())[:, -1]
            nxt = logits[:, :4].argmax(-1, keepdim=True)
            ids = torch.cat([ids, nxt], 1)
            if (nxt == 3).all():
                break
        return ids

    f = compile(gen)
    step = compile(lambda ids: m(F.one_hot(ids, 4).float())[:, -1].softmax(-1))
    with torch.no_grad():
        return [f(torch.tensor([[1, 2]]), n) for n in (2, 4)], [step(torch.zeros(1, n).long()) for n in (1, 2, 3, 4, 5)]


@program
def require_grad_mix(compile):
    w = nn.Parameter(torch.ones(3))

    def fn(x):
        with torch.no_grad():
            n = (w * x).norm()
        y = (w / n * x).sum()
        d = y.detach()
        return y, d, n, w.detach(), x * 2

    f = compile(fn)
    r = f(torch.arange(3.0))
    r[0].backward()
    g = w.grad.clone()
    x = torch.ones(3, requires_grad=True)
    r2 = f(x)
    r2[0].backward()
    return r, g, r2, x.grad, w.grad


@program
def rows_by_number(compile):
    def fn(x, i):
        row = x[i]
        row.add_(1)
        return row, x[-1 - i], x

    f, x = compile(fn), torch.arange(24.0).view(6, 4)
    return [call(f, x.clone(), i) for i in (3, 2, 4, 5, 0, 1, -2, -6, 6, -7, True)], call(f, torch.tensor(2.0), 3)


def test_a_number_that_varies_as_an_index_is_compiled_for_all_in_range():
    STATISTICS.clear()
    fast = ptdebug.compile(lambda x, i: x[i] * 2, backend=lambda graph, _: graph)
    for i in (3, 2, 4, 5, 2):
        torch.testing.assert_close(fast(torch.eye(6), i), torch.eye(6)[i] * 2)
    assert STATISTICS.graphs == 2


@program
def pixels_of_nothing(compile):
    def f(x):
        moved = F.pixel_unshuffle(x * 2, 2)
        return moved + 1, moved.shape, moved.stride()

    def of_some(x):
        return F.pixel_unshuffle(x[x[:, 0, 0, 0] > 0], 2).shape

    shapes = (0, 8, 2, 16), (3, 8, 4, 0), (2, 3, 4, 4), (5, 3, 6, 4), (0, 2, 5, 4), (0, 3, 6, 4)
    compiled = [(compile(f, dynamic=dynamic), compile(of_some, dynamic=dynamic)) for dynamic in (None, True, False)]
    return [[[call(fast, torch.ones(shape)) for shape in shapes], [call(some, sign * torch.ones(shapes[2]))
            for sign in (1, -1)]] for fast, some in compiled]


@program
def tensors_of_data_or_of_sizes(compile):
    """torch.Tensor and its kin take numbers for sizes, lists and tuples for data; no mode of torch changes them."""
    def f(x, array):
        made = [torch.Tensor([x.shape[0], 1e10]), torch.Tensor((1, True)), torch.Tensor([[1, 2], [3, 4]])]
        made += [torch.FloatTensor(range(3)), torch.LongTensor([2, 0]), torch.BoolTensor([True, False])]
        made += [torch.Tensor([]), torch.Tensor([x[0], 2])]
        made += [x.new((2, 3)), x.new([2.5]), x.new(), x[torch.LongTensor([0, 2])] + torch.Tensor(array)[:2]]
        sizes = [torch.Tensor(2, x.shape[0]), torch.Tensor(x.shape), torch.HalfTensor(2), x.new(3, 2), x.new(x.shape)]
        return made, [(empty.shape, empty.dtype, empty.device) for empty in sizes]

    fast, array, found = compile(f, fullgraph=True), np.ones(3, np.float32), []
    for length in (3, 4, 5):
        found.append(fast(torch.rand(length, dtype=torch.float64), array))
    with torch.device("meta"):
        found.append(fast(torch.rand(3, device="cpu"), array))
    torch.set_default_dtype(torch.float64)
    try:
        found.append(fast(torch.rand(3), array))
    finally:
        torch.set_default_dtype(torch.float32)
    tensor = compile(lambda data: torch.Tensor(data))
    return found, [call(tensor, data) for data in (5.0, None, "ab")], tensor(found[0][0][1])


@program
def tensors_of_tensors(compile):
    """In the same memory, and with the gradients."""
    def f(x, w):
        again, longs = torch.Tensor(x), torch.LongTensor(x.long())
        again.add_(1)
        on_cpu = torch.Tensor([1, 2], device="cpu"), torch.Tensor(2, 3, device=torch.device("cpu")).shape
        return again, torch.Tensor(w) * 2, torch.Tensor(w.double()).dtype, longs, on_cpu, again is x

    def refused(x):
        return torch.LongTensor(x)

    x, w = torch.arange(3.0), torch.nn.Parameter(torch.ones(3))
    found = compile(f, fullgraph=True)(x, w)
    found[1].sum().backward()
    return found, x, w.grad, compile(torch.Tensor)(x), call(compile(refused), x)


@program
def dimensions_that_are_listed_by_a_range(compile):
    """As losses of images do it."""

    def loss(x, batch):
        axes = torch.arange(2, x.dim()).tolist()
        axes = [0, *axes] if batch else axes
        return x.sum(axes) / len(axes), axes, torch.arange(7, 1, -2).tolist(), torch.arange(0).tolist()

    def written(x):
        numbers = torch.arange(3)
        numbers.data[0] = 5
        return x * 2, numbers.tolist(), torch.arange(0.0, 1.0, 0.5).tolist()

    whole = compile(loss, fullgraph=True)
    return whole(torch.ones(2, 3, 4, 5), True), whole(torch.ones(2, 3, 4), False), compile(written)(torch.ones(2))


@program
def containers_that_are_asked_for_what_they_hold(compile):
    def f(x, rows):
        if torch.jit.isinstance(x, torch.Tensor) and torch.jit.isinstance(rows, list[torch.Tensor]):
            x = x + torch.stack(rows).sum(0)
        return x, torch.jit.isinstance(rows, dict[str, int]), torch.jit.isinstance([1, "a"], list[int])

    return compile(f, fullgraph=True)(torch.ones(2), [torch.ones(2)] * 3)


@pytest.mark.parametrize("name", program)
def test_a_compiled_program_is_the_program(name):
    check(program[name])
