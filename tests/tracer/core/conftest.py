"""How the tests of the core trace a function: convert its frame, then call the new code with the same globals."""
from __future__ import annotations

import copy
import inspect
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from types import FunctionType
from typing import Any

import pytest
import torch
from ptdebug.artifacts.context import CompileContext
from ptdebug.operators.dynamo_stubs import without_dynamo
from ptdebug.tracer.frames.convert import ConvertedFrame, Skip, convert_frame
from ptdebug.tracer.frames.dispatch import optimize, reset
from ptdebug.tracer.fx.backend_call import CapturedGraph, CompileOptions
from ptdebug.tracer.shapes.dynamic_policy import DynamicPolicy


@dataclass
class Traced:
    """What came of a frame, and the graphs that the backend was given."""

    result: ConvertedFrame | Skip
    function: FunctionType
    graphs: list[CapturedGraph] = field(default_factory=list)

    @property
    def targets(self) -> list[Any]:
        """The targets of the operations of the first graph."""
        return [node.target for node in self.graphs[0].module.graph.nodes if node.op.startswith("call")]


def traced(function: FunctionType, args: tuple[Any, ...], kwargs: dict[str, Any], **options: Any) -> Traced:
    """Trace `function` for these arguments; the backend runs the FX graph as it is."""
    bound = inspect.signature(function).bind(*args, **kwargs)
    bound.apply_defaults()
    variables = dict(bound.arguments)
    graphs: list[CapturedGraph] = []

    def backend(captured: CapturedGraph, context: CompileContext) -> Callable[..., Any]:
        graphs.append(captured)
        return captured.module.forward

    with without_dynamo():
        result = convert_frame(
            function.__code__, variables, function.__globals__, __builtins__ if isinstance(__builtins__, dict)
            else __builtins__.__dict__, function.__closure__, CompileOptions(backend, **options), CompileContext(),
            DynamicPolicy({}), function.__qualname__,
        )  # fmt: skip
    code = result.code if isinstance(result, ConvertedFrame) else function.__code__
    new = FunctionType(code, function.__globals__, function.__name__, function.__defaults__, function.__closure__)
    new.__kwdefaults__ = function.__kwdefaults__
    return Traced(result, new, graphs)


def outcome(function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[str, Any]:
    """("returns", value) or ("raises", (type, message))."""
    try:
        return "returns", function(*args, **kwargs)
    except Exception as error:
        return "raises", (type(error), str(error))


def same(left: Any, right: Any) -> bool:
    """Deep equality with equal types; tensors by value, dtype and strides."""
    if type(left) is not type(right):
        return False
    if isinstance(left, torch.Tensor):
        return left.dtype == right.dtype and left.stride() == right.stride() and torch.equal(left, right)
    if isinstance(left, dict):
        return list(left) == list(right) and all(same(left[key], right[key]) for key in left)
    if isinstance(left, (list, tuple)):
        return len(left) == len(right) and all(map(same, left, right))
    if hasattr(left, "__dict__") and not isinstance(left, (type, FunctionType)):
        return same(vars(left), vars(right))
    return bool(left == right)


@pytest.fixture
def differential() -> Callable[..., Traced]:
    """check(function, *args): trace, run both on equal copies of the arguments, compare result and arguments."""

    def check(function: FunctionType, *args: Any, graphs: int | None = 1, **options: Any) -> Traced:
        eager_args, traced_args, example = (copy.deepcopy(args) for _ in range(3))
        result = traced(function, example, {}, **options)
        expected = outcome(function, eager_args, {})
        found = outcome(result.function, traced_args, {})
        assert expected[0] == found[0], (expected, found)
        assert same(expected[1], found[1]), (expected, found)
        assert same(list(eager_args), list(traced_args)), (eager_args, traced_args)
        if graphs is not None:
            assert len(result.graphs) == graphs, result.result
        return result

    return check


@pytest.fixture
def convert() -> Callable[..., Traced]:
    """convert(function, args, kwargs, **options) -> Traced."""
    return traced


@pytest.fixture
def compiled() -> Iterator[Callable[..., tuple[Callable[..., Any], list[CapturedGraph]]]]:
    """compiled(function) -> (the function under the frame hook, the graphs captured so far): resume functions too."""

    def make(function: FunctionType, **options: Any) -> tuple[Callable[..., Any], list[CapturedGraph]]:
        graphs: list[CapturedGraph] = []

        def backend(captured: CapturedGraph, context: CompileContext) -> Callable[..., Any]:
            graphs.append(captured)
            return captured.module.forward

        return optimize(function, CompileOptions(backend, **options)), graphs

    yield make
    reset()
