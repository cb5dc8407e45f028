"""Attributes and dict items that change between calls are seen, however they are reached (CPython 3.13 hides some)."""
from __future__ import annotations

import pytest
import torch
from ptdebug.tracer.frames.dispatch import optimize
from ptdebug.tracer.fx.backend_call import CompileOptions
from torch import nn

X = torch.zeros(2)


class Module(nn.Module):
    def __init__(self):
        super().__init__()
        self.k = 1

    def forward(self, x):
        return x + 1 if self.training else x + 10 * self.k


class Plain:
    def __init__(self):
        self.k = 1


READS = {
    "module": lambda owner: lambda x: owner(x) + 1,
    "attribute": lambda owner: lambda x: x + owner.k,
    "vars": lambda owner: lambda x: x + vars(owner)["k"],
    "dict": lambda owner: lambda x: x + owner.__dict__["k"],
}


@pytest.mark.parametrize("read", READS)
@pytest.mark.parametrize("through_dict", [False, True])
def test_changed_constants_are_seen(read, through_dict):
    owner = Module().eval() if read == "module" else Plain()
    variables = owner.__dict__
    function = READS[read](owner)
    fast = optimize(function, CompileOptions(lambda captured, context: captured.module.forward))
    assert torch.equal(fast(X), function(X))
    for value in (7, 8, 7.5, True):
        if through_dict:
            variables["k"] = value
        else:
            owner.k = value
        assert torch.equal(fast(X), function(X)), value


def test_changed_training_flag_is_seen():
    module = Module().eval()
    fast = optimize(lambda x: module(x), CompileOptions(lambda captured, context: captured.module.forward))
    for _ in range(2):
        assert torch.equal(fast(X), X + 10)
        module.train()
        assert torch.equal(fast(X), X + 1)
        module.eval()


class Step:
    def go(self, x: torch.Tensor) -> torch.Tensor:
        return x + 1


class Walk(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.steps = [Step(), Step()]

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for step in self.steps:
            x = step.go(x)
        return x


def test_a_method_of_a_class_that_is_replaced_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    module = Walk()
    compiled = optimize(module.forward, CompileOptions(lambda captured, _: captured.module.forward))
    assert compiled(torch.zeros(1)).item() == 2
    monkeypatch.setattr(Step, "go", lambda self, x: x - 3)
    assert compiled(torch.zeros(1)).item() == -6
    monkeypatch.undo()
    assert compiled(torch.zeros(1)).item() == 2
