"""One frame, from its code object to the code that takes its place.

`convert_frame` interprets the frame. Where tracing stops, the attempt is thrown away, with its graph and side effects,
and the frame is interpreted once more up to that instruction of the outermost frame, where it then breaks: so nothing
of a callee that was traced half-way is kept.
"""
from __future__ import annotations

import inspect
import logging
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from types import CellType, CodeType
from typing import Any

from ...artifacts import records
from ...artifacts.context import CompileContext, ToldByData
from ...artifacts.fx_graphs import graph_record
from ...artifacts.interruptions import pause
from ..breaks import reasons as reasons
from ..breaks.unsupported import Unsupported
from ..bytecode.instructions import CodeInfo, code_info
from ..bytecode.liveness import unbound_cell_read
from ..bytecode.resume_function import origin_of, stack_words
from ..effects.side_effects import SideEffects
from ..fx.backend_call import CapturedGraph, CompileOptions
from ..graph.graph import TraceGraph
from ..guards import GuardBuilder, needed_by
from ..interpreter import opcodes as opcodes  # fills the table of handlers
from ..interpreter.bytecode_record import bytecode_record
from ..interpreter.frame_introspection import reader_called
from ..interpreter.interpreter import Interpreter, Trace
from ..interpreter.limits import Limits
from ..runtime.garbage import fewer_collections
from ..runtime.global_modes import Modes, without_saved_tensors_hooks
from ..shapes.frame_shapes import DynamicPolicy, FrameShapes
from ..sources.display_names import expression_of
from ..variables.core.base import ObservedException, Value
from ..variables.python.cells import CellValue
from .break_records import Stop, break_record, full_graph_error
from .break_search import further_stops
from .output_code import BreakBody, code_that_raises, return_body, write_code

_NO_FRAME = inspect.CO_GENERATOR | inspect.CO_COROUTINE | inspect.CO_ASYNC_GENERATOR | inspect.CO_ITERABLE_COROUTINE
_MAX_ATTEMPTS = 12
NO_OPERATION = "it has no tensor operation"
_OF_THE_PROGRAM = frozenset(("raises", "raises-object", "operator-error", "shared-memory"))
"""Stops after which eager raises an error, too, as far as is known."""


@dataclass(frozen=True)
class ConvertedFrame:
    """The code that runs while `guards` accept; how many graphs and operations it has, where it breaks."""

    code: CodeType
    guards: GuardBuilder
    graphs: int
    ops: int
    breaks: tuple[records.Break, ...]
    needed_by: Mapping[str, records.Ref] = field(default_factory=dict)  # a guard's source -> node; while recording
    story: tuple[records.Symbol, ...] = ()  # of what varies; while recording


@dataclass(frozen=True)
class Skip:
    """The frame runs its original code, for good. `breaks` is what stopped the tracer, if that was the reason."""

    reason: str
    breaks: tuple[records.Break, ...] = ()


