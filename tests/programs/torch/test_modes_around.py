"""Modes of functions and of dispatch that are in force where a compiled function is called."""
# mypy: ignore-errors

from __future__ import annotations

import ptdebug
import pytest
import torch
from ptdebug.tracer.breaks.raised_errors import FullGraphError
from ptdebug.tracer.runtime.statistics import STATISTICS
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

from ..checking import Programs, check

program = Programs()


class Log(TorchFunctionMode):
    """Takes down the functions that are called."""

    def __init__(self):
        super().__init__()
        self.seen = []

    def __torch_function__(self, func, types, args=(), kwargs=None):
        self.seen.append(getattr(func, "__name__", str(func)))
        return func(*args, **(kwargs or {}))


class Louder(TorchFunctionMode):
    """Multiplies sines, by one more after each addition."""

    entered = 0

    def __init__(self, factor):
        super().__init__()
        self.factor = factor

    def __enter__(self):
        Louder.entered += 1
        return super().__enter__()

    def __torch_function__(self, func, types, args=(), kwargs=None):
        result = func(*args, **(kwargs or {}))
        if func is torch.Tensor.add:
            self.factor += 1
        return result * self.factor if func is torch.sin else result


class Declining(TorchFunctionMode):
    def __torch_function__(self, func, types, args=(), kwargs=None):
        return NotImplemented


class Count(TorchDispatchMode):
    def __init__(self):
        super().__init__()
        self.calls = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        self.calls += 1
        return func(*args, **(kwargs or {}))


def wave(x):
    return torch.sin(x).add(1) * 2


@program
def one_mode(compile):
    step, x, seen = compile(wave, fullgraph=True), torch.ones(3), []
    for mode in (Log(), None, Log()):
        if mode is None:
            seen.append(step(x))
            continue
        with mode:
            seen.append(step(x))
        seen.append(mode.seen)
    return seen


@program
def state_of_a_mode(compile):
    step, x, mode = compile(wave, fullgraph=True), torch.ones(3), Louder(3.0)
    with mode:
        first = step(x), step(x)
    with Louder(4.0):
        second = step(x)
    return first, second, step(x), mode.factor


@program
def two_modes_and_devices(compile):
    step, x, found = compile(lambda x: torch.zeros(3) + torch.sin(x)), torch.ones(3), []
    with Louder(3.0), Louder(2.0):
        found.append(step(x))
    with torch.device("cpu"), Louder(3.0):
        found.append(step(x))
    with Louder(3.0), torch.device("cpu"):
        found.append(step(x))
    return found


@program
def breaks_below_a_mode(compile):
    def broken(x):
        y = torch.sin(x)
        ptdebug.graph_break()
        return torch.sin(y)

    step, x = compile(broken), torch.ones(3)
    with Louder(3.0):
        inside = step(x), step(x)
    return inside, step(x), torch._C._len_torch_function_stack()


@program
def a_module_and_its_gradients(compile):
    net, mode = torch.nn.Sequential(torch.nn.Linear(3, 3), torch.nn.ReLU()), Log()
    with torch.no_grad():
        net[0].weight.fill_(0.5)
        net[0].bias.fill_(0.25)
    step = compile(net)
    with mode:
        out = step(torch.ones(3))
    out.sum().backward()
    return out, net[0].weight.grad, mode.seen


@program
def writes_and_views(compile):
    total = torch.zeros(3)

    def write(x):
        total.add_(torch.sin(x))
        x = x.clone()
        x[0] = 2
        return x.view(-1)[1:], total.view(3, 1)

    step, mode = compile(write), Log()
    with mode:
        found = step(torch.ones(3))
    return found, total, mode.seen


@program
def errors_below_a_mode(compile):
    def refuse(x):
        if x.shape[0] == 3:
            raise ValueError("three")
        return x

    caught = []
    for mode, function in ((Log(), refuse), (Declining(), wave)):
        with mode:
            try:
                compile(function)(torch.ones(3))
            except (ValueError, TypeError) as error:
                caught.append(type(error))
        caught.append(torch._C._len_torch_function_stack())
    return caught


@program
def calls_of_calls(compile):
    Louder.entered = 0
    inner = compile(wave)
    outer = compile(lambda x: inner(x) + torch.sin(x))
    p = torch.ones(3, requires_grad=True)
    with Louder(3.0):
        outer(p).sum().backward()
    return p.grad, Louder.entered


@program
def a_dispatch_mode(compile):
    step, x, mode = compile(wave), torch.ones(3), Count()
    before = step(x)
    with mode:
        inside = step(x), step(x)
    return before, inside, mode.calls


@pytest.mark.parametrize("name", program)
def test_a_call_under_modes_is_the_call(name: str) -> None:
    check(program[name])


def test_a_mode_of_functions_is_in_the_graph() -> None:
    STATISTICS.clear()
    with Louder(2.0):
        ptdebug.compile(wave, fullgraph=True)(torch.ones(3))
    assert STATISTICS.graphs == 1
    assert not STATISTICS.reasons


def test_a_dispatch_mode_is_the_reason_for_eager() -> None:
    STATISTICS.clear()
    with Count():
        ptdebug.compile(wave)(torch.ones(3))
        with pytest.raises(FullGraphError, match="called under the dispatch mode Count"):
            ptdebug.compile(wave, fullgraph=True)(torch.ones(3))
    assert any("dispatch mode Count" in reason for reason in STATISTICS.reasons)
    assert STATISTICS.graphs == 0


def test_a_reset_keeps_what_was_counted() -> None:
    ptdebug.compile(wave)(torch.ones(3))
    before = ptdebug.stats()["graphs"]
    ptdebug.cli.api.reset()
    assert ptdebug.stats()["graphs"] == before > 0
