"""`x[mask] = value` is a choice for each element: no size that data tells, forwards or backwards."""
from __future__ import annotations

from pathlib import Path

import ptdebug
import pytest
import torch
from ptdebug.artifacts.summary import summary

from .checking import P, check, compile

MASK = torch.tensor([[True, False, True], [False, False, True]])

VALUES = {
    "row": P(4), "one": P(1), "row of one": P(1, 4), "no dimension": P(1)[0].detach().requires_grad_(),
    "nan": torch.tensor(float("nan")), "0.5": 0.5, "True": True, "7": 7, "-inf": float("-inf"),
}


def assigned(x, mask, value):
    y = x * 2
    y[mask] = value
    return y.sin()


def library_calls(function, *inputs, folder: Path) -> int:
    """How many a compiled function makes."""
    with ptdebug.record("masked", out=folder) as recording:
        ptdebug.compile(function)(*inputs)
    return summary(recording)["counts"]["extern_calls"]


@pytest.mark.parametrize("value", VALUES.values(), ids=VALUES)
@pytest.mark.parametrize("mask", [MASK, MASK & False, MASK | True, MASK[:, 0]], ids=["some", "none", "all", "rows"])
def test_as_in_eager(mask, value, tmp_path):
    if mask.dim() == 1 and isinstance(value, torch.Tensor) and value.shape == (1, 4):
        value = value.view(1, 1, 4)
    check(assigned, P(2, 3, 4), mask, value)
    assert library_calls(assigned, torch.randn(2, 3, 4), mask, value, folder=tmp_path) == 0


def test_of_elements_and_of_parts():
    check(assigned, P(2, 3), MASK, 0.5)
    check(assigned, P(2, 3), MASK, P(1)[0].detach().requires_grad_())

    def part(x, mask, value):
        y = x * 2
        y[:, 1][mask] = value
        return y

    check(part, P(2, 3, 4), MASK[:, 0], P(4))


def test_inputs_are_written_where_they_are():
    def program(x, mask, value):
        x[mask] = value
        return x * value.sum()

    check(program, torch.randn(2, 3, 4), MASK, P(4))
    check(program, P(2, 3, 4), MASK, P(4), prepare=lambda x, mask, value: (x * 1, mask, value))


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float64, torch.int16, torch.bool, torch.complex64], ids=str)
def test_dtypes(dtype):
    x = torch.tensor([[0, 1, 2], [3, 4, 5]]).to(dtype)
    for value in (1, x[0, 1].clone(), x[0, :1].clone()):
        def program(x, mask, value):
            y = x.clone()
            y[mask] = value
            return y

        check(program, x, MASK, value)


def test_as_many_values_as_the_mask_chooses_are_looked_up():
    def program(x, mask, value):
        y = x * 2
        y[mask] = value
        return y.sin()

    for shape in ((3, 4), (3, 1)):
        assert torch.equal(compile(program)(torch.ones(2, 3, 4), MASK, torch.ones(shape)),
                           program(torch.ones(2, 3, 4), MASK, torch.ones(shape)))


@pytest.mark.parametrize("value, mask", [
    (torch.ones(5), MASK), (torch.ones(4, dtype=torch.float64), MASK), (torch.ones(2, 3, 4), MASK),
    (0.5, MASK[:, :2]), (0.5, MASK.t()),
], ids=str)  # fmt: skip
def test_what_eager_refuses(value, mask):
    x = torch.ones(2, 3, 4)
    with pytest.raises((RuntimeError, IndexError)) as expected:
        assigned(x, mask, value)
    with pytest.raises((RuntimeError, IndexError)) as found:
        ptdebug.compile(assigned)(x, mask, value)
    assert (type(found.value), str(found.value)) == (type(expected.value), str(expected.value))


def test_numbers_that_the_dtype_does_not_hold():
    for dtype, number in ((torch.float16, 1e6), (torch.uint8, 300), (torch.int32, 2**40)):
        def program(x, mask):
            y = x.clone()
            y[mask] = number  # noqa: B023
            return y

        outcomes = []
        for f in (program, ptdebug.compile(program)):
            try:
                outcomes.append(f(torch.ones(2, 3, dtype=dtype), MASK).tolist())
            except RuntimeError as error:
                outcomes.append(str(error))
        assert outcomes[0] == outcomes[1]


def test_sizes_that_vary():
    fast = ptdebug.compile(assigned, dynamic=True)
    for rows in (2, 5, 1, 0):
        x, mask, value = torch.randn(rows, 3, 4), torch.rand(rows, 3) > 0.5, torch.randn(4)
        torch.testing.assert_close(fast(x, mask, value), assigned(x, mask, value))


@pytest.mark.parametrize("wrap", [False, True])
@pytest.mark.parametrize("view", [
    lambda x: x.T, lambda x: x[None].squeeze(0), lambda x: x[1:], lambda x: x[:, None] * x[:3].T[None, :, :3],
])  # fmt: skip
def test_the_diagonal_of_a_view_is_filled(view, wrap):
    def program(x):
        y = view(x * 2)
        y.fill_diagonal_(7.0, wrap)
        return y.sin()

    check(program, P(3, 3))
    if not wrap and view(torch.ones(5, 3)).dim() == 2:
        check(program, P(5, 3))
