"""Tensors and the numbers of their shapes against eager."""
from __future__ import annotations

import math

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings, strategies as st
from ptdebug.tracer.frames.dispatch import optimize, stats
from ptdebug.tracer.fx.backend_call import CompileOptions

X = torch.arange(6.0).reshape(2, 3)


def metadata(x):
    return (
        x.shape, x.size(), x.size(0), x.size(-1), x.dtype, x.device, x.ndim, x.dim(), x.numel(), x.stride(),
        x.stride(1), x.is_contiguous(),
        x.t().is_contiguous(), x.requires_grad, x.is_floating_point(), x.element_size(), x.nbytes,
        x.is_cuda, x.layout, x.itemsize, x.grad, x.grad_fn, x.is_leaf, x.storage_offset(), x[1].storage_offset(),
        len(x), x.shape[1:], x.shape.numel(), x.type(), torch.numel(x), torch.is_floating_point(x), type(x), x.mT.shape,
    )  # fmt: skip


def operators(x):
    y = x + 1
    y += x
    y = 2 - y
    y **= 2
    compared = x == 1, 1 < x, ~(x > 1), x.bool() & (x > 2)
    return -y, y @ x.T, x // 2, x % 2, 3 / (x + 1), compared, abs(x), +x, 2**x, x is x


def indexing(x):
    i = torch.tensor([1, 0])
    return x[0], x[-1, 1], x[:, 1:], x[..., None], x[i], x[i, i], x[None, :, 0], x[0:2, ::2], x[[1, 0]], x[(0, 1)]


def assignment(x):
    y = x.clone()
    y[0] = 5
    y[:, 1] = y[:, 0]
    y[y > 4] = 0
    y[1, 2] += 3
    return y


def iteration(x):
    first, second = x
    return [row.sum() for row in x], first + second, list(zip(x, range(2))), [*x.unbind(1)]


def methods(x):
    y = x.view(3, 2).transpose(0, 1).contiguous().to(torch.float64).float()
    z = x.new_zeros(2, 2).fill_(3).add_(1)
    return y, z, x.mean(dim=-1, keepdim=True), x.split(2, dim=1), x.chunk(2), x.type(torch.int32), x.to("cpu"), x.mul(2)


def functions(x):
    return (
        torch.cat([x, x], dim=1), torch.stack((x, x)), torch.zeros(2, 3), torch.arange(4), F.relu(x), F.softmax(x, -1),
        torch.where(x > 2, x, 0.0), torch.einsum("ij,kj->ik", x, x), torch.tensor([1, 2]), F.pad(x, (1, 1)),
        torch.full_like(x, 2), torch.finfo(x.dtype).max, torch.promote_types(x.dtype, torch.int64), torch.Size((1, 2)),
        torch.linspace(0, 1, 3), torch.result_type(x, 1), torch.Tensor.add(x, 1), torch.is_tensor(x), F.linear(x, x),
    )  # fmt: skip


def views_and_aliases(x):
    y = x.clone()
    view = y.view(-1)
    view.mul_(2)
    same = y.contiguous()
    return y, view, same is y, y.data, y.real is None


def in_place(x):
    x.add_(1).mul_(2)
    x[0, 0] = 7
    x += 1
    return x.sum()


@pytest.mark.parametrize(
    "function", [operators, indexing, assignment, iteration, methods, functions, views_and_aliases]
)  # fmt: skip
def test_as_in_eager(check, function):
    check(function, X)


def test_metadata_is_constant(check):
    check(lambda x: (x + 1, metadata(x)), X)
    assert len(check.targets) <= 4  # x + 1 and the views that metadata makes


def test_changes_of_an_argument(check):
    check(in_place, X)


def test_result_of_an_in_place_operation_is_the_tensor_itself():
    def change(x):
        y = x.add_(1)
        return y, y is x

    fast = optimize(change, CompileOptions(lambda captured, context: captured.module.forward))
    x = X.clone()
    y, known = fast(x)
    assert known
    assert y is x


