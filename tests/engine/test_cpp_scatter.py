"""Scatters as kernels: values, order of additions, bounds, and that threads do not change results."""
from __future__ import annotations

import ptdebug
import pytest
import torch
import torch.nn.functional as F

from .cpp_checking import built, check


def indices(*shape: int, high: int) -> torch.Tensor:
    return torch.randint(0, high, shape, generator=torch.Generator().manual_seed(3))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.int64, torch.int8, torch.uint8])
@pytest.mark.parametrize("rows, width", [(40, 5), (3000, 64), (9000, 1)])
def test_rows_added_to_rows(dtype, rows, width):
    x, source = torch.ones(37, width).to(dtype), (torch.randn(rows, width) * 4).to(dtype)
    at = indices(rows, high=37)
    check(lambda x, at, s: x.index_put((at,), s, accumulate=True), x, at, source, slack=3.0)
    check(lambda x, at, s: x.scatter_add(0, at[:, None].expand_as(s), s * 2), x, at, source, slack=3.0)
    check(lambda x, at, s: x.index_put((at - 37,), s[:1], accumulate=True), x, at, source, slack=3.0)


@pytest.mark.parametrize("dim", [0, 1, -1])
def test_every_dimension_and_an_index_for_each_element(dim):
    x, source = torch.randn(9, 11, 40), torch.randn(9, 11, 40)
    at = indices(7, 9, 33, high=9)
    check(lambda x, at, s: x.scatter_add(dim, at, s), x, at, source, slack=3.0)
    one_each = torch.stack([torch.randperm(9)[:7] for _ in range(9 * 33)], 1).reshape(7, 9, 33)
    if dim == 0:
        check(lambda x, at, s: (x.scatter(dim, at, s), x.scatter(dim, at, 2.5)), x, one_each, source)


def test_what_stays_is_the_last():
    x, at = torch.zeros(5, 3), torch.tensor([1, 4, 1, 1])
    source = torch.arange(12.0).reshape(4, 3)
    check(lambda x, at, s: x.index_put((at,), s), x, at, source)
    check(lambda x, at, s: x.scatter(0, at[:, None].expand_as(s), s), x, at, source)


def test_several_indices_and_dimensions_between():
    x, rows, columns = torch.randn(6, 4, 5), indices(3, 2, high=6), indices(2, high=5)
    values = torch.randn(3, 2, 4)
    check(lambda x, r, c, v: torch.ops.aten.index_put(x, [r, None, c], v, True), x, rows, columns, values, slack=3.0)
    middle = lambda x, r, c, v: torch.ops.aten.index_put(x, [None, r[:, 0] % 4], v[0, 0, 0], True)
    check(middle, x, rows, columns, values, slack=3.0)
    check(lambda x, r, c, v: torch.ops.aten._unsafe_index_put(x, [None, None, c], v[0, 0, 0], True), x, rows, columns,
          values, slack=3.0)


def test_many_places_and_not_a_number():
    x = torch.zeros(50000)
    at, source = indices(20000, high=50000), torch.randn(20000)
    source[::97], source[5], source[6] = float("nan"), float("inf"), -0.0
    check(lambda x, at, s: x.index_put((at,), s, accumulate=True) * -1, x, at, source, slack=3.0)


@pytest.mark.parametrize("padding", [-1, 2])
def test_backward_of_embedding(padding):
    gradient, at = torch.randn(30, 50, 24), indices(30, 50, high=19)
    check(lambda g, at: torch.ops.aten.embedding_dense_backward(g, at, 19, padding, False), gradient, at, slack=3.0)


def test_an_index_out_of_bounds_is_an_error():
    x, source, at = torch.zeros(5, 64), torch.ones(3000, 64), indices(3000, high=5)
    made = built(lambda x, at, s: x.index_put((at,), s, accumulate=True), x, at, source)
    for wrong in (5, -6):
        with pytest.raises(IndexError):
            made(x, torch.where(torch.arange(3000) == 1234, wrong, at), source)


@pytest.mark.parametrize("function", [
    lambda x, at: x.index_add(1, at, x), lambda x, at: x.index_copy(0, at, x),
    lambda x, at: x.clone().index_add_(0, at, x), lambda x, at: x.index_copy_(1, at, x + 1)[0],
])
def test_what_is_written_is_not_counted_from_the_end(function):
    x, right, compiled = torch.randn(4, 4), torch.tensor([3, 1, 2, 2]), ptdebug.compile(function)
    assert compiled(x.clone(), right).equal(function(x.clone(), right))
    for program in (function, compiled):
        with pytest.raises((IndexError, RuntimeError), match=r"index.* -1 is out of bounds"):
            program(x.clone(), right - 2)


@pytest.mark.parametrize("function", [
    lambda at: torch.zeros_like(at)[at], lambda at: at.new_ones(3000, 3).gather(1, at[:, None]).sum(0),
    lambda at: at.new_full((5, 4), 2)[at].prod(), lambda at: at.new_ones(5).take(at) + at.new_zeros(5, 2)[at, 0],
    lambda at: torch.nn.functional.nll_loss(at.new_zeros((3000, 5), dtype=torch.float32), at),
])
def test_an_index_into_numbers_that_are_all_the_same_is_checked(function):
    at = indices(3000, high=3)
    made = built(function, at)
    torch.testing.assert_close(made(at)[0], function(at))
    wrong = torch.where(torch.arange(3000) == 1234, 3000, at)
    with pytest.raises((IndexError, RuntimeError)):
        function(wrong)
    with pytest.raises(IndexError):
        made(wrong)