class RootInterpreter(Interpreter):
    """The outermost frame: counts its steps, and stops at `break_step`."""

    break_step = -1
    raise_step = -1  # where to break for eager to raise what propagates now: before it, what it was raised in handling

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.raised: dict[int, dict[str, Any]] = {}  # where the exception was raised that propagates now, by its id
        self.statements: list[int] = []  # the steps at which the stack was empty: statements begin there

    def statement_before(self, step: int, count: int) -> int:
        """The step at which the `count`-th statement before `step` began, outside of open `with` blocks."""
        if self.open_contexts:
            step = self.open_contexts[0].step
        before = [start for start in self.statements if start < step]
        return before[max(0, len(before) - count)] if before else step

    def _loops_since(self, step: int | None) -> bool:
        """Whether a loop goes on that began after `step`. A bool that was read out of a tensor there has two values at
        most, so to break there costs two graphs at most; to break in the loop would cost one at each turn."""
        if step is None or not any(start > step for start in self.statements):
            return False
        return any(type(value).next is not Value.next for value in self.stack)

    def run_until_stop(self) -> Stop | None:
        """Run until the frame returned (None; see `returned`), reached `break_step` (None), or tracing stopped."""
        instructions = self.info.instructions
        while self.returned is None:
            if self.trace.step == self.break_step:
                return None
            pause()
            instruction = self.current = instructions[self.index]
            self.index += 1
            on_stack = self.stack.copy()
            if not on_stack and instruction.index > self.info.prologue:
                self.trace.statement = self.trace.step
                self.statements.append(self.trace.step)
            try:
                instruction.handler(self, instruction)
            except ObservedException as error:
                if instruction.opname == "RERAISE":  # which may have no line
                    error.context = self.raised.get(id(error.value), error.context)
                else:
                    self.note_place(error)
                    self.raised = {id(error.value): error.context}
                    if self.handled is None or self.raise_step < 0:
                        self.raise_step = self.trace.safe_step()
                if not self.unwind(error.value):
                    self.stack = on_stack
                    return self._stop(Unsupported("raises", error.value.describe(), **error.context))
            except Unsupported as error:
                self.stack = on_stack
                return self._stop(error)
            self.trace.step += 1
        return None

    def _stop(self, error: Unsupported) -> Stop:
        self.note_place(error)
        earlier = error.context.get("earlier")
        if earlier is None and self._loops_since(error.context.get("read_at")):
            earlier = error.context["read_at"]
        if error.code == "raises" and 0 <= self.raise_step < self.trace.step:
            earlier = self.raise_step  # so that eager raises it, with its traceback and context
        if self.open_contexts:
            earlier = min(self.open_contexts[0].step, self.trace.step if earlier is None else earlier)
        described = tuple(value.describe() for value in self.stack) if self.trace.context.recording else ()
        place = error.context["location"], error.context["stack"]
        detail = stack_words(self.code)(error.detail)
        if "inside" in error.context and detail == f"the tensor `{expression_of(place[0])}`":  # which has no name there
            detail = "{} asks for `{}`".format(*error.context["inside"])
        return Stop(self.trace.step, error.code, detail, *place, described, earlier, error.context.get("looked_at", ""))


@dataclass(frozen=True)
class FrameState:
    """The frame that is converted, as the hook hands it over."""

    code: CodeType
    f_locals: Mapping[str, Any]
    f_globals: dict[str, Any]
    f_builtins: Mapping[str, Any]
    closure: tuple[CellType, ...]
    policy: DynamicPolicy
    subject: str  # of decisions about it: FUNCTION@FILE:LINE


def convert_frame(
    code: CodeType,
    f_locals: Mapping[str, Any],
    f_globals: dict[str, Any],
    f_builtins: Mapping[str, Any],
    closure: tuple[CellType, ...] | None,
    options: CompileOptions,
    context: CompileContext,
    policy: DynamicPolicy,
    subject: str,
) -> ConvertedFrame | Skip:
    """Capture one frame and write the code that takes its place, or say why it is left alone.

    Raises FullGraphError when `options.fullgraph` and the frame breaks. What else it raises is a bug of ours or of the
    backend; the caller then runs the frame in eager.
    """
    if code.co_flags & _NO_FRAME:
        return Skip("a generator or coroutine runs in eager")
    if not code.co_flags & inspect.CO_NEWLOCALS:
        return Skip("the body of a class or module runs in eager")
    frame = FrameState(code, f_locals, f_globals, f_builtins, closure or (), policy, subject)
    context.record("bytecode", lambda: bytecode_record(code, "original"))
    start = time.perf_counter()
    conversion = _Conversion(frame, options, context)
    try:
        with fewer_collections(), _state_preserved():
            return conversion.run()
    finally:
        seconds = time.perf_counter() - start - conversion.backend_seconds
        context.seconds["capture"] = context.seconds.get("capture", 0.0) + seconds


