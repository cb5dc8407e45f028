"""One frame, from its code object to the code that replaces it.

`convert_frame` interprets the frame. Where tracing stops, the attempt is discarded, with its graph and side effects,
and the frame is interpreted once more up to that instruction of the outermost frame, where it then breaks: so nothing
of a half-traced callee is kept.
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
from ...artifacts.context import CompileContext, DataDependentError
from ...artifacts.fx_graphs import graph_record
from ...artifacts.garbage import fewer_collections
from ..breaks.reasons import ERRORS_OF_THE_PROGRAM, Reason
from ..breaks.unsupported import Unsupported
from ..bytecode.instructions import CodeInfo, code_info
from ..bytecode.liveness import unbound_cell_read
from ..bytecode.resume_function import origin_of
from ..effects.side_effects import SideEffects
from ..fx.backend_call import CapturedGraph, CompileOptions
from ..graph.graph import TraceGraph
from ..guards import GuardBuilder, needed_by
from ..interpreter import opcodes as opcodes  # fills the table of handlers
from ..interpreter.bytecode_record import bytecode_record
from ..interpreter.frame_introspection import reader_called
from ..interpreter.interpreter import Trace
from ..interpreter.limits import Limits
from ..interpreter.step_log import StepLog
from ..runtime.global_modes import Modes, without_saved_tensors_hooks
from ..shapes.dynamic_policy import DynamicPolicy
from ..shapes.frame_shapes import FrameShapes
from ..variables.python.cells import CellValue
from .break_records import GraphBreak, break_record, full_graph_error
from .break_search import further_stops
from .output_code import BreakBody, code_that_raises, write_code
from .returning import return_body
from .root_interpreter import RootInterpreter, explained

_NO_FRAME = inspect.CO_GENERATOR | inspect.CO_COROUTINE | inspect.CO_ASYNC_GENERATOR | inspect.CO_ITERABLE_COROUTINE
_MAX_ATTEMPTS = 12
NO_OPERATION = "it has no tensor operation"


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


@dataclass(frozen=True)
class FrameState:
    """The frame to convert, as the hook passes it."""

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
    """Capture one frame and write the code that replaces it, or say why it is skipped.

    Raises FullGraphError when `options.fullgraph` and the frame breaks. Any other exception is a bug of ptdebug or of
    the backend; the caller then runs the frame in eager.
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
        self.lost_seconds = 0.0  # in attempts that were discarded

    def run(self) -> ConvertedFrame | Skip:
        stop: GraphBreak | None = None
        break_step = -1
        start = time.perf_counter()
        for number in range(1, _MAX_ATTEMPTS + 1):
            root = self._start(break_step)
            outcome: ConvertedFrame | Skip | GraphBreak | None = None
            try:
                outcome = self._attempt(root, stop)
            finally:
                self._record_steps(root, number, _end(root, outcome))
                root.trace.leave_modes()
                root.trace.end()
                if not isinstance(outcome, ConvertedFrame):
                    root.trace.guards.forget()
            if not isinstance(outcome, GraphBreak):
                return outcome
            stop = outcome
            self.lost_seconds = time.perf_counter() - start
            if stop.reason is Reason.TRACE_LIMIT:
                return self._skip(stop.message, stop)
            break_step = stop.step if stop.earlier is None else stop.earlier
        assert stop is not None
        return self._skip("the graph cannot break in this frame", stop)

    def _attempt(self, root: RootInterpreter, stop: GraphBreak | None) -> ConvertedFrame | Skip | GraphBreak:
        """Interpret up to `break_step` or the end, and write the code; a break says where the next attempt ends."""
        found = root.run_until_stop()
        if root.trace.steps is not None:
            root.trace.steps.finish(root)
        if found is None:
            try:
                return self._finish(root, stop if root.returned is None else None)
            except Unsupported as error:
                refused = self._refused(root, error)
                if refused.earlier is None:
                    return self._skip(refused.message, refused)
                return refused
        if self.options.fullgraph:
            if found.reason in ERRORS_OF_THE_PROGRAM:
                return self._raising(root, found)
            raise full_graph_error(self.frame.code, [found, *further_stops(root)])
        return found

    def _raising(self, root: RootInterpreter, stop: GraphBreak) -> ConvertedFrame:
        """A frame that raises one of the user's errors: `fullgraph` raises it, as eager does."""
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
            steps=StepLog() if self.context.recording and self.context.steps else None,
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
    def _finish(self, root: RootInterpreter, stop: GraphBreak | None) -> ConvertedFrame | Skip:
        root.graph.shapes.shape_env.locate = None  # decisions from here on have no line
        root.graph.shapes.check_marks()
        if stop is None:
            if not root.graph.operations:
                return Skip(NO_OPERATION)
            return self._converted(root, write_code(root, return_body(root), partial(self._compile, root.graph)), ())
        instruction = root.current = root.info.instructions[root.index]
        origin = origin_of(root.code)
        if instruction.index < (origin.own if origin is not None else root.info.prologue):
            return self._skip("the graph breaks before the resume function has restored its stack", stop)
        if root.info.reuses_cells:
            return self._skip("the graph breaks in a function whose comprehensions hide its closure variables", stop)
        asks = self.info.reads_variables_by_name
        if asks:
            return self._skip(f"the graph breaks in a function that inspects its variables ({asks})", stop)
        reader = stop.introspected_by or reader_called(self.frame.code, self.frame.f_globals, self.frame.closure)
        if reader:
            return self._skip(f"the graph breaks in a function whose variables {reader} inspects", stop)
        unbound = unbound_cell_read(self.info, instruction.index, root.bound_cells()) if origin is None else None
        if unbound is not None:
            return self._skip(f"the graph breaks before the closure variable {unbound} may be read unbound", stop)
        body = BreakBody(root, instruction, raises=stop.reason is Reason.RAISES)
        if body.outlives_its_frame():
            said = "the graph breaks in a `try` or `with` block while a variable holds an object that dies observably"
            return self._skip(f"{said}, a generator or an object with a finalizer", stop)
        code = write_code(root, body, partial(self._compile, root.graph))
        for number, resumed in enumerate(body.resumed):
            self.context.record("output_bytecode", partial(self._bytecode_out, resumed, "resume"), f"resume_{number}")
        if stop.reason is Reason.RAISES and instruction.opname == "RERAISE" and root.stack[-1].source is not None:
            return self._converted(root, code, ())  # an exception on its way out, which crossed a break or a call
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
        nodes, story = needed_by(guards, root.graph.graph.nodes), root.graph.shapes.symbol_history()
        return ConvertedFrame(code, guards, graphs, operations, breaks, nodes, story)

    def _refused(self, root: RootInterpreter, error: Unsupported) -> GraphBreak:
        """Something cannot be rebuilt at the end of the graph: break before it is made (`earlier`)."""
        root.note_place(error)
        step, place = root.trace.step, (error.context["location"], error.context["stack"])
        if "earlier" in error.context:
            earlier = error.context["earlier"]
        else:
            earlier = root.statement_before(step, 4**self.refusals)
            self.refusals += 1
        reason, message, hint = explained(error, root.code)
        stop = GraphBreak(step, reason, message, hint, *place, (), earlier if earlier < step else None)
        if self.options.fullgraph:
            raise full_graph_error(self.frame.code, [stop])
        return stop

    def _skip(self, reason: str, stop: GraphBreak) -> Skip:
        record = break_record(stop, None, "", self.lost_seconds)
        self.context.record("breaks", lambda: records.Breaks((record,)))
        return Skip(reason, (record,))

    def _compile(self, graph: TraceGraph, captured: CapturedGraph) -> Callable[..., Any]:
        self.context.record("capture", lambda: graph_record(captured.module.graph, "capture", "bytecode"))
        start = time.perf_counter()
        at_end = Modes.now()
        self.modes.restore(graph.sets_modes)
        self.context.breakable = graph.data_dependent is not None and not self.options.fullgraph
        self.context.rerun = bool(graph.caught) or graph.runtime_assert is not None
        try:
            return self.options.backend(captured, self.context)
        except DataDependentError as error:
            assert graph.data_dependent is not None
            raise graph.data_dependent.refused() from error
        finally:
            at_end.restore(graph.sets_modes)
            self.backend_seconds += time.perf_counter() - start

    # ---- records and messages --------------------------------------------------------------------------------------
    def _record_steps(self, root: RootInterpreter, attempt: int, end: str) -> None:
        log = root.trace.steps
        if log is not None:
            log.finish(root)  # also where the tracer failed
            self.context.record("steps", lambda: log.record(root.code.co_qualname, end), f"attempt_{attempt}")

    def _bytecode_out(self, code: CodeType, role: str) -> records.Bytecode:
        return bytecode_record(code, role, origin=origin_of(code))


def _end(root: RootInterpreter, outcome: ConvertedFrame | Skip | GraphBreak | None) -> str:
    """How an attempt ended, in one line."""
    if isinstance(outcome, GraphBreak):
        return f"it stops: {outcome.message}"
    if isinstance(outcome, Skip):
        return f"the frame runs in eager: {outcome.reason}"
    if outcome is None:
        return "an exception"
    return "the frame returns" if root.returned is not None else "the graph ends here"


_FAKE_LOG = logging.getLogger("torch._subclasses.fake_tensor")


@contextmanager
def _state_preserved() -> Iterator[None]:
    """Tracing sets torch's modes as the user's code would; restore them.

    torch logs an error where an operator rejects fake arguments; here that is an ordinary graph break.
    """
    modes, disabled = Modes.now(), _FAKE_LOG.disabled
    _FAKE_LOG.disabled = True
    try:
        with without_saved_tensors_hooks():
            yield
    finally:
        _FAKE_LOG.disabled = disabled
        modes.restore(shared=False)  # each attempt has restored those that it set


