"""Products over rows that are no multiple of 16 bytes long: the same values, in aligned memory. On a CPU, as there."""
from __future__ import annotations

from collections.abc import Callable

import ptdebug
import pytest
import torch
from ptdebug.engine.kernels import unaligned_product as unaligned
from ptdebug.engine.kernels.unaligned_product import unaligned_product
from ptdebug.engine.passes.extern_kernels import pad_mm, product_costs
from torch.nn import functional as F


@pytest.fixture(autouse=True)
def _small_products_on_the_cpu_count(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pad_mm, "GPU", "cpu")
    monkeypatch.setattr(pad_mm, "SMALL", 1)
    slow = {2: {16: 1e15, 8: 1.0, 4: 1.0, 2: 1.0}, 4: {16: 1e15, 8: 1.0, 4: 1.0}}
    monkeypatch.setattr(product_costs, "RATES", slow)
    monkeypatch.setattr(pad_mm, "copy_time", lambda value: 1.0)
    monkeypatch.setattr(unaligned, "FEWEST", 0)


def _loss(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
    return F.cross_entropy(F.linear(x, weight, bias).flatten(0, 1).float(), target.flatten())


def _turned(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
    """The gradient's rows come in another order than those of the product that it flows into."""
    mixed = F.gelu(F.linear(x, weight).transpose(0, 1) + bias)
    return F.linear(mixed.transpose(0, 1), weight.t().contiguous()).float().square().mean()


def _result_leaves(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
    return F.linear(x, weight, bias)


def _rows_of_sums(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
    """Sums of 13 terms, of rows that loops compute, and of rows that come from outside."""
    return F.linear(x.sin() @ weight.t(), weight.t().sin()), weight.t() @ weight


FUNCTIONS = {_loss: {"padded"}, _turned: {"padded"}, _result_leaves: {"interleaved", "padded"},
             _rows_of_sums: {"padded"}}


@pytest.mark.parametrize("function", FUNCTIONS)
def test_values_and_gradients(function: Callable[..., torch.Tensor]) -> None:
    """As eager's, for logits of 13 classes in bfloat16."""
    torch.manual_seed(0)
    x, weight, bias = torch.randn(3, 3, 8), torch.randn(13, 8), torch.randn(13)
    leaves = [t.to(torch.bfloat16).requires_grad_() for t in (x, weight, bias)]
    target = torch.randint(0, 13, (3, 3))
    _check(function, leaves, target, FUNCTIONS[function])


def _check(function, leaves, target, ways):
    expected = function(*leaves, target)
    with ptdebug.record("rows") as recording:
        actual = ptdebug.compile(function)(*leaves, target)
        both = [r if isinstance(r, tuple) else (r,) for r in (actual, expected)]
        found, gradients = ([torch.autograd.grad(sum(t.float().sin().sum() for t in r), leaves, allow_unused=True)]
                            for r in both)
    asked = {d.chosen for _, d in recording.decisions(kind="pad-mm")}
    assert asked == ways
    for a, e in zip(*both, strict=True):
        assert a.stride() == e.stride()
        torch.testing.assert_close(a, e, rtol=2e-2, atol=2e-2)
    for a, e in zip(found[0], gradients[0], strict=True):
        torch.testing.assert_close(a, e, rtol=5e-2, atol=1e-1)


RARE = (
    ((13, 13), lambda x: x @ x),
    ((20, 8), (8, 13), lambda x, w: torch.addmm(torch.ones(()), x, w).relu()),
    ((20, 13), (20, 8), (13, 8), lambda a, b, c: torch.addmm(c, a.t(), b)),
    ((20, 13), (20, 8), (13, 1), lambda a, b, c: torch.addmm(c, a.t(), b)),
    ((20, 13), (20, 8), (1, 8), lambda a, b, c: torch.addmm(c, a.t(), b)),
    ((20, 13), (13, 11), lambda x, w: x @ w),
    ((20, 8), (8, 13), lambda x, w: (x @ w).view(-1).relu()),
    ((20, 8), (8, 13), lambda x, w: torch.as_strided(x @ w, (10, 26), (26, 1)).relu()),
    ((20, 13), (13, 8), lambda x, w: (x.relu() @ w, torch.as_strided(x.relu(), (10, 26), (26, 1)).exp())),
)


@pytest.mark.parametrize("number", range(len(RARE)))
def test_rare_operands_and_readers(number: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """One matrix twice, biases of other shapes, two odd sides, and what reads the memory as it lies."""
    monkeypatch.setattr(pad_mm, "by_tensor_cores", lambda dtype: True)
    *shapes, function = RARE[number]
    inputs = [torch.randn(shape) for shape in shapes]
    before = ptdebug.stats()["fallbacks"]
    found, expected = ptdebug.compile(function)(*inputs), function(*inputs)
    assert ptdebug.stats()["fallbacks"] == before
    pairs = zip(found, expected, strict=True) if isinstance(expected, tuple) else [(found, expected)]
    for a, e in pairs:
        assert a.stride() == e.stride()
        torch.testing.assert_close(a, e, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("allowed", [False, True])
def test_results_of_float32(allowed: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Only where products of float32 run on tensor cores."""
    x, weight, bias = torch.randn(20, 8), torch.randn(13, 8), torch.randn(13)
    monkeypatch.setattr(pad_mm, "by_tensor_cores", lambda dtype: allowed)
    with ptdebug.record("rows") as recording:
        compiled = ptdebug.compile(lambda *a: F.linear(*a))(x, weight, bias)
    assert [d.chosen for _, d in recording.decisions(kind="pad-mm")] == ["interleaved"] * allowed
    assert compiled.stride() == (13, 1)
    torch.testing.assert_close(compiled, F.linear(x, weight, bias))


def test_rows_that_vary_in_number() -> None:
    """One compilation for the first number, and one for all others."""
    weight = torch.randn(13, 8).to(torch.bfloat16)
    program = ptdebug.compile(lambda x, w: F.linear(x.sin(), w))
    with ptdebug.record("rows") as recording:
        for rows in (24, 9, 40, 3):
            x = torch.randn(rows, 8).to(torch.bfloat16)
            torch.testing.assert_close(program(x, weight), F.linear(x.sin(), weight), rtol=2e-2, atol=2e-2)
    assert [d.chosen for _, d in recording.decisions(kind="pad-mm")] == ["interleaved"] * 2


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize(("rows", "terms", "columns"), [(64, 32, 50), (7, 8, 33), (100, 16, 41), (16, 8, 13)])
def test_a_dense_product_of_misaligned_rows(rows, terms, columns, dtype):
    torch.manual_seed(0)
    left, weight, bias = torch.randn(rows, terms), torch.randn(columns, terms), torch.randn(columns)
    left, weight, bias = (t.to(dtype) for t in (left, weight, bias))
    turned = torch.cat([left.t(), left[:3].t()], 1)[:, :rows].t()
    for given in (None, bias):
        expected = left.double() @ weight.t().double() + (0 if given is None else given.double())
        for matrix in (left, turned):
            found = unaligned_product(matrix, weight.t(), given)
            assert found.is_contiguous()
            close = 1e-4 if dtype == torch.float32 else 0.1
            torch.testing.assert_close(found.double(), expected, rtol=1e-2, atol=close)


@pytest.mark.parametrize("shape", [(), (1,), (8,), (1, 8), (13, 1), (13, 8)])
def test_a_bias_of_any_shape(shape: tuple[int, ...]) -> None:
    left, right, bias = torch.randn(20, 13).t(), torch.randn(20, 8), torch.randn(shape)
    torch.testing.assert_close(unaligned_product(left, right, bias), torch.addmm(bias, left, right))
