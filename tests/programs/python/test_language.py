"""Programs about Python: closures, generators, loops, texts, patterns, containers, globals."""
# ruff: noqa: B007, E741, F841, UP031 - programs as people write them

from __future__ import annotations

import pytest
import torch

from ..checking import Programs, call, check

program = Programs()


@program
def closures(compile):
    total = 0

    def fn(x):
        nonlocal total

        def add(n):
            nonlocal total
            total += n
            return x * total

        a = add(1)
        b = add(2)
        fs = [lambda k=k: x + k for k in range(3)]
        return a, b, [g() for g in fs], add

    f = compile(fn)
    r = []
    for _ in range(3):
        a, b, c, add = f(torch.arange(3.0))
        r.append((a, b, c, add(5)))
    return r, total


@program
def generators(compile):
    def gen(x, n):
        try:
            for i in range(n):
                got = yield x * i
                if got:
                    x = x + got
        finally:
            print("done", n)

    def fn(x):
        g = gen(x, 4)
        a = next(g)
        b = g.send(10)
        rest = list(g)
        c = sum(t.sum() for t in gen(x, 3))

        def deleg():
            r = yield from gen(x, 2)
            yield r

        h = gen(x, 5)
        next(h)
        h.close()
        first = next((t for t in gen(x, 3) if True), None)
        return a, b, rest, c, list(deleg()), first, [*gen(x, 2)], dict(enumerate(gen(x, 2)))

    f = compile(fn)
    return [f(torch.ones(2)) for _ in range(2)]


@program
def loops(compile):
    def fn(x, n):
        out = []
        for i in range(n):
            if i == 2:
                continue
            for j in range(3):
                if j > i:
                    break
                out.append(x * i + j)
            else:
                out.append(x - 100)
            if i == 5:
                return out, "early"
        else:
            out.append("else")
        while n > 0:
            n -= 1
            if n == 1:
                break
        return out, n

    f = compile(fn)
    return [f(torch.ones(1), n) for n in (0, 1, 3, 6, 4)]


@program
def recursion(compile):
    def tree(x, d):
        if d == 0:
            return [x]
        return tree(x * 2, d - 1) + tree(x + 1, d - 1)

    def fact(n):
        return 1 if n < 2 else n * fact(n - 1)

    f = compile(lambda x, d: (tree(x, d), x * fact(d)))
    g = compile(tree)
    return f(torch.ones(2), 3), f(torch.ones(2), 2), g(torch.ones(2), 3), g(torch.ones(2), 1)


G_STATE = {"n": 0}
G_COUNT = 0
G_SCALE = 2.0


@program
def globals_(compile):
    global G_COUNT, G_SCALE

    def fn(x):
        global G_COUNT
        G_COUNT += 1
        G_STATE["n"] += 1
        return x * G_SCALE + G_COUNT

    G_COUNT = 0
    G_STATE["n"] = 0
    G_SCALE = 2.0
    f = compile(fn)
    r = [f(torch.ones(2)) for _ in range(3)]
    G_SCALE = 5.0
    r.append(f(torch.ones(2)))
    G_SCALE = torch.tensor([1.0, 2.0])
    r.append(f(torch.ones(2)))
    G_SCALE = 2.0
    return r, G_COUNT, G_STATE["n"]


@program
def none_args(compile):
    def fn(x, mask=None, *rest, bias=None, **kw):
        if mask is not None:
            x = x.masked_fill(mask, 0.0)
        if bias is not None:
            x = x + bias
        for r in rest:
            x = x + r
        for k, v in sorted(kw.items()):
            x = x * v
        return x, list(kw), len(rest)

    f = compile(fn)
    x = torch.arange(3.0)
    m = torch.tensor([True, False, True])
    return (
        f(x),
        f(x, m),
        f(x, bias=x),
        f(x, m, 1, 2.5),
        f(x, a=2, b=x),
        f(x, None, x, x, c=3),
        f(x, m, bias=2),
        call(f),
        call(f, x, mask=m, zz=None),
    )


@program
def changing(compile):
    def fn(x, n, s, l):
        return x * n + len(s) + sum(l), s.upper(), [v * 2 for v in l]

    f = compile(fn)
    return [
        f(torch.ones(b, 3), n, s, l)
        for b, n, s, l in [
            (2, 1, "a", [1]),
            (3, 2, "a", [1]),
            (4, 3, "b", [1, 2]),
            (5, 4.5, "cc", [2.5]),
            (1, True, "a", []),
            (0, -1, "a", [3]),
            (2, float("inf"), "x", [1]),
        ]
    ]


