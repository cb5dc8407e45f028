"""Errors that only data brings about: raised, handled and traced back as in eager, with all side effects before."""
from __future__ import annotations

import traceback

import ptdebug
import pytest
import torch
from ptdebug.engine import compile as engine
from ptdebug.engine.runtime.runtime import STANDARD
from ptdebug.engine.unsupported import EngineUnsupported
from ptdebug.tracer.frames.dispatch import reset, stats

GOOD, BAD = torch.tensor([1, 2]), torch.tensor([1, 9])
LOG: list[str] = []


def handled(x, i, *rest, k=1, **named):
    LOG.append("before")
    y = x * 2
    try:
        z = y[i] + k
    except IndexError as error:
        LOG.append(type(error).__name__)
        z = y.sum() - 1
    LOG.append("after")
    return z


def raises(x, i):
    y = torch.relu(x)
    LOG.append("reached")
    z = y[i] * 2
    return z + 1


def closure(n):
    def inner(x, i):
        scale = lambda: n + i.numel()
        try:
            return x[i] * scale()
        except IndexError:
            return x * scale()

    return inner


def finally_too(x, i):
    try:
        y = x[i] * 2
    finally:
        LOG.append("finally")
    return y


def in_place(x, i):
    try:
        x[i] = 1.0
    except IndexError:
        return x * 3
    return x * 2


def outcome(function, *args):
    LOG.clear()
    try:
        result = function(*args).tolist()
    except Exception as error:
        lines = [(f.name, f.line) for f in traceback.extract_tb(error.__traceback__)[1:]]
        result = type(error), str(error), lines
    return result, list(LOG), [a.tolist() for a in args]


@pytest.mark.parametrize("function", [handled, raises, closure(3), finally_too, in_place])
def test_as_in_eager(function):
    compiled = ptdebug.compile(function)
    for index in (GOOD, BAD, GOOD):
        found = outcome(compiled, torch.arange(5.0), index)
        assert found == outcome(function, torch.arange(5.0), index)


def test_a_library_error_is_handled():
    def inverse(a):
        try:
            return torch.linalg.inv(a) + 1
        except torch.linalg.LinAlgError:
            return a - 1

    reset()
    compiled = ptdebug.compile(inverse)
    for matrix in (torch.eye(2), torch.zeros(2, 2), 2 * torch.eye(2)):
        torch.testing.assert_close(compiled(matrix), inverse(matrix))
    assert stats()["graph_breaks"] == 0 and any("rerun in eager" in reason for reason in stats()["reasons"])


def test_the_second_run_draws_the_numbers_that_eager_draws():
    def noisy(x, i):
        y = torch.nn.functional.dropout(x, 0.5)
        try:
            return x[i] + y[:2]
        except IndexError:
            return y * 2

    compiled = ptdebug.compile(noisy)
    for index in (GOOD, BAD):
        drawn = []
        for function in (noisy, compiled):
            torch.manual_seed(0)
            drawn.append((function(torch.ones(64), index).tolist(), torch.rand(3).tolist()))
        assert drawn[0] == drawn[1]


def test_an_error_while_inputs_are_written_is_not_followed_by_a_second_run(monkeypatch):
    def step(x, y):
        x.add_(1)
        return y.sinh_()

    real, memory = torch._C._increment_version, [True, False]

    def increment_version(tensors):
        if not memory.pop(0):
            raise MemoryError("no memory is left")
        real(tensors)

    monkeypatch.setitem(STANDARD, "changed", increment_version)  # wrappers call it when kernels have written
    compiled = ptdebug.compile(step)
    compiled(torch.zeros(4), torch.ones(3))
    x = torch.zeros(4)
    with pytest.raises(MemoryError, match="no memory"):
        compiled(x, torch.ones(3))
    assert not memory and x.tolist() == [1, 1, 1, 1]


def written_before(x, i):
    x.add_(1)
    return x[i] + 1


def written_behind(x, i):
    y = x[i] * 2
    x.add_(1)
    return y


def written_and_handled(x, i):
    x.add_(1)
    try:
        return x[i] + 1
    except IndexError:
        return x * 2


@pytest.mark.parametrize("function", [raises, handled, written_before, written_behind, written_and_handled])
@pytest.mark.parametrize("inference", [False, True])
def test_graphs_that_the_engine_leaves_to_eager(function, inference, monkeypatch):
    """What they write is written once. A line behind a write is not known: then the function's first is told."""
    monkeypatch.setattr(engine, "_infer", lambda *_: (_ for _ in ()).throw(EngineUnsupported("not today")))
    reset()
    compiled = ptdebug.compile(function)
    with torch.inference_mode(inference):
        for index in (GOOD, BAD, GOOD):
            (found, *rest), (wanted, *others) = [outcome(f, torch.arange(5.0), index) for f in (compiled, function)]
            assert rest == others
            if function is written_before:
                found, wanted = [[*r[:2], [name for name, _ in r[2]]] if len(r) == 3 else r for r in (found, wanted)]
            assert found == wanted
