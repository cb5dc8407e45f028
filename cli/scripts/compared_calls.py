"""Calls of the program as data: how each ran, in eager and compiled, and what was compiled for it."""
from __future__ import annotations

import functools
import inspect
import os
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import torch

from ...artifacts.context import CompileContext, NullRecorder
from ...artifacts.records import AnyRecord, Breaks, Frame, Guards
from ...engine.runtime.entry import eager_form
from ...replay.ladder.rungs import run_graph
from ...replay.program.effects import Value, differences, gradients, mark, reachable, variables, written
from ...replay.recorded.new_memory import fill_new_memory
from ...replay.verdicts.compare import Comparison
from ...tracer.frames import dispatch
from ...tracer.fx.backend_call import CapturedGraph
from ...tracer.runtime import eval_frame
from .copies import in_copy


@dataclass
class Compiled:
    """A compilation of this process, as far as it counts here."""

    function: str = ""
    file: str = ""
    line: int = 0
    status: str = ""
    guards: Guards | None = None
    breaks: Breaks | None = None

    @property
    def subject(self) -> str:
        """What decisions about its frame are named after."""
        return f"{self.function}@{os.path.basename(self.file)}:{self.line}"


class Collector:
    """A recorder that keeps what is known of compilations. (Not a NullRecorder, with which nothing is described.)"""

    def __init__(self) -> None:
        self.compiled: dict[str, Compiled] = {}
        self._nothing = NullRecorder()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._nothing, name)

    def begin(self, compile_id: str, function: str, file: str, line: int) -> None:
        """A compilation starts."""
        self.compiled[compile_id] = Compiled(function, file, line)

    def record(self, compile_id: str, stage: str, name: str, record: AnyRecord) -> None:
        """Keep guards and graph breaks."""
        made = self.compiled.setdefault(compile_id, Compiled())
        if isinstance(record, Guards):
            made.guards = record
        elif isinstance(record, Breaks):
            made.breaks = record
        elif isinstance(record, Frame):
            made.status = record.status


@dataclass
class Ran:
    """What a call left behind in a copy, and which compilations served it; where that is asked for, the values and
    gradients of their graphs by node."""

    left: dict[str, Value]
    served: list[str] = field(default_factory=list)
    made: dict[str, Compiled] = field(default_factory=dict)
    graphs: list[Closely] = field(default_factory=list)


@dataclass
class Closely:
    """One run of a captured graph: its results, its values and gradients by node, and the line of the last reader of
    each."""

    name: str
    outputs: tuple[Any, ...]
    values: dict[str, Any]
    gradients: dict[str, Any]
    readers: dict[str, int]


class Graphs:
    """Runs captured graphs as they are, and keeps which ones ran."""

    def __init__(self) -> None:
        self.served: list[str] = []
        self.closely = False
        self.ran: list[Closely] = []

    def __call__(self, captured: CapturedGraph, context: CompileContext) -> Callable[..., Sequence[Any]]:
        """What runs in place of what the engine makes of a graph."""
        run, name = eager_form(captured.module), str(context.id)

        def call(*inputs: Any) -> Sequence[Any]:
            self.served.append(name)
            return self._closely(name, captured.module, inputs) if self.closely else run(*inputs)

        return call

    def _closely(self, name: str, module: torch.fx.GraphModule, inputs: tuple[Any, ...]) -> Sequence[Any]:
        found: dict[str, Any] = {}
        placeholders = [node.name for node in module.graph.nodes if node.op == "placeholder"]
        given = {node: _plain(value) for node, value in zip(placeholders, inputs)}

        def see(node: str, value: Any) -> None:
            if isinstance(value, torch.Tensor) and value.requires_grad:
                value.register_hook(functools.partial(found.__setitem__, node))

        ran = run_graph(module, inputs, grad=torch.is_grad_enabled(), seen=see)
        outputs = tuple(map(_plain, ran.outputs))
        self.ran.append(Closely(name, outputs, given | ran.values, found, _readers(module.graph)))
        return ran.outputs


def _readers(graph: torch.fx.Graph) -> dict[str, int]:
    """For each node the line of the program that reads it last."""
    order = {node: number for number, node in enumerate(graph.nodes)}
    found = {}
    for node in graph.nodes:
        last = max((user for user in node.users if user.op != "output"), key=order.__getitem__, default=None)
        stack = last.meta.get("stack") if last is not None else None
        if stack:
            found[node.name] = stack[-1].line
    return found


class Comparing(Protocol):
    """What compares the calls: `served_calls.py`."""

    graphs: Graphs
    collector: Collector
    forced: dict[str, str]


