"""Programs about views and the memory that tensors share."""
from __future__ import annotations

import warnings

import pytest
import torch
import torch.nn.functional as F

from ..checking import Programs, call, check, check_engine

program = Programs()


@program
def views_in_place(compile):
    def fn(x):
        y = x + 1
        row = y[0]
        same = y.unsqueeze_(1)
        row.add_(5)
        same.mul_(2)
        shape = y.shape
        y.squeeze_()
        turned = y.transpose_(0, 1)
        z = (x * 2).t_()
        return y, row, same is y, turned is y, shape, y.shape, y.stride(), z, z.stride(), [same]

    f = compile(fn)
    wanted = torch.arange(6.0).view(2, 3).requires_grad_()
    out = f(wanted)
    out[0].sum().backward()
    return f(torch.arange(6.0).view(2, 3)), f(torch.arange(9.0).view(3, 3)), out, wanted.grad


@program
def views_in_place_of_inputs(compile):
    def fn(x, y):
        x.t_()
        first = y[0].unsqueeze_(0)
        first.add_(1)
        return x + 1, first, x.stride()

    f = compile(fn)
    x, y = torch.arange(9.0).view(3, 3), torch.ones(2, 2)
    return f(x, y), x, y, x.stride()


@program
def written_where_elements_share_memory(compile):
    """Eager refuses most of what writes there; the line is the program's."""

    def added(x, y):
        for part in (x, x + 1):
            y.add_(part)
        return y

    def augmented(x, y):
        y += x
        return y

    def caught(x, y):
        try:
            y[1:].mul_(2)
        except RuntimeError as error:
            return x + len(str(error))
        return y

    def made_here(x, y):
        zeros = torch.zeros(1, 3).expand(2, 3)
        return zeros.sub_(x)

    def by_function(x, y):
        z = x + 1
        torch.sigmoid_(y)
        return z

    def by_option(x, y):
        z = x + 1
        F.relu(y, inplace=True)
        return z

    def by_position(x, y):
        x.add_(1)
        try:
            F.relu(y, True)
        except RuntimeError:
            return x + 1
        return x

    def by_slice(x, y):
        x.add_(1)
        y[:] = x
        return x

    def into_it(x, y):
        try:
            return torch.add(x, 1, out=y)
        except RuntimeError:
            return x + 2

    def in_a_list(x, y):
        x.add_(1)
        torch._foreach_add_([x, y], 1)
        return x

    def allowed(x, y):
        y.fill_(3).masked_fill_(x > 0, 2)
        y[0] = 1
        return y + 1, y.t_().shape, y.is_contiguous()

    shared = lambda: torch.zeros(1, 3).expand(3, 3)
    refused = added, augmented, caught, made_here, by_function, by_option, by_position, by_slice, into_it, in_a_list
    results = []
    for f in (*refused, allowed):
        for dynamic in (None, True):
            x, y = torch.ones(2 if f is made_here else 3, 3), shared()
            results.append((call(compile(f, dynamic=dynamic), x, y), x, y))
    return results


