"""Programs that use NumPy on tensors: arrays over their memory, NumPy's dtypes, views, numbers and warnings."""
# mypy: ignore-errors

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import ptdebug
import pytest
import torch
import torch.nn as nn
from ptdebug.tracer.runtime.statistics import STATISTICS

from ..checking import Programs, call, check, described

program = Programs()


@program
def arrays_share_memory_with_tensors(compile):
    def f(x, a):
        n = x.numpy()
        n[0] = 5
        part = n[1:]
        part += 1
        t = torch.from_numpy(n)
        t.mul_(2)
        a[a > 1] = 9
        return n, part, t, x, a, a[::2], torch.from_numpy(a), torch.as_tensor(a), np.asarray(x)

    return compile(f)(torch.arange(4.0), np.arange(4))


@program
def tensors_like_others_of_arrays(compile):
    def f(x, a):
        made = x.new_tensor(a), x.long().new_tensor(a), x.new_tensor(a.T, dtype=None)
        made += (x.new_tensor(a, dtype=torch.float64),)
        a[0] = 9
        return *made, x.new_tensor(a.sum())

    return [compile(f)(torch.ones(2), np.arange(6).reshape(2, 3)), compile(f)(torch.ones(2), np.ones((2, 2)))]


@program
def tensors_by_arrays(compile):
    def f(x, places, rows, weight):
        mask = rows > 1
        part = np.arange(len(x))[1:3]
        x[places] = 7
        x[:, rows] += 1
        picked = x[places], x[places[:3], rows], x[None, part], x[places.reshape(2, 2)], x[..., rows]
        return picked, torch.where(torch.from_numpy(mask), x[rows, 0], 0), (weight[part] * x[part]).sum().backward()

    def use(compiled, weight):
        made = torch.arange(12.0).reshape(4, 3)
        return compiled(made, np.array([3, 0, -1, 1]), np.array([0, 2, 1], dtype=np.int32), weight), made, weight

    compiled = compile(f)
    return [use(compiled, torch.ones(4, 3, requires_grad=True)) for _ in range(2)]


@program
def tensors_by_masks_and_places_that_are_not_there(compile):
    masked = call(compile(lambda x, mask: x[mask] + 1), torch.arange(4.0), np.array([True, False, True, False]))
    return masked, call(compile(lambda x, a: x[a] + 1), torch.arange(4.0), np.array([1, 4]))


@program
def tensors_of_parts_of_arrays(compile):
    def f(x):
        part = torch.from_numpy(x.numpy()[1:])
        first = torch.as_tensor(x.numpy()[:2])
        return part, part.storage_offset(), part.as_strided((2,), (1,)), first, torch.from_numpy(x[2:].numpy())

    return compile(f)(torch.arange(4.0))


@program
def promotion_is_that_of_numpy(compile):
    def f(f4, f8, i4, i8, u1, b):
        mixed = f4 + f8, f4 + i4, i4 + u1, f4 * 2, f4 * 2.5, u1 + 1, i4 / 2, b + b, b * 3, u1 * b, f4 * np.float64(2)
        scalars = f4.sum() + f8.sum(), i4.sum() + 1, u1[0] + i4[0], f4[0] * 2.0, b.sum(), i8.mean()
        unary = -i4, abs(i4), ~b, np.sqrt(i4), np.floor(f4), np.sign(f8), np.square(u1)
        compared = f4 > i4, u1 == 3, (f4 > 1) & b, np.logical_not(f4), np.maximum(f4, 1), np.minimum(i4, f8)
        whole = i8 // 2, i8 % 3, f8 // 2, f8 % -2, i8**2, f4**2, i8 << 1, i8 >> 1, i8 & 3, i8 ^ i8
        return mixed, scalars, unary, compared, whole

    r = np.arange(4)
    return compile(f)(*(r.astype(d) for d in ("f4", "f8", "i4", "i8", "u1", "?")))


