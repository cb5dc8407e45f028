"""Compiles one C++ file into loaded, callable kernels: one compiler call, one shared library, cached by content.

The cache key is the source, the flags, the compiler's version and the CPU's features. An entry is written under a
temporary name and renamed, so several processes may build the same source at once; a damaged entry is built again.
Libraries are linked with the OpenMP runtime that torch has already loaded: a second runtime would bring a second thread
pool.
"""
from __future__ import annotations

import atexit
import contextlib
import ctypes
import hashlib
import os
import platform
import re
import select
import shutil
import subprocess
import tempfile
import time
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

import torch

from ...artifacts.interruptions import pause

FLAGS = (
    "-O2", "-march=native", "-mprefer-vector-width=512", "-std=c++17", "-fPIC", "-shared", "-fopenmp",
    "-fno-math-errno", "-fno-trapping-math", "-ffp-contract=off", "-fwrapv", "-fno-exceptions", "-fno-rtti",
    "-fno-tree-sink",  # nor move a call into the branch of a conditional that takes its value: no vector form there
    "-fno-tree-pre",  # nor compare a value in one branch and its bound in another: a loop with branches has none either
    "-fno-thread-jumps",  # nor branch on what an earlier comparison tells: so does a chain of conditionals (a maximum)
    # gcc 12 and 13 then read what an `omp simd` loop adds up from another lane, where a branch alone adds to it.
    "-fno-code-hoisting",
    # The two vectors of a block of accumulators are straight-line code: their sums stay in registers.
    "-fpeel-loops", "--param=max-completely-peel-times=4",
    "-fno-builtin",  # gcc would join sin and cos of one argument to sincos, which has no vector form
    "-fno-asynchronous-unwind-tables", "-fvisibility=hidden", "-w",
    "-g1",  # line tables: each instruction leads to its line of the kernel; the code is the same with and without
)
# Which loops became vectors, and why others did not. To find words for it takes the compiler up to half as long again,
# and recordings alone show it.
REPORT = ("-fopt-info-vec-optimized-missed",)
# gcc 12 writes a permutation of eight doubles wrong that leaves them within their pairs, but for the third or fourth,
# which is from the upper half. It vectorizes adjacent statements to such ones: the elements of a small matrix.
OF_DOUBLES = ("-fno-tree-slp-vectorize",)
NO_KERNELS = "// The wrapper of a graph on a GPU."
"""How a source begins that only calls other functions: optimizing it would take longer, and its calls gain nothing."""
OF_CALLS = ("-O0", "-std=c++17", "-fPIC", "-shared", "-fwrapv", "-fno-exceptions", "-fno-rtti",
            "-fno-asynchronous-unwind-tables", "-fvisibility=hidden", "-w")
CACHE_LIMIT = 2 << 30  # bytes; beyond it the entries longest unused go
ABANDONED = 3600  # seconds after which what was not finished belongs to a process that was killed
PRIVATE = "build-"  # how the names of folders begin in which the compiler writes
ENTRY = "ptdebug_functions"  # the function of a library that makes the Python callables (see cpp/entry.py)


_PLACE = re.compile(r"(?: \(inlined by\) )?/.*\.cpp:(\d+)")
_REPORTED = re.compile(r".*: (optimized|missed): ")
_REMARK = re.compile(r".*\.cpp:(\d+):\d+: (optimized|missed): +(.*)")
_MISSED = ("couldn't vectorize loop", "not vectorized:")


class CannotBuild(RuntimeError):
    """Nothing can be compiled on this machine as it is; the message says how to fix that."""


class CompilerMissing(CannotBuild):
    """No C++ compiler was found; the message says how to get one."""


class CacheUnwritable(CannotBuild):
    """Compiled code cannot be cached; the message says where, and how to choose another folder."""


class BuildFailed(RuntimeError):
    """The compiler refused the source. `log` is what it said, `command` how it was called."""

    def __init__(self, command: Sequence[str], log: str) -> None:
        super().__init__(f"{command[0]} failed:\n{log}")
        self.command, self.log = tuple(command), log


@dataclass(frozen=True)
class BuiltLibrary:
    """A loaded library. `functions[name](pointer, ..., symbol, ...) -> status` are builtins that take plain ints.

    `command`, `log` and `seconds` are those of the compiler call; with `cached`, of the call that made the entry.
    """

    functions: Mapping[str, Callable[..., int]]
    command: tuple[str, ...]
    log: str
    seconds: float
    cached: bool
    path: Path


def build(source: str, names: Sequence[str], reported: bool = False) -> BuiltLibrary:
    """Compile `source` (or find it compiled) and load its kernels `names`, which stand in the order of its entry table.

    `reported`: with the report on vectors in the log, even where it has been compiled without.
    Raises CompilerMissing without a compiler, BuildFailed when it refuses the source, and CacheUnwritable.
    """
    return Building(source, names, reported).wait()


