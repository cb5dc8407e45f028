"""Programs with torch's control flow: `cond`, `while_loop`, `scan`, `associative_scan`, `map`, marked regions."""
# mypy: ignore-errors

from __future__ import annotations

import pytest
import torch
import torch.nn as nn

from ..checking import Programs, call, check

program = Programs()


@program
def conditions(compile):
    m = nn.Linear(3, 3)
    bias = torch.ones(3)

    def f(x):
        a = torch.cond(x.sum() > 0, lambda t: t.sin() + bias, lambda t: m(t), (x,))
        b, c = torch.cond(x.mean() > 10, lambda: (x + 1, x * 2), lambda: (x - 1, x / 2))
        return a, b, c

    f = compile(f, fullgraph=True)
    with torch.no_grad():
        return f(torch.ones(2, 3)), f(-torch.ones(2, 3))


@program
def conditions_with_effects(compile):
    seen, total = [], torch.zeros(3)

    def noted(t):
        seen.append("true")
        return t + 1

    def changed(t):
        total.add_(1)
        return t - 1

    def outcome(f, x):
        return call(f, x)[:2]  # the type of the error, not its long text

    f = compile(lambda x: torch.cond(x.sum() > 0, noted, lambda t: t - 1, (x,)))
    g = compile(lambda x: torch.cond(x.sum() > 0, changed, lambda t: t - 1, (x,)))
    return outcome(f, torch.ones(3)), outcome(g, torch.ones(3)), seen, total


class Named(torch.Tensor):
    """Has the `__torch_function__` of every tensor."""


@program
def condition_of_a_subclass(compile):
    f = compile(lambda x, y: torch.cond(y.sum() > 0, lambda a: a * 2, lambda a: a - 1, (x + 1,)))
    found = [f(torch.ones(3).as_subclass(Named), torch.full((2,), sign)) for sign in (1.0, -1.0)]
    return [(type(value).__name__, value.as_subclass(torch.Tensor)) for value in found]


@program
def condition_of_a_constant(compile):
    f = compile(lambda x: torch.cond(x.shape[0] > 2, torch.sin, torch.cos, (x,)), fullgraph=True)
    return f(torch.ones(3)), f(torch.ones(2))


@program
def loops(compile):
    from torch._higher_order_ops.while_loop import while_loop

    limit = torch.tensor(5)

    def f(x):
        i, y = while_loop(lambda i, y: i < limit, lambda i, y: (i + 1, y * 2), (torch.tensor(0), x))
        return i, y + 1

    with torch.no_grad():
        return compile(f, fullgraph=True)(torch.ones(3))


@program
def loops_with_gradients(compile):
    from torch._higher_order_ops.while_loop import while_loop

    def f(x, w, limit):
        y = while_loop(lambda i, y: i < limit, lambda i, y: (i + 1, (y @ w).tanh()), (torch.tensor(0), x.sin()))[1]
        return y.t(), y[0] * 2

    compiled, found = compile(f, fullgraph=True), []
    for limit in (3, 0, 5):
        x, w = torch.ones(2, 2, requires_grad=True), torch.full((2, 2), 0.5, requires_grad=True)
        results = compiled(x, w, torch.tensor(limit))
        sum(result.sum() for result in results).backward()
        found += [*results, x.grad, w.grad]
    return found


@program
def scans(compile):
    from torch._higher_order_ops.scan import scan

    def f(x):
        return scan(lambda carry, row: (carry + row, carry * row), torch.zeros(3), x, dim=0)

    with torch.no_grad():
        return compile(f)(torch.randn(4, 3))


@program
def scans_that_carry_something_else_on(compile):
    from torch._higher_order_ops.scan import scan

    def wider(x):
        return scan(lambda carry, row: (carry + row.double(), carry * row), torch.zeros(3), x, dim=0)

    def turned(x):
        return scan(lambda carry, row: (carry.t() + 1, row.sum()), torch.ones(3, 2)[:2], x, dim=0)

    with torch.no_grad():
        return [call(compile(f), torch.ones(4, 3))[:2] for f in (wider, turned)]  # the type of the error


@program
def associative_scans(compile):
    from torch._higher_order_ops.associative_scan import associative_scan

    def f(x):
        return associative_scan(lambda a, b: a * b + b, x, dim=0, combine_mode="generic")

    with torch.no_grad():
        return compile(f)(torch.randn(4, 3))


@program
def associative_scans_of_views(compile):
    """As torch calls the operator for `combine_mode="pointwise"`, which its own function only does on a GPU."""
    operator = torch.ops.higher_order.associative_scan

    def combine(a, b, c, d):
        return a * c, c * b + d

    def f(x, y):
        a, b = operator(combine, [x.movedim(2, 0), y.movedim(2, 0)], ())
        return a.movedim(0, 2) + 1, b.movedim(0, 2), a.stride()

    found = []
    for needs_grad in (False, True):
        x, y = torch.rand(2, 3, 5, 4, requires_grad=needs_grad), torch.rand(2, 3, 5, 4)
        with torch.set_grad_enabled(needs_grad):
            found += compile(f)(x, y)
    return found


@program
def maps_and_marked_regions(compile):
    from torch._higher_order_ops.map import map as mapped
    from torch._higher_order_ops.scan import scan

    weight = torch.randn(3)

    @torch.compiler.nested_compile_region
    def region(x):
        return x.sin() * 2

    def f(x):
        total, rows = scan(lambda carry, row: (carry + row, carry * row * weight), torch.zeros(3), x)
        return mapped(lambda row, other: row * other + weight, x, torch.ones(3)), total, rows, region(x) + region(x + 1)

    return compile(f, fullgraph=True)(torch.randn(4, 3))


@pytest.mark.parametrize("name", program)
def test_a_program_with_control_flow(name: str) -> None:
    check(program[name])
