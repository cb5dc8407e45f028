"""Convolutions whose images are turned, in the joint graph. On a CPU, as on a GPU."""
from __future__ import annotations

import ptdebug
import pytest
import torch
from ptdebug.engine.aot.decompositions import composite
from ptdebug.engine.passes import extern_kernels
from ptdebug.engine.passes.extern_kernels import conv_layouts
from torch import nn
from torch.nn import functional as F


class _Net(nn.Module):
    """A stem with a bias, a block with batch norm, pooling, and a head."""

    def __init__(self, groups: int = 1, size: int = 3) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, 8, 3, stride=2, padding=1)
        self.body = nn.Conv2d(8, 8, size, padding=size // 2, bias=False, groups=groups)
        self.norm, self.head = nn.BatchNorm2d(8), nn.Linear(8 * 4 * 4, 5)

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        x = F.max_pool2d(F.relu(self.stem(x)), 2)
        image = F.relu(x + self.norm(self.body(x)))
        return self.head(image.flatten(1)), image


CASES = {  # layers, dtype, whether images are turned: not for the backward of large depthwise filters in float32
    "bfloat16": (1, 3, torch.bfloat16, True), "float32": (1, 3, torch.float32, True),
    "groups": (4, 3, torch.bfloat16, True), "depthwise": (8, 5, torch.float32, False),
}


@pytest.mark.parametrize("case", CASES)
def test_values_gradients_and_strides(case: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """As eager's; results and gradients keep eager's strides."""
    groups, size, dtype, turned = CASES[case]
    monkeypatch.setattr(conv_layouts, "GPU", "cpu")
    monkeypatch.setattr(composite, "_is_gpu", lambda x: True)
    torch.manual_seed(0)
    model = _Net(groups, size).to(dtype)
    x = torch.randn(2, 3, 16, 16).to(dtype).requires_grad_()
    weights = torch.randn(2, 8, 4, 4).to(dtype)

    def results(function: nn.Module) -> list[torch.Tensor]:
        logits, image = function(x)
        loss = logits.square().sum() + (image * weights).sum()
        return [logits, image, *torch.autograd.grad(loss, [x, *model.parameters()])]

    expected = results(model)
    with ptdebug.record("images") as recording:
        actual = results(ptdebug.compile(model))
    asked = [d for _, d in recording.decisions(kind="conv-layout") if len(d.options) == 2 and "GPU" in d.why]
    assert [d.chosen for d in asked] == ["channels-last", "channels-last"] * turned
    for a, e in zip(actual, expected, strict=True):
        assert a.stride() == e.stride()
        torch.testing.assert_close(a, e, rtol=5e-2, atol=5e-2 * float(e.detach().abs().max()))


def test_what_the_joint_graph_decides_stands_in_its_halves(monkeypatch: pytest.MonkeyPatch) -> None:
    """The forward half does not see what the backward would cost, and is not asked again."""
    monkeypatch.setattr(conv_layouts, "GPU", "cpu")
    monkeypatch.setattr(extern_kernels, "choose_layouts", lambda graph, context: [])
    x = torch.randn(2, 3, 16, 16, requires_grad=True)
    with ptdebug.record("images") as recording:
        ptdebug.compile(_Net(8, 5))(x)[1].sum().backward()
    assert [d for _, d in recording.decisions(kind="conv-layout")] == []
