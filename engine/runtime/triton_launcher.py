"""Compiled Triton kernels, launched by torch's own launcher, which is written in C++. Nothing of Triton is loaded."""
from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from ..toolchain.triton_cache import Binary
from ..unsupported import TritonUnsupported

ALIGNED = 15
"""Addresses whose low four bits are zero may be loaded 16 bytes at a time."""

static_launcher = getattr(torch._C, "_StaticCudaLauncher", None)
"""Since torch 2.7, where it was built with CUDA."""


class Launchable:
    """A loaded kernel, launched by torch's launcher."""

    def __init__(self, binary: Binary, types: Sequence[str], device: int) -> None:
        assert static_launcher is not None
        try:
            loaded = static_launcher._load_kernel(binary.path, binary.name, binary.shared, device)
        except RuntimeError as error:  # more shared memory than the device has, say
            raise TritonUnsupported(f"{binary.name} cannot be loaded: {error}") from error
        self._function = loaded[-3]  # a module may come before it
        self._kinds = "".join({"i32": "i", "i64": "l"}.get(kind, "O") for kind in types) + "O" * binary.scratch
        self._run, self._warps, self._shared = static_launcher._launch_kernel, binary.warps, binary.shared
        self._nulls = (None,) * binary.scratch
        self.memory, self._device = binary.memory, torch.device("cuda", device)

    @property
    def handle(self) -> tuple[int, int, int]:
        """The driver's function, its threads, its bytes of shared memory; no function for a kernel that needs memory of
        its own."""
        return (0, 0, 0) if self.memory else (self._function, 32 * self._warps, self._shared)

    def __call__(self, x: int, y: int, stream: int, arguments: tuple[Any, ...]) -> None:
        """Launch x by y programs."""
        more: tuple[Any, ...] = self._nulls
        if self.memory:  # for descriptors: freed as the launch returns, and not written to before the kernel is done
            own = torch.empty(self.memory * x * y, dtype=torch.uint8, device=self._device)
            more = (own.data_ptr(), *self._nulls[1:])
        self._run(self._function, x, y, 1, self._warps, self._shared, self._kinds, arguments + more, stream)

    def for_addresses(self, count: int, x: int, y: int, index: int, general: Callable[..., int]) -> Callable[..., int]:
        """The launch of x by y programs for `count` addresses: without a loop or a call in between, since it is most of
        what a small graph costs. `general` is called for tensors, unaligned addresses, and where another device than
        `index` is current."""
        names = ", ".join(f"p{k}" for k in range(count))
        nulls = ", None" * len(self._nulls)
        shape = f"{x}, {y}, 1, {self._warps}, {self._shared}"
        lines = (
            f"def launch({names}):",
            f"    if type(p0) is not int or ({names.replace(', ', ' | ')}) & {ALIGNED} or device() != {index}:",
            f"        return general({names})",
            f"    run(function, {shape}, kinds, ({names}{nulls},), stream_of({index}))",
            "    return 0",
        )
        names_there = {
            "run": self._run, "function": self._function, "kinds": self._kinds, "general": general,
            "stream_of": torch._C._cuda_getCurrentRawStream, "device": torch._C._cuda_getDevice,
        }
        exec("\n".join(lines), names_there)
        launched: Callable[..., int] = names_there["launch"]
        return launched
