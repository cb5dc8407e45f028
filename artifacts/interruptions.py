"""The program's signal handlers wait while we compile, and its tracing functions do not see us.

A handler may do anything: raise, as time limits do, compute with tensors, call what is compiled. In the middle of a
compilation, it would find fake tensors where it makes its own, and what it raises would leave torch half-way in or out
of a mode, or be lost in C++, which takes errors of what it asks for answers. So while a compilation runs in the main
thread, something of ours stands where Python looks for the handlers. It notes the signal; where the compiler comes by a
`pause`, it gives up what it did, the handlers run, and what they raise is raised. Then it begins again, and signals
that come from now on wait until it is done.

A second signal of the same kind is handled at once, wherever we are: somebody is losing patience.
"""
from __future__ import annotations

import _thread
import ctypes
import functools
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType, FunctionType, MethodType
from typing import Any

Handler = Callable[[int, FrameType | None], Any]
PATIENCE = 0.5
"""Seconds after which a second signal of the same kind is handled at once."""
_SIGNALS = tuple(sorted(map(int, signal.valid_signals())))
_getsignal = signal._signal.getsignal  # type: ignore[attr-defined]  # signal.getsignal makes members of an enum
_watchers: list[tuple[Any, Any]] = []  # the tracing and profiling functions that are off, by compilations inside of one


class Interrupted(BaseException):
    """The compiler gives up, since a signal waits to be handled."""


class _Stopgap:
    """What stands for a handler of the program. To whoever asks from another thread, it is the handler."""

    def __init__(self, handler: Handler, waiting: Waiting) -> None:
        self.handler = handler
        self.waiting = waiting

    def __call__(self, number: int, frame: FrameType | None) -> None:
        arrived = self.waiting.arrived
        if number not in arrived:
            arrived[number] = time.monotonic(), self.handler
        elif time.monotonic() - arrived[number][0] > PATIENCE:
            del arrived[number]
            self.handler(number, frame)

    def __eq__(self, other: object) -> bool:
        return other is self or other == self.handler

    def __hash__(self) -> int:
        return hash(self.handler)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.handler, name)


class Waiting:
    """A context in which handlers wait; `handle` runs those whose signals arrived, afterwards.

    `patient`: until the end, and not only until the next `pause`.
    """

    def __init__(self, patient: bool = False) -> None:
        self.arrived: dict[int, tuple[float, Handler]] = {}
        self.patient = patient
        self._standing: dict[int, _Stopgap] = {}

    def __enter__(self) -> Waiting:
        _watchers.append(_take_watchers())
        try:
            self._stand_in()
        except BaseException:  # of a handler in whose place nothing stands yet
            self.__exit__()
            raise
        return self

    def __exit__(self, *_exception: object) -> None:
        try:
            self._step_aside()
        finally:
            _give_back(*_watchers.pop())

    def _stand_in(self) -> None:
        global _paused_for
        if not _in_main_thread():
            return
        for number in _SIGNALS:
            handler = _getsignal(number)
            if callable(handler) and not isinstance(handler, _Stopgap):
                self._standing[number] = _Stopgap(handler, self)
                _put(number, self._standing[number])
        if self._standing:
            _paused_for = self

    def _step_aside(self) -> None:
        global _paused_for
        if self._standing:
            _paused_for = None
        for number in list(self._standing):
            try:
                if _getsignal(number) is self._standing[number]:
                    _put(number, self._standing[number].handler)
                del self._standing[number]
            except BaseException:  # of a handler that is in its place again
                self._step_aside()
                raise

    def handle(self, frame: FrameType | None) -> None:
        """Run the handlers of the signals that arrived, with the program's frame, and raise what they raise."""
        while self.arrived:
            number = next(iter(self.arrived))
            _, handler = self.arrived.pop(number)
            try:
                handler(number, frame)
            except BaseException:
                for left in self.arrived:  # Python, too, comes to the others later
                    _thread.interrupt_main(signal.Signals(left))
                raise


_paused_for: Waiting | None = None


def _in_main_thread() -> bool:
    return _thread.get_ident() == threading.main_thread().ident


def pause() -> None:
    """A place where a compilation may end: raises Interrupted where a signal waits for its handler to run."""
    waiting = _paused_for
    if waiting is not None and waiting.arrived and not waiting.patient:
        if _in_main_thread():
            raise Interrupted


@contextmanager
def watched() -> Iterator[None]:
    """The program's tracing functions see what runs inside: code of its own that the compiler calls."""
    if not _watchers:
        yield
        return
    _give_back(*_watchers[-1])
    try:
        yield
    finally:
        _watchers[-1] = _take_watchers()


def _take_watchers() -> tuple[Any, Any]:
    """Turn off the functions of this thread that are written in Python: (of sys.settrace, of sys.setprofile). Those
    written in C raise nothing of the program's, and cannot be set again from here."""
    trace, profile = sys.gettrace(), sys.getprofile()
    if type(trace) in _IN_PYTHON:
        sys.settrace(None)
    else:
        trace = None
    if type(profile) in _IN_PYTHON:
        sys.setprofile(None)
    else:
        profile = None
    return trace, profile


_IN_PYTHON = (FunctionType, MethodType)


def _give_back(trace: Any, profile: Any) -> None:
    if profile is not None and sys.getprofile() is None:
        sys.setprofile(profile)
    if trace is not None and sys.gettrace() is None:  # a debugger may have been started meanwhile
        sys.settrace(trace)


def _put(number: int, handler: Any) -> None:
    """Let Python call `handler`. What C knows of the signal stays: which calls it interrupts, and whether Python is
    asked at all (faulthandler may stand before it)."""
    action = ctypes.create_string_buffer(1024)
    _libc().sigaction(number, None, action)
    signal.signal(number, handler)
    _libc().sigaction(number, action, None)


@functools.cache
def _libc() -> ctypes.CDLL:
    return ctypes.CDLL(None)