@program
def reductions(compile):
    def f(x, i):
        n = x.numpy()
        some = n.sum(), n.mean(), n.sum(0), n.max(1), np.amin(n), n.sum(axis=(0, 1), keepdims=True), n.prod(axis=0)
        spread = np.var(n, axis=0), n.std(axis=1, ddof=1), np.linalg.norm(n[:, :1]), np.linalg.norm(n[:, :1], axis=1)
        places = np.argmax(n), n.argmin(axis=1), n.any(), (n > 2).all(axis=0), (n > 1).sum(), np.mean(n > 1)
        running = n.cumsum(), np.cumsum(i, axis=1), np.diff(n), i.sum(dtype=np.float32), i.astype("i2").sum(0)
        return some, spread, places, running, np.sum(n.T, axis=0), n.T.max(1), type(n.sum()), n.sum().dtype

    return compile(f, fullgraph=True)(torch.arange(6.0).view(2, 3), np.arange(6).reshape(2, 3))


@program
def indexing(compile):
    def f(a, i, m):
        numbers = a[0, 1], a[-1, -1], a[0].max(), a[i[0]] if a.ndim == 1 else None
        views = a[0], a[:, 1], a[..., 0], a[None], a[1:, ::2], a.T, a.reshape(-1)
        copies = a[i], a[:, i], a[[0, 1]], a[m], a[i].sum()
        a[1:] = a[:-1]
        a[m, :] = -1
        a[0, 0] += 7
        return numbers, views, copies, a

    f = compile(f)
    return f(np.arange(12.0).reshape(3, 4), np.array([2, 0]), np.array([True, False, True]))


@program
def steps_below_zero(compile):
    def f(x, image):
        a = x.numpy()
        b = a[::-1]
        x.add_(1)
        joined = np.concatenate([b, a[:, ::-2].repeat(2, axis=1), a[..., ::-1]])
        sums = b.sum(), b.max(axis=1), b.argmax(), np.where(b > 1, b, a), -b, a.T[::-1] * 2, (a.T[::-1] + 1).strides
        scaled = np.ascontiguousarray(np.transpose(image[..., ::-1].astype(np.float32) / 255, (2, 0, 1)))
        return a, b, b.shape, len(b), joined, sums, torch.from_numpy(scaled), b.copy()

    fast, found = compile(f), []
    for rows in (2, 3, 5, 1):
        image = np.arange(12, dtype=np.uint8).reshape(2, 2, 3)
        a, b, *others = fast(torch.arange(rows * 4.0).view(rows, 4), image)
        a[0] = 9
        found.append((a, b.copy(), b.strides, np.shares_memory(a, b), others))
    return found


@program
def steps_below_zero_that_are_written(compile):
    def set_item(a, b):
        b[0] = 5

    def in_place(a, b):
        b += 1
        a += a[::-1]

    def out(a, b):
        np.add(a, 1, out=b)

    def out_by_place(a, b):
        np.add(a, 1, b)

    def to_torch(a, b):
        return torch.from_numpy(b)

    def run(function):
        def f(x):
            a = x.numpy()
            b = a[::-1]
            return function(a, b), a.copy(), b.copy(), x * 2

        return call(compile(f), torch.arange(3.0))

    return [run(function) for function in (set_item, in_place, out, out_by_place, to_torch)]


@program
def arrays_of_many_sizes(compile):
    def f(a, x):
        if a.shape[0] % 2 == 0:
            return x + torch.from_numpy(a * 2).sum()
        return x[: a.shape[0]] * torch.from_numpy(a * 3)

    fast = compile(f)
    return [fast(np.arange(float(n)), torch.ones(n)) for n in (3, 4, 5, 8, 7)]


@program
def shapes_and_choices(compile):
    def f(x):
        n = x.numpy()
        joined = np.concatenate([n, n], axis=1), np.stack([n, n]), np.vstack([n, n[:1]]), np.hstack([n.T, n.T])
        moved = n.T, n.T + 1, np.transpose(n), n.swapaxes(0, 1), np.expand_dims(n, 0), n[:1].squeeze(), n.flatten()
        cut = np.split(n, 2), np.tile(n, 2), np.repeat(n, 2, axis=0), np.roll(n, 1), np.tril(n)
        chosen = np.where(n > 1, n, 0), np.clip(n, 1, 3), n.round(), np.round(n, 1), n.clip(1, 2), np.outer(n[0], n[1])
        made = np.zeros_like(n.T), np.zeros((2, 3)), np.ones(2, "i4"), np.full((2,), 7), np.arange(5), np.eye(2)
        return joined, moved, cut, chosen, made, np.array([1, 2.5]), n @ n.T, n.dot(n[0]), n.copy(), n.T.copy()

    return compile(f, fullgraph=True)(torch.arange(6.0).view(2, 3))


