"""Small torch programs as captured graphs, for tests of the engine alone (no tracer)."""
from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
import torch.fx
from ptdebug.artifacts.context import CompileContext
from ptdebug.artifacts.records import AnyRecord, Decision
from torch._subclasses.fake_tensor import FakeTensorMode


@dataclass(frozen=True)
class Captured:
    """The part of tracer.capture.CapturedGraph that the engine reads."""

    module: torch.fx.GraphModule
    inputs: tuple[Any, ...]
    grad_enabled: bool = False
    input_names: tuple[str, ...] = ()


class Keeping:
    """A recorder that keeps everything in lists."""

    def __init__(self) -> None:
        self.records: dict[tuple[str, str], AnyRecord] = {}
        self.decisions: list[Decision] = []
        self.absents: dict[str, str] = {}

    def begin(self, compile_id: str, function: str, file: str, line: int) -> None: ...

    def record(self, compile_id: str, stage: str, name: str, record: AnyRecord) -> None:
        self.records[stage, name] = record

    def absent(self, compile_id: str, stage: str, why: str) -> None:
        self.absents[stage] = why

    def decision(self, compile_id: str, decision: Decision) -> None:
        self.decisions.append(decision)

    def end(self, compile_id: str, status: str, reason: str, seconds: Any) -> None: ...

    def source_file(self, path: str) -> None: ...


def capture(function: Callable[..., Any], *inputs: Any) -> Captured:
    """`function` traced by torch.fx over fakes of `inputs`; its results are flattened into a tuple."""
    mode = FakeTensorMode()
    fakes = tuple(mode.from_tensor(x, static_shapes=True) if isinstance(x, torch.Tensor) else x for x in inputs)
    module = torch.fx.symbolic_trace(function)
    output = module.graph.output_node()
    if not isinstance(output.args[0], (tuple, list)):
        output.args = ((output.args[0],),)
        module.recompile()
    return Captured(module, fakes)


def recording_context(**settings: Any) -> tuple[CompileContext, Keeping]:
    """A context that records, and what keeps its records."""
    keeping = Keeping()
    return CompileContext(recorder=keeping, recording=True, **settings), keeping


def clones(inputs: tuple[Any, ...]) -> tuple[Any, ...]:
    """Copies with the same strides."""
    return tuple(
        torch.empty_strided(x.shape, x.stride(), dtype=x.dtype).copy_(x) if isinstance(x, torch.Tensor) else x
        for x in inputs
    )


def same_storage(a: torch.Tensor, b: torch.Tensor) -> bool:
    return a.untyped_storage().data_ptr() == b.untyped_storage().data_ptr()
