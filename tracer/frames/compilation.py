"""One attempt to compile one frame, from the start of its record to the entry that it installs, or why there is none.

Whatever goes wrong in it but the errors of `raised_errors.py`, the frame runs in eager.
"""
from __future__ import annotations

import logging
import sys
import traceback
import types
import weakref
from collections import Counter
from collections.abc import Callable
from typing import Any

from ...artifacts.context import CompileContext, CompileId
from ...artifacts.external_exceptions import came_from_outside, ran_out_of_stack
from ...artifacts.interruptions import Interrupted
from ...artifacts.records import Guards, Recompile
from ...dependencies import msgspec
from ...operators.dynamo_stubs import without_dynamo
from ..breaks.raised_errors import TO_THE_PROGRAM, BackendCompilerFailed, kept_in_eager
from ..fx.backend_call import CompileOptions
from ..guards import build_tree, explain_recompile, measured, record_guards
from ..guards.build import BuiltTree
from ..guards.describe import describe
from ..guards.read import Scope
from ..runtime import eval_frame
from ..runtime.eval_frame import EntryGuards, Verdict
from ..runtime.skips import program_frames, skip_reason
from ..runtime.statistics import STATISTICS
from ..runtime.warning_filters import warnings_are_no_errors
from ..shapes.dynamic_policy import DynamicPolicy
from ..shapes.frame_shapes import MarkedDynamicError
from .convert import ConvertedFrame, Skip, convert_frame
from .frame_records import frame_record, location_of, named, runs, subject_of
from .random_state import runs_alone
from .registry import REGISTRY, is_wanted

log = logging.getLogger("ptdebug")
INTERNAL_ERROR = "internal error"
TOO_DEEP = "Python's stack is too deep here to trace it"
_INTERRUPTED = "it was interrupted"
DISTURBED = "another thread changed state that its guards check while it was compiled"


class TracerError(RuntimeError):
    """An internal error of the tracer; the frame runs in eager."""


class DisturbedError(Exception):
    """Another thread changed what the frame's guards read while it was compiled; it runs in eager this once."""


