"""What happens to each frame that the hook intercepts: skipped, served from an entry, or compiled.

`optimize(fn, options)` returns a callable that runs `fn` with the hook enabled. Torch's C++ looks for an entry whose
guards accept, without running any Python of ptdebug; a `Dispatcher` is called only when there is none. It applies the
skip rules, enforces the recompilation limit, explains why earlier entries did not fit, has `convert_frame` trace the
frame, and installs the result with its guards. Whatever goes wrong here, the frame still runs, in eager.
"""
from __future__ import annotations

import atexit
import functools
import itertools
import logging
import re
import sys
import threading
import types
import weakref
from collections.abc import Callable, Sequence
from typing import Any

import torch

from ...artifacts import interruptions
from ...artifacts.context import CompileId
from ...artifacts.external_exceptions import came_from_outside, ran_out_of_stack
from ...artifacts.fork_lock import ForkLock
from ...artifacts.interruptions import Interrupted, Waiting
from ...artifacts.records import LIMIT_REACHED, Recompile, Runtime
from ..breaks.raised_errors import (
    TO_THE_PROGRAM,
    FullGraphError,
    RecompileLimitError,
)
from ..fx.backend_call import CompileOptions
from ..guards import explain_recompile
from ..guards.interrupted import KEPT, raise_kept
from ..guards.read import Scope
from ..runtime import eval_frame
from ..runtime.compile_wrappers import mark_compiled, mark_wrapper
from ..runtime.dispatch_modes import current_observer, has_own_dispatch_mode
from ..runtime.dynamo_settings import compiles_nothing, dynamic_by_settings, setting
from ..runtime.eval_frame import EntryGuards, Verdict
from ..runtime.global_modes import keeping_modes
from ..runtime.skips import involves_tensors, is_own, program_frames, skip_reason
from ..runtime.statistics import STATISTICS
from ..runtime.tensor_members import VERSION, Known, has_changed, member_in_the_way
from ..runtime.tracebacks import set_traceback, traceback_of, without_first
from ..runtime.warning_filters import passed_over
from ..shapes.dynamic_policy import DynamicPolicy
from ..shapes.frame_shapes import MarkedDynamicError
from .code_state import CodeState
from .compilation import DISTURBED, INTERNAL_ERROR, TOO_DEEP, Compilation, internal_error
from .convert import NO_OPERATION
from .frame_records import subject_of
from .function_modes import own_under, put_back, take_off
from .random_state import expect_put_back, runs_alone
from .registry import REGISTRY, is_wanted
from .stances import (
    DYNAMO,
    FIRST_IN_EAGER,
    backend_in_effect,
    force_backend,
    needs_compilation,
    recompiled,
    remember_sizes,
    set_stance,
    stance_in_effect,
    stance_there,
)
from .visible import visible

log = logging.getLogger("ptdebug")
_KEY = "ptdebug"  # of ptdebug's part of torch's frame state
_PATIENCE = 8  # calls with nothing to compile before they are no longer intercepted
_ROOM = 100  # frames that a compilation needs at least, its record included
_frame_numbers = itertools.count()
_compiling = ForkLock(threading.RLock)


