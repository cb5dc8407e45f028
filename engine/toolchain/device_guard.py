"""A device guard for CUDA in a torch that was built without it, so that graphs for a GPU that is not there are traced.

Some of torch's bindings (an index, an assignment to one) enter a guard of their tensor's device, also of a fake one. A
torch that was built with CUDA makes do with a guard that does nothing where it finds no GPU
(`ensureCUDADeviceGuardSet` in c10/core/impl/DeviceGuardImplInterface.cpp); this is the same one for the others.
"""
from __future__ import annotations

import ctypes
import hashlib
import os
import subprocess
from functools import cache
from pathlib import Path

import torch

from .cpp_build import BuildFailed, cache_folder, find_compiler

SOURCE = """\
#include <c10/core/impl/DeviceGuardImplInterface.h>
static const c10::impl::NoOpDeviceGuardImpl<c10::DeviceType::CUDA> guard;
static const c10::impl::DeviceGuardImplRegistrar registrar(c10::DeviceType::CUDA, &guard);
"""


@cache
def guard_absent_gpus() -> None:
    """Let this process have the guard. Raises CompilerMissing, BuildFailed and OSError."""
    if torch.backends.cuda.is_built():
        torch._C._ensureCUDADeviceGuardSet()
        return
    key = hashlib.sha256(f"{SOURCE}{torch.__version__}{find_compiler()}".encode()).hexdigest()[:32]
    library = cache_folder() / "cpp" / f"guard-{key}.so"
    if not library.exists():
        _build(library)
    ctypes.CDLL(str(library))


def _build(library: Path) -> None:
    library.parent.mkdir(parents=True, exist_ok=True)
    private = library.with_suffix(f".{os.getpid()}")
    command = [find_compiler(), "-std=c++20", "-shared", "-fPIC", "-x", "c++", "-", "-o", str(private),
               f"-I{Path(torch.__path__[0], 'include')}", f"-L{Path(torch.__path__[0], 'lib')}", "-lc10"]
    done = subprocess.run(command, input=SOURCE, capture_output=True, text=True)
    if done.returncode:
        raise BuildFailed(command, done.stderr)
    private.replace(library)
