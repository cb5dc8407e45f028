"""The checks of `ptdebug doctor`: one function each, with a fix for what fails.

To add a check, write a function that returns a `Check` and list it in CHECKS. A check that raises is reported as
missing, with what it raised.
"""
from __future__ import annotations

import ctypes
import os
import platform
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path

from ..artifacts.home import recordings_home
from ..artifacts.listing import plural

OK, WARNING, MISSING = "ok", "warning", "missing"
LOW_SPACE = 1 << 30  # bytes
PACKAGES = ("msgspec", "safetensors", "sympy", "textual", "zstandard")
PROBE = r"""
#include <stddef.h>
extern "C" int omp_get_max_threads(void);
#define S __attribute__((simd("notinbranch"), const, nothrow, leaf))
extern "C" float sinf(float) S;
extern "C" int threads(void) { return omp_get_max_threads(); }
extern "C" void sines(const float *x, float *y, long n) {
    #pragma omp parallel for simd
    for (long i = 0; i < n; i++) y[i] = sinf(x[i]);
}
"""


@dataclass(frozen=True)
class Check:
    """The result of a check. `fix` says what to do if it is not ok; `needed`: nothing is compiled without it."""

    status: str
    detail: str
    fix: str = ""
    needed: bool = True


def python_version() -> Check:
    """CPython 3.11 to 3.13, whose bytecode the tracer knows."""
    found = f"{platform.python_implementation()} {platform.python_version()} ({sys.executable})"
    known = platform.python_implementation() == "CPython" and (3, 11) <= sys.version_info[:2] <= (3, 13)
    return Check(OK if known else MISSING, found, "" if known else "use CPython 3.11, 3.12 or 3.13")


def packages() -> Check:
    """The libraries that ptdebug needs."""
    found, missing = [], []
    for name in PACKAGES:
        try:
            found.append(f"{name} {metadata.version(name)}")
        except metadata.PackageNotFoundError:
            missing.append(name)
    fix = f"pip install {' '.join(missing)}" if missing else ""
    return Check(MISSING if missing else OK, ", ".join(found), fix)


def torch_version() -> Check:
    """PyTorch 2.11 or newer."""
    import torch

    known = tuple(int(part) for part in torch.__version__.split("+")[0].split(".")[:2]) >= (2, 11)
    return Check(OK if known else WARNING, f"torch {torch.__version__}", "" if known else "pip install -U torch")


def frame_interface() -> Check:
    """torch's frame evaluation hook, by which functions are intercepted."""
    from ..tracer.runtime.eval_frame import unavailable

    why = unavailable()
    if why:
        return Check(MISSING, why, "use a torch between 2.11 and 2.15; programs run in eager until then")
    return Check(OK, "frames can be intercepted")


def compiler() -> Check:
    """A C++ compiler, tried on a small file."""
    from ..engine.toolchain.cpp_build import CompilerMissing, find_compiler

    try:
        path = find_compiler()
    except CompilerMissing as missing:
        return Check(MISSING, "no C++ compiler: graphs run in eager", str(missing))
    said = subprocess.run([path, "--version"], capture_output=True, text=True).stdout.splitlines()
    with tempfile.TemporaryDirectory() as folder:
        error = _compile(path, "int main() { return 0; }", folder, [])
    if error:
        return Check(MISSING, f"{path} does not work: {error}", "reinstall it (Debian or Ubuntu: apt-get install g++)")
    return Check(OK, f"{said[0] if said else path} ({path})")


def openmp() -> Check:
    """OpenMP: kernels on more than one core."""
    from ..engine.toolchain.cpp_build import find_compiler

    with tempfile.TemporaryDirectory() as folder:
        error = _compile(find_compiler(), PROBE, folder, ["-fopenmp", "-lmvec", "-lm"])
        if error:
            return Check(MISSING, f"-fopenmp does not link: {error}", "install libgomp (apt-get install libgomp1 g++)")
        threads = ctypes.CDLL(f"{folder}/probe.so").threads()
    return Check(OK, f"{plural(threads, 'thread')} (OMP_NUM_THREADS sets it)")


