"""Programs with modes that see every call of torch: `TorchFunctionMode`, alone, nested, with subclasses."""
# mypy: ignore-errors

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from ptdebug.tracer.runtime.statistics import STATISTICS
from torch.overrides import TorchFunctionMode

from ..checking import Programs, check, check_engine, check_whole
from .log_mode import Log

program, whole = Programs(), Programs()


class Swap(TorchFunctionMode):
    """Calls other functions than the program does."""

    def __init__(self, table):
        self.table = table
        self.count = 0

    def __torch_function__(self, func, types, args=(), kwargs=None):
        self.count += 1
        return self.table.get(func, func)(*args, **(kwargs or {}))


@whole
def a_mode_sees_every_call(compile):
    log = Log()

    def f(x):
        with log:
            y = torch.sin(x) + 1
            z = F.linear(y, torch.eye(2))
            s, n = y.shape, y.size(0)
        return y * z, s, n

    return compile(f)(torch.ones(2)), log.names


@whole
def modes_in_modes(compile):
    def f(x, m):
        with m:
            a, b, c = torch.sin(x), torch.zeros(2), x + torch.ones(2)
        with m, Swap({torch.cos: torch.tan}):
            d, e = torch.cos(x), torch.sin(x)
        return a, b, c, d, e

    m = Swap({torch.sin: torch.cos, torch.zeros: torch.ones})
    return compile(f)(torch.full((2,), 2.0), m), m.count


@program
def a_mode_around_a_break(compile):
    log = Log()

    def f(x):
        y = x * 2
        with log:
            z = torch.sin(y)
            print("here")
            w = z + 1
        return w * 3

    return compile(f)(torch.ones(2)), log.names


@whole
def a_mode_that_stays(compile):
    log = Log()

    def f(x):
        log.__enter__()
        return x + 1

    out = compile(f)(torch.ones(2))
    depth = torch._C._len_torch_function_stack()
    log.__exit__(None, None, None)
    return out, depth, log.names


@pytest.mark.parametrize("name", program | whole)
def test_a_program_with_overrides_is_the_program(name: str) -> None:
    STATISTICS.clear()
    check((program | whole)[name])
    assert not STATISTICS.graph_breaks or name not in whole


def test_the_engine_gives_the_same() -> None:
    check_engine(whole["modes_in_modes"])


def test_modes_are_out_of_force_where_all_overrides_are():
    """Also one that is entered inside."""

    class Tenfold(TorchFunctionMode):
        def __torch_function__(self, func, types, args=(), kwargs=None):
            return func(*args, **(kwargs or {})) * 10

    def use(compile):
        def f(x):
            asked, enabled = [], torch._C._is_torch_function_mode_enabled
            with Tenfold():
                asked.append((enabled(), torch.add(x, 1)))
                with torch._C.DisableTorchFunctionSubclass():
                    asked.append((enabled(), torch.add(x, 2)))
            with torch._C.DisableTorchFunction():
                asked.append(enabled())
                with Tenfold():
                    asked.append((enabled(), torch.add(x, 3)))
            return asked, enabled()

        fast = compile(f)
        first = fast(torch.ones(2))
        with torch._C.DisableTorchFunction():
            second = fast(torch.ones(2))
        with Tenfold():
            return first, second, fast(torch.ones(2))

    check(use)


def test_asking_whether_modes_are_in_force_does_not_break_the_graph():
    def f(x):
        return x + torch._C._is_torch_function_mode_enabled()

    check_whole(lambda compile: compile(f)(torch.ones(2)))


def test_a_device_that_is_entered_is_a_mode_to_who_asks():
    """Also around the call: eager's torch answers yes, where there is an argument at all."""
    overrides = torch.overrides

    def asked(x):
        return (
            overrides.has_torch_function(x), overrides.has_torch_function((x, 3)), overrides.has_torch_function(()),
            overrides.has_torch_function_unary(5), overrides.has_torch_function_variadic(x, x),
        )

    def use(compile):
        def f(x):
            with torch.device("cpu"):
                inside = asked(x), F.relu(x), torch.zeros(2)
            return inside, asked(x), x + 1

        fast = compile(f)
        first = fast(torch.ones(2))
        with torch.device("cpu"):
            return first, fast(torch.ones(2)), fast(torch.ones(2))

    check_whole(use)
