"""Programs about dtypes and what chooses them: promotion, default dtype, modes; random numbers of each."""
# ruff: noqa: E741 - programs as people write them

from __future__ import annotations

import pytest
import torch
import torch.nn as nn
import torch.nn.functional as F

from ..checking import Programs, call, check

program = Programs()


@program
def dtypes_by_the_classes_of_python(compile):
    def fn(x):
        return torch.full((2,), 1, dtype=float), x.type(float)  # which raises: it takes no class

    def made(x):
        return torch.ones_like(x, dtype=bool), x.to(int), torch.zeros(3, dtype=complex), x.sum(dtype=float)

    x = torch.arange(4.0)
    return call(compile(fn), x), compile(made)(x)


@program
def rngs(compile):
    m = nn.Sequential(nn.Linear(8, 8), nn.Dropout(0.5))

    def fn(x):
        a = torch.rand(3)
        b = torch.randn_like(x)
        c = torch.randint(0, 10, (4,))
        d = F.dropout(x, 0.3, training=True)
        e = torch.bernoulli(torch.full((3,), 0.5))
        p = torch.randperm(5)
        n = torch.normal(0.0, 1.0, (2,))
        z = torch.empty(3).uniform_(-1, 1)
        mult = torch.multinomial(torch.ones(5), 2)
        return a, b, c, d, e, p, n, z, mult, m(x)

    f = compile(fn)
    with torch.no_grad():
        r = [f(torch.ones(2, 8)) for _ in range(3)]
        m.eval()
        r.append(f(torch.ones(2, 8)))
    return r


@program
def gen_arg(compile):
    def fn(x, g):
        return x + torch.rand(3, generator=g), torch.randn(2, generator=g)

    f = compile(fn)
    g = torch.Generator().manual_seed(4)
    return [f(torch.ones(3), g) for _ in range(3)], g.get_state()


@program
def modes(compile):
    l = nn.Linear(3, 3)

    def fn(x, k):
        r = []
        with torch.no_grad():
            r.append(l(x))
        with torch.inference_mode():
            r.append(l(x))
        with torch.autocast("cpu", dtype=torch.bfloat16):
            r.append(l(x))
            r.append(torch.is_autocast_enabled("cpu"))
            r.append(x @ x.t())
        torch.set_grad_enabled(False)
        r.append((torch.is_grad_enabled(), l(x)))
        torch.set_grad_enabled(True)

        @torch.no_grad()
        def dec(y):
            return l(y)

        r.append(dec(x))
        r.append(l(x))
        with torch.set_grad_enabled(k):
            r.append(l(x) * 2)
        return r

    f = compile(fn)
    x = torch.randn(3, 3)
    a = [f(x, k) for k in (True, False)]
    with torch.no_grad():
        b = f(x, True)
    torch.set_grad_enabled(True)
    with torch.inference_mode():
        c = f(x, False)
    torch.set_grad_enabled(True)
    with torch.autocast("cpu"):
        d = f(x, True)
    return a, b, c, d


@program
def default_dtype(compile):
    def fn(x):
        return (
            torch.ones(2) + x,
            torch.tensor(1.5),
            torch.arange(3) / 2,
            torch.full((2,), 3.0),
            torch.get_default_dtype(),
        )

    f = compile(fn)
    a = f(torch.ones(2))
    torch.set_default_dtype(torch.float64)
    try:
        b = f(torch.ones(2))
    finally:
        torch.set_default_dtype(torch.float32)
    return a, b, f(torch.ones(2))


@program
def dtypes(compile):
    def fn(x, y):
        return (
            x + y,
            x * 2,
            x / 2,
            x + 1.5,
            x // 2 if not x.is_complex() else 0,
            (x == y),
            x.sum(),
            x.float() if not x.is_complex() else x,
            torch.where(y.bool(), x, y),
            -x if x.dtype != torch.bool else x,
            x.mean() if x.is_floating_point() else 0,
            x + True,
            x**2,
        )

    f = compile(fn)
    ds = [
        torch.float16,
        torch.bfloat16,
        torch.int32,
        torch.int64,
        torch.bool,
        torch.float64,
        torch.complex64,
        torch.uint8,
    ]
    return [
        call(f, torch.tensor([1, 0, 3]).to(a), torch.tensor([2, 1, 0]).to(b))
        for a in ds
        for b in (torch.float32, torch.int64, torch.bool, a)
    ]


@program
def complexes(compile):
    def fn(x):
        z = torch.fft.rfft(x)
        w = torch.complex(x, x * 2)
        v = torch.view_as_real(w)
        p = torch.polar(x.abs(), x)
        return (
            z,
            torch.fft.irfft(z, n=x.shape[-1]),
            w.abs(),
            w.angle(),
            w.real,
            w.imag,
            w.conj().resolve_conj(),
            v,
            p,
            w * 2j,
            (w * w.conj()).real,
            torch.fft.fft2(x),
            torch.fft.fftshift(x),
            w.sum(),
            w.mean(),
            torch.view_as_complex(v),
            w == w,
            x * 1j,
            torch.stft(x, 4, return_complex=True, window=torch.ones(4)),
            w.t(),
            w[0],
        )

    f = compile(fn)
    return [call(f, torch.randn(b, 8)) for b in (2, 2, 3)]


@pytest.mark.parametrize("name", program)
def test_a_compiled_program_is_the_program(name):
    check(program[name])
