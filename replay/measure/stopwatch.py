"""Times of many short calls one after the other: on a CPU by the clock, on a GPU what its own kernels took.

A kernel of 10 us is launched in as many, so a GPU's times come from torch's profiler, which says also which kernels a
call launched: of a matrix product or an attention nothing else does.
"""
from __future__ import annotations

import time
from bisect import bisect_right
from collections.abc import Callable, Sequence
from statistics import median
from types import TracebackType
from typing import Any, Protocol

import torch

from .timing import Launched, Timing, interleaved

REPEATS = 5
_MARK = "ptdebug call "


class Stopwatch(Protocol):
    """`run` calls something a few times; `times` says of each name what a call took, after the block has ended."""

    def __enter__(self) -> Stopwatch: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...

    def run(self, name: str, call: Callable[[], object], budget: float | None = None) -> None: ...

    def times(self) -> dict[str, Timing]: ...


def stopwatch(device: str) -> Stopwatch:
    """For calls that run on `device`."""
    return _OnDevice(device) if device.startswith("cuda") else _OnHost()


class _OnHost:
    def __init__(self) -> None:
        self._found: dict[str, Timing] = {}

    def __enter__(self) -> Stopwatch:
        return self

    def __exit__(self, *error: object) -> None:
        return

    def run(self, name: str, call: Callable[[], object], budget: float | None = None) -> None:
        self._found[name] = interleaved({"": call})[""] if budget is None else _within(call, budget)

    def times(self) -> dict[str, Timing]:
        return self._found


def _within(call: Callable[[], object], budget: float) -> Timing:
    """The fastest call, of as many as there is time for, three at least."""
    call()
    samples: list[float] = []
    until = time.perf_counter() + budget
    while len(samples) < 3 or time.perf_counter() < until:
        start = time.perf_counter()
        call()
        samples.append(time.perf_counter() - start)
    return Timing(min(samples), median(samples) / min(samples) - 1 if min(samples) else 0.0)


class _OnDevice:
    """Each call is inside a marked range that ends when the device is idle: a kernel is of the range it begins in."""

    def __init__(self, device: str) -> None:
        self._device = device
        self._profile: Any = None
        self._names: list[str] = []
        self._waited: dict[int, list[float]] = {}
        self._found: dict[str, Timing] = {}
        self._sees = False

    def __enter__(self) -> Stopwatch:
        from torch.profiler import ProfilerActivity, profile

        self._profile = profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA], acc_events=True)
        self._profile.__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._profile.__exit__(kind, error, trace)
        if kind is None:
            launched = calls_of([
                (e.name, e.time_range.start, e.time_range.end, e.device_type != torch.autograd.DeviceType.CPU)
                for e in self._profile.events()])
            self._sees = bool(launched)
            for number, name in enumerate(self._names):
                self._found[name] = self._timing(number, [launched.get((number, k), []) for k in range(REPEATS)])
        self._profile = None

    def run(self, name: str, call: Callable[[], object], budget: float | None = None) -> None:
        call()
        torch.cuda.synchronize(self._device)
        waited = []
        for k in range(REPEATS):
            with torch.profiler.record_function(f"{_MARK}{len(self._names)} {k}"):
                start = time.perf_counter()
                call()
                torch.cuda.synchronize(self._device)
                waited.append(time.perf_counter() - start)
        self._waited[len(self._names)] = waited
        self._names.append(name)

    def times(self) -> dict[str, Timing]:
        return self._found

    def _timing(self, number: int, calls: Sequence[list[tuple[str, float]]]) -> Timing:
        totals = [sum(seconds for _, seconds in call) for call in calls]
        if not self._sees:  # the profiler has no access to the device: by the clock, with the launch
            totals = self._waited[number]
        shortest = min(totals)
        took: dict[str, list[float]] = {}
        for name, seconds in calls[totals.index(shortest)]:
            took.setdefault(name, []).append(seconds)
        noise = median(totals) / shortest - 1 if shortest else 0.0
        launched = [Launched(name, len(each), sum(each)) for name, each in took.items()]
        return Timing(shortest, noise, tuple(sorted(launched, key=lambda k: -k.seconds)))


def calls_of(events: Sequence[tuple[str, float, float, bool]]) -> dict[tuple[int, int], list[tuple[str, float]]]:
    """The kernels (name, seconds) of each marked call, (number, repeat), that launched any; `events` are name, start
    and end in us, and whether it ran on the device."""
    ranges = sorted((start, end, name) for name, start, end, on_device in events
                    if not on_device and name.startswith(_MARK))
    starts = [start for start, _, _ in ranges]
    found: dict[tuple[int, int], list[tuple[str, float]]] = {}
    for name, start, end, on_device in events:
        place = bisect_right(starts, start) - 1
        if not on_device or name.startswith(_MARK) or place < 0 or start > ranges[place][1]:
            continue
        number, repeat = ranges[place][2].removeprefix(_MARK).split()
        found.setdefault((int(number), int(repeat)), []).append((name, (end - start) * 1e-6))
    return found
