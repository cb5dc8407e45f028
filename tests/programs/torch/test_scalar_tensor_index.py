"""Rows that a number in a tensor chooses. Eager gives views; the graph copies where nobody can tell, else breaks."""
# mypy: ignore-errors

from __future__ import annotations

import itertools

import ptdebug
import pytest
import torch
from ptdebug.tracer.runtime.statistics import STATISTICS

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


@pytest.mark.parametrize("name", program)
def test_values_writes_and_errors(name, as_the_engine, by_the_engine):
    check(program[name])


@pytest.mark.parametrize("name", program)
def test_compiled_to_the_end(name):
    check_engine(program[name])
