"""What is warned of, by the program and by torch of the program's calls: at the program's lines, as in eager."""
# ruff: noqa: B028 - programs as people write them
# mypy: ignore-errors

from __future__ import annotations

import logging
import warnings

import ptdebug
import pytest
import torch
import torch.nn.functional as F
from torch import nn

from ..checking import Programs, call, check_engine

program = Programs()


def place(warning):
    """Where it is said to come from; which line of torch's, a layer that is inlined does not know."""
    return (warning.filename, warning.lineno) if "/torch/" not in warning.filename else ("torch", 0)


def warned(action, f, *calls):
    """Of each call what it gives and what was warned of: the text, the kind and the line."""
    found = []
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter(action)
        warnings.filterwarnings("ignore", category=ResourceWarning)  # of what earlier tests have left
        globals().pop("__warningregistry__", None)
        for args in calls:
            found.append(call(f, *args))
            found.append([(str(w.message)[:40], w.category, *place(w)) for w in seen])
            seen.clear()
    return found


@program
def of_calls_of_torch(compile):
    def fn(x, n):
        y = F.softmax(x * n)
        y = y + F.mse_loss(
            x,
            x[:1],
        )
        return y + torch.tensor(x).sum()

    x = torch.ones(3, 2)
    actions = "default", "module", "ignore"  # in each it is compiled anew: torch warns of a graph while it is compiled
    return [warned(a, compile(fn, isolate_recompiles=True), (x, 1), (x, 1), (x, 2)) for a in actions]


@program
def of_calls_in_functions_that_are_called(compile):
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.soft = nn.Softmax()

        def forward(self, x):
            return self.soft(x) + self.more(x)

        def more(self, x):
            return F.log_softmax(x)

    return warned("default", compile(Net()), (torch.ones(2, 2),))


@program
def of_floats_of_what_requires_grad(compile):
    def fn(x):
        return (x * 2).sum().item() + int(x.sum()), float(x.sum())

    def listed(x):
        return torch.tensor([1.0, x.sum()]) + x.detach()[:2]

    def quiet(x):
        with torch.no_grad():
            return float(x.sum()) + float((x * 2).detach().sum())

    x = torch.ones(3, requires_grad=True)
    torch.set_warn_always(True)  # else torch does so once in a process, whichever program is first
    try:
        actions = "default", "ignore", "error"
        functions = fn, listed, quiet
        return [warned(a, compile(f, isolate_recompiles=True), (x,)) for f in functions for a in actions]
    finally:
        torch.set_warn_always(False)


@program
def of_gradients_of_what_is_no_leaf(compile):
    def made(x):
        y = x * 2
        return y.sin(), y.grad

    def given(x):
        return x * 2, x.grad is None

    def retained(x):
        y = x * 2
        y.retain_grad()
        return y.sin(), y.grad

    x = torch.ones(3, requires_grad=True)
    functions = made, given, retained
    return [warned("always", compile(f, isolate_recompiles=True), (a,), (a,)) for f in functions for a in (x, x * 2)]


@program
def that_is_an_error(compile):
    def fn(x):
        try:
            return F.softmax(x), "no error"
        except UserWarning as error:
            return x + 1, str(error)[:20]

    def uncaught(x):
        return F.softmax(x + 1)

    x = torch.ones(2, 2)
    return [warned("error", compile(f), (x,), (x,)) for f in (fn, uncaught)]


@program
def by_the_program_of_its_caller(compile):
    def fn(x, n):
        y = x + n
        warnings.warn("of the caller", stacklevel=2)
        return y

    f = compile(fn)

    def caller(x, n):
        return f(x, n) * 2

    return warned("default", caller, (torch.ones(2), 1), (torch.ones(2), 1), (torch.ones(3), 2))


@program
def by_the_program_once(compile):
    def fn(x, n):
        warnings.warn(f"of {n}")
        return x.half() * 2 + n

    return warned("default", compile(fn), *((torch.ones(k), n) for k in (1, 2, 3) for n in (1, 2)))


@program
def logged_for_the_caller(compile):
    records = []

    class Kept(logging.Handler):
        def emit(self, record):
            records.append((record.funcName, record.lineno, record.getMessage()))

    logger = logging.getLogger("test_warned")
    logger.propagate = False
    logger.handlers[:] = [Kept()]

    def fn(x):
        logger.warning("of %d", x.shape[0], stacklevel=2)
        return x + 1

    f = compile(fn)

    def caller(x):
        return f(x)

    return [caller(torch.ones(n)) for n in (1, 2)], records


@pytest.mark.parametrize("name", program)
def test_a_compiled_program_is_the_program(name):
    check_engine(program[name])  # captured graphs that run in eager would have torch warn of their own lines


def test_what_the_engine_is_warned_of_is_not_shown():
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        ptdebug.compile(lambda x: torch.view_as_complex(x).abs() + 1)(torch.ones(4, 2))
    assert not seen