class Call:
    """One call of a compiled function, which can be run in copies of the process."""

    def __init__(self, checker: Comparing, compiled: Callable[..., Any], original: Any, args: Any, kwargs: Any) -> None:
        self.checker, self.compiled, self.original = checker, compiled, original
        self.args, self.kwargs = args, kwargs
        self.roots = {**_arguments(original, args, kwargs), **_held(original)}
        self.before = reachable(self.roots)
        self.marks = {place: found for place, value in self.before.items() if (found := mark(value)) is not None}
        self.leaves = [(place, value) for place, value in self.before.items()
                       if isinstance(value, torch.Tensor) and value.is_leaf and value.requires_grad]

    def eager(self, memory: int = 0) -> Ran:
        """In eager, with a pattern in new memory if one is given. Raises CopyLost."""
        def run() -> Ran:
            fill_new_memory(memory)
            dispatch.set_stance("force_eager")
            return Ran(self._left())

        return self._in_copy(run)

    def watched(self, watch: Callable[[Callable[[], Any]], Any], answer: Callable[[], Any]) -> Any:
        """In eager, where `watch` calls it, with the gradients of its results: what `answer` says then. Raises
        CopyLost."""
        def run() -> Any:
            dispatch.set_stance("force_eager")
            gradients(watch(self._call), self.leaves)
            return answer()

        return in_copy(run)

    def served(
        self, fresh: bool = False, without: str = "", eager: Collection[str] = (), closely: bool = False
    ) -> Ran:
        """Compiled; `fresh`: all that is compiled forgotten before; `without` the entries of that compilation's code;
        with the frames `eager` left in eager. Raises CopyLost."""
        def run() -> Ran:
            graphs, collector = self.checker.graphs, self.checker.collector
            known = set(collector.compiled)
            if fresh or eager:
                dispatch.forget()
            if without:
                _forget_code(without)
            self.checker.forced.update({f"frame:{subject}": "eager" for subject in eager})
            graphs.closely, graphs.served, graphs.ran = closely, [], []
            left = self._left()
            made = {name: one for name, one in collector.compiled.items() if name not in known}
            return Ran(left, graphs.served, made, graphs.ran)

        return self._in_copy(run)

    def _in_copy(self, run: Callable[[], Ran]) -> Ran:
        found: Ran = in_copy(run)
        return found

    def _call(self) -> Any:
        return self.compiled(*self.args, **self.kwargs)

    def _left(self) -> dict[str, Value]:
        """All that the call leaves behind."""
        try:
            result, raised = self._call(), ""
        except Exception as error:
            result, raised = None, type(error).__name__
        after = reachable({"the result": result, "the exception": raised, **self.roots, **_held(self.original)})
        left = written(after, self.marks)
        return left | written(gradients(result, self.leaves), {})

    def differences(self, ran: Ran, eager: Ran) -> dict[str, Comparison]:
        """Where a run left something else than eager, by place."""
        return dict(differences(ran.left, eager.left, self.before))


def _arguments(function: Any, args: Any, kwargs: Any) -> dict[str, Any]:
    """The arguments of a call by name."""
    try:
        bound = inspect.signature(function).bind(*args, **kwargs).arguments
    except (TypeError, ValueError):
        bound = {str(number): value for number, value in enumerate(args)} | kwargs
    return {f"L[{name!r}]": value for name, value in bound.items()}


def _held(original: Any) -> dict[str, Any]:
    """What a function holds besides: its object, its closure, the variables of its module."""
    function = inspect.unwrap(getattr(original, "__func__", original))
    found: dict[str, Any] = {}
    owner = getattr(original, "__self__", None)
    if owner is not None:
        found["L['self']"] = owner
        forward = getattr(type(owner), "forward", None)
        function = forward if isinstance(owner, torch.nn.Module) and forward is not None else function
    code = getattr(function, "__code__", None)
    for name, cell in zip(getattr(code, "co_freevars", ()), getattr(function, "__closure__", None) or ()):
        try:
            found[f"L[{name!r}]"] = cell.cell_contents
        except ValueError:  # not assigned yet
            continue
    module = getattr(function, "__globals__", None)
    return found | (variables(module) if module is not None else {})


def _forget_code(compile_id: str) -> None:
    """Forget what is compiled for the code of one compilation."""
    for reference in list(dispatch.REGISTRY.touched.values()):
        code = reference()
        if code is not None and any(entry.guard_manager.compile_id == compile_id for entry in eval_frame.entries(code)):
            eval_frame.reset_code(code)


def _plain(value: Any) -> Any:
    return value.detach().clone() if isinstance(value, torch.Tensor) else value
