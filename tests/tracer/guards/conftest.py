"""A frame to guard: `make_guards` builds the C++ tree of guards that a test asks for. And a `fresh_start`."""
from __future__ import annotations

import builtins
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from ptdebug.operators.dynamo_stubs import without_dynamo
from ptdebug.tracer.frames import dispatch
from ptdebug.tracer.guards import GuardBuilder, build_tree, explain_recompile
from ptdebug.tracer.guards.describe import describe
from ptdebug.tracer.guards.read import Scope
from ptdebug.tracer.runtime.eval_frame import EntryGuards
from ptdebug.tracer.shapes.dynamic_policy import DynamicPolicy
from ptdebug.tracer.shapes.frame_shapes import FrameShapes


class Guarded:
    """The guards of a function with parameters `a` and `b`, over the test module's globals."""

    def __init__(self, f_locals: dict[str, Any], f_globals: dict[str, Any], history: dict[str, Any] | None) -> None:
        def function(a: Any, b: Any = None) -> None: ...

        self.f_globals = f_globals
        self.shapes = FrameShapes(DynamicPolicy({} if history is None else history))
        self.builder = GuardBuilder(function.__code__, f_locals, f_globals, vars(builtins), None, self.shapes)
        self.entry: EntryGuards | None = None

    def add(self, *arguments: Any) -> Guarded:
        self.builder.add(*arguments)
        return self

    def build(self) -> EntryGuards:
        tree = build_tree(self.builder)
        self.entry = EntryGuards(tree.root, tree.checks, "0/0")
        self.entry.watch(tree.watched, describe)
        return self.entry

    def accepts(self, a: Any, b: Any = None) -> bool:
        entry = self.entry or self.build()
        return entry.root.check({"a": a, "b": b})

    def why(self, a: Any, b: Any = None) -> Any:
        return explain_recompile([self.entry or self.build()], Scope({"a": a, "b": b}, self.f_globals, vars(builtins)))


@pytest.fixture
def make_guards(request: pytest.FixtureRequest) -> Iterator[Callable[..., Guarded]]:
    with without_dynamo():
        yield lambda a, b=None, history=None: Guarded({"a": a, "b": b}, vars(request.module), history)


@pytest.fixture
def fresh_start() -> Iterator[None]:
    """Nothing is compiled yet, nor afterwards."""
    dispatch.reset()
    yield
    dispatch.reset()
