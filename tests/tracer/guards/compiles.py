"""How the tests of dispatch compile: a backend that counts its graphs, and what was recorded."""
from __future__ import annotations

from typing import Any

import torch
from ptdebug.artifacts.context import CompileContext, NullRecorder
from ptdebug.tracer.frames import dispatch
from ptdebug.tracer.fx.backend_call import CompileOptions


class Compiles:
    """A backend that runs the captured graph, and what the dispatcher recorded."""

    def __init__(self, **options: Any) -> None:
        self.graphs: list[Any] = []
        self.recorder = Keeping()
        make = lambda i: CompileContext(i, recorder=self.recorder, recording=True)
        self.options = CompileOptions(self.backend, make_context=make, **options)

    def backend(self, captured: Any, context: Any) -> Any:
        self.graphs.append(captured)
        return captured.module.forward

    def __call__(self, function: Any) -> Any:
        return dispatch.optimize(function, self.options)

    @property
    def count(self) -> int:
        return len(self.graphs)

    @property
    def reasons(self) -> list[Any]:
        return [record for _, stage, name, record in self.recorder.records if name == "recompile"]


class Keeping(NullRecorder):
    def __init__(self) -> None:
        self.records: list[tuple[str, str, str, Any]] = []
        self.ends: list[tuple[str, str, str]] = []

    def record(self, compile_id, stage, name, record):
        self.records.append((compile_id, stage, name, record))

    def end(self, compile_id, status, reason, seconds):
        self.ends.append((compile_id, status, reason))


def same(compiled: Any, function: Any, *args: Any, **kwargs: Any) -> None:
    expected, result = function(*args, **kwargs), compiled(*args, **kwargs)
    torch.testing.assert_close(result, expected, rtol=0, atol=0)
    assert result.stride() == expected.stride() and result.requires_grad == expected.requires_grad


def scale(x, factor=2.0, flag=True, *, extra=None):
    y = x.sin() * factor
    if flag:
        y = y + 1
    return y if extra is None else y + extra["bias"]
