"""The session of this process: the recorder, the overrides, and which inputs are saved."""
from __future__ import annotations

import os
import time
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from weakref import WeakValueDictionary

from ..artifacts.context import CompileContext, CompileId
from ..artifacts.recorder import NullRecorder, Recorder

INPUT_KINDS = ("none", "meta", "first", "all")
ALL = "all"
COMPILERS = ("ptdebug", "torch", "eager")


@dataclass(frozen=True)
class Settings:
    """Settings of the user. `target` is a device to generate code for besides the one that runs ("cuda:90")."""

    compiler: str = "ptdebug"
    compile_all: bool = False
    inputs: str = "first"
    inputs_limit: int = 256 << 20  # bytes of saved inputs in one recording
    overrides: Mapping[str, str] = field(default_factory=dict)
    target: str = ""
    engine: bool = True  # False: captured graphs run as they are, in eager
    check_calls: bool = False
    time_calls: bool = False
    profile: float = 0.0  # seconds
    steps: str = ""  # compilations whose tracing is recorded step by step: "0/0,1/0", or "all"

    def asks_steps(self, compile_id: CompileId) -> bool:
        """Whether the tracer's steps of a compilation are recorded."""
        return self.steps == ALL or str(compile_id) in self.steps.split(",")


@dataclass
class Session:
    """The current recorder and settings, and the messages for the end of the run (each once)."""

    settings: Settings = field(default_factory=Settings)
    recorder: Recorder = field(default_factory=NullRecorder)
    folder: Path | None = None
    open_recorder: Callable[[], Recorder] | None = None  # makes the recorder at the first torch.compile
    profiler: Any = None  # cli/profile.py's, under --profile
    messages: dict[str, None] = field(default_factory=dict)
    met: set[str] = field(default_factory=set)  # the overrides that some decision answered to
    contexts: int = 0  # compilations begun
    options: WeakValueDictionary[Any, Any] = field(default_factory=WeakValueDictionary)  # by request, while in use
    observe: Callable[[Callable[..., Any], Callable[..., Any]], Callable[..., Any]] | None = None
    """Wraps each compiled callable (given with the original), to see its calls."""
    graphs: Callable[[Any, CompileContext], Callable[..., Any]] | None = None
    """Runs captured graphs, in place of the engine."""
    input_bytes: int = 0
    pid: int = field(default_factory=os.getpid)
    started: float = field(default_factory=time.perf_counter)
    saw_torch: bool = False
    saw_compile: bool = False
    rank_noted: int = 0
    """The process whose rank in a distributed program the recording has."""

    @property
    def recording(self) -> bool:
        """Whether anything is recorded."""
        return not isinstance(self.recorder, NullRecorder)

    def context(self, compile_id: CompileId) -> CompileContext:
        """The context of a new compilation."""
        self.contexts += 1
        options: dict[str, Any] = {"target": self.settings.target} if self.settings.target else {}
        return CompileContext(
            compile_id, self.recorder, self.settings.overrides, recording=self.recording, met=self.met,
            steps=self.settings.asks_steps(compile_id), **options
        )

    def check_overrides(self) -> None:
        """Report overrides that no decision answered to: most often a misspelt id."""
        unmet = [pattern for pattern in self.settings.overrides if pattern not in self.met]
        if self.contexts and unmet:
            names = ", ".join(unmet)
            self.say(f"ptdebug: no decision answers to the override {names} (`ptdebug decisions` lists the ids)")

    def compile_called(self) -> None:
        """The program uses torch.compile."""
        self.saw_compile = True
        if self.open_recorder is not None:
            self.recorder, self.open_recorder = self.open_recorder(), None

    def say(self, message: str) -> None:
        """Add a message for the end of the run, once."""
        self.messages.setdefault(message)


FALLBACKS: Counter[str] = Counter()
"""Why captured graphs run in eager, in all sessions of this process."""

_stack = [Session()]


def current() -> Session:
    """The current session: the innermost `record(...)`, else that of `ptdebug run`, else one that records nothing."""
    return _stack[-1]


def has_begun() -> bool:
    """Whether something in this process has set up a session."""
    return len(_stack) > 1


def enter(session: Session) -> Session:
    """Make `session` the current one."""
    _stack.append(session)
    return session


def leave(session: Session) -> None:
    """Remove `session`, whatever was entered after it."""
    if session in _stack[1:]:
        _stack.remove(session)