def vector_math() -> Check:
    """libmvec: sin, exp and the like on vectors."""
    from ..engine.toolchain.cpp_build import find_compiler

    with tempfile.TemporaryDirectory() as folder:
        error = _compile(find_compiler(), PROBE, folder, ["-O2", "-march=native", "-fopenmp", "-fno-math-errno",
                                                          "-lmvec", "-lm"])
        if error:
            return Check(MISSING, f"-lmvec does not link: {error}", "a glibc of 2.35 or newer has it (x86-64 Linux)")
        library = Path(folder, "probe.so").read_bytes()
    vectors = b"_ZGV" in library
    return Check(OK if vectors else WARNING, "vector functions are called" if vectors else "only scalar functions",
                 "" if vectors else "g++ 11 or newer vectorizes calls of sinf", needed=False)


def brief_guards() -> Check:
    """The library for the fast path of guards: one check of dict versions in place of many guards."""
    from .guard_library import GuardLibrary

    library = GuardLibrary()
    if library.wait() is not None:
        return Check(OK, "unchanged modules pass by one check of dict versions", needed=False)
    fix = "none needed: all guards are checked at each call, which takes some microseconds more"
    return Check(WARNING, f"not available: {library.failure}", fix, needed=False)


def triton() -> Check:
    """Triton: GPU kernels, compiled even where there is no GPU."""
    try:
        version = metadata.version("triton")
    except metadata.PackageNotFoundError:
        return Check(WARNING, "not installed: no GPU kernels", "pip install triton", needed=False)
    import triton as package

    ptxas = sorted(Path(package.__file__).parent.glob("backends/nvidia/bin/ptxas*"))
    detail = f"triton {version}" + ("" if ptxas else ", without ptxas: no machine code for NVIDIA")
    fix = "" if ptxas else "pip install --force-reinstall triton"
    return Check(OK if ptxas else WARNING, detail, fix, needed=False)


def gpu() -> Check:
    """A CUDA device that torch can use."""
    import torch

    if torch.cuda.is_available():
        names = ", ".join(torch.cuda.get_device_name(i) for i in range(torch.cuda.device_count()))
        return Check(OK, names, needed=False)
    why = "this torch is built without CUDA" if torch.version.cuda is None else "torch sees no CUDA device"
    fix = "none needed: CPU kernels work, and --target cuda:90 shows what a GPU would get"
    return Check(WARNING, why, fix, needed=False)


def cache() -> Check:
    """The folder for compiled code."""
    from ..engine.toolchain.cpp_build import cache_folder

    return _folder(cache_folder(), "PTDEBUG_CACHE_DIR")


def recordings() -> Check:
    """The folder for recordings."""
    return _folder(recordings_home(), "PTDEBUG_HOME")


CHECKS: dict[str, Callable[[], Check]] = {
    "python": python_version, "packages": packages, "torch": torch_version, "frame interface": frame_interface,
    "compiler": compiler, "openmp": openmp, "vector math": vector_math, "brief guards": brief_guards, "triton": triton,
    "gpu": gpu, "cache": cache, "recordings": recordings,
}


def run_check(check: Callable[[], Check]) -> Check:
    """The result of a check, also if it raises."""
    try:
        return check()
    except Exception as error:
        return Check(MISSING, f"{type(error).__name__}: {error}".splitlines()[0], "see the checks above")


def _compile(path: str, source: str, folder: str, options: Sequence[str]) -> str:
    """Compile `source` to probe.so in `folder`; its output if the compiler failed, else ""."""
    Path(folder, "probe.cpp").write_text(source)
    command = [path, "-shared", "-fPIC", f"{folder}/probe.cpp", "-o", f"{folder}/probe.so", *options]
    done = subprocess.run(command, capture_output=True, text=True)
    return "" if done.returncode == 0 else (done.stderr.strip().splitlines() or ["failed"])[-1]


def _folder(folder: Path, variable: str) -> Check:
    """Whether files can be written to `folder` (or its nearest parent), and the free space."""
    exists = next((place for place in (folder, *folder.parents) if place.exists()), Path("/"))
    if not exists.is_dir() or not os.access(exists, os.W_OK | os.X_OK):
        return Check(MISSING, f"{folder} cannot be written", f"set {variable} to a folder of yours")
    free = shutil.disk_usage(exists).free
    detail = f"{folder} ({free / (1 << 30):.1f} GiB free)"
    if free < LOW_SPACE:
        return Check(WARNING, detail, f"make room, or set {variable} to another disk")
    return Check(OK, detail)