class Compilation:
    """One attempt to compile one frame, from the start of its record to the end."""

    def __init__(
        self, options: CompileOptions, frame: Any, compile_id: CompileId, owner: Any = None
    ) -> None:
        self.options = options
        self.frame = frame
        self.owner = owner
        self.code: types.CodeType = frame.f_code
        self.id = compile_id
        self.context: CompileContext = options.make_context(compile_id)
        self.caller = sys._getframe(2)  # not a frame with a variable for this compilation: that would be a cycle
        self.failures: Counter[str] = Counter()
        self.alone = runs_alone()
        self.apart = False  # the existing entries were compiled for other calls of torch.compile
        self.doubtful = False  # it breaks where an operator rejects its arguments
        self.raises = False  # it only raises, under `fullgraph`
        self.limit: int | None = None  # of compilations, where an override sets one

    def run(self, policy: DynamicPolicy, reason: Recompile | None) -> Verdict | str:
        """The verdict that installs an entry, or the reason why there is none."""
        context, code = self.context, self.code
        if context.recording:
            context.recorder.begin(str(self.id), *named(self.frame))
            context.recorder.source_file(code.co_filename)
        if reason is not None:
            record = self._with_call(reason)
            STATISTICS.recompiled(record)
            context.record("guards", lambda: record, "recompile")
        try:
            if context.override("recompile-limit", self._subject()) is not None:
                self.limit = self.decide_limit()
            forced = context.override("frame", self._subject())
            skip = "" if is_wanted(code) else skip_reason(code)
            default, why = ("eager", f"left alone: {skip}") if skip else ("compile", "it works on tensors")
            if forced is not None and self._decided(default, why) == "eager":
                return self._finish("eager", "forced by an override")
            with context.timed("total"), without_dynamo(), warnings_are_no_errors():
                converted = self._convert(policy)
                if isinstance(converted, Skip):
                    if forced is None:
                        self._decided("eager", converted.reason)
                    STATISTICS.broke(converted.breaks)
                    return self._finish("skipped", converted.reason)
                verdict = self._install(converted)
                if forced is None:
                    self._decided("compile", "it computes with tensors")
        except BackendCompilerFailed as error:
            why = kept_in_eager(error)
            if not why:
                self._finish("failed", str(error))
                raise
            return self._finish("eager", why)
        except (*TO_THE_PROGRAM, MarkedDynamicError) as error:
            self._finish("failed", str(error))
            raise
        except DisturbedError as error:
            log.debug("%s", error)
            return self._finish("skipped", DISTURBED)
        except Exception as error:
            if ran_out_of_stack(error):
                log.debug("%s", "".join(traceback.format_exception(error)))
                return self._finish("skipped", TOO_DEEP)
            if came_from_outside(error):
                self._finish("skipped", f"{_INTERRUPTED} ({type(error).__name__})")
                raise
            return self._failed(error)
        except BaseException as error:
            why = "a signal" if isinstance(error, Interrupted) else type(error).__name__
            self._finish("skipped", f"{_INTERRUPTED} ({why})")
            raise
        STATISTICS.compiled(converted)
        self._finish("eager" if self.context.fallback else "compiled", self.context.fallback)
        return verdict

    def _subject(self) -> str:
        return subject_of(self.frame)

    def _decided(self, default: str, why: str) -> str:
        """Whether the frame is compiled, recorded once that is known: a frame with nothing to compile is skipped."""
        return self.context.decide("frame", self._subject(), ("compile", "eager"), default, why)

    def decide_limit(self) -> int:
        """How often a frame is compiled at most, recorded where that is reached or an override says so."""
        why = "compilations of one function before other calls of it run in eager"
        return self.context.number("recompile-limit", self._subject(), self.options.limit, why)

    def refused(self, status: str, why: str, decide: Callable[[], object] | None = None) -> None:
        """Record that the frame was not compiled."""
        context = self.context
        if context.recording:
            context.recorder.begin(str(self.id), *named(self.frame))
            if decide is not None:
                decide()
            self._finish(status, why)

    def _with_call(self, reason: Recompile) -> Recompile:
        """The reason, with the call."""
        calls = [f for f in program_frames(self.caller) if not runs(f.f_code, self.code)]
        call = location_of(calls[-1]) if calls else None
        if call is not None and self.context.recording:
            self.context.recorder.source_file(call.file)
        return msgspec.structs.replace(reason, call_site=call)

    def _convert(self, policy: DynamicPolicy) -> ConvertedFrame | Skip:
        frame = self.frame
        return convert_frame(
            self.code, frame.f_locals, frame.f_globals, frame.f_builtins, frame.closure, self.options, self.context,
            policy, self._subject(),
        )

    def _install(self, converted: ConvertedFrame) -> Verdict:
        self.doubtful = any(found.code in ("operator-error", "memory-overlap") for found in converted.breaks)
        self.raises = self.options.fullgraph and bool(converted.breaks)
        tree = build_tree(converted.guards, self.failures, self.options.versions, self.options.keep_guards)
        guards = EntryGuards(tree.root, tree.checks, str(self.id), self.owner)
        if not tree.root.check(self.frame.f_locals):
            frame = self.frame
            why = explain_recompile([guards], Scope(frame.f_locals, frame.f_globals, frame.f_builtins))
            kind = TracerError if self.alone else DisturbedError
            raise kind(f"its guards reject the call that was compiled: {why}")
        guards.watch(tree.watched, describe)
        self.context.record("guards", lambda: self._guards(tree, converted))
        REGISTRY.running[str(self.id)] = (weakref.ref(guards), _counters(converted.code))
        converted.guards.forget()
        return eval_frame.install(converted.code, guards)

    def _guards(self, tree: BuiltTree, converted: ConvertedFrame) -> Guards:
        """The record of the guards, by which the recorder also knows the call."""
        costs = measured(tree, converted.guards)
        record = record_guards(tree.checks, converted.needed_by, converted.story, self.code, costs)
        self.context.guarded = tuple([(guard.source, guard.kind, guard.code) for guard in record.guards])
        self.context.code = self.code
        return record

    def _failed(self, error: Exception) -> str:
        internal_error(self.code, error)
        self._finish("eager", "".join(traceback.format_exception(error)))
        return INTERNAL_ERROR

    def _finish(self, status: str, reason: str) -> str:
        context = self.context
        if status == "skipped":
            STATISTICS.skipped(reason)
        context.record("frame", lambda: frame_record(
            self.frame, status, reason, self.caller, self.apart, context.functions))
        if context.recording:
            context.recorder.end(str(self.id), status, reason, context.seconds)
        return reason


def internal_error(code: types.CodeType, error: Exception) -> Verdict:
    """The tracer raised, which is reported; the frame runs in eager this once."""
    where = f"{code.co_qualname} ({code.co_filename}:{code.co_firstlineno})"
    log.warning("%s runs in eager: internal error of ptdebug (%s: %s)", where, type(error).__name__, error)
    log.debug("%s", "".join(traceback.format_exception(error)))
    STATISTICS.reasons[f"internal error: {type(error).__name__}: {error}"] += 1
    return eval_frame.EAGER_ONCE


def _counters(code: types.CodeType) -> list[list[int]]:
    """The call counters of the compiled graphs in rewritten code."""
    return [calls for const in code.co_consts if (calls := eval_frame.calls_of(const)) is not None]
