"""The driver of CUDA: from machine code to functions that are launched. It needs neither a compiler nor Triton."""
from __future__ import annotations

import ctypes
from collections.abc import Sequence
from functools import cache
from typing import Any

SCRATCH = 4
"""Null pointers after a kernel's arguments: for the memory that Triton's compiler may ask for. A launch reads as many
as its kernel has."""

_LARGE = 48 << 10  # bytes of shared memory beyond which a function must be allowed to have them
_MAX_DYNAMIC_SHARED, _PREFER_SHARED = 8, 1  # of CUfunction_attribute and CUfunc_cache


class DriverError(RuntimeError):
    """The driver refuses; the message has its reason."""


class Driver:
    """The functions of the driver's library that packages need."""

    def __init__(self, library: Any) -> None:
        self._library = library

    def version(self) -> int:
        """The version of CUDA that it can run: 12040 for 12.4."""
        found = ctypes.c_int()
        self._must("cuDriverGetVersion", ctypes.byref(found))
        return found.value

    def make_current(self, device: int) -> None:
        """Give this thread the context of a device, if it has none: a new thread has none until torch needs one."""
        current, number = ctypes.c_void_p(), ctypes.c_int()
        self._must("cuInit", ctypes.c_uint(0))
        self._must("cuCtxGetCurrent", ctypes.byref(current))
        if not current:
            self._must("cuDeviceGet", ctypes.byref(number), ctypes.c_int(device))
            self._must("cuDevicePrimaryCtxRetain", ctypes.byref(current), number)
            self._must("cuCtxSetCurrent", current)

    def function(self, code: bytes, name: str, shared: int) -> int:
        """The function `name` of machine code, in the current context, with `shared` bytes of shared memory. It stays
        loaded as long as the process. Raises DriverError."""
        module, function = ctypes.c_void_p(), ctypes.c_void_p()
        self._must("cuModuleLoadData", ctypes.byref(module), ctypes.c_char_p(code))
        self._must("cuModuleGetFunction", ctypes.byref(function), module, ctypes.c_char_p(name.encode()))
        if shared > _LARGE:
            self._must("cuFuncSetCacheConfig", function, ctypes.c_int(_PREFER_SHARED))
            self._must("cuFuncSetAttribute", function, ctypes.c_int(_MAX_DYNAMIC_SHARED), ctypes.c_int(shared))
        return function.value or 0

    def launch(
        self, function: int, grid: tuple[int, int], threads: int, shared: int, stream: int, arguments: Sequence[int]
    ) -> None:
        """Launch grid[0] by grid[1] programs; arguments are addresses and integers. Raises DriverError."""
        count = len(arguments) + SCRATCH
        values = (ctypes.c_uint64 * count)(*arguments)  # an int32 reads the low half
        start = ctypes.addressof(values)
        places = (ctypes.c_void_p * count)(*[start + 8 * k for k in range(count)])
        sizes = [ctypes.c_uint(n) for n in (*grid, 1, threads, 1, 1, shared)]
        self._must("cuLaunchKernel", ctypes.c_void_p(function), *sizes, ctypes.c_void_p(stream), places, None)

    def _must(self, name: str, *arguments: Any) -> None:
        code = getattr(self._library, name)(*arguments)
        if code:
            text = ctypes.c_char_p()
            self._library.cuGetErrorString(ctypes.c_int(code), ctypes.byref(text))
            raise DriverError(f"{name}: {(text.value or b'an unknown error').decode()} ({code})")


@cache
def driver() -> Driver | None:
    """The driver of this machine; None where there is none."""
    try:
        return Driver(ctypes.CDLL("libcuda.so.1"))
    except OSError:
        return None


def version_text(version: int) -> str:
    """12040 as "12.4"."""
    return f"{version // 1000}.{version % 1000 // 10}"
