"""The frame evaluation hook (PEP 523): the only file that touches torch's private interface to it.

torch's C++ keeps, a list of cache entries (guard tree, rewritten code) for each code object. For each Python frame that
starts while a callback is set, it runs the guard trees; the first that accepts decides the code that runs, and when
none does it calls `callback(frame, first_entry, frame_state)`. The callback's answer is a `Verdict`. While the
callback, or a guard, runs, the hook is off for that thread, so compiling never recurses into itself.

The interface is undocumented; what is used here was found by experiment on torch 2.11 to 2.15, and `unavailable` says
in one line where this torch's differs.
"""
from __future__ import annotations

import functools
import importlib
import sys
import threading
import types
import weakref
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

import torch

_hook: Any = None
_guards: Any = None
_import_error = ""
try:
    _hook = importlib.import_module("torch._C._dynamo.eval_frame")
    _guards = importlib.import_module("torch._C._dynamo.guards")
except ImportError as error:  # a torch built without it
    _import_error = str(error)

_NEEDED = (
    "set_eval_frame", "get_eval_frame_callback", "reset_code", "set_code_exec_strategy", "_debug_get_cache_entry_list",
    "code_framelocals_names", "_FrameAction", "_FrameExecStrategy",
)


@functools.cache
def unavailable() -> str:
    """Why frames cannot be intercepted with this torch, as one line; "" when they can."""
    if _hook is None:
        return f"this torch has no frame evaluation hook ({_import_error})"
    missing = [name for name in _NEEDED if not hasattr(_hook, name)]
    if not hasattr(_guards, "RootGuardManager"):
        missing.append("RootGuardManager")
    return f"torch's frame evaluation interface is not the known one (no {', '.join(missing)})" if missing else ""


_IMMORTAL = (bool, int, str, types.NoneType, types.ModuleType, types.BuiltinFunctionType)


class _DeletedToStock:
    """To stock torch.compile, which reads all entries of a code object that it also compiles, ptdebug's entries look
    deleted."""

    id_matched_objs: Mapping[str, Any] = types.MappingProxyType({})
    invalidation_reason = "compiled by ptdebug"
    diff_guard_sources: frozenset[str] = frozenset()

    def collect_diff_guard_sources(self) -> frozenset[str]:
        """None: stock compares its own entries only."""
        return self.diff_guard_sources

    def populate_diff_guard_manager(self) -> None:
        """Nothing to compare."""

    @property  # type: ignore[misc]
    def __class__(self) -> type:
        stock = sys.modules.get("torch._dynamo.guards")
        return getattr(stock, "DeletedGuardManagerWrapper", None) or type(self)


def _nobody() -> None:
    return None


class _Outliving(threading.local):
    """Guard trees of entries that this thread dropped, perhaps while its C++ was reading them."""

    def __init__(self) -> None:
        self.trees: list[Any] = []


_OUTLIVING = _Outliving()


def free_dropped_trees() -> None:
    """Called where no guard runs in this thread."""
    _OUTLIVING.trees.clear()


def _may_run_guards() -> bool:
    """Whether C++ may be in a guard in this thread: the hook is off, below a call of what `optimize` returned."""
    frame: types.FrameType | None = None if current_callback() else sys._getframe()
    while frame is not None and (frame.f_code.co_name, frame.f_globals.get("__name__")) != _COMPILED_CALL:
        frame = frame.f_back
    return frame is not None


_COMPILED_CALL = ("compiled", f"{__package__.rpartition('.')[0]}.frames.dispatch")


