"""What this machine can do: bytes a second by the size of what is read, and floating-point operations a second.

Measured once for a device, a number of threads and a version of torch, and kept in the cache folder.
"""
from __future__ import annotations

import contextlib
import hashlib
import time
from bisect import bisect_left
from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path

import torch

from ...dependencies import msgspec
from ...engine.toolchain.cpp_build import cache_folder, cpu_features

SIZES = (1 << 15, 1 << 18, 1 << 21, 1 << 24, 1 << 28)
"""Bytes of the buffers that are copied: from those in a core's own cache to those in memory."""
SECONDS = 0.08  # for each measurement
MATRIX = {"cpu": 768, "cuda": 4096}


class Machine(msgspec.Struct, frozen=True):
    """Peaks of a device. `bandwidth` is by bytes touched, in the order of SIZES."""

    device: str
    threads: int
    bandwidth: tuple[float, ...]
    flops: float  # float32, of a matrix product

    def bandwidth_at(self, touched: int) -> float:
        """Bytes a second, for something that touches so many bytes."""
        return self.bandwidth[self.place(touched)]

    def place(self, touched: int) -> int:
        """The position in SIZES for so many bytes."""
        return min(bisect_left(SIZES, touched // 2), len(SIZES) - 1)


def machine(device: str = "cpu") -> Machine:
    """This machine's peaks: measured, the first time."""
    path = _path(device)
    try:
        return msgspec.json.decode(path.read_bytes(), type=Machine)
    except (OSError, msgspec.MsgspecError):
        found = _measured(device)
    _keep(found)
    return found


def raised(known: Machine, seen: Iterable[tuple[int, int, float]]) -> Machine:
    """The peaks, and above them what was seen (bytes, operations, seconds): a busy machine shows less than it can."""
    bandwidth, flops = list(known.bandwidth), known.flops
    for touched, operations, seconds in seen:
        place = known.place(touched)
        bandwidth[place] = max(bandwidth[place], touched / seconds)
        flops = max(flops, operations / seconds)
    found = msgspec.structs.replace(known, bandwidth=tuple(bandwidth), flops=flops)
    if found != known:
        _keep(found)
    return found


def _keep(found: Machine) -> None:
    path = _path(found.device)
    with contextlib.suppress(OSError):  # a full disk: the next time measures again
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(msgspec.json.encode(found))


def _path(device: str) -> Path:
    name = torch.cuda.get_device_name(device) if device.startswith("cuda") else cpu_features()
    key = f"{name}\0{torch.get_num_threads()}\0{torch.__version__}\0{SIZES}\0touched"
    return cache_folder() / "machine" / f"{hashlib.sha256(key.encode()).hexdigest()[:32]}.json"


def _measured(device: str) -> Machine:
    bandwidth = []
    for size in SIZES:
        source = torch.ones(size // 4, device=device)
        target = torch.empty_like(source)
        bandwidth.append(2 * size / fastest(partial(target.copy_, source), device))
    n = MATRIX[device.partition(":")[0]]
    a, b, product = (torch.ones(n, n, device=device) for _ in range(3))
    flops = 2 * n**3 / fastest(lambda: torch.mm(a, b, out=product), device)
    return Machine(device, torch.get_num_threads(), tuple(bandwidth), flops)


def fastest(call: Callable[[], object], device: str = "cpu", seconds: float = SECONDS) -> float:
    """Seconds of the fastest call, of as many as there is time for (three at least)."""
    call()
    least, until, count = float("inf"), time.perf_counter() + seconds, 0
    while count < 3 or time.perf_counter() < until:
        start = time.perf_counter()
        call()
        if device.startswith("cuda"):
            torch.cuda.synchronize(device)
        least = min(least, time.perf_counter() - start)
        count += 1
    return least