def cached(source: str, names: Sequence[str], reported: bool = False) -> BuiltLibrary | None:
    """What `build` returns, where it has been compiled before: about a millisecond. Raises CompilerMissing."""
    start = time.perf_counter()
    compiler, library = _place(source)
    entry = _intact_entry(library, library.with_suffix(".log"))
    if entry is None or (reported and not entry.reported):
        return None
    mark_used(library)
    functions = functions_of(library, names)
    command = _command(compiler, source, library, entry.reported)
    return BuiltLibrary(functions, command, entry.log, time.perf_counter() - start, True, library)


def _place(source: str) -> tuple[str, Path]:
    """The compiler, and where the cache has what it makes of `source`."""
    compiler = find_compiler()
    digest = hashlib.sha256(source.encode())
    versions = _compiler_version(compiler), cpu_features(), torch.__version__, openmp_runtime()
    for part in (*_flags(source), compiler, *versions):
        digest.update(b"\0" + part.encode())
    return compiler, cache_folder() / "cpp" / f"{digest.hexdigest()[:32]}.so"


def place_of(source: str) -> Path:
    """Where the cache has the library of a source. Raises CompilerMissing."""
    return _place(source)[1]


def entry_of(source: str) -> tuple[bytes, bytes] | None:
    """(machine code, log with checksum) of a source that has been compiled; None where the entry is not whole."""
    library = place_of(source)
    log = library.with_suffix(".log")
    return (library.read_bytes(), log.read_bytes()) if _intact_entry(library, log) is not None else None


def _flags(source: str) -> tuple[str, ...]:
    if source.startswith(NO_KERNELS):
        return OF_CALLS
    return (*FLAGS, *OF_DOUBLES) if "double* __restrict" in source else FLAGS


def _command(compiler: str, source: str, library: Path, reported: bool) -> tuple[str, ...]:
    flags = (*_flags(source), *(REPORT if reported else ()))
    return (compiler, *flags, str(library.with_suffix(".cpp")), "-o", str(library), *_link_arguments())


_BETWEEN_PAUSES = 0.05  # seconds


class Building:
    """A library that is being built: the compiler, which is another process, runs while this one goes on.

    Takes the arguments of `build`; `wait` returns or raises what that does. No thread waits for the compiler: what
    another thread sets for the one that starts it (PyThreadState_SetAsyncExc) could reach it instead.
    """

    def __init__(self, source: str, names: Sequence[str], reported: bool = False) -> None:
        reported = reported and not source.startswith(NO_KERNELS)
        self._arguments = source, names, reported
        self._start = time.perf_counter()
        self._process = os.getpid()
        self._built: BuiltLibrary | None = None
        self._call: _CompilerCall | None = None
        self._error: Exception | None = None
        try:
            self._built = cached(source, names, reported)
            if self._built is None:
                self._call = _CompilerCall(source, reported)
                _RUNNING.add(self)
        except Exception as error:  # raised again where the library is wanted
            self._error = error

    @property
    def source(self) -> str:
        """What it is built from."""
        return self._arguments[0]

    def wait(self) -> BuiltLibrary:
        """The library, when it is there."""
        while not self.finished():
            pause()
            assert self._call is not None
            self._call.wait(_BETWEEN_PAUSES)
        if self._built is None and self._error is None:
            own = self._process == os.getpid()  # not so in a child of fork, whose child the compiler is not
            try:
                self._built = self._kept() if own else build(*self._arguments)
            except Exception as error:  # and again, whenever the library is wanted
                self._error = error
        if self._error is not None:
            raise self._error
        assert self._built is not None
        return self._built

    def wait_if_own(self) -> None:
        """Wait, unless the compiler is a child of a process of which this is a child of fork."""
        if self._process == os.getpid():
            self.wait()

    def finished(self) -> bool:
        """Whether `wait` would return at once."""
        return self._call is None or self._process != os.getpid() or self._call.has_ended()

    def _kept(self) -> BuiltLibrary:
        assert self._call is not None
        call, self._call = self._call, None
        _RUNNING.discard(self)
        with _cache_written():
            log = call.keep()
        functions = functions_of(call.library, self._arguments[1])
        _trim(call.library.parent)
        return BuiltLibrary(functions, call.command, log, time.perf_counter() - self._start, False, call.library)


_RUNNING: weakref.WeakSet[Building] = weakref.WeakSet()


@atexit.register
def _finish() -> None:
    """At the end of the process, what is being compiled goes into the cache, for the next one."""
    for building in list(_RUNNING):
        with contextlib.suppress(Exception):
            building.wait_if_own()


