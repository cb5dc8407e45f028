"""Makes a library with a C++ wrapper for a GPU callable: its table of launches, and what Python does for it.

Nothing here needs the compiler, or Triton: packages use it too.
"""
from __future__ import annotations

import ctypes
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from ....runtime.entry import Compiled
from ....unsupported import NoCppWrapper
from ..load import load
from ..state import Native

Handle = tuple[int, int, int]
"""(function, threads, bytes of shared memory) of a launch as the driver has it; no function: Python launches it."""

NO_HANDLE: Handle = (0, 0, 0)


def loaded(
    path: Path, native: Native, names: Mapping[str, Any], python: Compiled, handles: Sequence[Sequence[Handle]],
    by_python: Sequence[str | None], runners: Mapping[str, Callable[..., int]], functions: Sequence[Callable[..., Any]],
) -> Compiled:
    """The wrapper in the library at `path`. `handles` has for each launch two: for aligned addresses and 32-bit sizes,
    and for all others; `runners` are the kernels by name; for `by_python` and `functions` see `GpuWrapper`, for the
    rest `load`. Raises NoCppWrapper without a driver."""
    launch, current = driver_functions()
    if not launch:
        raise NoCppWrapper("the driver has no cuLaunchKernel")
    table = _table([launch, current], [handle for both in handles for handle in both])
    rest = iter(functions)
    called = [next(rest) if name is None else runners[name] for name in by_python]
    state = (ctypes.addressof(table), (*called, *rest), table)  # at last what makes views
    return load(path, native, names, python, state)


def driver_functions() -> tuple[int, int]:
    """The addresses of the driver's functions that launch a kernel and tell the context of this thread; 0 without them.
    """
    try:
        driver = ctypes.CDLL("libcuda.so.1")
        found = [ctypes.cast(f, ctypes.c_void_p).value for f in (driver.cuLaunchKernel, driver.cuCtxGetCurrent)]
        return found[0] or 0, found[1] or 0
    except (OSError, AttributeError):
        return 0, 0


def _table(functions: Sequence[int], kernels: Sequence[Handle]) -> Any:
    """What the C++ calls a Table."""
    numbers = [*functions, *[number for kernel in kernels for number in kernel]]
    return (ctypes.c_uint64 * len(numbers))(*numbers)
