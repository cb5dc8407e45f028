"""How long calls take on a CUDA device: measured by its events once, kept on disk."""
from __future__ import annotations

from collections.abc import Callable, Mapping

import torch

from .benchmarking import Call, kept

ROUNDS = 8  # of all calls, interleaved, after one that is not counted
ENOUGH = 0.01  # seconds for one call, after which it is not repeated
AHEAD = 1_000_000  # cycles that the device waits, so that it has all that a call launches when it begins


def device_costs(
    subject: str, device: torch.device, prepare: Callable[[], Mapping[str, Call]]
) -> dict[str, float]:
    """Seconds on `device` of each call that `prepare()` returns, the fastest of a few runs.

    Empty while a stream is captured, which measuring would break, where a call raises, and where the device is not.
    """
    if not torch.cuda.is_available() or torch.cuda.is_current_stream_capturing():
        return {}

    def measure() -> dict[str, float]:
        with torch.cuda.device(device):
            try:
                return _measured(prepare())
            except RuntimeError:  # no memory, or a kernel that refuses what it is given
                return {}

    return kept(f"{subject} on {torch.cuda.get_device_name(device)}", measure)


def _measured(calls: Mapping[str, Call]) -> dict[str, float]:
    for call in calls.values():
        call()
    torch.cuda.synchronize()
    least = dict.fromkeys(calls, float("inf"))
    spent = dict.fromkeys(calls, 0.0)
    for _ in range(ROUNDS):
        for name, call in calls.items():
            if spent[name] < ENOUGH:
                seconds = _seconds(call)
                least[name] = min(least[name], seconds)
                spent[name] += seconds
    return least


def _seconds(call: Call) -> float:
    start, end = [torch.cuda.Event(enable_timing=True) for _ in range(2)]
    torch.cuda._sleep(AHEAD)
    start.record()
    call()
    end.record()
    end.synchronize()
    return float(start.elapsed_time(end)) / 1e3