@contextlib.contextmanager
def _cache_written() -> Iterator[None]:
    try:
        yield
    except OSError as error:
        fix = "set PTDEBUG_CACHE_DIR to a folder that you can write to"
        raise CacheUnwritable(f"compiled code cannot be cached ({error}): {fix}") from error


class _CompilerCall:
    """The compiler at work in a private folder beside the cache, to which `keep` moves its results. Where nobody wants
    them any more, it is stopped."""

    def __init__(self, source: str, reported: bool) -> None:
        compiler, self.library = _place(source)
        self._reported = reported
        with _cache_written():
            folder = self.library.parent
            folder.mkdir(parents=True, exist_ok=True)
            self._private = Path(tempfile.mkdtemp(dir=folder, prefix=PRIVATE))
            text = self._file(".cpp")
            text.write_bytes(source.encode())
            self.command = _command(compiler, source, self.library, reported)
            # Line tables name the place where the source will be: a library is the same whichever process builds it.
            moved = f"-fdebug-prefix-map={self._private}={folder}"
            command = (*_command(compiler, source, self._file(".so"), reported), moved)
            with open(self._private / "said", "wb") as said:
                self._compiler = subprocess.Popen(command, stdout=said, stderr=subprocess.STDOUT)
        self._drop = weakref.finalize(self, _drop, self._compiler, self._private, os.getpid())
        self._drop.atexit = False  # what is still wanted then is waited for

    def _file(self, suffix: str) -> Path:
        return self._private / f"{self.library.stem}{suffix}"

    def wait(self, seconds: float) -> None:
        """Wait until it has ended, so long at most."""
        try:
            process = os.pidfd_open(self._compiler.pid)
        except (AttributeError, OSError):  # not Linux, or an old one, where `subprocess` asks every few milliseconds
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._compiler.wait(seconds)
            return
        try:
            ended = select.poll()
            ended.register(process, select.POLLIN)
            ended.poll(1000 * seconds)
        finally:
            os.close(process)

    def has_ended(self) -> bool:
        """Whether its results are there."""
        return self._compiler.poll() is not None

    def keep(self) -> str:
        """Move the results in place; returns what the compiler said. Raises BuildFailed where it refused the source."""
        log = (self._private / "said").read_text()
        if self._compiler.returncode != 0:
            self._drop()
            raise BuildFailed(self.command, said(log))
        note = self._private / "log"
        note.write_text(f"{_checksum(self._file('.so'))}{_WITH_REPORT if self._reported else ''}\n{log}")
        os.replace(self._file(".cpp"), self.library.with_suffix(".cpp"))
        os.replace(self._file(".so"), self.library)
        os.replace(note, self.library.with_suffix(".log"))
        self._drop()
        return log


def _drop(compiler: subprocess.Popen[bytes], private: Path, process: int) -> None:
    if process != os.getpid():  # a child of fork, to which they do not belong
        return
    if compiler.poll() is None:
        compiler.kill()
        compiler.wait()
    shutil.rmtree(private, ignore_errors=True)


def mark_used(path: Path) -> None:
    """Note that a file of the cache was used: those longest unused are removed first. A folder that only others may
    write to (of an image, of an administrator) is used as it is."""
    with contextlib.suppress(OSError):
        os.utime(path)


def disassemble(path: Path) -> str:
    """The machine code of a library as text; "" where binutils are missing, or too old to tell lines."""
    tool = shutil.which("objdump")
    if tool is None:
        return ""
    command = [tool, "-dl", "--inlines", "-j", ".text", "--no-show-raw-insn", "-M", "intel", str(path)]
    done = subprocess.run(command, capture_output=True, text=True)
    return _with_marks(done.stdout) if done.stdout else ""


def _with_marks(text: str) -> str:
    """objdump's output with `; line N` where the kernel's line changes, in place of paths. Of inlined code, the line
    that calls it counts, which objdump names last."""
    lines: list[str] = []
    now = pending = 0
    for line in text.splitlines():
        place = _PLACE.match(line)
        if place:
            pending = int(place[1])
            continue
        if line.startswith(("/", " (inlined by)")) or line.endswith("():"):
            continue
        if pending and pending != now:
            lines.append(f"    ; line {pending}")
            now = pending
        if not line.startswith(" "):
            now = 0
        pending = 0
        lines.append(line)
    return "\n".join(lines) + "\n"


def said(log: str) -> str:
    """What the compiler said besides the report on vectors: warnings and errors, with their notes. A remark of the
    report may go on in lines that are indented."""
    lines, reported = [], False
    for line in log.splitlines():
        reported = _REPORTED.match(line) is not None or (reported and line.startswith(" "))
        if not reported:
            lines.append(line)
    return "\n".join(lines)


