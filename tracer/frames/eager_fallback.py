"""A call whose compiled graph raises is run once more, as it was written.

Whether an index is in range or a matrix can be inverted shows only when the graph runs, and the graph runs as a whole:
before any side effect of the frame, and outside of the `try` blocks that the program has around the operator. So the
frame's own code runs in the place of what failed. It raises (and perhaps handles) the same error, at its own line, with
all side effects before it. A graph that changes its inputs in place is left out where part of that may have happened.
"""
from __future__ import annotations

import logging
from collections.abc import Callable
from types import CodeType

import torch
from torch.utils.checkpoint import _StopRecomputationError

from ...artifacts.context import CHANGED_INPUTS, CompileContext
from ...artifacts.external_exceptions import came_from_outside
from ..breaks.reasons import Reason
from ..breaks.unsupported import Unsupported
from ..bytecode.assembly import Label, TryBegin, TryEnd
from ..effects.reconstruct import VERSION, Codegen
from ..graph.graph import TraceGraph
from ..runtime.eval_frame import skip_code_with_callees
from ..runtime.statistics import STATISTICS
from ..runtime.tracebacks import below_graph, set_traceback
from .continuation import rest_of_frame

log = logging.getLogger("ptdebug")
JUMP_IF_TRUE = "POP_JUMP_IF_TRUE" if VERSION >= (3, 12) else "POP_JUMP_FORWARD_IF_TRUE"

LIMIT = 8
"""After as many calls that ran twice, a frame whose graph checks what it takes for granted runs as it was written."""

_ERROR = ".ours_error"
_MARK = "this code runs as it was written"


def may_run_again(graph: TraceGraph, context: CompileContext) -> bool:
    """Whether nothing that the program can see has changed when the graph raises, or the error is marked: it writes to
    no input, or the compiler says so.

    Raises Unsupported where that is not so and the program would catch what an operator may raise, or the graph checks
    what it takes for granted.
    """
    fakes = [node.meta["val"] for node in graph.inputs.values()]
    versions = [graph.versions.get(node) for node in graph.inputs.values()]
    if all(
        not isinstance(fake, torch.Tensor) or (version is not None and fake._version == version)
        for fake, version in zip(fakes, versions)
    ) or context.restartable:
        return True
    if graph.caught:
        raise Unsupported(Reason.CAUGHT_ERROR, detail=graph.caught)
    if graph.assumed is not None:
        raise graph.assumed.refused()
    return context.marks_changes


class FailedRuns:
    """How often a check of the graph failed in one entry; after the `LIMIT`-th its frames run as written at once."""

    def __init__(self, code: CodeType) -> None:
        self.code = code
        self.count = 0
        self.as_written = False

    def add(self, error: BaseException) -> bool:
        """Called with what the graph raised, before the second run; see `graph_raised`."""
        if not graph_raised(error):
            return False
        self.count += 1
        if self.count == LIMIT:
            self.as_written = True
            code = self.code
            text = f"runs as written from now on: {LIMIT} calls were not what the graph takes them for"
            log.warning("%s (%s:%d) %s", code.co_qualname, code.co_filename, code.co_firstlineno, text)
            STATISTICS.reasons[f"limit of second runs ({LIMIT}) reached: {code.co_qualname}"] += 1
        return True


class SecondRun:
    """Wraps the instructions that call the graph: `begin`, the call, `end`. `checks`: the graph checks what it takes
    for granted, so it may raise where the program does not, at every call."""

    def __init__(self, codegen: Codegen, code: CodeType, checks: bool) -> None:
        self.codegen = codegen
        self.code = code
        self.raised: Callable[[BaseException], bool] = graph_raised
        self.handler, self.own = Label(), Label()
        if checks:
            failed = FailedRuns(code)
            self.raised = failed.add
            codegen.const(failed)
            codegen.load_attr("as_written")
            codegen.emit(JUMP_IF_TRUE, self.own)
        self.begin = TryBegin(self.handler, False, 0)
        codegen.label(self.begin)

    def end(self, undo: Callable[[Codegen], None] | None) -> None:
        """The end of the call; where it raised, what `undo` emits runs, then the frame's own code, whose result is
        returned."""
        codegen, after, again = self.codegen, Label(), Label()
        codegen.label(TryEnd(self.begin))
        codegen.emit("JUMP_FORWARD", after)
        codegen.label(self.handler)
        codegen.emit("STORE_FAST", _ERROR)
        codegen.push_function(self.raised)
        codegen.emit("LOAD_FAST", _ERROR)
        codegen.call(1)
        codegen.emit(JUMP_IF_TRUE, again)
        codegen.emit("LOAD_FAST", _ERROR)
        self._forget_error()
        codegen.emit("RAISE_VARARGS", 1)
        codegen.label(again)
        self._forget_error()
        if undo is not None:
            undo(codegen)
        codegen.label(self.own)
        with rest_of_frame(codegen):
            call_as_written(codegen, self.code)
            codegen.emit("RETURN_VALUE")
        codegen.label(after)

    def _forget_error(self) -> None:
        """Its traceback holds the frame: they would keep each other alive."""
        self.codegen.const(None)
        self.codegen.emit("STORE_FAST", _ERROR)


def call_as_written(codegen: Codegen, code: CodeType) -> None:
    """Emit the call of the frame's own code with its arguments, which leaves the result on the stack."""
    own = as_written(code)
    codegen.push_null()
    _push_function(codegen, own)
    for name in own.co_varnames[: own.co_argcount]:
        codegen.load_variable(name)
    codegen.call(own.co_argcount)


def _push_function(codegen: Codegen, code: CodeType) -> None:
    cells, late = code.co_freevars, VERSION >= (3, 13)
    if late:
        codegen.const(code)
        codegen.emit("MAKE_FUNCTION")
    if cells:
        for name in cells:
            codegen.emit_cell(name)
        codegen.emit("BUILD_TUPLE", len(cells))
    if late and cells:
        codegen.emit("SWAP", 2)
        codegen.emit("SET_FUNCTION_ATTRIBUTE", 8)
    elif not late:
        codegen.const(code)
        codegen.emit("MAKE_FUNCTION", 8 if cells else 0)


def as_written(code: CodeType) -> CodeType:
    """`code` as a function of its parameters by position, which is never compiled; tracebacks show it as the frame that
    calls it."""
    count = code.co_argcount + code.co_kwonlyargcount + bool(code.co_flags & 4) + bool(code.co_flags & 8)
    own = code.replace(
        co_argcount=count, co_posonlyargcount=0, co_kwonlyargcount=0, co_flags=code.co_flags & ~0x0C,
        co_consts=(*code.co_consts, _MARK),
    )
    skip_code_with_callees(own)
    return own


def graph_raised(error: BaseException) -> bool:
    """Called with what the graph raised, before the second run. False for what is to be raised as it is: what is no
    Exception (KeyboardInterrupt) or came from outside (a signal's handler raised it), that with which a checkpoint
    around the call ends its recomputation as soon as it has what it wants, and an error in the middle of writing to
    inputs, which a second run would write twice."""
    if (
        not isinstance(error, Exception) or isinstance(error, _StopRecomputationError)
        or hasattr(error, CHANGED_INPUTS) or came_from_outside(error)
    ):
        set_traceback(error, below_graph(error))
        return False
    log.debug("a compiled graph raised %s: %s; its frame runs once more, as written", type(error).__name__, error)
    STATISTICS.reasons[f"run again as written: a graph raised {type(error).__name__}"] += 1
    return True
