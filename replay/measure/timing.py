"""Times of calls against each other: turn by turn, the shortest of repeated rounds, and how noisy they were."""
from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from statistics import median

import torch

ROUNDS = 9
AT_LEAST = {"cpu": 100e-6, "cuda": 2e-3}  # seconds of one sample: short calls are repeated within it
MOST = 2000  # calls in one sample
BUDGET = 3.0  # seconds for all rounds


@dataclass(frozen=True)
class Launched:
    """A kernel that a call launches on a GPU: its name, how often, and the seconds that all of these take."""

    name: str
    count: int
    seconds: float


@dataclass(frozen=True)
class Timing:
    """Seconds of a call: the shortest sample, and how much longer the median one is, as a share of it. `launched` are
    the kernels of the device, the longest first; none where the clock alone was looked at."""

    seconds: float
    noise: float
    launched: tuple[Launched, ...] = ()


def interleaved(
    calls: Mapping[str, Callable[[], object]], device: str = "cpu", rounds: int = ROUNDS
) -> dict[str, Timing]:
    """Time the calls turn by turn, so that what disturbs the machine disturbs all of them."""
    repeats = {}
    for name, call in calls.items():
        call()
        once = _sample(call, 1, device)
        repeats[name] = max(1, min(MOST, int(AT_LEAST[device.partition(":")[0]] / max(once, 1e-9))))
    samples: dict[str, list[float]] = {name: [] for name in calls}
    until = time.perf_counter() + BUDGET
    for number in range(rounds):
        if number >= 3 and time.perf_counter() > until:
            break
        for name, call in calls.items():
            samples[name].append(_sample(call, repeats[name], device))
    return {name: Timing(min(s), median(s) / min(s) - 1 if min(s) else 0.0) for name, s in samples.items()}


def _sample(call: Callable[[], object], count: int, device: str) -> float:
    start = time.perf_counter()
    for _ in range(count):
        call()
    if device.startswith("cuda"):
        torch.cuda.synchronize(device)
    return (time.perf_counter() - start) / count