def vector_report(log: str) -> str:
    """Which loops of the kernels became vectors, at which width, and why others did not: `line N: ...`, by line."""
    found: dict[int, dict[str, None]] = {}
    for line in log.splitlines():
        remark = _REMARK.match(line)
        if remark and (remark[2] == "optimized" or remark[3].startswith(_MISSED)):
            found.setdefault(int(remark[1]), {})[remark[3]] = None
    return "\n".join(f"line {number}: {text}" for number in sorted(found) for text in found[number])


def cache_folder() -> Path:
    """Where compiled code is kept: PTDEBUG_CACHE_DIR, else `ptdebug` in the user's cache folder."""
    chosen = os.environ.get("PTDEBUG_CACHE_DIR")
    if chosen:
        return Path(chosen)
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "ptdebug"


@lru_cache(maxsize=1)
def find_compiler() -> str:
    """The path of the C++ compiler: $CXX, g++ or c++. Raises CompilerMissing."""
    for candidate in (os.environ.get("CXX"), "g++", "c++"):
        found = shutil.which(candidate) if candidate else None
        if found:
            return found
    raise CompilerMissing(
        "no C++ compiler found (tried $CXX, g++, c++); install one (Debian or Ubuntu: apt-get install g++), "
        "or set CXX to its path"
    )


@lru_cache(maxsize=1)
def _compiler_version(compiler: str) -> str:
    """Identifies the compiler without running it: its real path, size and time of change."""
    real = Path(compiler).resolve()
    stat = real.stat()
    return f"{real}:{stat.st_size}:{stat.st_mtime_ns}"


@lru_cache(maxsize=1)
def cpu_features() -> str:
    """The instruction sets of this CPU, as far as the system tells: `-march=native` depends on them."""
    try:
        with open("/proc/cpuinfo") as file:
            for line in file:
                if line.startswith(("flags", "Features")):
                    return line.strip()
    except OSError:
        pass
    return f"{platform.machine()} {platform.processor()}"


@lru_cache(maxsize=1)
def openmp_runtime() -> str:
    """The path of the OpenMP runtime that torch has loaded, "" where it cannot be found (then gcc's own is used)."""
    try:
        with open("/proc/self/maps") as file:
            for line in file:
                path = line.rsplit(None, 1)[-1]
                if path.startswith("/") and os.path.basename(path).startswith("libgomp"):
                    return path
    except OSError:
        pass
    return ""


def _link_arguments() -> tuple[str, ...]:
    """What a library is linked with; Python's functions are looked up when they are called, by programs without Python
    (exported packages) never."""
    runtime = openmp_runtime()
    if not runtime:
        return ("-Wl,-z,lazy", "-lmvec", "-lm")
    return ("-Wl,-z,lazy", "-nodefaultlibs", runtime, "-Wl,--as-needed", "-lmvec", "-lm", "-lc", "-lgcc")


def functions_of(path: Path, names: Sequence[str]) -> Mapping[str, Callable[..., int]]:
    """Load a library: its kernels by name, which stand in this order in its entry table. Raises OSError."""
    if not names:
        return {}
    entry = getattr(ctypes.PyDLL(str(path)), ENTRY)
    entry.restype, entry.argtypes = ctypes.py_object, [ctypes.c_long]
    return {name: entry(position) for position, name in enumerate(names)}


class _Entry(NamedTuple):
    log: str  # what the compiler said when it made the entry
    reported: bool


_WITH_REPORT = " reported"
"""Stands after the checksum of an entry whose log has the report on vectors."""


def _intact_entry(library: Path, log_file: Path) -> _Entry | None:
    """An entry of the cache; None unless it is there and whole (loading another may crash)."""
    try:
        first, _, log = log_file.read_text().partition("\n")
        checksum = first.removesuffix(_WITH_REPORT)
        return _Entry(log, checksum != first) if checksum == _checksum(library) else None
    except (OSError, UnicodeDecodeError):
        return None


def _checksum(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def _trim(folder: Path) -> None:
    """Remove the entries longest unused until the folder is below its limit, and what processes that were killed left.
    Others may do so at the same time."""
    for private in folder.glob(f"{PRIVATE}*"):
        with contextlib.suppress(OSError):
            if time.time() - private.stat().st_mtime > ABANDONED:
                shutil.rmtree(private)
    entries = []
    for path in folder.glob("*.so"):
        try:
            stat = path.stat()
        except OSError:
            continue
        entries.append((stat.st_mtime, stat.st_size, path))
    total = sum(size for _, size, _ in entries)
    for _, size, path in sorted(entries):
        if total <= CACHE_LIMIT:
            return
        for suffix in (".so", ".cpp", ".log"):
            path.with_suffix(suffix).unlink(missing_ok=True)
        total -= size
