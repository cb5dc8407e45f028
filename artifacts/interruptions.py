"""Signal handlers of the program are deferred during a compilation, and its tracing functions do not see ptdebug.

A handler may do anything: raise (time limits do), compute with tensors, call compiled functions. In the middle of a
compilation it would run under fake tensors, and its exception would leave torch halfway in or out of a mode, or be lost
in C++ code that treats errors as answers. So while a compilation runs in the main thread, stand-ins replace the
handlers. A stand-in notes the signal; at the next `pause` the compiler abandons its work, the handlers run, and what
they raise is raised. Then the compilation starts again, and later signals wait until it is done.

A second signal of the same kind is handled at once: the user is losing patience.
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
_watchers: list[tuple[Any, Any]] = []  # tracing and profiling functions that are off, a stack for nested compilations


class Interrupted(BaseException):
    """The compilation is abandoned because a signal is waiting for its handler."""


class _Stopgap:
    """The stand-in for a handler. To code in other threads that looks it up, it equals the handler."""

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
    """A context in which handlers are deferred; `handle` runs those whose signals arrived, afterwards.

    `patient`: until the end, not only until the next `pause`.
    """

    def __init__(self, patient: bool = False) -> None:
        self.arrived: dict[int, tuple[float, Handler]] = {}
        self.patient = patient
        self._standing: dict[int, _Stopgap] = {}

    def __enter__(self) -> Waiting:
        _watchers.append(_take_watchers())
        try:
            self._stand_in()
        except BaseException:  # of a handler that has no stand-in yet
            self.__exit__()
            raise
        return self

    def __exit__(self, *_exception: object) -> None:
        try:
            self._step_aside()
        finally:
            _give_back(*_watchers.pop())

    def _stand_in(self) -> None:
        if not _in_main_thread():
            return
        for number in _SIGNALS:
            handler = _getsignal(number)
            if callable(handler) and not isinstance(handler, _Stopgap):
                self._standing[number] = _Stopgap(handler, self)
                _put(number, self._standing[number])
        if self._standing:
            _paused[:] = [self]

    def _step_aside(self) -> None:
        if self._standing:
            _paused.clear()
        for number in list(self._standing):
            try:
                if _getsignal(number) is self._standing[number]:
                    _put(number, self._standing[number].handler)
                del self._standing[number]
            except BaseException:  # of a handler that is installed again
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
                for left in self.arrived:  # as in Python, the others run later
                    _thread.interrupt_main(signal.Signals(left))
                raise


_paused: list[Waiting] = []
"""What defers handlers now, the innermost only."""


def _in_main_thread() -> bool:
    return _thread.get_ident() == threading.main_thread().ident


def pause() -> None:
    """A point where a compilation may be abandoned: raises Interrupted if a signal is waiting."""
    for waiting in _paused:
        if waiting.arrived and not waiting.patient and _in_main_thread():
            raise Interrupted


@contextmanager
def watched() -> Iterator[None]:
    """Let the program's tracing functions see what runs inside: user code that the compiler calls."""
    if not _watchers:
        yield
        return
    _give_back(*_watchers[-1])
    try:
        yield
    finally:
        _watchers[-1] = _take_watchers()


def _take_watchers() -> tuple[Any, Any]:
    """Turn off this thread's (trace, profile) functions that are written in Python. Those written in C raise nothing of
    the program's, and could not be restored from here."""
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
    """Let Python call `handler`. The C-level handler stays: which calls it interrupts, and whether Python is called at
    all (faulthandler may come first)."""
    action = ctypes.create_string_buffer(1024)
    _libc().sigaction(number, None, action)
    signal.signal(number, handler)
    _libc().sigaction(number, action, None)


@functools.cache
def _libc() -> ctypes.CDLL:
    return ctypes.CDLL(None)
