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
from .stopwatch import stopwatch

SIZES = (1 << 15, 1 << 18, 1 << 21, 1 << 24, 1 << 28)
"""Bytes of the buffers that are copied: from those in a core's own cache to those in memory."""
GPU_SIZES = (1 << 15, 1 << 18, 1 << 21, 1 << 23, 1 << 24, 3 << 23, 1 << 25, 1 << 26, 1 << 28)
"""The same for a GPU: from those in its level 2 cache to those in its memory."""
SECONDS = 0.08  # for each measurement
MATRIX = {"cpu": 768, "cuda": 4096}
KINDS = {"float16": torch.float16, "bfloat16": torch.bfloat16, "tf32": torch.float32}
"""Kinds of matrix products that have units of their own on a GPU."""


class Machine(msgspec.Struct, frozen=True):
    """Peaks of a device. `bandwidth` is of a copy, by bytes touched, in the order of `sizes`; `products` by KINDS. The
    cache is the level 2 cache of a GPU, in bytes: what was touched by the call before may still be there."""

    device: str
    threads: int
    bandwidth: tuple[float, ...]
    flops: float  # float32, of a matrix product
    products: dict[str, float] = {}
    sizes: tuple[int, ...] = SIZES
    cache: int = 0
    name: str = ""

    @property
    def memory(self) -> float:
        """Bytes a second of the largest copy."""
        return self.bandwidth[-1]

    def peak(self, kind: str) -> float:
        """Operations a second of a matrix product of that kind; of float32 where it has no units of its own."""
        return self.products.get(kind, self.flops)

    def bandwidth_at(self, touched: int) -> float:
        """Bytes a second, for something that touches so many bytes."""
        return self.bandwidth[self.place(touched)]

    def place(self, touched: int) -> int:
        """The position in `sizes` for so many bytes."""
        return min(bisect_left(self.sizes, touched // 2), len(self.sizes) - 1)


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
    key = f"{name}\0{torch.get_num_threads()}\0{torch.__version__}\0{SIZES}{GPU_SIZES}\0products"
    return cache_folder() / "machine" / f"{hashlib.sha256(key.encode()).hexdigest()[:32]}.json"


def _measured(device: str) -> Machine:
    copies: dict[int, Callable[[], object]] = {}
    sizes = GPU_SIZES if device.startswith("cuda") else SIZES
    for size in sizes:
        source = torch.ones(size // 4, device=device)
        copies[size] = partial(torch.empty_like(source).copy_, source)
    n = MATRIX[device.partition(":")[0]]
    a, b, product = (torch.randn(n, n, device=device) for _ in range(3))  # of zeros and ones a GPU computes more
    multiply = partial(torch.mm, a, b, out=product)
    if device.startswith("cuda"):
        return _measured_on_gpu(device, copies, multiply, n)
    bandwidth = [2 * size / fastest(copy, SECONDS) for size, copy in copies.items()]
    return Machine(device, torch.get_num_threads(), tuple(bandwidth), 2 * n**3 / fastest(multiply, SECONDS))


def _measured_on_gpu(
    device: str, copies: dict[int, Callable[[], object]], multiply: Callable[[], object], n: int
) -> Machine:
    """By what the kernels take: a small copy takes less than its launch."""
    precision = torch.get_float32_matmul_precision()
    with stopwatch(device) as watch:
        for size, copy in copies.items():
            watch.run(f"copy {size}", copy)
        try:
            torch.set_float32_matmul_precision("highest")
            watch.run("float32", multiply)
            for kind, dtype in KINDS.items():
                torch.set_float32_matmul_precision("high")
                values = torch.randn(n, n, device=device, dtype=dtype)
                watch.run(kind, partial(torch.mm, values, values, out=torch.empty_like(values)))
        finally:
            torch.set_float32_matmul_precision(precision)
    times = {name: timing.seconds for name, timing in watch.times().items()}
    bandwidth = tuple(2 * size / times[f"copy {size}"] for size in copies)
    products = {kind: 2 * n**3 / times[kind] for kind in KINDS}
    cache = getattr(torch.cuda.get_device_properties(device), "L2_cache_size", 0)
    return Machine(device, torch.get_num_threads(), bandwidth, 2 * n**3 / times["float32"], products, tuple(copies),
                   cache, torch.cuda.get_device_name(device))


def fastest(call: Callable[[], object], seconds: float = SECONDS) -> float:
    """Seconds of the fastest call, of as many as there is time for (three at least)."""
    call()
    least, until, count = float("inf"), time.perf_counter() + seconds, 0
    while count < 3 or time.perf_counter() < until:
        start = time.perf_counter()
        call()
        least = min(least, time.perf_counter() - start)
        count += 1
    return least
