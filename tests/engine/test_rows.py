"""Products over rows that are no multiple of 16 bytes long: the same values, from padded memory. On a CPU, as there."""
from __future__ import annotations

from collections.abc import Callable

import ptdebug
import pytest
import torch
from ptdebug.engine.passes.extern_kernels import pad_mm
from torch.nn import functional as F


@pytest.fixture(autouse=True)
def _small_products_on_the_cpu_count(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pad_mm, "GPU", "cpu")
    monkeypatch.setattr(pad_mm, "SMALL", 1)


def _loss(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
    return F.cross_entropy(F.linear(x, weight, bias).flatten(0, 1).float(), target.flatten())


def _turned(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
    """The gradient's rows come in another order than those of the product that it flows into."""
    mixed = F.gelu(F.linear(x, weight).transpose(0, 1) + bias)
    return F.linear(mixed.transpose(0, 1), weight.t().contiguous()).float().square().mean()


def _result_leaves(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
    logits = F.linear(x, weight, bias)
    return logits.float().square().mean() + 0.0 * logits.view(-1)[0].float()


@pytest.mark.parametrize("function", [_loss, _turned, _result_leaves])
def test_values_and_gradients(function: Callable[..., torch.Tensor]) -> None:
    """As eager's, for logits of 13 classes in bfloat16."""
    torch.manual_seed(0)
    x, weight, bias = torch.randn(3, 3, 8), torch.randn(13, 8), torch.randn(13)
    leaves = [t.to(torch.bfloat16).requires_grad_() for t in (x, weight, bias)]
    target = torch.randint(0, 13, (3, 3))
    expected = function(*leaves, target)
    gradients = torch.autograd.grad(expected, leaves, allow_unused=True)
    with ptdebug.record("rows") as recording:
        actual = ptdebug.compile(function)(*leaves, target)
        found = torch.autograd.grad(actual, leaves, allow_unused=True)
    asked = [d.subject for _, d in recording.decisions(kind="pad-mm")]
    assert asked
    torch.testing.assert_close(actual, expected, rtol=1e-2, atol=1e-2)
    for a, e in zip(found, gradients, strict=True):
        torch.testing.assert_close(a, e, rtol=5e-2, atol=1e-2)


def test_a_result_keeps_its_strides() -> None:
    """What the program gets is dense."""
    x, weight = torch.randn(4, 8).to(torch.bfloat16), torch.randn(13, 8).to(torch.bfloat16)
    compiled = ptdebug.compile(lambda x, w: F.linear(x, w))(x, weight)
    assert compiled.stride() == (13, 1)
    torch.testing.assert_close(compiled, F.linear(x, weight))