class Dispatcher:
    """The hook's callback for one set of options. Entries of one Dispatcher are not used by another."""

    def __init__(self, options: CompileOptions) -> None:
        self.options = options
        # C++ makes the entry when the callback has returned; until then another thread would not find it.
        self._installing: dict[int, weakref.ref[EntryGuards]] = {}
        self._doubtful: list[tuple[CodeState, weakref.ref[EntryGuards]]] = []
        self.raising: list[weakref.ref[EntryGuards]] = []  # entries for this call only

    def __call__(self, frame: Any, entry: Any, frame_state: dict[Any, Any]) -> Verdict:
        """The verdict for a frame that no entry serves. Raises only the errors of `raised_errors.py`."""
        eval_frame.free_dropped_trees()
        try:
            alone = runs_alone()
            verdict = self._verdict(frame, frame_state)
            expect_put_back(ignored=not alone)
        except RecursionError as error:  # no room even to check
            if not ran_out_of_stack(error):
                raise
            return eval_frame.EAGER_ONCE_WITH_CALLEES
        return verdict

    def _verdict(self, frame: Any, frame_state: dict[Any, Any]) -> Verdict:
        code = frame.f_code
        wanted = is_wanted(code)
        if not wanted and skip_reason(code):
            if not self._is_forced(frame):
                return eval_frame.SKIP
            wanted = True
        state = frame_state.setdefault(_KEY, CodeState())
        if reason := _not_to_trace():
            if wanted:
                self._left_alone(frame, state, reason)
            return eval_frame.EAGER_ONCE_WITH_CALLEES
        if not wanted and not involves_tensors(code, frame.f_locals, frame.f_globals) and not self._is_forced(frame):
            return _fruitless(state, _PATIENCE)
        if not _has_room(_ROOM):
            STATISTICS.skipped(TOO_DEEP)
            return eval_frame.EAGER_ONCE_WITH_CALLEES
        verdict = self._uninterrupted(frame, state, wanted, Waiting())
        while verdict is None:  # signals arrived, and were handled
            verdict = self._uninterrupted(frame, state, wanted, Waiting(patient=True))
        return verdict

    def _is_forced(self, frame: Any) -> bool:
        """Whether an override wants a frame compiled that is left alone otherwise. It must name that frame: a pattern
        would mean all of Python's library, too."""
        overrides = self.options.overrides()
        if not overrides or is_own(frame.f_code.co_filename):
            return False
        return overrides.get(f"frame:{subject_of(frame)}") == "compile"

    def _uninterrupted(self, frame: Any, state: CodeState, wanted: bool, waiting: Waiting) -> Verdict | None:
        """`_compile`, then the handlers of signals that arrived meanwhile; None where it gave up because of them."""
        try:
            with _compiling.lock:
                REGISTRY.touched[id(frame.f_code)] = weakref.ref(frame.f_code)
                with waiting, keeping_modes():
                    return self._compile(frame, state, wanted)
        except (*TO_THE_PROGRAM, MarkedDynamicError) as error:
            raise error.with_traceback(None) from error.__cause__  # the user does not see how it was found
        except Interrupted:
            if not waiting.arrived:  # for an enclosing compilation
                raise
            return None
        except Exception as error:  # of the surroundings of a compilation: why earlier entries did not fit
            if came_from_outside(error):
                raise
            return internal_error(frame.f_code, error)
        finally:
            if waiting.arrived:
                _handle(waiting)

    def _left_alone(self, frame: Any, state: CodeState, reason: str) -> None:
        """Record, once per reason, that the frame runs in eager for now. Raises FullGraphError where it was to be one
        graph, and the user's own mode or member of torch.Tensor is the reason."""
        STATISTICS.skipped(reason)
        if reason not in state.watchers:
            state.watchers.add(reason)
            if state.frame < 0:
                state.frame = next(_frame_numbers)
            Compilation(self.options, frame, CompileId(state.frame, state.compiles)).refused("skipped", reason)
            state.compiles += 1
        if self.options.fullgraph and (has_own_dispatch_mode() or member_in_the_way()):
            name = frame.f_code.co_qualname
            raise FullGraphError(f"{name} does not fit into one graph, as fullgraph=True requires: {reason}.")

    def _compile(self, frame: Any, state: CodeState, wanted: bool) -> Verdict:
        entries = eval_frame.entries(frame.f_code)
        owner = _owner()
        ours = [e for e in entries if isinstance(e.backend, Dispatcher)]
        mine = [e.guard_manager for e in ours if e.backend is self and e.guard_manager.owner() is owner]
        apart = not mine and bool(ours)
        orphans = [e.guard_manager for e in ours if e.guard_manager.owner() is None]
        del entries, ours  # C++ drops some of them when an object that they identify dies
        for guards in orphans[self.options.limit - 1 :]:  # the least recently used
            guards.invalidate("the object it was compiled for has died")
        mine += self._on_the_way(frame.f_code)
        scope = Scope(frame.f_locals, frame.f_globals, frame.f_builtins)
        reason = explain_recompile(mine, scope, frame.f_code)
        if mine and reason is None:
            return eval_frame.EAGER_ONCE  # another thread has just compiled what this call needs
        once: CompileOptions | None = None  # how this one call is compiled, where others are not
        if REGISTRY.stance != "default" or DYNAMO in sys.modules:
            stance = stance_in_effect()
            if stance == "fail_on_recompile":
                raise needs_compilation(frame, reason)
            if stance == "eager_on_recompile" or compiles_nothing():
                return eval_frame.EAGER_ONCE
            if reason is not None and setting("error_on_recompile", False):
                raise recompiled(frame, reason)
            if stance in FIRST_IN_EAGER and not state.was_called:
                state.was_called = True
                remember_sizes(state.history, frame.f_locals)
                if stance == "eager_then_compile" or self.options.with_backend is None:
                    return eval_frame.EAGER_ONCE
                once = self.options.with_backend("aot_eager")
        if reason is not None:
            state.failures[_variable(reason.subject)] += 1
        if len(mine) >= self._limit(state):
            return self._limit_reached(frame, state, reason)
        if state.frame < 0:
            state.frame = next(_frame_numbers)
        compilation = Compilation(once or self.options, frame, CompileId(state.frame, state.compiles), owner)
        state.compiles += 1
        history = state.history if self.options.automatic_dynamic else dict.fromkeys(self.options.varying)
        policy = DynamicPolicy(history, dynamic_by_settings(self.options.dynamic), compilation.context)
        compilation.failures = state.failures
        compilation.apart = apart and reason is None
        outcome = compilation.run(policy, reason)
        state.limit = compilation.limit
        if isinstance(outcome, Verdict):
            assert outcome.guarded_code is not None
            self._installing[id(frame.f_code)] = entry = weakref.ref(outcome.guarded_code.guard_manager)
            if compilation.raises or once is not None:
                self.raising.append(entry)
            elif compilation.doubtful and state.raised < _PATIENCE:
                self._doubtful.append((state, entry))
            return outcome
        if mine:
            return eval_frame.CACHED_ONLY_HERE
        if outcome == DISTURBED or (outcome == NO_OPERATION and self.options.fullgraph):
            return _fruitless(state, _PATIENCE, eval_frame.EAGER_ONCE_WITH_CALLEES)
        if self.options.fullgraph and outcome in (INTERNAL_ERROR, TOO_DEEP):
            return eval_frame.SKIP_WITH_CALLEES  # its callees are not held to fullgraph for that
        return _fruitless(state, _PATIENCE if wanted else 1)

    def call_raised(self) -> None:
        """Drop the entries made since a call raised last that break at an operator which rejects its arguments: their
        guards end where the operator raised, so they would accept, and break, calls in which it does not."""
        doubtful, self._doubtful = self._doubtful, []
        for state, entry in doubtful:
            guards = entry()
            if guards is not None and not guards.dead:
                state.raised += 1
                guards.invalidate("the call that it was compiled for raised an error")

    def forget_raising(self) -> None:
        """Drop the entries made for a single call: that only raise (a call that their guards accept need not raise), or
        of the first call under "aot_eager_then_compile"."""
        while self.raising:
            guards = self.raising.pop()()
            if guards is not None and not guards.dead:
                guards.invalidate("it was compiled for a single call")

    def _limit(self, state: CodeState) -> int:
        return self.options.limit if state.limit is None else state.limit

    def _limit_reached(self, frame: Any, state: CodeState, reason: Recompile | None) -> Verdict:
        """From now on use existing entries only; said once, and recorded as a compilation that was not made."""
        hit = "fail_on_recompile_limit_hit"
        asked = "fullgraph=True" if self.options.fullgraph else hit if setting(hit, False) else ""
        if not state.limit_said:
            state.limit_said = True
            code, limit = frame.f_code, self._limit(state)
            change = f"{reason.subject} was {reason.expected}, is {reason.actual}" if reason else ""
            last = change and f"; the last time because {change}"
            rest = f"{asked} allows no eager" if asked else "other calls of it run in eager"
            text = f"was compiled {limit}{LIMIT_REACHED}{rest}{last}"
            if not asked:  # else the error says it
                log.warning("%s (%s:%d) %s", code.co_qualname, code.co_filename, code.co_firstlineno, text)
            STATISTICS.reasons[f"recompile limit ({limit}) reached: {code.co_qualname}"] += 1
            compilation = Compilation(self.options, frame, CompileId(state.frame, state.compiles))
            compilation.refused("failed" if asked else "eager", text, compilation.decide_limit)
        if asked:
            raise RecompileLimitError(
                f"{frame.f_code.co_qualname} was compiled {self._limit(state)} times, the limit, and "
                f"{asked} allows no call of it to run in eager"
            )
        return eval_frame.CACHED_ONLY

    def _on_the_way(self, code: types.CodeType) -> list[EntryGuards]:
        reference = self._installing.get(id(code))
        guards = reference() if reference is not None else None
        return [guards] if guards is not None and guards.cache_entry is None and not guards.dead else []