@program
def read_and_written(compile):
    """Elements that an operator both reads and writes, at other indices: eager refuses most such writes."""

    def shifted(x):
        try:
            x[1:].copy_(x[:-1])
        except RuntimeError as error:
            return str(error)
        return x

    def turned(x):
        square = x.view(3, 3)
        square.add_(square.t())
        return square

    def bounded(x):
        return x.clamp_(max=x[4])

    def selected(x):
        return torch.take(x, torch.arange(9), out=x)

    def moved(x):
        x.view(3, 3)[:, :2] = x.view(3, 3)[:, 1:]
        return x

    def allowed(x):
        square = x.view(3, 3)
        square[0] = square[1]
        square[:, 1] += square[:, 2]
        square[[0, 1]] = square[[1, 0]]
        x[::2].sub_(x[:5])
        return x.mul_(x)

    def chosen(x):
        square = x.view(3, 3)
        column = int(x.argmax()) % 3
        square[:, column] = square[:, 0]
        square[column] = square[0]
        return x

    def by_size(x, n):
        x[n:] -= x[:-n]
        return x

    def by_columns(x, k):
        x[:, x.shape[1] - k :].copy_(x[:, :k])
        return x * 2

    def edges(x):
        x[:, 0] = x[:, 1]
        x[:, -1] = x[:, -2]
        x[0] = x[1]
        return x * 2

    grid = lambda columns: torch.arange(4.0 * columns).view(4, columns)
    results = []
    for dynamic in (None, True):
        fast = compile(by_columns, dynamic=dynamic)
        for columns, k in ((6, 2), (7, 2), (8, 3), (6, 4), (9, 5), (12, 4)):
            x = grid(columns)
            results.append((call(fast, x, k), x))
        fast = compile(edges, dynamic=dynamic)
        results += [(call(fast, x), x) for x in map(grid, (6, 8, 2, 5))]
        for f in (shifted, turned, bounded, selected, moved, allowed, chosen):
            x = torch.arange(9.0)
            results.append((call(compile(f, dynamic=dynamic), x), x))
        fast = compile(by_size, dynamic=dynamic)
        results += [(call(fast, x, n), x) for x in (torch.arange(9.0), torch.arange(12.0)) for n in (6, 5, 4)]
    return results


@program
def detached_in_place(compile):
    def computed(x):
        y = (x * 2).t_()
        return y._is_view(), y.detach_() is y, y + 1

    def view(x):
        y = (x * 2).t()
        y.detach_()
        return y

    def of_gradients(x):
        y = x * 2
        y.detach_()
        return y, y.requires_grad

    x = torch.arange(6.0).view(2, 3)
    return [call(compile(f), x) for f in (computed, view)], call(compile(of_gradients), x.requires_grad_())


@program
def detached_in_place_in_a_transform(compile):
    def tangents(x):
        return torch.func.jvp(lambda v: (v * 2).detach_() * v, (x,), (x,))

    def each(x):
        return torch.func.vmap(lambda v: (v * 2).detach_() * v)(x)

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # eager's vmap says that it is slow
        return [call(compile(f), torch.ones(3)) for f in (tangents, each)]


@program
def tensors_that_begin_elsewhere_in_their_memory(compile):
    def f(x):
        mapped = torch.func.vmap(lambda row: row * row.storage_offset())(x[:4].view(2, 2))
        return x * 2, x.storage_offset(), x[1:].storage_offset(), (x + 1).storage_offset(), mapped

    base = torch.arange(12.0)
    parts = base[0:4], base[4:8], base[2:6], base[:8], base[4:12], base[3:12]
    compiled = [compile(f, dynamic=dynamic) for dynamic in (None, True, False)]
    return [[call(fast, part) for part in parts] for fast in compiled]


def room_is_made(compile):
    """Results that are larger or smaller than the memory that is given for them, which eager makes fit."""

    def extremes(x, values, indices):
        return torch.max(x, 1, out=(values, indices)), values + 1, indices.shape

    def remade(x, y, z):
        torch.resize_as_(y, x)
        y.zero_()
        z.add_(1)
        return y + x

    def other_memory(x, y, z):
        torch.ops.aten.set_.source_Tensor(y, x)
        return y + 1, z.add_(1)

    functions = (
        lambda x, y, z: (torch.add(x, 1, out=y), y * 2, y.shape), lambda x, y, z: torch.stack([x, x], out=y).sum(),
        lambda x, y, z: torch.ops.aten.sum.IntList_out(x, [0], out=y), extremes, remade, other_memory,
    )
    results = []
    for f in functions:
        compiled = compile(f)
        for n, room in ((2, 0), (3, 0), (2, 9)):
            x, y, z = torch.ones(n, 3), torch.zeros(room), torch.zeros(0, dtype=torch.long)
            results.append((call(compiled, x, y, z), y, z))
    return results


def test_a_result_that_has_no_room() -> None:
    check(room_is_made)
    check_engine(room_is_made)


@pytest.mark.parametrize("name", program)
def test_a_compiled_program_is_the_program(name):
    check(program[name])
