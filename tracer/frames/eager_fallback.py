"""Repeats a call in eager when its compiled graph raises.

Whether an index is in range or a matrix is invertible is known only when the graph runs, and the graph runs as a whole:
before any side effect of the frame, and outside of the user's `try` blocks around the operator. So where it raises, the
frame's original code runs instead. It raises (and perhaps handles) the same error, at its own line, after all side
effects before it. Not for a graph that may have changed some of its inputs in place before it raised.
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
from ..variables.torch.runtime_asserts import ASSUMED
from .continuation import rest_of_frame

log = logging.getLogger("ptdebug")
JUMP_IF_TRUE = "POP_JUMP_IF_TRUE" if VERSION >= (3, 12) else "POP_JUMP_FORWARD_IF_TRUE"

LIMIT = 8
"""After so many reruns, a frame whose graph checks its assumptions runs in eager at once."""

_ERROR = ".ours_error"
_MARK = "this code runs in eager"


def may_rerun(graph: TraceGraph, context: CompileContext) -> bool:
    """Whether the call may be repeated when the graph raises: nothing observable has changed, since it writes to no
    input, or the compiler marks errors that come before any write; and no other process takes part in it.

    Raises Unsupported where it may not, and the user's code would catch an error of an operator, or the graph checks
    its assumptions.
    """
    fakes = [node.meta["val"] for node in graph.inputs.values()]
    versions = [graph.versions.get(node) for node in graph.inputs.values()]
    unchanged = all(
        not isinstance(fake, torch.Tensor) or (version is not None and fake._version == version)
        for fake, version in zip(fakes, versions)
    )
    if (unchanged or context.restartable) and not _communicates(graph):
        return True
    if graph.caught:
        raise Unsupported(Reason.CAUGHT_ERROR, detail=graph.caught)
    if graph.runtime_assert is not None:
        raise graph.runtime_assert.refused()
    return context.marks_changes and not _communicates(graph)


def _communicates(graph: TraceGraph) -> bool:
    """Whether the graph exchanges something with other processes, which would not do that a second time."""
    return any(getattr(node.target, "namespace", "") == "_c10d_functional" for node in graph.graph.nodes)


class FailedRuns:
    """How often a check of one entry's graph failed; after the `LIMIT`-th failure its frames run in eager at once."""

    def __init__(self, code: CodeType) -> None:
        self.code = code
        self.count = 0
        self.as_written = False

    def add(self, error: BaseException) -> bool:
        """Called with the exception of the graph, before the rerun; see `graph_raised`."""
        if not graph_raised(error, self.code):
            return False
        self.count += 1
        if self.count == LIMIT:
            self.as_written = True
            code = self.code
            text = f"runs in eager from now on: checks of its graph failed in {LIMIT} calls"
            log.warning("%s (%s:%d) %s", code.co_qualname, code.co_filename, code.co_firstlineno, text)
            STATISTICS.reasons[f"limit of reruns ({LIMIT}) reached: {code.co_qualname}"] += 1
        return True


class EagerRerun:
    """Wraps the instructions that call the graph: `begin`, the call, `end`. `checks`: the graph checks its assumptions,
    so it may raise at any call where the user's code does not."""

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
        """The end of the call; where it raised, the code that `undo` emits runs, then the frame's original code, whose
        result is returned."""
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
            call_original(codegen, self.code)
            codegen.emit("RETURN_VALUE")
        codegen.label(after)

    def _forget_error(self) -> None:
        """Clear the exception: its traceback holds the frame, and they would keep each other alive."""
        self.codegen.const(None)
        self.codegen.emit("STORE_FAST", _ERROR)


def call_original(codegen: Codegen, code: CodeType) -> None:
    """Emit the call of the frame's original code with its arguments, which leaves the result on the stack."""
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
    """`code` as a function of positional parameters that is never compiled; tracebacks show it as the frame that calls
    it."""
    count = code.co_argcount + code.co_kwonlyargcount + bool(code.co_flags & 4) + bool(code.co_flags & 8)
    own = code.replace(
        co_argcount=count, co_posonlyargcount=0, co_kwonlyargcount=0, co_flags=code.co_flags & ~0x0C,
        co_consts=(*code.co_consts, _MARK),
    )
    skip_code_with_callees(own)
    return own


def graph_raised(error: BaseException, code: CodeType | None = None) -> bool:
    """Called with the exception of the graph (of a frame of `code`, where it checks what it assumes), before the rerun.
    False for what must propagate: anything but an Exception (KeyboardInterrupt), an exception from outside (a signal
    handler), the one with which a surrounding checkpoint ends its recomputation early, and an error after a write to
    some inputs, which a rerun would repeat."""
    if (
        not isinstance(error, Exception) or isinstance(error, _StopRecomputationError)
        or hasattr(error, CHANGED_INPUTS) or came_from_outside(error)
    ):
        set_traceback(error, below_graph(error))
        return False
    log.debug("a compiled graph raised %s: %s; its frame is rerun in eager", type(error).__name__, error)
    what = f"a graph raised {type(error).__name__}"
    if code is not None and str(error).startswith(ASSUMED):
        what = f"the graph of {code.co_qualname} assumes something of data that did not hold"
    STATISTICS.reasons[f"rerun in eager: {what}"] += 1
    return True
