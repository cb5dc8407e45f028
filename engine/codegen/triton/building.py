"""Compiled kernels: each distinct text is compiled once, several at a time, in separate processes, and kept on disk.

The layers of a network produce kernels that differ in names only. The key is the text with its names numbered
(`canonical`): kernels that agree in it, in their types and in their target share one binary.
"""
from __future__ import annotations

import atexit
import hashlib
import json
import os
import re
import subprocess
import sys
import threading
from collections.abc import Mapping
from functools import lru_cache
from importlib.util import find_spec
from itertools import count
from types import CodeType
from typing import Any

from ...toolchain.triton_cache import Binary, keep, kept, options, path_of
from ...unsupported import TritonUnsupported
from . import server
from .source import Launch, assemble


class Build:
    """A kernel that is being compiled, or was. `wait` may be called repeatedly, and by several threads."""

    def __init__(self, job: Mapping[str, Any]) -> None:
        self.job = job
        self._lock = threading.Lock()  # the service gives an answer once
        self._refusal = ""
        self._service: _Service | None = None
        self._binary = kept(job["key"])
        self.cached = self._binary is not None
        if self.cached:
            return
        self._service = _service()
        if self._service is not None:
            self._service.submit(job)

    def wait(self) -> Binary:
        """The binary. Raises TritonUnsupported with what the compiler said."""
        with self._lock:
            if self._binary is None and not self._refusal:
                self._binary = self._built()
            if self._binary is None:
                raise TritonUnsupported(self._refusal)
            return self._binary

    def _built(self) -> Binary | None:
        answer = self._service.answer(self.job["number"]) if self._service is not None else None
        answer = _compiled_here(self.job) if answer is None else dict(answer)
        if "error" in answer:
            self._refusal = f"{self.job['name']}: {answer['error']}"
            return None
        answer.pop("number", None)
        keep(self.job["key"], self.job["path"], answer)
        return Binary(self.job["path"], **answer)


_BUILDS: dict[str, Build] = {}  # by key: of this process
_BEGINNING = threading.Lock()
_NUMBERS = count()


def begin(launch: Launch, capability: int, aligned: tuple[bool, ...], wide: bool) -> Build:
    """Start to compile `launch` for a GPU of `capability` (90 for 9.0), unless that was done before.

    `aligned` says which pointers are multiples of 16, `wide` that indices need 64 bits.
    """
    text = "\n".join(line.text for line in assemble([launch])) + "\n"
    job = {
        "text": text, "name": launch.name, "warps": launch.warps, "stages": launch.stages,
        "target": ["cuda", capability, 32], "types": parameter_types(launch, wide),
        "constants": parameter_constants(launch, wide),
        "aligned": [k for k, yes in enumerate(aligned) if yes],
    }
    key = _key(job)
    with _BEGINNING:
        if key not in _BUILDS:
            path = path_of(key, launch.name)
            _BUILDS[key] = Build({**job, "key": key, "number": next(_NUMBERS), "path": path})
        return _BUILDS[key]


def warm_up() -> None:
    """Start the compiler process early, so that it has loaded Triton when the first kernel comes."""
    _service()


def parameter_types(launch: Launch, wide: bool) -> list[str]:
    """The launch types of the parameters that are no constants, in order."""
    width = "i64" if wide or launch.index == "int64" else "i32"
    return [*launch.types, *[width] * len(launch.symbols)]


def parameter_constants(launch: Launch, wide: bool) -> list[Any]:
    """The values of the constexpr parameters, in order; types of Triton by their names."""
    index = ["int64" if wide else "int32"] if launch.index == "dynamic" else []
    return [*launch.constants.values(), *index]


# ---- which kernels are the same --------------------------------------------------------------------------------------
_WORD = re.compile(r"(?<![\w.])[A-Za-z_]\w*(?!\w|=[^=])")  # no attribute, and not the name of a keyword argument
_COMMENT = re.compile(r"\s*#.*")


@lru_cache(maxsize=64)  # a kernel is compiled for several alignments of its pointers
def canonical(text: str, name: str) -> str:
    """The module `text` without comments, where the parameters and variables of function `name` are numbered."""
    code = next(c for c in compile(text, name, "exec").co_consts if isinstance(c, CodeType) and c.co_name == name)
    numbers = {own: f"n{k}" for k, own in enumerate((name, *code.co_varnames))}
    start = text.index(f"def {name}(")
    body = _WORD.sub(lambda found: numbers.get(found[0], found[0]), _COMMENT.sub("", text[start:]))
    return text[:start] + body


def _key(job: Mapping[str, Any]) -> str:
    same = {**job, "text": canonical(job["text"], job["name"]), "name": "", "options": options()}
    return hashlib.sha256(json.dumps(same).encode()).hexdigest()[:32]


# ---- the process that compiles ---------------------------------------------------------------------------------------
class _Service:
    """A running `server.py`, and the answers that came from it."""

    def __init__(self) -> None:
        self._owner = os.getpid()
        self._lock = threading.Lock()
        self._answers: dict[int, dict[str, Any]] = {}
        processors = len(os.sched_getaffinity(0))
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(p for p in sys.path if p)}
        command = [sys.executable, "-S", server.__file__, str(processors)]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment)
        atexit.register(self.close)

    @property
    def usable(self) -> bool:
        """False in a process that was forked from the one that began, and after the server ended."""
        return self._owner == os.getpid() and self._process.poll() is None

    def submit(self, job: Mapping[str, Any]) -> None:
        """Send a job. If the server has ended, `answer` reports it."""
        assert self._process.stdin is not None
        try:
            with self._lock:
                self._process.stdin.write(json.dumps(job).encode() + b"\n")
                self._process.stdin.flush()
        except OSError:
            return

    def answer(self, number: int) -> dict[str, Any] | None:
        """Wait for the answer to a job; None if the server ended without one."""
        assert self._process.stdout is not None
        with self._lock:
            while number not in self._answers and self._owner == os.getpid():
                line = self._process.stdout.readline()
                if not line:
                    break
                found = json.loads(line)
                self._answers[found["number"]] = found
            return self._answers.pop(number, None)

    def close(self) -> None:
        """Let the server end: its input does."""
        if self._owner == os.getpid() and self._process.poll() is None:
            assert self._process.stdin is not None and self._process.stdout is not None
            self._process.stdin.close()
            self._process.stdout.close()
            self._process.wait()


_SERVICES: list[_Service] = []  # the last one is in use


def _service() -> _Service | None:
    """The server in use; None without Triton."""
    if find_spec("triton") is None:
        return None
    if not _SERVICES or not _SERVICES[-1].usable:
        _SERVICES.append(_Service())
    return _SERVICES[-1]


def _compiled_here(job: Mapping[str, Any]) -> dict[str, Any]:
    """Compile in this process, if the server has ended."""
    try:
        return server.compile_job(job)
    except Exception as error:  # Triton raises what it likes
        return {"error": f"{type(error).__name__}: {error}"}


__all__ = ["Binary", "Build", "TritonUnsupported", "begin", "canonical", "parameter_constants", "parameter_types",
           "warm_up"]