def _not_to_trace() -> str:
    """Why nothing is traced for now; "" if something is."""
    if watcher := current_observer():
        return f"it is called under {watcher}, which observes each operator"
    member = member_in_the_way()
    return f"the program replaced {member}, with which torch itself reads tensors" if member else ""


def _has_room(frames: int) -> bool:
    """Whether Python's stack has room for so many frames."""
    try:
        return frames == 0 or _has_room(frames - 1)
    except RecursionError as error:
        if not ran_out_of_stack(error):
            raise
        return False


def _fruitless(state: CodeState, patience: int, once: Verdict = eval_frame.EAGER_ONCE) -> Verdict:
    """There was nothing to compile: try again next time, but not for ever."""
    state.fruitless += 1
    return eval_frame.SKIP if state.fruitless >= patience else once


def _handle(waiting: Waiting) -> None:
    """Run the handlers of signals that arrived while a frame was compiled. None of the tracer's frames is in their
    tracebacks."""
    here = sys._getframe()
    program = program_frames(here)
    try:
        waiting.handle(program[-1] if program else here)
    except BaseException as error:
        traceback = traceback_of(error)
        while traceback is not None and traceback.tb_frame.f_code.co_filename in (__file__, interruptions.__file__):
            traceback = traceback.tb_next
        set_traceback(error, traceback)
        raise


