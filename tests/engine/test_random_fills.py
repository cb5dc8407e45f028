"""Random numbers that fill memory in place: eager's, whatever the strides, and the graph stays whole."""
from __future__ import annotations

import ptdebug
import pytest
import torch
import torch.nn.functional as F
from ptdebug.engine.kernels import mt19937

from .training.checking import P, check

FILLS = {
    "bernoulli_": (0.3,), "uniform_": (0, 2), "normal_": (1, 2), "exponential_": (2,), "geometric_": (0.3,),
    "log_normal_": (), "cauchy_": (), "random_": (-3, 9),
}


@pytest.mark.parametrize(("fills", "dynamic"), [(list(FILLS), None), (["normal_"], True)])
def test_a_fill_of_any_window(fills: list[str], dynamic: bool | None) -> None:
    def program(x):
        copies = []
        for fill in fills:
            copies += [x.clone(), x.clone()]
            getattr(copies[-2].t(), fill)(*FILLS[fill])
            getattr(copies[-1][:, ::2], fill)(*FILLS[fill])
        return tuple(copies)

    check(program, torch.randn(8, 12), calls=1, exact=True, dynamic=dynamic)


def test_an_input_is_filled() -> None:
    check(lambda x: (x.t().normal_(), x[:, ::2].exponential_(), x + 1), torch.randn(8, 12), calls=1, exact=True)


def test_dropout_of_what_is_not_contiguous() -> None:
    def program(x, y):
        return F.dropout(x.t(), 0.5), F.dropout2d(y.transpose(1, 2), 0.5), F.alpha_dropout(x[:, ::2], 0.5)

    check(program, P(5, 8), P(2, 3, 4, 5).detach().to(memory_format=torch.channels_last).requires_grad_())


@pytest.mark.parametrize("dtype", [torch.int8, torch.uint8, torch.int64, torch.bfloat16])
@pytest.mark.parametrize("bounds", [(3, 9), (-2, 2), (-100, 100)])
def test_bounds_that_a_dtype_may_not_hold(dtype: torch.dtype, bounds: tuple[int, int]) -> None:
    if dtype is torch.uint8 and bounds[0] < 0:
        return
    reason = "a Python keyword" if dtype is torch.int8 and bounds[1] == 100 else ""
    check(lambda x: torch.empty(50, dtype=dtype).random_(*bounds), torch.zeros(1), calls=1, exact=True, fallback=reason)


def test_a_copy_with_random_numbers_asked_for_by_name() -> None:
    reason = "fills a tensor that is not contiguous with random numbers"
    check(lambda x: x.t().bernoulli(0.3), torch.randn(5, 7), fallback=reason)
    check(lambda x: x.bernoulli(0.3), torch.randn(5, 7))


@pytest.mark.parametrize("p", [0.0, 0.1, 0.5, 1.0])
@pytest.mark.parametrize("drawn", [0, 1, 623])  # words of the generator that were taken before
def test_many_draws_are_eagers_and_so_is_the_generator(p: float, drawn: int) -> None:
    for count in (mt19937.MANY, mt19937.MANY + 311):
        made = []
        for fill in (mt19937.fill_bernoulli, torch.Tensor.bernoulli_):
            torch.manual_seed(count)
            torch.rand(drawn)
            memory = torch.full((count,), -1.0)
            assert fill(memory, p) is not False
            made.append((memory, torch.get_rng_state(), torch.randn(7)))
        assert all(torch.equal(ours, eagers) for ours, eagers in zip(*made))


def test_draws_of_another_thread_meanwhile_are_not_repeated(monkeypatch: pytest.MonkeyPatch) -> None:
    draw = mt19937._checked()
    assert draw is not None
    torch.manual_seed(3)
    expected = torch.rand(2)[1:]
    torch.manual_seed(3)
    monkeypatch.setattr(mt19937, "_checked", lambda: lambda *args: (draw(*args), torch.rand(1)))
    assert not mt19937.fill_bernoulli(torch.empty(mt19937.MANY), 0.5)
    assert torch.equal(torch.rand(1), expected)


def test_a_large_dropout_in_a_program() -> None:
    def program(x):
        return F.dropout(x, 0.1) + x, torch.rand(3)

    x = torch.randn(200, 100)
    check(program, x, exact=True)
    check(program, x.clone().requires_grad_())


@pytest.mark.parametrize("first", (torch.bernoulli, torch.poisson, lambda p: F.dropout(p, 0.5)))
def test_numbers_are_drawn_in_the_programs_order(first) -> None:
    """Also where a kernel that reads the second ones comes early: it is one with the kernel that the first wait for."""
    check(lambda x: (first(x.sigmoid()), x + torch.rand(x.shape)), torch.randn(4, 3), calls=1, exact=True)


def test_operators_of_the_program_run_in_its_order() -> None:
    seen: list[str] = []
    with torch.library._scoped_library("test_random_fills", "FRAGMENT") as library:
        for name in ("one", "other"):
            library.define(f"{name}(Tensor x) -> Tensor", tags=torch.Tag.pt2_compliant_tag)
            library.impl(name, lambda x, name=name: (seen.append(name), x.clone())[1], "CPU")
            library.impl(name, torch.empty_like, "Meta")
        operators = torch.ops.test_random_fills
        fast = ptdebug.compile(lambda x, y: (operators.one(x.sigmoid()), x + operators.other(y)))
        fast(torch.ones(4, 3), torch.ones(4, 3))
    assert seen == ["one", "other"]


def test_another_default_dtype_inside_of_a_graph_is_eagers() -> None:
    def program(x):
        torch.set_default_dtype(torch.float64)
        made = torch.randn(3), torch.arange(3) / 3, torch.ones(3) + x
        torch.set_default_dtype(torch.float32)
        return made

    x = torch.randn(3)
    torch.manual_seed(0)
    expected = program(x)
    torch.manual_seed(0)
    torch.testing.assert_close(ptdebug.compile(program)(x), expected, rtol=0, atol=0)