class EntryGuards(_DeletedToStock):
    """The guard tree of one cache entry, as torch's C++ wants it.

    `root` is a `RootGuardManager`; `checks` (the guards in it) explain a failure. C++ fills in `cache_entry` and
    `extra_state` when the entry is installed, and clears them when it goes. Objects that guards compare by id are
    `watch`ed: when one dies the entry is dropped, since another object may get its id. `owner()` is what the entry was
    compiled for, as long as it lives.
    """

    def __init__(self, root: Any, checks: Sequence[Any], compile_id: str, owner: Any = None) -> None:
        self.root = root
        self.owner: Callable[[], Any] = _nobody if owner is None else weakref.ref(owner)
        self.checks = checks
        self.compile_id = compile_id
        self._watched: list[Any] = []
        self.diff_guard_root = None
        self.cache_entry: Any = None
        self.extra_state: Any = None
        self.dead = ""

    def watch(self, objects: Iterable[Any], describe: Callable[[Any], str]) -> None:
        """Drop the entry when one of `objects` dies. An object without weak references is kept alive instead."""
        this = weakref.ref(self)
        for watched in objects:
            if isinstance(watched, _IMMORTAL):
                continue
            name = describe(watched)

            def died(_: Any, name: str = name) -> None:
                entry = this()
                if entry is not None:
                    entry.invalidate(f"{name} is gone")

            try:
                self._watched.append(weakref.ref(watched, died))
            except TypeError:
                self._watched.append(watched)

    def invalidate(self, reason: str) -> None:
        """Drop this entry, because an object that its guards compare by id has died. Does nothing when it is not
        installed. Where a guard may be running, the tree outlives the entry: garbage that Python collects meanwhile
        may be what the entry was made for, and C++ goes on with the tree when the guard returns."""
        self.dead = reason
        if _Invalidated is None:  # at exit
            return
        if _may_run_guards():
            _OUTLIVING.trees.append(self.root)
        if self.extra_state is not None and self.cache_entry is not None:
            self.extra_state.invalidate(self.cache_entry, _Invalidated(reason, self.compile_id))


class _Invalidated(_DeletedToStock):
    """Replaces the guards of an invalidated cache entry."""

    root = None
    diff_guard_root = None
    checks = ()

    def __init__(self, reason: str, compile_id: str) -> None:
        self.dead = reason
        self.compile_id = compile_id
        self.cache_entry: Any = None
        self.extra_state: Any = None


@dataclass(frozen=True, eq=False)
class GuardedCode:
    """A new cache entry: `code` runs in place of the frame's own while `guard_manager` accepts."""

    code: types.CodeType
    guard_manager: EntryGuards
    compile_id: str
    trace_annotation: str


@dataclass(frozen=True, eq=False)
class Verdict:
    """What to do with a frame: the callback's answer. Use the constants below and `install`."""

    frame_exec_strategy: Any
    apply_to_code: bool
    guarded_code: GuardedCode | None = None
    skip_reason: str | None = None


def _verdict(this: str, callees: str, always: bool) -> Verdict:
    if _hook is None:
        return Verdict(None, always)
    action = _hook._FrameAction
    return Verdict(_hook._FrameExecStrategy(getattr(action, this), getattr(action, callees)), always)


EAGER_ONCE = _verdict("DEFAULT", "DEFAULT", always=False)
"""Run this call and everything it calls in eager; ask again at the next call."""
EAGER_ONCE_WITH_CALLEES = _verdict("DEFAULT", "SKIP", always=False)
"""Never intercept this code object again; what it calls is still intercepted."""
SKIP = _verdict("SKIP", "DEFAULT", always=True)
"""Never intercept this code object again, nor anything it calls."""
SKIP_WITH_CALLEES = _verdict("SKIP", "SKIP", always=True)
"""From now on use the existing entries, for this code object and its callees; compile nothing new."""
CACHED_ONLY = _verdict("RUN_ONLY", "RUN_ONLY", always=True)
"""The same for this code object only; its callees are still compiled."""
CACHED_ONLY_HERE = _verdict("RUN_ONLY", "DEFAULT", always=True)
"""The same for this code object only; what it calls is compiled as ever."""


