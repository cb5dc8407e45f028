"""How long calls take on a CUDA device: measured by its events once, kept on disk."""
from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import torch

from .benchmarking import Call, kept

ROUNDS = 8  # of all calls, interleaved, after one that is not counted
ENOUGH = 0.01  # seconds for one call, after which it is not repeated
AHEAD = 1_000_000  # cycles that the device waits, so that it has all that a call launches when it begins


def device_costs(
    subject: str, device: torch.device, prepare: Callable[[], Mapping[str, Call]], cold: bool = False
) -> dict[str, float]:
    """Seconds on `device` of each call that `prepare()` returns, the fastest of a few runs; `cold`: with nothing that
    they read in the cache, as the weights of a model are.

    Empty while a stream is captured, which measuring would break, where a call raises, and where the device is not.
    """
    if not torch.cuda.is_available() or torch.cuda.is_current_stream_capturing():
        return {}
    subject = on_device(subject, device, cold)

    def measure() -> dict[str, float]:
        with torch.cuda.device(device):
            try:
                return _measured(prepare(), _flush(device) if cold else None)
            except RuntimeError:  # no memory, or a kernel that refuses what it is given
                return {}

    return kept(subject, measure)


def on_device(subject: str, device: torch.device, cold: bool) -> str:
    """The subject as it is kept on disk."""
    return f"{subject} {'cold ' if cold else ''}on {torch.cuda.get_device_name(device)}"


def made_up(
    size: Sequence[int], stride: Sequence[int], dtype: torch.dtype, device: torch.device, zeros: bool = False
) -> torch.Tensor:
    """A tensor to measure with: floats from -1 to 1, bytes of any value, other integers 0; or all zeros."""
    span = 0 if 0 in size else 1 + sum((n - 1) * step for n, step in zip(size, stride))
    generator = torch.Generator(device).manual_seed(0)  # the program's own is not touched
    memory = torch.zeros(span, dtype=dtype, device=device)
    if not zeros and dtype.is_floating_point:
        wide = dtype if dtype.itemsize > 1 else torch.float32
        memory.copy_(torch.empty(span, dtype=wide, device=device).uniform_(-1, 1, generator=generator))
    elif not zeros and dtype in (torch.int8, torch.uint8):
        memory.random_(*_bytes_of(dtype), generator=generator)
    return memory.as_strided(size, stride)


def _bytes_of(dtype: torch.dtype) -> tuple[int, int]:
    limits = torch.iinfo(dtype)
    return limits.min, limits.max + 1


def _flush(device: torch.device) -> Call:
    """What fills the device's cache with other memory."""
    size = 2 * getattr(torch.cuda.get_device_properties(device), "L2_cache_size", 1 << 26)
    return torch.empty(size, dtype=torch.uint8, device=device).zero_


def _measured(calls: Mapping[str, Call], before: Call | None = None) -> dict[str, float]:
    for call in calls.values():
        call()
    torch.cuda.synchronize()
    least = dict.fromkeys(calls, float("inf"))
    spent = dict.fromkeys(calls, 0.0)
    for _ in range(ROUNDS):
        for name, call in calls.items():
            if spent[name] < ENOUGH:
                seconds = _seconds(call, before)
                least[name] = min(least[name], seconds)
                spent[name] += seconds
    return least


def _seconds(call: Call, before: Call | None) -> float:
    start, end = [torch.cuda.Event(enable_timing=True) for _ in range(2)]
    if before is not None:
        before()
    torch.cuda._sleep(AHEAD)
    start.record()
    call()
    end.record()
    end.synchronize()
    return float(start.elapsed_time(end)) / 1e3