class _Conversion:
    """The attempts at one frame."""

    def __init__(self, frame: FrameState, options: CompileOptions, context: CompileContext) -> None:
        self.frame = frame
        self.options = options
        self.context = context
        self.limits = Limits(context, frame.subject)
        self.info: CodeInfo = code_info(frame.code)
        self.modes = Modes.now()
        self.refusals = 0  # ends that could not be written, for no known reason
        self.backend_seconds = 0.0
        self.lost_seconds = 0.0  # in attempts that were thrown away

    def run(self) -> ConvertedFrame | Skip:
        stop: Stop | None = None
        break_step = -1
        start = time.perf_counter()
        for _ in range(_MAX_ATTEMPTS):
            root = self._start(break_step)
            outcome: ConvertedFrame | Skip | Stop | None = None
            try:
                outcome = self._attempt(root, stop)
            finally:
                root.trace.leave_modes()
                root.trace.end()
                if not isinstance(outcome, ConvertedFrame):
                    root.trace.guards.forget()
            if not isinstance(outcome, Stop):
                return outcome
            stop = outcome
            self.lost_seconds = time.perf_counter() - start
            if stop.code == "too-long":
                return self._skip(reasons.message(stop.code, stop.detail, expression_of(stop.location)), stop)
            break_step = stop.step if stop.earlier is None else stop.earlier
        assert stop is not None
        return self._skip("the frame cannot be broken", stop)

    def _attempt(self, root: RootInterpreter, stop: Stop | None) -> ConvertedFrame | Skip | Stop:
        """Interpret up to `break_step` or the end, and write the code; a Stop says where the next attempt breaks."""
        found = root.run_until_stop()
        if found is None:
            try:
                return self._finish(root, stop if root.returned is None else None)
            except Unsupported as error:
                refused = self._refused(root, error)
                if refused.earlier is None:
                    expression = expression_of(refused.location)
                    return self._skip(reasons.message(refused.code, refused.detail, expression), refused)
                return refused
        if self.options.fullgraph:
            if found.code in _OF_THE_PROGRAM:
                return self._raising(root, found)
            raise full_graph_error(self.frame.code, [found, *further_stops(root)])
        return found

    def _raising(self, root: RootInterpreter, stop: Stop) -> ConvertedFrame:
        """A frame that raises an error of the program's own: that is what `fullgraph` gives, as eager does."""
        code = code_that_raises(root, full_graph_error(self.frame.code, [stop]))
        return self._converted(root, code, (break_record(stop, None, "", self.lost_seconds),))

    def _start(self, break_step: int) -> RootInterpreter:
        frame = self.frame
        shapes = FrameShapes(frame.policy)
        scope = dict(frame.f_locals), frame.f_globals, dict(frame.f_builtins), frame.closure
        guards = GuardBuilder(frame.code, *scope, shapes)
        trace = Trace(
            TraceGraph(shapes), guards, SideEffects(), self.options, self.context, self.limits, frame.f_globals,
            modes=self.modes, resumed=origin_of(frame.code) is not None,
        )
        guards.add(None, "GLOBAL_STATE")
        names = frame.code.co_freevars
        cells = [CellValue(None, None, cell, name) for name, cell in zip(names, frame.closure)]
        trace.effects.cells.update({id(cell.real): cell for cell in cells})
        root = RootInterpreter(trace, self.info, frame.f_globals, {}, closure=cells)
        root.unread = {name: frame.f_locals[name] for name in frame.code.co_varnames if name in frame.f_locals}
        root.break_step = break_step
        trace.active = trace.root = root
        shapes.shape_env.locate = trace.location
        if self.context.recording:
            guards.locate = trace.location
        return root

    # ---- endings ---------------------------------------------------------------------------------------------------
    def _finish(self, root: RootInterpreter, stop: Stop | None) -> ConvertedFrame | Skip:
        root.graph.shapes.shape_env.locate = None  # what is decided from here on has no line
        root.graph.shapes.check_marks()
        if stop is None:
            if not root.graph.operations:
                return Skip(NO_OPERATION)
            return self._converted(root, write_code(root, return_body(root), partial(self._compile, root.graph)), ())
        instruction = root.current = root.info.instructions[root.index]
        origin = origin_of(root.code)
        if instruction.index < (origin.own if origin is not None else root.info.prologue):
            return self._skip("the graph breaks before the resume function has its stack again", stop)
        if root.info.reuses_cells:
            return self._skip("the graph breaks in a function whose comprehensions hide its closure variables", stop)
        asks = self.info.reads_variables_by_name
        if asks:
            return self._skip(f"the graph breaks in a function that looks at its variables ({asks})", stop)
        looked_at = stop.looked_at or reader_called(self.frame.code, self.frame.f_globals, self.frame.closure)
        if looked_at:
            return self._skip(f"the graph breaks in a function whose variables {looked_at} looks at", stop)
        unbound = unbound_cell_read(self.info, instruction.index, root.bound_cells()) if origin is None else None
        if unbound is not None:
            return self._skip(f"the graph breaks before the closure variable {unbound} may be read unbound", stop)
        body = BreakBody(root, instruction, raises=stop.code == "raises")
        if body.outlives_its_frame():
            said = "the graph breaks in a `try` or `with` block while a variable holds what ends visibly"
            return self._skip(f"{said}, a generator or an object with a finalizer", stop)
        code = write_code(root, body, partial(self._compile, root.graph))
        for number, resumed in enumerate(body.resumed):
            self.context.record("output_bytecode", partial(self._bytecode_out, resumed, "resume"), f"resume_{number}")
        if stop.code == "raises" and instruction.opname == "RERAISE" and root.stack[-1].source is not None:
            return self._converted(root, code, ())  # an exception on its way out, which came over a break or a call
        record = break_record(stop, body, instruction.opname, self.lost_seconds)
        return self._converted(root, code, (record,))

    def _converted(
        self, root: RootInterpreter, code: CodeType, breaks: tuple[records.Break, ...]
    ) -> ConvertedFrame:
        context = self.context
        context.record("output_bytecode", lambda: self._bytecode_out(code, "rewritten"))
        if breaks:
            context.record("breaks", lambda: records.Breaks(breaks))
        operations = root.graph.operations
        guards, graphs = root.trace.guards, int(operations > 0)
        if not context.recording:
            return ConvertedFrame(code, guards, graphs, operations, breaks)
        nodes, story = needed_by(guards, root.graph.graph.nodes), root.graph.shapes.story()
        return ConvertedFrame(code, guards, graphs, operations, breaks, nodes, story)

    def _refused(self, root: RootInterpreter, error: Unsupported) -> Stop:
        """Something cannot be rebuilt at the end of the graph: break before it is made (`earlier`)."""
        root.note_place(error)
        step, place = root.trace.step, (error.context["location"], error.context["stack"])
        if "earlier" in error.context:
            earlier = error.context["earlier"]
        else:
            earlier = root.statement_before(step, 4**self.refusals)
            self.refusals += 1
        stop = Stop(step, error.code, error.detail, *place, (), earlier if earlier < step else None)
        if self.options.fullgraph:
            raise full_graph_error(self.frame.code, [stop])
        return stop

    def _skip(self, reason: str, stop: Stop) -> Skip:
        record = break_record(stop, None, "", self.lost_seconds)
        self.context.record("breaks", lambda: records.Breaks((record,)))
        return Skip(reason, (record,))

    def _compile(self, graph: TraceGraph, captured: CapturedGraph) -> Callable[..., Any]:
        self.context.record("capture", lambda: graph_record(captured.module.graph, "capture", "bytecode"))
        start = time.perf_counter()
        at_end = Modes.now()
        self.modes.restore(graph.sets_modes)
        self.context.breakable = graph.told is not None and not self.options.fullgraph
        try:
            return self.options.backend(captured, self.context)
        except ToldByData as error:
            assert graph.told is not None
            raise graph.told.refused() from error
        finally:
            at_end.restore(graph.sets_modes)
            self.backend_seconds += time.perf_counter() - start

    # ---- what is said about it -------------------------------------------------------------------------------------
    def _bytecode_out(self, code: CodeType, role: str) -> records.Bytecode:
        return bytecode_record(code, role, origin=origin_of(code))



_FAKE_LOG = logging.getLogger("torch._subclasses.fake_tensor")


@contextmanager
def _state_preserved() -> Iterator[None]:
    """Tracing changes the modes of torch as the program would; put them back.

    torch logs an error where an operator rejects fake arguments; here that is a graph break like others.
    """
    modes, disabled = Modes.now(), _FAKE_LOG.disabled
    _FAKE_LOG.disabled = True
    try:
        with without_saved_tensors_hooks():
            yield
    finally:
        _FAKE_LOG.disabled = disabled
        modes.restore(shared=False)  # each attempt has put back those that it set