def install(code: types.CodeType, guards: EntryGuards) -> Verdict:
    """Run `code` now and whenever `guards` accept."""
    entry = GuardedCode(code, guards, guards.compile_id, f"Torch-Compiled Region: {guards.compile_id}")
    return Verdict(EAGER_ONCE.frame_exec_strategy, False, entry)


Callback = Callable[[Any, Any, dict[Any, Any]], Verdict]

OUR_REGION = 0x70746462
"""Entries made in a region are visible in that region only, so stock torch.compile of the same function keeps its
own."""

if _hook is not None and hasattr(_hook, "set_eval_frame_isolate_recompiles_id"):
    set_region: Callable[[int], int] = _hook.set_eval_frame_isolate_recompiles_id
    """Set the region of this thread; returns the one before."""
    current_region: Callable[[], int] = _hook.get_eval_frame_isolate_recompiles_id
    """The region of this thread."""
else:  # torch before 2.13

    def set_region(region: int) -> int:
        """All entries of a code object are one list: this torch has no regions."""
        return 0

    def current_region() -> int:
        """This torch has no regions."""
        return 0

PUTS_RANDOM_STATE_BACK = torch.__version__ >= "2.12"
"""Whether the hook saves the state of Python's `random` before it calls the callback and restores it afterwards."""

if _hook is not None and not unavailable():
    set_callback: Callable[[Callback | None], Callback | None] = _hook.set_eval_frame
    """Set the callback of this thread, None for none; returns the one before."""
    current_callback: Callable[[], Callback | None] = _hook.get_eval_frame_callback
    """The callback of this thread."""
else:  # pragma: no cover - nothing to hook into

    def set_callback(callback: Callback | None) -> Callback | None:
        """This torch has no hook: nothing is set."""
        return None

    def current_callback() -> Callback | None:
        """This torch has no hook, so no callback."""
        return None


def entries(code: types.CodeType) -> list[Any]:
    """Live entries of `code`, as C++ tries them: `code`, `guard_manager`, `compile_id`, `backend`."""
    return [e for e in _hook._debug_get_cache_entry_list(code) if getattr(e.guard_manager, "root", None) is not None]


def reset_code(code: types.CodeType) -> None:
    """Forget all entries, the frame state and the strategy of `code`."""
    for entry in entries(code):
        entry.guard_manager.dead = "reset"
    _hook.reset_code(code)


def skip_code(code: types.CodeType) -> None:
    """Never intercept frames of `code`; what they call is intercepted."""
    if not unavailable():
        _hook.set_code_exec_strategy(code, SKIP.frame_exec_strategy)


def skip_code_with_callees(code: types.CodeType) -> None:
    """Never intercept frames of `code` nor anything that runs below them; costs nothing in Python per call."""
    if not unavailable():
        _hook.set_code_exec_strategy(code, SKIP_WITH_CALLEES.frame_exec_strategy)


def local_indices(code: types.CodeType) -> dict[str, int]:
    """Where the guard tree finds each local, cell and free variable of a frame of `code`."""
    # A name that is both an argument and a cell appears twice; C++ reads the later one, as f_locals does.
    return {name: index for index, name in enumerate(_hook.code_framelocals_names(code))}


def unobserved(function: Callable[..., Any]) -> Callable[..., Any]:
    """`function` such that neither its frames nor its callees' are ever intercepted; `calls_of` counts its calls."""
    calls = [0]

    def run_unobserved(*args: Any, **kwargs: Any) -> Any:
        calls[0] += 1
        return function(*args, **kwargs)

    skip_code_with_callees(run_unobserved.__code__)
    _COUNTERS[cast(types.FunctionType, run_unobserved)] = calls
    return run_unobserved


_COUNTERS: weakref.WeakKeyDictionary[types.FunctionType, list[int]] = weakref.WeakKeyDictionary()


def calls_of(value: Any) -> list[int] | None:
    """The call counter of a function that `unobserved` made, None for any other object."""
    return _COUNTERS.get(value) if type(value) is types.FunctionType else None