@pytest.mark.parametrize(
    ("function", "code"),
    [
        (lambda x: x * 2 if x.sum() > 3 else x * 3, "depends on a tensor's values"),
        (lambda x: (x + 1).repeat(30, 1).tolist(), "a tensor becomes a Python list"),
        (lambda x: (x + 1).numpy().tobytes(), "this NumPy call has no counterpart in the graph: ndarray.tobytes"),
    ],
)  # fmt: skip
def test_what_depends_on_the_data_breaks(check, function, code):
    check(function, X, graphs=None)
    assert any(code in reason for reason in stats()["reasons"])


def test_operator_errors_are_those_of_eager(check):
    check(lambda x: (x + 1) @ x, X, graphs=None)
    check(lambda x: (x + 1).view(5), X, graphs=None)


def test_attributes_of_the_persons_own(check):
    def tagged(x):
        x.tag = "seen"
        return x + 1, x.tag, hasattr(x, "other")

    check(tagged, X)


def test_parameters_are_parameters(check):
    weight = torch.nn.Parameter(torch.ones(3))

    def uses(x):
        return x * weight, isinstance(weight, torch.nn.Parameter), type(x + 1) is torch.Tensor, weight.requires_grad

    with torch.no_grad():
        check(uses, X)


def sizes(x):
    n, m = x.shape
    half = n // 2
    grown = x.new_zeros(n + 1, m * 2)
    folded = x.reshape(n * m)
    return grown, folded, x[:half], n * 1.5, float(n), math.sqrt(n), min(n, 3), max(n, 3), list(range(n))[-1], n > 1


def test_sizes_that_vary_compile_twice_at_most():
    count = 0

    def backend(captured, context):
        nonlocal count
        count += 1
        return captured.module.forward

    def scale(x):
        n = x.shape[0]
        return x.view(n * 3) * n + torch.arange(n * 3) / (n + 1), n

    fast = optimize(scale, CompileOptions(backend))
    for n in (2, 4, 7, 9, 30):
        x = torch.randn(n, 3)
        got, expected = fast(x), scale(x)
        assert torch.equal(got[0], expected[0])
        assert got[1] == expected[1]
    assert count == 2


@settings(max_examples=15, deadline=None)
@given(st.lists(st.integers(2, 9), min_size=2, max_size=4))
def test_any_sizes(ns):
    fast = optimize(sizes, CompileOptions(lambda captured, context: captured.module.forward, recompile_limit=64))
    for n in ns:
        x = torch.randn(n, 3)
        got, expected = fast(x), sizes(x)
        for a, b in zip(got, expected):
            assert type(a) is type(b)
            assert torch.equal(a, b) if isinstance(a, torch.Tensor) else a == b


def test_numbers_that_vary():
    count = 0

    def backend(captured, context):
        nonlocal count
        count += 1
        return captured.module.forward

    fast = optimize(lambda x, n: x * n + n, CompileOptions(backend))
    for n in (2, 3, 5, 8):
        assert torch.equal(fast(X, n), X * n + n)
    assert count == 2


def test_numbers_that_vary_have_no_in_place_form():
    def augmented(x, n):
        a, b, c = 2, n, n
        a += n
        b -= 1
        c *= 2.0
        return x * a, b, c

    fast = optimize(augmented, CompileOptions(lambda captured, context: captured.module.forward))
    for n in (2, 3, 5):
        got, expected = fast(X, n), augmented(X, n)
        assert torch.equal(got[0], expected[0])
        assert got[1:] == expected[1:]


@pytest.mark.parametrize("dynamic", [False, True])
def test_whether_an_input_is_a_view_is_asked_of_itself(dynamic):
    def program(x):
        return x._is_view(), x.contiguous()._is_view(), x.sin()._is_view(), x.t()._is_view()

    compiled = optimize(program, CompileOptions(lambda captured, context: captured.module.forward, dynamic=dynamic))
    leaf = torch.randn(2, 3, requires_grad=True)
    for x in (torch.randn(2, 3), torch.randn(3, 3)[:2], leaf, leaf * 1, leaf.view(2, 3), leaf.detach()):
        assert compiled(x) == program(x)
