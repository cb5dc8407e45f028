"""What a running compilation uses to hand over records and to make decisions.

`CompileContext` is passed from stage to stage. It times stages, takes their records and answers `decide`. Where records
go is up to the `Recorder`; with `NullRecorder` the compiler runs unchanged.
"""
from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import cached_property, lru_cache, partial
from types import CodeType
from typing import Any, Generic, TypeVar

from .artifact import Artifact
from .external_exceptions import came_from_outside, ran_out_of_stack
from .function_times import FunctionTimes
from .garbage import DESCRIBING, fewer_collections
from .interruptions import pause
from .recorder import NullRecorder, Recorder, record_stage
from .records import AnyRecord, Decision, Location, Option, Ref
from .subgraph_recorder import PartRecorder

T = TypeVar("T")
U = TypeVar("U")

VERIFY = os.environ.get("PTDEBUG_VERIFY", "0") not in ("", "0")
"""Whether what flows between the stages is checked: `Stage.check`."""

CHANGED_INPUTS = "__ptdebug_changed_inputs__"
"""The attribute of an exception that was raised while inputs were being written: the call must not run again."""


@dataclass(frozen=True, order=True)
class CompileId:
    """`F/C`: frame F, its C-th compilation, as PyTorch people know it."""

    frame: int
    compile: int

    def __str__(self) -> str:
        return f"{self.frame}/{self.compile}"


class OverrideError(ValueError):
    """An override asks for an option that its decision does not have."""


class DataDependentError(Exception):
    """An operator of the graph reads a data-dependent value; the graphs before and after it are compiled."""


