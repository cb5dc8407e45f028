"""Makes a library with a C++ wrapper callable: passes it torch's functions and what it needs of Python.

Nothing here needs the compiler: a graph loaded from disk uses it too.
"""
from __future__ import annotations

import ctypes
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch

from ....artifacts.context import CHANGED_INPUTS
from ...runtime.runtime import is_lazy
from .shim import WRAP, address, last_error
from .state import Native

AGAIN = 1
"""What the C++ returns where nothing was written yet: the Python wrapper does the call again, and raises. A negative
code says the same, and which index is out of range."""

FAILED, NO_MEMORY, NO_LAUNCH, RAISED, OUT_OF_BOUNDS = 2, 3, 4, 5, 6
"""What it returns after inputs were written or, in a backward, released: torch failed; a GPU had no memory left, or its
driver refused a launch; the index of `Native.bounds[code - OUT_OF_BOUNDS]` is out of range. RAISED: what it called of
Python raised, whenever that was."""


def load(
    path: Path, native: Native, names: Mapping[str, Any], python: Callable[..., Sequence[Any]],
    further: tuple[Any, ...] = (),
) -> Callable[..., Sequence[Any]]:
    """The wrapper in the library at `path`; `names` has the tensors that the graph holds, `python` is the same in
    Python, `further` what that for a GPU needs besides (see `gpu/launches.py`). Raises RuntimeError where this torch
    has not got a function that the library was written for."""
    addresses = [id(torch.Tensor), id(torch.nn.Parameter), id(int), address(WRAP), *map(address, native.functions)]
    if None in addresses:
        raise RuntimeError("a function of torch's C interface is not there")
    table = (ctypes.c_void_p * len(addresses))(*addresses)
    make = ctypes.PyDLL(str(path)).ptdebug_wrapper
    make.restype, make.argtypes = ctypes.py_object, [ctypes.c_void_p, ctypes.py_object]
    held = [names[name] for name in native.held]
    state = (python, _raiser(native.bounds), torch._C._increment_version, is_lazy, *held, *native.plain, *further)
    call: Callable[..., Sequence[Any]] = make(ctypes.addressof(table), state)
    return call


def _raiser(bounds: tuple[str, ...]) -> Callable[[int], None]:
    """What raises for a code that the C++ returned after it had written to inputs: the call must not run again."""

    before = _refusals()

    def fail(code: int) -> None:
        error: Exception
        if code >= OUT_OF_BOUNDS:
            error = IndexError(f"index out of range in `{bounds[code - OUT_OF_BOUNDS]}`")
        elif code == NO_LAUNCH:
            error = RuntimeError("the driver refused to launch a kernel, in a call that cannot run again")
        else:
            kind = torch.OutOfMemoryError if code == NO_MEMORY or _refusals() > before else RuntimeError
            error = kind(last_error() or "an ATen call failed, or memory ran out, in a call that cannot run again")
        setattr(error, CHANGED_INPUTS, True)
        raise error

    return fail


def _refusals() -> int:
    """How often a GPU has had no memory left."""
    if not torch.cuda.is_initialized():
        return 0
    return sum(torch.cuda.memory_stats(k).get("num_ooms", 0) for k in range(torch.cuda.device_count()))
