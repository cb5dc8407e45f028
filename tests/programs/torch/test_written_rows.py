"""Programs that write to rows which a number in a tensor chooses."""
# mypy: ignore-errors

from __future__ import annotations

import itertools

import ptdebug
import pytest
import torch
from ptdebug.tracer.runtime.statistics import STATISTICS

from ..checking import Programs, call, check, check_engine

program = Programs()


def table(*sizes):
    return torch.arange(1.0, 1 + torch.Size(sizes).numel()).reshape(sizes).sin()


@program
def written_afterwards(compile):
    @compile
    def through_the_view(x, i):
        x[i].mul_(3)
        y = x[i]
        y += 1
        return x * 1

    @compile
    def below_the_view(x, i):
        y = x[i]
        x.add_(1)
        return y * 2

    @compile
    def past_the_count(x, i):
        y = x[i]
        x.data.mul_(2)
        return y * 2

    @compile
    def in_a_list(x, i):
        y = x[i]
        torch._foreach_add_([x], 1.0)
        return y * 2

    @compile
    def by_another_name(x, i, other):
        y = x[i]
        other.mul_(2)
        return y * 2

    @compile
    def item(x, i):
        x[i] += 1
        x[i] = x[0] * 2
        x[i, 1] = 5
        return x + 1

    x, results = table(3, 2), []
    for i in map(torch.tensor, (1, -1, 0)):
        results += through_the_view(x, i), below_the_view(x, i), past_the_count(x, i), item(x, i)
        results.append(in_a_list(x, i))
        results += by_another_name(x, i, x.data), by_another_name(x, i, x[1]), by_another_name(x, i, x.detach()[0])
    return x, results


@program
def rows_are_written(compile):
    @compile
    def own(x, i, v):
        y = x * 2
        y[i] = v
        return y, x[0] + 1

    @compile
    def given(x, i, v):
        x[i] = v
        return x.sum(), x.t() * 2

    @compile
    def column(x, i, v):
        y = x.t().clone()
        y[i.int()] = v[0]
        return y

    results = []
    for i in map(torch.tensor, (1, 0, -1, 2, 4, -3, -5, True)):
        x, v = table(3, 2), torch.tensor([7.0, 8.0])
        results += call(own, x, i, v), call(given, x, i, 3), call(given, x, i, v[None]), call(column, x, i, v)
        results += x, call(own, x.requires_grad_(), i, v)
    return results


def put(x, i):
    x = x + 1
    y = x[i] * 2
    x[i] = 0
    return x, y


def add(x, i):
    x[i] += 1
    x[i] *= x[i] + x[0]
    i += 1
    return x * 2


def count(x, i):
    counts = torch.zeros(3, dtype=torch.int64)
    for k in torch.stack([i, i, i // 2]):
        counts[k] += 1
        x[k] -= counts[k]
    return counts


def known(x, i):
    x[torch.tensor(0)] += i
    x[torch.tensor([2, 1])[1]] *= 3
    return x * 2


@pytest.mark.parametrize("function", [put, add, count, known])
def test_a_row_is_written_in_the_graph(function):
    STATISTICS.clear()
    compiled = ptdebug.compile(function, fullgraph=True)
    for number in (1, 0, -1):
        ours, theirs = [(table(3, 2), torch.tensor(number)) for _ in range(2)]
        torch.testing.assert_close((compiled(*ours), ours), (function(*theirs), theirs))
    assert STATISTICS.graphs == 1


@program
def rows_are_written_and_read(compile):
    """What is read of the tensor, or of another row, between the write to the row and the one to the tensor."""

    @compile
    def between(x, i):
        row = x[i]
        row += 1
        y = x.sum()
        x[i] = row
        return x * 2, y

    @compile
    def another_row(x, i):
        row = x[i]
        row += 1
        y = x[0] + x[i]
        x[i] = row
        return x * 2, y

    @compile
    def overlapping(x, i):
        x[i] += x[:2, 0]
        return x * 2

    @compile
    def read_after(x, i):
        old = x[0 * i]
        x[i] += 1
        return old + 1

    @compile
    def row_after(x, i):
        row = x[i]
        row += 1
        x[i] = row
        x.mul_(2)
        return row + 1

    @compile
    def known_row_after(x, i):
        old = x[torch.tensor(1)]
        x[torch.tensor(1)] += i
        return old + 1

    def without(x, i):
        with torch.no_grad():
            return between(x, i), read_after(x, i)

    functions = between, another_row, overlapping, read_after, row_after, known_row_after, without
    return [_written(f, needed, i) for needed in (False, True) for i in (1, -1, 0, 4) for f in functions]


@program
def rows_are_written_elsewhere(compile):
    """Two rows at once, another place than the row's, a number that changes; and what autograd records."""

    @compile
    def both(x, i):
        a, b = x[i], x[i]
        torch._foreach_add_([a, b], 1.0)
        x[i] = a
        return x * 2

    @compile
    def elsewhere(x, i):
        row = x[i]
        row += 1
        x[i - 1] = row
        return x * 2

    @compile
    def the_number_changes(x, i):
        row = x[i]
        row += 1
        i -= 1
        x[i] = row
        return x * 2

    @compile
    def learned(x, i):
        x = x * 1
        x[i] *= 2
        x[i] += x[0]
        return x.sin()

    functions = both, elsewhere, the_number_changes
    found = [_written(f, needed, i) for needed in (False, True) for i in (1, -1, 0, 4) for f in functions]
    return found, [_written(learned, needed, i, needed) for needed in (False, True) for i in (1, -1, 0, 4)]


def _written(f, needed, number, differentiated=False):
    """What a program that writes rows leaves: the tensor, what it returns or raises, the gradient."""
    x = table(3, 2).requires_grad_(needed)
    found = call(f, x, torch.tensor(number))
    if differentiated and isinstance(found, torch.Tensor):
        found.sum().backward()
    return x, found, x.grad


@pytest.mark.parametrize("name", program)
def test_values_writes_and_errors(name, as_the_engine, by_the_engine):
    check(program[name])


def test_a_write_before_an_error_is_one():
    @check_engine
    def program(compile):
        @compile
        def f(x, i):
            x += 1
            return x[i] + 1

        x = table(3, 2)
        return [(call(f, x, torch.tensor(k)), x + 0) for k in (1, 5, -4, 0)]


def test_writes_before_the_backward_that_eager_allows():
    losses = (
        lambda x, w, i: (x[i] * w).sum(), lambda x, w, i: (x[i].sin() * w).sum(),
        lambda x, w, i: (x[i] + w).square().sum(), lambda x, w, i: (x.exp()[i] * w).sum(),
    )

    @check_engine
    def program(compile):
        results = []
        for loss, needed in itertools.product(losses, (False, True)):
            x, w, i = table(3, 2).requires_grad_(needed), table(2).requires_grad_(), torch.tensor(1)
            result = compile(loss)(x, w, i)
            with torch.no_grad():
                i.add_(1)
                x.add_(1) if loss in losses[2:] else None
            result.backward()
            results += w.grad, x.grad
        return results


@pytest.mark.parametrize("name", program)
def test_compiled_to_the_end(name):
    check_engine(program[name])