@dataclass
class CompileContext:
    """What one compilation carries from stage to stage.

    `overrides` maps decision ids (or fnmatch patterns of them, "fuse:*") to the option to force; with a compile id in
    front ("0/1:fuse:*") for this compilation alone. `met` takes those of its keys that some decision answered to.
    """

    id: CompileId = CompileId(0, 0)
    recorder: Recorder = field(default_factory=NullRecorder)
    overrides: Mapping[str, str] = field(default_factory=dict)
    seconds: dict[str, float] = field(default_factory=dict)
    met: set[str] = field(default_factory=set)
    functions: FunctionTimes = field(default_factory=FunctionTimes)
    recording: bool = False  # False: `describe` functions are not called
    fallback: str = ""  # why this compilation runs in eager, set by the stage that gave up
    restartable: bool = False  # compiled code that raises has changed no input, or sets CHANGED_INPUTS
    marks_changes: bool = False  # the same, but writes to inputs are often partly done by then
    target: str = ""  # also record what this target would get, for example "cuda:90"
    memory_budget: float = 1.0  # share of the saved bytes that a training graph may hold; see docs/decisions.md, budget
    preferred: Mapping[str, tuple[str, str]] = field(default_factory=dict)  # kind -> the option that a setting asks for
    recorded: Mapping[str, str] = field(default_factory=dict)  # what is chosen again, by decision, where it can be
    buckets: tuple[int, int] | None = None  # under DDP: bytes of gradients in its first bucket, and in the others
    uncached: str = ""  # why the graph cache is off for it
    way: str = "kernels"  # how the graph is to run: "kernels", "aten" (its ATen form, by ATen), "eager" (as captured)
    freezing: bool = False  # whether what depends on parameters alone may be computed once, in inference
    cpp_wrapper: bool | None = None  # whether what allocates and calls kernels is C++; None: on a GPU and for int8
    without_python: bool = False  # whether that is to run in programs without Python, too
    compiled_for: tuple[int, ...] = ()  # compute capabilities (90 for 9.0) of GPUs that are not here: nothing runs
    cuda_graphs: bool = False  # whether a graph on a GPU is captured and replayed, where it can be
    steps: bool = False  # whether the tracer's steps are recorded, each with what it changed
    profiled: bool = False  # whether calls of kernels are marked for torch's profiler
    max_autotune: bool = False  # whether a graph is timed beside its eager twin, and the faster one runs
    notes: list[str] = field(default_factory=list)  # what the person should be told, recorded or not
    rerun: bool = False  # whether the frame runs again after what its graph raises, and handles that
    breakable: bool = False  # whether the frame can break at its first data-dependent read: raise DataDependentError
    guarded: tuple[tuple[str, str, str], ...] = ()  # source, kind and code of the frame's guards, when recording
    code: CodeType | None = None  # of the frame, as the program has it, when recording
    part: str = ""  # which graph of the compilation is being compiled ("segment_2.backward"), "" for its only one
    progress: Callable[[str], None] = lambda text: None  # told of work that may take long, "" at its end
    thorough: bool = False  # also make a decision of what has always one answer: each lowering, each match of a pass

    @cached_property
    def _id(self) -> str:
        return str(self.id)

    @property
    def searched(self) -> bool:
        """Whether decisions are made that few ask for: somebody looks for the one to blame, or forces some."""
        return bool(self.thorough or self.overrides)

    @property
    def asked(self) -> bool:
        """Whether anybody sees or forces decisions: where nobody does, alternatives and reasons need not be made."""
        return bool(self.recording or self.overrides or self.preferred)

    def decide(
        self,
        kind: str,
        subject: str,
        options: Sequence[str | Option],
        default: str,
        why: str,
        *,
        location: Location | None = None,
        origins: tuple[Ref, ...] = (),
    ) -> str:
        """Choose one of `options`, `default` unless an override says otherwise, and record the decision.

        Every choice of the compiler goes through here. An override that is not an option of the decision raises
        OverrideError, which lists the options.
        """
        pause()
        subject = self.subject(subject)
        key = f"{kind}:{subject}"
        chosen = default
        forced = False
        if self.overrides:
            pattern = self._override_for(key)
            if pattern is not None:
                self.met.add(pattern)
                wanted = self.overrides[pattern]
                names = [o if isinstance(o, str) else o.name for o in options]
                if wanted not in names:
                    raise OverrideError(f"the override {pattern} = {wanted!r}: the options are {', '.join(names)}")
                chosen, forced = wanted, True
        by = "an override"
        if self.preferred and not forced and kind in self.preferred:
            wanted, by = self.preferred[kind]
            if wanted in [o if isinstance(o, str) else o.name for o in options]:
                chosen, forced = wanted, True
        if not forced and self.recorded:
            wanted = self.recorded.get(key, "")
            chosen = wanted if wanted in [o if isinstance(o, str) else o.name for o in options] else default
        if self.recording:
            full = _alternatives(tuple(options))
            reason = f"forced by {by} (default: {default}; {why})" if forced else why
            decision = Decision(key, kind, subject, full, default, chosen, reason, forced, location, origins)
            self.recorder.decision(self._id, decision)
        return chosen

    def number(self, kind: str, subject: str, default: int, why: str, *, least: int = 1) -> int:
        """A limit, which an override may set to any number from `least` on, and record the choice."""
        options = [str(default)]
        wanted = self.override(kind, subject)
        if wanted is not None and wanted.isdecimal() and int(wanted) >= least and wanted not in options:
            options.append(wanted)
        return int(self.decide(kind, subject, options, str(default), why))

    def refuse(
        self, kind: str, subject: str, wanted: str, chosen: str, why: str, *, origins: tuple[Ref, ...] = ()
    ) -> None:
        """Record that an override asks for an option that would be wrong here, and why: `chosen` is the only one."""
        subject = self.subject(subject)
        key = f"{kind}:{subject}"
        pattern = self._override_for(key) if self.overrides else None
        if pattern is not None:
            self.met.add(pattern)
        if self.recording:
            reason = f"an override asks for {wanted!r}, which is refused; {why}"
            options = (Option(chosen),)
            self.recorder.decision(
                str(self.id), Decision(key, kind, subject, options, chosen, chosen, reason, False, None, origins)
            )

    def override(self, kind: str, subject: str) -> str | None:
        """The option that this run forces for a decision, None where it forces none; for what is chosen all at once."""
        pattern = self._override_for(f"{kind}:{self.subject(subject)}") if self.overrides else None
        return None if pattern is None else self.overrides[pattern]

    def subject(self, subject: str) -> str:
        """A decision's subject as its id has it: with the part's name in front, where the graph is a part."""
        return f"{self.part}.{subject}" if self.part else subject

    def for_part(self, part: str, path: str = "") -> CompileContext:
        """The context for a graph that is part of this compilation ("backward"): its decisions and artifacts get the
        part's name in front, its times count with the rest. `path` is that of an inner graph of the captured one."""
        name = self.subject(part)
        return replace(self, recorder=PartRecorder(self.recorder, part, path), part=name)

    @contextmanager
    def timed(self, name: str) -> Iterator[None]:
        """Add the wall seconds of the block to `seconds[name]` (names of the contract: capture, joint, passes, ...)."""
        pause()
        start = time.perf_counter()
        try:
            yield
        finally:
            self.seconds[name] = self.seconds.get(name, 0.0) + time.perf_counter() - start

    def record(self, stage: str, make: Callable[[], AnyRecord], name: str = "") -> None:
        """Hand over the record that `make` builds; `make` is not called when nothing is recorded.

        The time goes to `seconds["recording"]`.
        """
        self.describe(stage, lambda: [(stage, name, make())])

    def describe(self, stage: str, records: Callable[[], Iterable[tuple[str, str, AnyRecord]]]) -> None:
        """Hand over all records of a stage, (stage, artifact name, record) each.

        If ptdebug fails while describing, the stage is absent, with the reason; the compilation goes on.
        """
        if not self.recording:
            return
        with self.timed("recording"), fewer_collections(DESCRIBING):
            made: list[Artifact] = []
            try:
                try:
                    for described in records():
                        made.append(Artifact(*described))
                finally:
                    record_stage(self.recorder, str(self.id), made)
            except Exception as error:
                if ran_out_of_stack(error) or came_from_outside(error):
                    raise
                self.absent(stage, f"ptdebug failed to describe it: {type(error).__name__}: {error}")

    def absent(self, stage: str, why: str) -> None:
        """Record that a stage was not produced, and why."""
        if self.recording:
            self.recorder.absent(str(self.id), stage, why)

    def _override_for(self, key: str) -> str | None:
        """The key of `overrides` that names a decision: of this compilation before any, its id before a pattern."""
        from fnmatch import fnmatchcase

        for name in (f"{self.id}:{key}", key):
            if name in self.overrides:
                return name
            found = next((pattern for pattern in self.overrides if fnmatchcase(name, pattern)), None)
            if found is not None:
                return found
        return None


