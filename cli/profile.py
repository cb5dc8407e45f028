"""`ptdebug run --profile SECONDS`: torch's profiler, from the first call of a compiled graph on.

Only what compiled graphs run is kept: their calls, kernels and ATen operators, and the GPU kernels that these launched.
Where the program profiles itself, ours ends before. What fails here is told at the end: the program goes on.
"""
from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from ..artifacts.listing import plural
from ..artifacts.profiles import Profile, ProfiledEvent, span_of

QUIET = {"KINETO_LOG_LEVEL": "99"}
"""The profiler's library prints when it begins and ends, otherwise: for the environment, before torch is loaded."""
OWN = "the program began to profile itself"


class Profiler:
    """The profile of one process, of at most `limit` seconds."""

    def __init__(self, limit: float) -> None:
        self.limit = limit
        self.profile: Profile | None = None
        self._running: Any = None
        self._started = 0.0
        self._pid, self._thread = os.getpid(), 0  # torch's profiler ends where it began

    def around(self, call: Callable[..., Any]) -> Callable[..., Any]:
        """A compiled graph, whose call begins the profile, and ends it after the limit."""

        def profiled(*args: Any) -> Any:
            if self.profile is None and self._pid == os.getpid():
                if self._running is None:
                    self._start()
                elif time.time() - self._started > self.limit and threading.get_ident() == self._thread:
                    self.stop(f"{self.limit:g} seconds are over")
            return call(*args)

        return profiled

    def _start(self) -> None:
        try:
            self._begin()
        except Exception as error:
            self._running = None
            self._failed(error)

    def _failed(self, error: Exception) -> None:
        self.profile = Profile(time.time(), 0.0, f"torch's profiler failed: {type(error).__name__}: {error}")

    def _begin(self) -> None:
        import torch
        from torch.profiler import ProfilerActivity, profile

        if torch.autograd.profiler._is_profiler_enabled:
            self.profile = Profile(time.time(), 0.0, OWN)
            return
        activities = [ProfilerActivity.CPU, *([ProfilerActivity.CUDA] if torch.cuda.is_initialized() else [])]
        self._running, self._started, self._thread = profile(activities=activities), time.time(), threading.get_ident()
        self._running.start()
        self._give_way(torch.autograd.profiler)

    def _give_way(self, module: Any) -> None:
        """End ours when the program starts a profiler: two at a time would end the process."""
        for name in ("_prepare_profiler", "_enable_profiler"):
            start = getattr(module, name)

            def begins(*args: Any, _start: Any = start, **options: Any) -> Any:
                self.stop(OWN)
                return _start(*args, **options)

            setattr(module, name, begins)

    def stop(self, why: str = "the program ended") -> None:
        """End the profile, if it runs."""
        running, self._running = self._running, None
        if running is None or self._pid != os.getpid():
            return
        seconds = time.time() - self._started
        try:
            running.stop()
            events = tuple(_events(running.profiler.kineto_results.events()))
        except Exception as error:
            self._failed(error)
        else:
            self.profile = Profile(self._started, seconds, why, events)

    def said(self) -> str:
        """What was seen, for the end of the run."""
        found = self.profile
        if found is None:
            return "nothing was profiled: no compiled graph was called"
        if not found.seconds:
            return f"nothing was profiled: {found.ended}"
        calls, kernels, operators = (len(found.of(kind)) for kind in ("graph", "kernel", "operator"))
        ran = f"{plural(calls, 'call')} of graphs, {plural(kernels, 'kernel')}, {plural(operators, 'library call')}"
        return f"profiled {found.seconds:.1f} s, until {found.ended}: {ran} (`ptdebug trace` has the timeline)"


def _events(found: Iterable[Any]) -> Iterator[ProfiledEvent]:
    """What ran within graphs, by time."""
    here = [event for event in found if event.device_type().name == "CPU"]
    threads: dict[int, list[Any]] = {}
    for event in here:
        threads.setdefault(event.device_resource_id(), []).append(event)
    launched: dict[int, tuple[str, str, str]] = {}  # by correlation id
    for thread, events in threads.items():
        yield from _of_thread(thread, sorted(events, key=lambda e: (e.start_ns(), -e.duration_ns())), launched)
    for event in found:
        if event.device_type().name != "CPU" and event.correlation_id() in launched:
            yield _event("gpu", event, event.device_resource_id(), launched[event.correlation_id()])


def _of_thread(
    thread: int, events: list[Any], launched: dict[int, tuple[str, str, str]]
) -> Iterator[ProfiledEvent]:
    """The events of a thread that lie in a graph's call: spans, and the outermost of the others."""
    inside: list[tuple[int, tuple[str, str, str] | None]] = []  # (end, span) of what is open
    for event in events:
        while inside and event.start_ns() >= inside[-1][0]:
            inside.pop()
        span = span_of(event.name())
        around = next((each for _, each in reversed(inside) if each is not None), None)
        if span is not None:
            yield _event("kernel" if span[2] else "graph", event, thread, span)
        elif around is not None:
            launched[event.correlation_id()] = around
            if inside[-1][1] is not None and not around[2]:
                yield _event("operator", event, thread, around)
        inside.append((event.start_ns() + event.duration_ns(), span))


def _event(kind: str, event: Any, thread: int, span: tuple[str, str, str]) -> ProfiledEvent:
    name = event.name() if kind in ("operator", "gpu") else span[2] or span[1] or span[0]
    return ProfiledEvent(kind, name, event.start_ns() / 1e9, event.duration_ns() / 1e9, thread, *span)