def _variable(what: str) -> str:
    """The variable that a guard's name begins with: `x` of `x.size(0)`."""
    match = re.search(r"[A-Za-z_]\w*(?![\w(])", what)
    return match.group() if match is not None else ""


# ---- the public functions --------------------------------------------------------------------------------------------
_DISPATCHERS: weakref.WeakValueDictionary[int, Dispatcher] = weakref.WeakValueDictionary()


def _dispatcher(options: CompileOptions) -> Dispatcher:
    """The dispatcher for these options, which it keeps alive, so that their id stays unique."""
    found = _DISPATCHERS.get(id(options))
    if found is None:
        found = _DISPATCHERS[id(options)] = Dispatcher(options)
    return found


def _with_backend(dispatcher: Dispatcher, backend: Any) -> Dispatcher:
    """The dispatcher of the same options with another backend."""
    make = dispatcher.options.with_backend
    return dispatcher if make is None else _dispatcher(make(backend))


class _Wrapped:
    """What one call of `optimize` compiles: it has a recompilation limit of its own."""

    def __init__(self, function: Callable[..., Any]) -> None:
        self.function = function


def _owner() -> _Wrapped | None:
    """The `_Wrapped` of the innermost compiled call in this thread."""
    frame: types.FrameType | None = sys._getframe()
    while frame is not None:
        owner = frame.f_locals.get("owner") if frame.f_code.co_name == "compiled" else None
        if isinstance(owner, _Wrapped):
            return owner
        frame = frame.f_back
    return None


