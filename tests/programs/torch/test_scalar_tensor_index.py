"""Rows that a number in a tensor chooses. Eager gives views; the graph copies where nobody can tell, else breaks."""
# mypy: ignore-errors

from __future__ import annotations

import itertools

import ptdebug
import pytest
import torch
from ptdebug.cli import wiring
from ptdebug.tracer.runtime.statistics import STATISTICS

from .. import checking
from ..checking import Programs, call, check, check_engine

program = Programs()
whole = Programs()
"""Programs of one graph: f(x, i), whose results tell nothing of the view."""


def table(*sizes):
    return torch.arange(1.0, 1 + torch.Size(sizes).numel()).reshape(sizes).sin()


whole.update(
    scaled=lambda x, i: x[i] * 2,
    noised=lambda x, i: x[i].abs().sum().sqrt() * x + (1 - x[i, 0]) * x,
    twice=lambda x, i: x[i, i] + x[i][i] + x[1, i],
    with_more=lambda x, i: (x[i, 1:] * 2, x[i, ..., None] + 1, x[i, torch.tensor([0, 1])], x[0, i, None] * 3),
    narrow_numbers=lambda x, i: x[i.int()] + x[i.int(), 0],
    product=lambda x, i: x @ x[i],
    chosen_in_graph=lambda x, i: x[x[:, 0].argmax()] + x[i],
    in_a_loop=lambda x, i: sum(x[k] * 2 for k in torch.stack([i, i // 2])),
    written_before=lambda x, i: x.clone().mul_(2)[i] + 1,
    the_number_changes=lambda x, i: (lambda k: (x[k] + k.mul_(0), x[k] + 1))(i.clone()),
    columns=lambda x, i: (x[:, i] * 2, (x + x[:, i, None])[:, i].contiguous(), x.expand(2, 3, 3).clone()[:, i].exp()),
    columns_with_more=lambda x, i: (x[:, i, None] + 1, x[None, :, :][:, :, i].sum(), x[:, i][1:].reshape(-1) + 1),
    lists=lambda x, i: (x[(i, 0, i), :], x[:, [i.item(), 1]], x[[[i], [0]], (1, i)], x[(i.int(), 1), ...]),
    views_themselves=lambda x, i: (x[i], x[i].contiguous(), x[:, i], (x * 2)[i], x[i][i], x[i] + 1),
)


@pytest.mark.parametrize("name", whole)
def test_rows_are_taken_in_the_graph(name):
    for dynamic in (None, True):
        STATISTICS.clear()
        compiled = ptdebug.compile(whole[name], fullgraph=True, dynamic=dynamic)
        for number in (1, 0, 2, -1, -3):
            given = table(3, 3), torch.tensor(number)
            torch.testing.assert_close(compiled(*given), whole[name](*given))
        assert STATISTICS.graphs == 1


@program
def lists_that_are_written_to(compile):
    def f(x, places):
        rows, columns = zip(*places)
        y = x.clone()
        y[rows, columns] = False
        y[list(rows), 0] += x.sum()
        return y

    f = compile(f, fullgraph=True)
    return [call(f, table(3, 3), torch.tensor(places)) for places in ([[0, 1], [2, -1]], [[1, 1], [1, 1]], [[0, 3]])]


@program
def masks_in_lists(compile):
    f = compile(lambda x: x[[x[0, 0] > 0, x[1, 0] > 0, x[2, 0] > 0], 0] * 2)
    return f(table(3, 2)), f(-table(3, 2))


@program
def numbers_out_of_range(compile):
    f = compile(lambda x, i: x[i] * 2)
    g = compile(lambda x, i: (x[i, i] * 2, x[1, i] + 1))

    @compile
    def caught(x, i, log):
        log.append(1)
        try:
            return x[i] + 1
        except IndexError as error:
            return str(error), log

    given = [1, -4, 2, 3, -3, 7]
    x = table(3, 2)
    return [(call(f, x, k), call(g, x, k), caught(x, k, [])) for k in map(torch.tensor, given)]


@program
def masks_are_no_numbers(compile):
    @compile
    def f(x, i):
        return x[i] + 1, x[i, 0] * 2, x[0, i] * 2

    x = table(3, 2)
    kinds = torch.bool, torch.uint8, torch.int8, torch.int16, torch.int32, torch.float32
    return [call(f, x, torch.tensor(1).to(kind)) for kind in kinds], call(f, x[:0], torch.tensor(0)), call(
        f, x[:, :0], torch.tensor(4)), call(f, torch.tensor(1.0), torch.tensor(0))  # fmt: skip


@program
def views_leave(compile):
    @compile
    def f(x, i):
        return x[i], x + 1

    @compile
    def of_the_view(x, i):
        y = x[i]
        return y.view(2, 1), y + 1

    @compile
    def in_a_list(x, i, found):
        found.append(x[i])
        return x * 2

    @compile
    def over_a_break(x, i):
        y = x[i]
        print("now")
        x += 1
        return y * 2

    x, found, results = table(3, 2), [], []
    for i in map(torch.tensor, (1, -1, 0)):
        row, _ = f(x, i)
        row += 1
        column, _ = of_the_view(x, i)
        column *= 2
        in_a_list(x, i, found)
        results += row, column, over_a_break(x, i)
    found[0].zero_()
    return x, found, results


@program
def views_are_taken_after_the_graph(compile):
    """With the tensor, the number, and the mode as they were."""

    @compile
    def columns(x, i):
        return x[:, i], x[:, i].contiguous(), (x * 2)[:, i], x[:, i].view(3), [x[i][i], x[i]]

    @compile
    def the_number_changes(x, i):
        row = x[i]
        i.zero_()
        return row, x + 1

    @compile
    def another_shape(x, i):
        y = x * 2
        row = y[i]
        y.unsqueeze_(0)
        return row, y

    @compile
    def without_gradients(x, i):
        with torch.no_grad():
            row = x[i]
        return row, x[i], row + 1

    @compile
    def the_number_of_itself(x, i):
        x = x.detach().long()
        row = x[x[0, 0]]
        x[0, 0] = 1
        return row

    results = []
    for needed, i in itertools.product((False, True), map(torch.tensor, (1, -1, 0, 5))):
        for f in (columns, the_number_changes, another_shape, without_gradients, the_number_of_itself):
            x = table(3, 2).requires_grad_(needed)
            found = call(f, x, i.clone())
            if needed and isinstance(found[0], torch.Tensor) and found[0].requires_grad:
                found[0].sum().backward()
            results += x, found, x.grad
    return results


@program
def rows_taken_without_gradients(compile):
    """Views taken without gradients require them while their base does."""

    @compile
    def asked(x, i):
        with torch.no_grad():
            row = x[i]
        return row.requires_grad, row * 2 + x

    @compile
    def used(x, i):
        with torch.no_grad():
            row = x[i]
            y = row * 2
        return y, row + 1, y + 1

    @compile
    def viewed(x, i):
        with torch.no_grad():
            row = x[i][1:]
            y = row * 2
        return y, (row + 1).requires_grad

    results = []
    for needed in (True, False):
        results += [f(table(3, 2).requires_grad_(needed), torch.tensor(1)) for f in (asked, used, viewed)]
    return results


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


@program
def what_is_asked_of_views(compile):
    @compile
    def f(x, i):
        y = x[i]
        return y._is_view(), y.storage_offset(), y.is_contiguous(), y.stride(), y + 1

    @compile
    def strided(x, i):
        return x[i].as_strided((2,), (1,), 0) + 1, x[i].view(torch.int32) + 1, x.t()[i] * 2, x.expand(2, 3, 2)[i] + 1

    x = table(3, 2)
    return [(f(x, i), strided(x, i)) for i in map(torch.tensor, (1, 0))]


@program
def gradients(compile):
    @compile
    def f(x, w, i):
        return (x[i] * w).sum() + x[0, i] * 3 + x[i, i] ** 2 + (x[:, i] * w).sum()

    @compile
    def zeros(x, w, i):
        return -(x[i] * 0 * w).sum()

    results = []
    for number in (1, -1, 0):
        for function in (f, zeros):
            x, w = table(2, 2).requires_grad_(), table(2).requires_grad_()
            loss = function(x, w, torch.tensor(number))
            loss.backward()
            results += loss, x.grad, x.grad.signbit(), w.grad
    return results


@program
def modes(compile):
    f = compile(lambda x, i: x[i] + 1)
    x, i, results = table(2, 2).requires_grad_(), torch.tensor(1), []
    for mode in (torch.no_grad, torch.inference_mode, torch.enable_grad):
        with mode():
            results.append(f(x, i))
    batched = compile(lambda x, i: torch.vmap(lambda row, k: row[k] * 2)(x, i))
    shared = compile(lambda x, i: torch.vmap(lambda row: row[i] * 2)(x))
    return results, call(batched, x, torch.tensor([0, 1])), call(shared, x, i)


@program
def a_gradient_in_inference_mode(compile):
    def f(x, i):
        row = x[i]
        with torch.inference_mode():
            total = torch.func.jacrev(lambda a: a.sum(0))(x)
        return total + row

    return compile(f)(table(2, 3), torch.tensor(1))


class Experts(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.weights = torch.nn.Parameter(table(3, 2, 2))
        self.register_buffer("scales", table(3))

    def forward(self, x):
        best = (x @ self.weights[0]).sum(0).argmax()
        return x @ self.weights[best] * self.scales[best + 1].sqrt()


@program
def a_module_that_learns(compile):
    torch.manual_seed(0)
    module = Experts()
    step = compile(module)
    optimizer, losses = torch.optim.SGD(module.parameters(), 0.1), []
    for _ in range(3):
        loss = step(torch.randn(4, 2)).nan_to_num().sum()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss)
    return losses, module.weights


@pytest.fixture
def as_the_engine(monkeypatch):
    monkeypatch.setattr(wiring, "engine_backend", checking.as_the_engine)


@pytest.mark.parametrize("name", program)
def test_values_writes_and_errors(name, as_the_engine, monkeypatch):
    monkeypatch.setattr(ptdebug, "compile", lambda function, backend=None, **options: COMPILE(function, **options))
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


COMPILE = ptdebug.compile


@pytest.mark.parametrize("name", program)
def test_compiled_to_the_end(name):
    check_engine(program[name])