def _alternatives(options: tuple[str | Option, ...]) -> tuple[Option, ...]:
    """Options of a decision as records; decisions of one kind share them."""
    if set(map(type, options)) == {str}:
        return _named(options)
    return tuple([Option(option) if isinstance(option, str) else option for option in options])


@lru_cache(maxsize=1024)
def _named(names: tuple[str, ...]) -> tuple[Option, ...]:
    return tuple(map(Option, names))


@dataclass(frozen=True)
class Stage(Generic[T, U]):
    """One stage of the compiler: a function from one value to the next, and how its result is described.

    `describe(value)` yields (stage name, artifact name, record); `timing` is the key in `CompileContext.seconds`.
    `check(value)` raises where the value breaks the stage's contract; it runs under PTDEBUG_VERIFY=1, and in tests.
    """

    name: str
    run: Callable[[T, CompileContext], U]
    describe: Callable[[U], Iterable[tuple[str, str, AnyRecord]]]
    timing: str
    check: Callable[[U], object] | None = None


@dataclass(frozen=True)
class FanOut:
    """Several parts of a compilation that go through the same stages, such as the halves of a training graph.

    `parts(value)` are their names ("" for the one that is the compilation itself) and values. Each group of `stages` is
    run for all parts before the next group, so that one part's compiler process works while the next part is lowered.
    `join(value, results)` puts them together.
    """

    parts: Callable[[Any], Sequence[tuple[str, Any]]]
    stages: tuple[tuple[Stage[Any, Any], ...], ...]
    join: Callable[[Any, Sequence[Any]], Any]

    def run(self, value: Any, context: CompileContext) -> Any:
        """All parts through all stages."""
        named = list(self.parts(value))
        contexts = [context.for_part(name) if name else context for name, _ in named]
        values = [part for _, part in named]
        for group in self.stages:
            values = [run_stages(group, part, of_part) for part, of_part in zip(values, contexts, strict=True)]
        return self.join(value, values)


def run_stages(stages: Sequence[Stage[Any, Any] | FanOut], value: Any, context: CompileContext) -> Any:
    """Run `stages` one after the other; each result is described to the recorder before the next stage starts."""
    for stage in stages:
        if isinstance(stage, FanOut):
            value = stage.run(value, context)
            continue
        with context.timed(stage.timing):
            value = stage.run(value, context)
        if VERIFY and stage.check is not None:
            stage.check(value)
        context.describe(stage.name, partial(stage.describe, value))
    return value