@program
def strings(compile):
    def fn(x, name, opts):
        parts = name.split(".")
        s = "/".join(p.capitalize() for p in parts)
        k = f"{name!r:>10}|{len(parts):03d}|{x.dtype}|{x.shape[0]:,}"
        if name.startswith("a") and "b" in name:
            x = x + 1
        mode = {"sum": torch.sum, "mean": torch.mean}.get(opts.get("mode", "sum"))
        d = "%s-%d" % (name, len(name))
        e = f"{1.234:.2f} {name}"
        return (
            mode(x),
            s,
            k,
            d,
            e,
            name.replace("a", "z"),
            name[::-1],
            name.encode(),
            sorted(opts),
            name * 2,
            name < "b",
            ord(name[0]),
            list(name),
            name.isidentifier(),
            ",".join(map(str, x.shape)),
            str(x.device),
            repr(1.5),
            bytes([1, 2]),
            name.partition("."),
        )

    f = compile(fn)
    return f(torch.ones(3), "a.b", {}), f(torch.ones(3), "q.b", {"mode": "mean"}), f(torch.ones(4), "a.b", {})


@program
def match_walrus(compile):
    def fn(x, cmd):
        match cmd:
            case {"op": "mul", "by": n}:
                x = x * n
            case ["add", n, *rest]:
                x = x + n + len(rest)
            case int() | float() as k if k > 3:
                x = x - k
            case None:
                return None
            case str(s):
                x = x + len(s)
            case _:
                x = -x
        if (n := x.shape[0]) > 1:
            x = x * n
        return x, n

    f = compile(fn)
    return [f(torch.ones(2), c) for c in ({"op": "mul", "by": 3}, ["add", 2, 3, 4], 5, None, "abc", 2, 4.5, ("add", 1))]


@program
def unpack(compile):
    def fn(*args, a=1, **kw):
        x, *mid, z = args
        (p, q), r = (x, z), a
        d = {**kw, "n": 2}
        l = [*mid, x]
        first, *_ = l

        def inner(u, /, v, *, w=2):
            return u + v * w

        return inner(x, z), inner(x, v=z, w=r), p - q, len(mid), d, first, kw.pop("k", None), kw

    f = compile(fn)
    x = torch.ones(2)
    return f(x, x), f(x, x * 2, x * 3, a=4, k=5), f(x, 1, z := x, k=x), call(f, x)


@program
def global_containers(compile):
    reg = {}
    hist = []

    def fn(x, key):
        if key not in reg:
            reg[key] = x * 2
        hist.append(key)
        reg[key] = reg[key] + 1
        return reg[key], len(hist)

    f = compile(fn)
    return [f(torch.ones(2) * i, k) for i, k in enumerate("aabca")], reg, hist


@program
def numbers_that_vary_where_numbers_are_wrong(compile):
    def fn(x, n, v, items):
        have = [hasattr(n, "__len__"), hasattr(v, "__iter__"), hasattr(n, "real"), getattr(v, "size", None)]
        try:
            items.index(n)
        except ValueError as error:
            have.append(str(error))
        try:
            items.insert([], n)
        except TypeError as error:
            have.append(str(error))
        try:
            items[1.5:]
        except TypeError as error:
            have.append(str(error))
        total = n
        for i in range(400):
            total = total + n
        return x * v, have, total, items

    f = compile(fn)
    return [f(torch.ones(2), n, n / 4, [70]) for n in (2, 3, 5)]


@program
def texts_of_dicts_and_of_what_contains_itself(compile):
    def f(x, d):
        own = [1]
        own += [own, (own,), {"own": own}]
        return x + 1, repr(d), str(d), f"{d}", repr(own), dict(d), list(d.items())

    within = {"a": 1}
    within["self"] = within
    f = compile(f)
    dicts = {"a": 1, 2: "b", None: (1.5, {"q": []}), "e": {}}, {}, {"n": 1}, {"n": 2}, {"n": 3}
    return [*(f(torch.ones(1), d) for d in dicts), f(torch.ones(1), within)[1]]


@pytest.mark.parametrize("name", program)
def test_a_compiled_program_is_the_program(name):
    check(program[name])
