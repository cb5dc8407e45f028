"""Where tracing spends its time: seconds by inlined function, with and without what it calls."""
from __future__ import annotations

import time
from dataclasses import dataclass
from types import CodeType

from .records import TracedFunction

MOST = 200
"""Functions that are recorded, those with the most time of their own."""


@dataclass
class _Times:
    code: CodeType
    calls: int = 0
    own: float = 0.0
    whole: float = 0.0
    active: int = 0  # calls that have not returned: a recursive function's time counts once


class FunctionTimes:
    """The times of one compilation, over all attempts at it."""

    def __init__(self) -> None:
        self._times: dict[int, _Times] = {}  # by identity: the hash of a code object looks at all of it
        self._inner = [0.0]  # of each active call, the seconds of what it called

    def enter(self, code: CodeType) -> float:
        """The tracing of a call begins; `leave` wants the result."""
        times = self._times.get(id(code))
        if times is None:
            times = self._times[id(code)] = _Times(code)
        times.active += 1
        self._inner.append(0.0)
        return time.perf_counter()

    def leave(self, code: CodeType, start: float) -> None:
        """It ended."""
        took = time.perf_counter() - start
        times = self._times[id(code)]
        times.calls += 1
        times.active -= 1
        times.own += max(0.0, took - self._inner.pop())
        times.whole += took if not times.active else 0.0
        self._inner[-1] += took

    def records(self) -> tuple[TracedFunction, ...]:
        """The functions, the most time of their own first."""
        longest = sorted(self._times.values(), key=lambda times: -times.own)[:MOST]
        return tuple(TracedFunction(t.code.co_qualname, t.code.co_filename, t.code.co_firstlineno, t.calls,
                                    round(t.own, 6), round(t.whole, 6)) for t in longest)