AT_EVERY_DEPTH = {  # a function of two indices, and a column of each that it uses
    "rows to rows": (lambda x, a, b: x.index_put((a[:, 0],), x[b[:, 0]] * 2, accumulate=True), 0, 0),
    "elements": (lambda x, a, b: torch.ops.aten.index_put(x, [a, b], x[:1, :1] * 3, True), 17, 39),
    "a sum of rows": (lambda x, a, b: (x[a[:, 0]] * x[b[:, 0]]).sum(1), 0, 0),
    "a sum of elements": (lambda x, a, b: (x[a[:, 0]] * x[a[:, 1], b.T].T.exp()).sum(1), 1, 33),
    "a sum of columns": (lambda x, a, b: (x[a[:, 0]] * x[b, a[:, :1]]).sum(0), 0, 17),
    "a maximum of rows": (lambda x, a, b: x[a[:, 2]].gather(1, b).amax(1) + x[a[:, 2]].amin(1), 2, 39),
}


@pytest.mark.parametrize("name", AT_EVERY_DEPTH)
@pytest.mark.parametrize("threads", [1, 3])
def test_each_index_is_checked_in_whatever_loop_it_stands(name, threads):
    function, *columns = AT_EVERY_DEPTH[name]
    x, a, b = torch.randn(40, 40), indices(3000, 40, high=40), indices(3000, 40, high=40).flip(0)
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        made = built(function, x, a, b)
        torch.testing.assert_close(made(x, a, b)[0], function(x, a, b), rtol=1e-4, atol=1e-4)
        for row, wrong in ((0, 40), (1777, 4 << 20), (2999, -41)):
            for which, column in enumerate(columns):
                bad = [a.clone(), b.clone()]
                bad[which][row, column] = wrong
                with pytest.raises((IndexError, RuntimeError), match=r"index.*(range|bounds)"):
                    function(x, *bad)
                with pytest.raises(IndexError, match=r"index|gather"):  # where kernels say which of them it was
                    made(x, *bad)
    finally:
        torch.set_num_threads(before)


def test_threads_do_not_change_the_result():
    x, source, at = torch.zeros(500, 33), torch.randn(9000, 33), indices(9000, high=500)
    made = built(lambda x, at, s: x.index_put((at,), torch.exp(s), accumulate=True), x, at, source)
    before = torch.get_num_threads()
    results = []
    try:
        for threads in (1, 2, 3):
            torch.set_num_threads(threads)
            results.append(made(x, at, source)[0])
    finally:
        torch.set_num_threads(before)
    assert "own_first" in made.source.text
    assert all(torch.equal(r, results[0]) for r in results)


def test_empty_indices_and_sizes_of_one():
    check(lambda x, at, s: x.scatter_add(0, at, s), torch.randn(1), torch.zeros(1, dtype=torch.int64), torch.ones(1))
    none = torch.zeros(0, dtype=torch.int64)
    check(lambda x, at, s: x.scatter_add(0, at, s), torch.randn(4), none, torch.ones(0))
    check(lambda x, at, s: F.relu(x.index_put((at,), s)), torch.randn(4), none, torch.ones(0))


def test_places_of_sizes_that_vary():
    def given(n, m):
        draw = torch.Generator().manual_seed(n)
        x, y = torch.randn(n, 3, generator=draw), torch.randn(m, 3, generator=draw)
        return x, y, torch.randint(-n, n, (m,), generator=draw), torch.randint(0, 3, (m,), generator=draw)

    def function(x, y, i, j):
        return (x.index_add(0, i.remainder(x.shape[0]), y), x.index_put((i,), y, accumulate=True),
                x.index_put((i, j), y[:, 0], accumulate=True), x.index_put((i * 0,), y.sum(0)))

    made = check(function, *given(9, 5), again=given(21, 40))
    assert not any("index_put" in str(getattr(item, "target", "")) for item in made.plan.items)
    compiled = ptdebug.compile(function, dynamic=True)
    for sizes in ((9, 5), (21, 40), (4, 1), (7, 0)):
        for a, b in zip(compiled(*given(*sizes)), function(*given(*sizes))):
            torch.testing.assert_close(a, b)
    x, y, i, _ = given(9, 5)
    i[2] = 9
    with pytest.raises(IndexError):
        ptdebug.compile(lambda x, y, i: x.index_put((i,), y), dynamic=True)(x, y, i)


def test_as_many_places_as_data_tells():
    def function(x, y, mask):
        rows = mask.nonzero(as_tuple=True)[0]
        return x.index_put((rows,), y[rows] * 2), x.index_add(0, rows, y[mask])

    compiled = ptdebug.compile(function)
    for mask in ([True, False, True], [False] * 3, [True] * 3):
        given = torch.randn(3, 4), torch.randn(3, 4), torch.tensor(mask)
        for a, b in zip(compiled(*given), function(*given)):
            torch.testing.assert_close(a, b)
