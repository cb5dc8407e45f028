"""Cache entries that are dropped while C++ reads their guards."""
from __future__ import annotations

import gc
import weakref
from typing import Any

import pytest
import torch
from ptdebug.artifacts.context import CompileContext
from ptdebug.tracer.frames import dispatch
from ptdebug.tracer.fx.backend_call import CompileOptions
from ptdebug.tracer.runtime import eval_frame

pytestmark = pytest.mark.skipif(bool(eval_frame.unavailable()), reason=eval_frame.unavailable())
OPTIONS = CompileOptions(lambda captured, context: captured.module.forward, make_context=CompileContext)


def test_an_entry_that_garbage_collection_drops_while_a_guard_runs():
    """The tree is there until the check of it has ended, and goes with the next compilation."""
    def function(x: torch.Tensor) -> torch.Tensor:
        return x + 1

    compiled = dispatch.optimize(function, OPTIONS)
    compiled(torch.ones(3))
    (entry,) = eval_frame.entries(function.__code__)
    guards, trees, there = [entry.guard_manager], [weakref.ref(entry.guard_manager.root)], []
    del entry

    def collects(_: Any) -> bool:
        guards.pop().invalidate("what it was made for is gone")
        there.append(trees[0]() is not None)
        return False

    guards[0].root.add_lambda_guard(collects, ["a guard that allocates"], None)
    assert compiled(torch.zeros(3)).tolist() == [1, 1, 1]
    assert there == [True]
    assert compiled(torch.zeros(3, 2)).shape == (3, 2)
    assert trees[0]() is None


def test_nothing_is_kept_of_an_entry_that_is_dropped_where_no_guard_runs():
    class Key:
        pass

    def called() -> weakref.ref[Key]:
        class Scaled(torch.nn.Module):
            def __init__(self) -> None:
                super().__init__()
                self.key = Key()
                self.factors = {self.key: 2.0}

            def forward(self, x: torch.Tensor) -> torch.Tensor:
                return x * self.factors[self.key]

        module = Scaled()
        compiled = dispatch.optimize(module.__call__, OPTIONS)
        assert compiled(torch.ones(3)).tolist() == [2, 2, 2]
        return weakref.ref(module.key)

    key = called()
    for _ in range(3):
        gc.collect()
    assert key() is None