def optimize(fn: Callable[..., Any], options: CompileOptions) -> Callable[..., Any]:
    """`fn`, captured and compiled as it runs. Where this torch has no frame hook: `fn` itself, with one warning.

    `fn` is a function, a method, a module's `__call__`, or any other callable.
    """
    if eval_frame.unavailable():
        _say_once(f"nothing is compiled: {eval_frame.unavailable()}")
        return fn
    dispatcher, owner = _dispatcher(options), _Wrapped(fn)
    target = visible(fn)
    set_callback, registry = eval_frame.set_callback, REGISTRY
    set_region, our_region = eval_frame.set_region, eval_frame.OUR_REGION
    current_callback, current_region = eval_frame.current_callback, eval_frame.current_region
    loaded = sys.modules.get
    modes_in_force = torch._C._len_torch_function_stack
    version, known = VERSION, Known
    under = own_under()
    REGISTRY.wanted[under.__code__] = True

    def compiled(*args: Any, **kwargs: Any) -> Any:
        used = dispatcher
        if registry.eager or ((dynamo := loaded(DYNAMO)) is not None and stance_there(dynamo) == "force_eager"):
            return owner.function(*args, **kwargs)
        if version[0] != known.tag and has_changed():
            forget()
        if (registry.backend is not None or dynamo is not None) and (backend := backend_in_effect()) is not None:
            used = _with_backend(dispatcher, backend)
        modes = take_off() if modes_in_force() else ()
        region, before = current_region(), current_callback()  # a signal handler may raise after each call
        try:
            set_region(our_region)
            set_callback(used)
            result = under(modes, target, args, kwargs) if modes else target(*args, **kwargs)
            if KEPT:
                raise_kept()
            return result
        except BaseException as error:
            used.call_raised()
            without_first(error)
            raise
        finally:
            try:
                set_callback(before)
            finally:
                set_region(region)
                if modes:
                    put_back(modes)
                if used.raising:
                    used.forget_raising()

    compiled.__code__ = passed_over(compiled.__code__)
    eval_frame.skip_code(compiled.__code__)
    functools.update_wrapper(compiled, fn, updated=())
    mark_compiled(compiled, fn)
    return compiled


def disable(fn: Any, recursive: bool = True, reason: str | None = None) -> Any:
    """`fn` such that it always runs in eager; with `recursive`, so does everything that it calls. A graph that breaks
    there says the `reason`.

    A module is changed in place: its `forward` is disabled.
    """
    if isinstance(fn, torch.nn.Module):
        fn.forward = disable(fn.forward, recursive, reason)
        return fn
    if eval_frame.unavailable() or isinstance(fn, type):
        return fn
    if not recursive:
        function = getattr(fn, "__func__", fn)
        if isinstance(function, types.FunctionType):
            eval_frame.skip_code(function.__code__)
        return fn
    disabled = eval_frame.unobserved(fn)
    functools.update_wrapper(disabled, fn, updated=())
    disabled.__dict__["_torchdynamo_disable"] = True
    disabled.__dict__["_torchdynamo_disable_msg"] = reason
    mark_wrapper(disabled, fn)
    return disabled


def reset() -> None:
    """Forget all compiled code, and the statistics."""
    forget()
    STATISTICS.clear()


def forget() -> None:
    """Forget all compiled code; the statistics stay."""
    with _compiling.lock:
        _drop_entries()


def _drop_entries() -> None:
    for reference in list(REGISTRY.touched.values()):
        code = reference()
        if code is not None:
            eval_frame.reset_code(code)
    REGISTRY.touched.clear()


@atexit.register
def _let_go() -> None:
    """At exit: torch's guards hold the program's globals where the garbage collector does not look, so their objects
    would not be finalized."""
    lock = _compiling.lock
    if not lock.acquire(blocking=False):
        return  # a thread that the interpreter does not wait for
    try:
        REGISTRY.ended = runtimes()
        REGISTRY.eager = True  # exit handlers still call them
        _drop_entries()
    finally:
        lock.release()


def stats() -> dict[str, Any]:
    """The statistics of this process so far: {"graphs", "ops", "graph_breaks", "recompiles", "reasons": {reason:
    times}}."""
    return STATISTICS.as_dict()


def runtimes() -> dict[str, Runtime]:
    """The run times of each compilation that has an entry, by compile id."""
    result = dict(REGISTRY.ended)
    for compile_id in list(REGISTRY.running):
        if compile_id not in result:
            result[compile_id] = REGISTRY.runtime(compile_id)
    return result


@functools.cache
def _say_once(message: str) -> None:
    log.warning("%s", message)


__all__: Sequence[str] = ("disable", "force_backend", "optimize", "reset", "runtimes", "set_stance", "stats")
