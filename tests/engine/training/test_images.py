"""Convolutions whose images are turned, in the joint graph. On a CPU, as on a GPU."""
from __future__ import annotations

import ptdebug
import pytest
import torch
from ptdebug.engine.aot.decompositions import composite
from ptdebug.engine.passes.extern_kernels import conv_layouts
from torch import nn
from torch.nn import functional as F


class _Net(nn.Module):
    """A stem with a bias, a block with batch norm, pooling, and a head."""

    def __init__(self) -> None:
        super().__init__()
        self.stem, self.body = nn.Conv2d(3, 8, 3, stride=2, padding=1), nn.Conv2d(8, 8, 3, padding=1, bias=False)
        self.norm, self.head = nn.BatchNorm2d(8), nn.Linear(8 * 4 * 4, 5)

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        x = F.max_pool2d(F.relu(self.stem(x)), 2)
        image = F.relu(x + self.norm(self.body(x)))
        return self.head(image.flatten(1)), image


def test_values_gradients_and_strides(monkeypatch: pytest.MonkeyPatch) -> None:
    """As eager's in bfloat16; results and gradients keep eager's strides."""
    monkeypatch.setattr(conv_layouts, "GPU", "cpu")
    monkeypatch.setattr(composite, "_is_gpu", lambda x: True)
    torch.manual_seed(0)
    model = _Net().to(torch.bfloat16)
    x = torch.randn(2, 3, 16, 16).to(torch.bfloat16).requires_grad_()
    weights = torch.randn(2, 8, 4, 4).to(torch.bfloat16)

    def results(function: nn.Module) -> list[torch.Tensor]:
        logits, image = function(x)
        loss = logits.square().sum() + (image * weights).sum()
        return [logits, image, *torch.autograd.grad(loss, [x, *model.parameters()])]

    expected = results(model)
    with ptdebug.record("images") as recording:
        actual = results(ptdebug.compile(model))
    chosen = [d.chosen for _, d in recording.decisions(kind="conv-layout")]
    assert chosen == ["channels-last", "channels-last"]
    for a, e in zip(actual, expected, strict=True):
        assert a.stride() == e.stride()
        torch.testing.assert_close(a, e, rtol=5e-2, atol=5e-2 * float(e.detach().abs().max()))
