"""torch.cond, while_loop, scan and map: what lies around them is compiled, and so are their functions."""
# mypy: ignore-errors

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from ptdebug.engine.compile import compile_graph
from ptdebug.tracer.frames.dispatch import optimize
from ptdebug.tracer.fx.backend_call import CompileOptions
from torch._higher_order_ops.map import map as mapped
from torch._higher_order_ops.scan import scan
from torch._higher_order_ops.while_loop import while_loop

from .programs import recording_context

W = torch.linspace(0.1, 1, 9).reshape(3, 3)


def if_else(predicate, on_true, on_false, operands):
    """What torch.cond means."""
    return on_true(*operands) if predicate else on_false(*operands)


def loop(goes_on, body, carried):
    """What while_loop means."""
    while goes_on(*carried):
        carried = body(*carried)
    return carried


def branches(x, cond):
    def inner(a):
        return cond(a.max() > 2, lambda b: (b.sin() + 1,), lambda b: (b.cos() * 2,), (a,))[0] * 3

    y = x.sin() * 2
    z, w = cond(y.sum() > 0, lambda a: (inner(a), a + 1), lambda a: ((a @ W).exp(), a * 2), (y,))
    v = z.relu() + w
    return z * 2 + x, cond(v.mean() > 1, lambda: v.tanh(), lambda: v.sigmoid(), ()).sum(0), y.t(), w


def in_place_around(x, cond):
    y = x * 2
    x.add_(1)
    z = cond(x.sum() > 0, lambda v: v + 1, lambda v: v - 1, (y,))
    x.mul_(2)
    return z, x * 3


def compiled(function: Callable[..., Any]) -> tuple[Callable[..., Any], list[Any], list[str]]:
    """The function, captured and compiled; the decisions that were made; why graphs ran in eager."""
    context, keeping = recording_context()
    fell_back: list[str] = []

    def backend(captured, own):
        call = compile_graph(captured, context)
        fell_back.extend([context.fallback] if context.fallback else [])
        return call

    return optimize(function, CompileOptions(backend=backend)), keeping.decisions, fell_back


@pytest.mark.parametrize("function", [branches, in_place_around], ids=lambda f: f.__name__)
def test_branches_are_pythons(function: Callable[..., Any]) -> None:
    call, decisions, fell_back = compiled(lambda x: function(x, torch.cond))
    for x in (torch.ones(3, 3), torch.full((3, 3), 5.0), -torch.ones(3, 3)):
        ours, theirs = x.clone(), x.clone()
        torch.testing.assert_close(call(ours), function(theirs, if_else))
        torch.testing.assert_close(ours, theirs)
    assert not fell_back
    assert {d.chosen for d in decisions if d.kind == "control-flow"} == {"compiled"}
    assert not [d for d in decisions if d.kind == "engine"]


def test_loops_are_pythons() -> None:
    def f(x, run):
        def goes_on(i, y):
            return (y.sum() < 50) & (i < 20)

        i, y = run(goes_on, lambda i, y: (i + 1, y * 1.5 + W[0]), (torch.zeros((), dtype=torch.int64), x.abs()))
        return i, y + x

    call, decisions, fell_back = compiled(lambda x: f(x, while_loop))
    for x in (torch.ones(3), torch.full((3,), 100.0)):
        torch.testing.assert_close(call(x), f(x, loop))
    assert not fell_back and [d.chosen for d in decisions if d.kind == "control-flow"] == ["compiled"]


def test_scans_are_loops() -> None:
    def f(x):
        total, rows = scan(lambda c, r: (c + r.sin() * 2, c * r), torch.zeros(3), x * 2)
        return mapped(lambda r, o: r * o + W[0], x, torch.ones(3)), total + 1, rows

    call, decisions, fell_back = compiled(f)
    for x in (torch.arange(12.0).reshape(4, 3), torch.arange(12.0).reshape(3, 4).t()):
        each, total, rows = call(x)
        carried, expected = torch.zeros(3), []
        for row in x * 2:
            expected.append(carried * row)
            carried = carried + row.sin() * 2
        torch.testing.assert_close((each, total, rows), (x + W[0], carried + 1, torch.stack(expected)))
    assert not fell_back and {d.chosen for d in decisions if d.kind == "control-flow"} == {"compiled"}


def test_gradients_flow_around_and_through() -> None:
    def through(x, w, cond):
        y = x.sin() * 2
        z = cond(y.sum() > 0, lambda a: a.cos() * w, lambda a: a.exp() * w, (y,))
        return (z * 2 + x).sum()

    def around(x, w, cond):
        y = cond(x.sum() > 0, lambda v: v.sin() + 1, lambda v: v - 1, (x.detach(),))
        return ((y * w).tanh() * x).sum()

    for function, choice in ((through, "eager"), (around, "compiled")):
        call, decisions, fell_back = compiled(lambda x, w, function=function: function(x, w, torch.cond))
        for sign in (1.0, -1.0):
            inputs = [(sign * torch.ones(3)).requires_grad_(), torch.full((3,), 2.0, requires_grad=True)]
            same = [value.detach().clone().requires_grad_() for value in inputs]
            function(*same, if_else).backward()
            call(*inputs).backward()
            torch.testing.assert_close([value.grad for value in inputs], [value.grad for value in same])
        assert not fell_back and {d.chosen for d in decisions if d.kind == "control-flow"} == {choice}


def test_modes_around_an_operator_are_eagers() -> None:
    def f(x, cond):
        with torch.autocast("cpu", torch.bfloat16):
            y = x @ x
            return cond(y.sum() > 0, lambda v: v + 1, lambda v: v - 1, (y,))

    call, _, fell_back = compiled(lambda x: f(x, torch.cond))
    x = torch.ones(3, 3)
    torch.testing.assert_close(call(x), f(x, if_else))
    assert fell_back == ["modes or checkpointed functions in a graph with control flow"]