@program
def steps_between_numbers(compile):
    """The time steps of a sampler."""

    def f(x, steps, last):
        times = np.linspace(0, last - 1, steps).round()[::-1].copy().astype(np.int64)
        even = np.linspace(1.0, 0.1, num=steps, endpoint=False, dtype=np.float32), np.linspace(0, 9, 4, dtype=int)
        ratio = (np.arange(0, steps) * (last // steps)).round()[::-1].copy()
        whole = np.round(ratio.reshape(1, -1).T, 1), np.around(times), np.linspace(2, 3), np.linspace(0, 1, 0)
        return x * torch.from_numpy(times), even, ratio, whole

    compiled = compile(f)
    return compile(f, fullgraph=True)(torch.ones(5), 5, 50), [compiled(torch.ones(n), n, 50) for n in (5, 7, 8)]


@program
def steps_that_numpy_refuses(compile):
    def f(x, steps):
        return x + torch.from_numpy(np.linspace(0, 1, steps))

    return call(compile(f), torch.ones(()), -1), call(compile(f), torch.ones(()), 2.5)


@program
def loops_over_arrays(compile):
    def f(a):
        seen = []
        for row in a:
            a[1, 0] = 9  # rows are views, numbers are not
            for number in row:
                seen.append(number * 2)
            seen.append(row)
        return seen, list(a[0]), sum(a[0])

    return compile(f)(np.arange(4.0).reshape(2, 2))


class Normalized(nn.Module):
    """Keeps NumPy arrays, as data pipelines do."""

    def __init__(self):
        super().__init__()
        self.mean, self.std = np.array([0.5, 0.25], "f4"), np.float32(2)
        self.seen = np.zeros(2, "f4")

    def forward(self, x):
        self.seen += x.detach().numpy().sum(0)
        return (x - torch.from_numpy(self.mean)) / self.std


@program
def arrays_that_modules_keep(compile):
    m = Normalized()
    f = compile(m)
    out = [f(torch.ones(n, 2)) for n in (3, 4, 5)]
    m.mean = np.array([1.0, 2.0])
    return out, f(torch.ones(3, 2)), m.seen


@program
def other_arrays_at_the_next_call(compile):
    def f(a, b):
        a += 1
        return a + b, a is b

    f, r = compile(f), np.arange(6.0)
    read_only = np.arange(3)
    read_only.flags.writeable = False
    square, ones = np.ones((2, 2)), np.ones(3)
    calls = [
        (r[:3], r[3:]), (r[:3], r[:3]), (r[:4], r[1:5]), (np.ones(3, "f4"), ones), (np.ones(2), read_only[:2]),
        (np.ones(3)[::-1], ones), (square.T, np.ones((2, 2))), (np.ones(2), 3), (np.ones(2, ">f4"), 1),
    ]  # fmt: skip
    return [call(f, a, b) for a, b in calls], r


@program
def what_raises(compile):
    def f(a, b, do):
        a += 1
        return do(a, b)

    does = [
        lambda a, b: a + b[:2], lambda a, b: a[b[0] + 9], lambda a, b: a - (a > 1), lambda a, b: (a > 1) - (a > 2),
        lambda a, b: a.nothing, lambda a, b: a.reshape(7), lambda a, b: np.concatenate([a, a[None]]),
        lambda a, b: b.astype("u1") + 300, lambda a, b: torch.sin(a), lambda a, b: np.uint8(3) ** a,
    ]
    f = compile(f)
    return [call(f, np.arange(3.0), np.arange(3), do)[:3] for do in does]


@program
def warnings_are_shown(compile):
    def f(a, i):
        return 1 / a, np.log(a), a * 1e308 * 10, i[0] * i[0], (a - 1).astype("u1"), np.sqrt(a - 1)

    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        out = compile(f)(np.arange(3.0), np.array([2**40]))
    with np.errstate(all="raise"):
        raised = call(compile(lambda a: 1 / a), np.zeros(2))[:3]
    return out, [str(w.message) for w in seen if w.category is RuntimeWarning], raised


@program
def between_breaks(compile):
    def f(x):
        n = x.numpy()
        m = n + 1
        print(m.shape)
        m += n
        n[0] = 3
        print(len(m))
        it = iter(m)
        first = next(it)
        print("more")
        return n, m, torch.from_numpy(m), first, next(it)

    return compile(f)(torch.ones(3))


@program
def gradients_and_arrays(compile):
    def f(w, a):
        scale = w.detach().numpy().max() + 1
        y = (w * torch.from_numpy(a) * scale).sum()
        a += 1  # what was saved for the backward is this memory
        return y

    def backward(function):
        w, a = torch.arange(3.0, requires_grad=True), np.arange(3, dtype="f4")
        function(w, a).backward()
        return w.grad, a, call(compile(lambda w: w.numpy()), w)[:3]

    return backward(compile(f)), backward(f)


@program
def random_numbers_of_numpy(compile):
    def f(x):
        return x + float(np.random.rand()), x.numpy() + np.random.randn(2).astype("f4")

    return compile(f)(torch.ones(2))


class Tagged(torch.Tensor):
    """Keeps its class through operators."""


@program
def an_array_of_a_subclass_is_a_plain_one(compile):
    def f(x):
        return torch.as_tensor(np.asarray(x.as_subclass(Tagged).detach()) + 1)

    return type(compile(f)(torch.ones(2))).__name__, compile(f)(torch.ones(2))


@program
def kinds_of_tensors(compile):
    def f(a, x):
        made = torch.tensor(a), torch.tensor(a, dtype=torch.float64), torch.asarray(a), torch.as_tensor(a).double()
        back = torch.from_numpy(x.numpy()), x.numpy(force=True)
        return made, back, np.asarray(x, dtype=np.float64), np.asarray(x)[1:]

    with torch.inference_mode():
        inside = compile(f)(np.arange(3, dtype="f4"), torch.ones(2))
    return inside, compile(f)(np.arange(3, dtype="f4"), torch.ones(2))


@pytest.mark.parametrize("name", program)
def test_a_program_with_numpy_is_the_program(name, as_the_engine, by_the_engine):
    check(program[name])


@pytest.mark.parametrize("name", program)
def test_another_backend_gets_graphs_that_cannot_warn(name, breaks_allowed):
    check(program[name])


@pytest.mark.parametrize("dynamic", [None, True])
@pytest.mark.parametrize("rows", [1, 2])
@pytest.mark.parametrize("choose", [
    lambda a: a[:, [2, 0, 1]], lambda a: a[[0, 0]], lambda a: a[[0]], lambda a: a[:, [1]], lambda a: a[:, [1, 0]].T,
    lambda a: a[:, np.array([1, 2])], lambda a: a[:, [[1, 0]]], lambda a: a[:, [True, False, True]],
])
def test_chosen_rows_and_columns_have_the_strides_of_numpy(choose, rows, dynamic):
    def f(x):
        return torch.tensor(choose(x.numpy()))

    STATISTICS.clear()
    for x in (torch.arange(3.0 * rows).view(rows, 3), torch.arange(3.0 * rows).view(3, rows).t()):
        assert described(ptdebug.compile(f, dynamic=dynamic)(x)) == described(f(x))
    assert not [reason for reason in STATISTICS.reasons if "internal error" in reason]


def test_arrays_do_not_break_the_graph():
    def f(x, a):
        y = (x.numpy() - a.mean(axis=0)) / (a.std(axis=0) + 1)
        y[y < 0] = 0
        return torch.from_numpy(y) * x

    found = ptdebug.explain(f)(torch.randn(4, 3), np.random.rand(4, 3).astype("f4"))
    assert not found.graph_breaks
    assert len(found.graphs) == 1


@pytest.mark.parametrize("name", ["arrays_share_memory_with_tensors", "reductions", "indexing", "warnings_are_shown"])
def test_the_engine_computes_what_numpy_does(name):
    expected = program[name](lambda f=None, **_: f or (lambda g: g))
    got = program[name](ptdebug.compile)
    _close(got, expected)


def _close(got: Any, expected: Any) -> None:
    assert type(got) is type(expected)
    if isinstance(expected, (list, tuple)):
        assert len(got) == len(expected)
        for one, other in zip(got, expected):
            _close(one, other)
    elif isinstance(expected, (torch.Tensor, np.ndarray, np.generic)):
        assert got.dtype == expected.dtype
        assert got.shape == expected.shape
        np.testing.assert_allclose(got, expected, rtol=1e-6)
    else:
        assert described(got) == described(expected)
