"""In a fork: runs a script in eager and then compiled, and says how the second run differs from the first.

Eager has a fork of its own, so that what the script does to the process (registered operators, defaults) is done once.
There `torch.compile` makes the same objects, whose calls run the original.
"""
from __future__ import annotations

import builtins
import os
import pickle
import random
import re
import subprocess
import sys
import traceback
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType
from typing import Any

import numpy
import torch

from ...artifacts.recorder import NullRecorder
from ...artifacts.records import AnyRecord, Breaks, Recompile
from ...replay.recorded.new_memory import fill_new_memory
from ...replay.reduce.expressions import operation
from ...replay.reduce.values import HOOK, Recorder
from ...tracer.frames import dispatch
from .. import session, torch_compile_patch
from ..launch import Program, execute
from .calls import Calls
from .events import Apart, Event, Observer, first_apart, program_globals
from .forks import IN_EAGER, Answer

LAST_OUTPUT = 1 << 20  # bytes of a run's output that are looked at


@dataclass(frozen=True)
class Task:
    """One run. `script` is its path, `folder` that of the files that are reduced.

    `engine`: compile to machine code (else capture only); `record`: report graph breaks and recompilations; `eager`:
    run in eager first, and compare; `check` and `match` judge the output of each; `trace`: report the lines that eager
    reaches, and the files; `stop` is the number of events after which that ends, `stop_at` the line that ends it.
    """

    script: str
    folder: str
    arguments: tuple[str, ...] = ()
    working_folder: str = ""
    engine: bool = True
    record: bool = False
    eager: bool = True
    compiled: bool = True
    check: str = ""
    match: str = ""
    trace: bool = False
    stop: int = -1
    stop_at: tuple[str, int] = ("", 0)
    overrides: Mapping[str, str] = field(default_factory=dict)
    imports: tuple[str, ...] = ()  # loaded before the forks

    def __call__(self, scratch: Path) -> Answer:
        """Run it, in this process; `scratch` is an empty folder."""
        return _compared(self, scratch)


class _Different(BaseException):
    """Raised in the compiled run at the first event that differs."""


def _compared(task: Task, scratch: Path) -> Answer:
    answer: Answer = {}
    expected: list[Event] | None = None
    if task.eager:
        ended, found = _in_eager(task, scratch)
        if ended:
            return {"kind": "invalid", "detail": ended, **found.get("seen", {})}
        expected, answer = found["events"], found["seen"]
    if not task.compiled:
        return answer | {"kind": "passed"}
    output = scratch / "compiled.txt"
    if task.check or task.match:
        answer |= _in_compiler(task, None, output)
        return answer | _judged(task, output, answer)
    return answer | _in_compiler(task, expected, output)


# ---- the two runs ---------------------------------------------------------------------------------------------------
def _in_eager(task: Task, scratch: Path) -> tuple[str, dict[str, Any]]:
    """How the run in eager ended ("" for well), and its events; in a process of its own."""
    kept, running = scratch / "events", scratch / IN_EAGER
    running.touch()
    pid = os.fork()
    if pid == 0:
        try:
            events: list[Event] = []
            seen = Seen(task.folder, task.stop_at) if task.trace else None

            def keep(event: Event) -> None:
                if seen is not None and len(events) == task.stop:
                    seen.end()
                events.append(event)

            _silence(scratch / "eager.txt")
            dispatch.set_stance("force_eager")
            ended = _run(task, Observer(keep), seen)
            if not ended["kind"] and (task.check or task.match):
                ended |= _judged(task, scratch / "eager.txt", {"code": 0} | ended)
            kept.write_bytes(pickle.dumps((_words(ended), events, seen.document() if seen else {})))
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(0)
    status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    running.unlink()
    if not kept.exists():
        return f"eager ended with {status}", {"seen": {}}
    ended, events, seen = pickle.loads(kept.read_bytes())
    return ended, {"events": events, "seen": seen}


def _words(ended: Answer) -> str:
    return f"{ended['kind']}: {ended.get('detail', '')}" if ended["kind"] not in ("", "passed") else ""


def _in_compiler(task: Task, expected: list[Event] | None, output: Path) -> Answer:
    position = 0
    apart: list[Apart] = []

    def compare(event: Event) -> None:
        nonlocal position
        position += 1
        if expected is None or apart:
            return
        found = first_apart(event, expected[position - 1] if position <= len(expected) else None)
        if found is not None:
            apart.append(found)
            raise _Different

    _silence(output)
    collector = Collector()
    session.current().recorder = collector if task.record else NullRecorder()
    ended = _run(task, Observer(compare), None)
    if task.record:
        ended |= collector.document()
    if apart:
        size = min(apart[0].size, 1e300)
        return ended | {"kind": "nan" if apart[0].nan else "values", "detail": apart[0].why, "what": apart[0].what,
                        "size": size, "events": position - 1}
    if not ended["kind"]:
        internal = [m for m in session.current().messages if "a graph runs in eager: internal error" in m]
        if internal and task.engine:
            detail = internal[0].rpartition("internal error in the engine: ")[2]
            return ended | {"kind": "exception", "detail": detail, "events": position}
    return ended | {"kind": ended["kind"] or "passed", "events": position}


def _run(task: Task, observer: Observer, seen: Seen | None) -> Answer:
    """Run the script in this process: {"kind": "" | "exception" | "exit", "detail", "code"}."""
    sys.dont_write_bytecode = True
    fill_new_memory()
    if task.imports:  # which may change what the compiler makes of a graph that is known
        os.environ["PTDEBUG_GRAPH_CACHE"] = "0"
    settings = session.Settings(engine=task.engine, overrides=task.overrides)
    session.enter(session.Session(settings, recorder=session.current().recorder, observe=observer.around))
    torch_compile_patch.watch_for_torch()
    os.chdir(task.working_folder or os.path.dirname(task.script))
    torch.manual_seed(0)
    random.seed(0)
    numpy.random.seed(0)
    observer.watch_backwards()
    if seen is not None:
        seen.watch()
    try:
        execute(Program("script", task.script, task.arguments), lambda code: None)
    except SystemExit as end:
        if seen is not None:
            seen.end()
        if end.code not in (None, 0):
            return {"kind": "exit", "detail": str(end.code), "code": end.code if isinstance(end.code, int) else 1}
        try:
            observer.ended(program_globals())
        except _Different:
            pass
        return {"kind": "", "code": 0}
    except _Different:
        return {"kind": ""}
    except BaseException as error:
        traceback.print_exc()
        return {"kind": "exception", "detail": f"{type(error).__name__}: {error}"[:2000], "code": 1}
    raise AssertionError("execute() always raises")


def _silence(output: Path) -> None:
    """What the script prints goes to a file."""
    sys.stdout.flush()
    sys.stderr.flush()
    descriptor = os.open(output, os.O_RDWR | os.O_CREAT | os.O_TRUNC)
    nothing = os.open(os.devnull, os.O_RDONLY)
    for source, target in ((nothing, 0), (descriptor, 1), (descriptor, 2)):
        os.dup2(source, target)


def _judged(task: Task, output: Path, ended: Answer) -> Answer:
    """What --check or --match say of a run: {} where all is well."""
    sys.stdout.flush()
    sys.stderr.flush()
    content = output.read_bytes()[-LAST_OUTPUT:]
    if task.match:
        found = re.search(task.match, content.decode(errors="replace"))
        return {"kind": "output", "detail": task.match} if found else {"kind": "passed"}
    environment = os.environ | {"PTDEBUG_EXIT_CODE": str(ended.get("code", 1)), "PTDEBUG_SCRIPT": task.script}
    done = subprocess.run(task.check, shell=True, input=content, capture_output=True, env=environment,
                          cwd=task.working_folder or os.path.dirname(task.script))
    return {"kind": "exit", "detail": str(done.returncode)} if done.returncode else {"kind": "passed"}


# ---- what is seen on the way ----------------------------------------------------------------------------------------
class Collector:
    """A recorder that keeps graph breaks and recompilations. (Not a NullRecorder, with which nothing is described.)"""

    def __init__(self) -> None:
        self.breaks: list[list[str]] = []
        self.recompiles: list[list[str]] = []
        self._nothing = NullRecorder()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._nothing, name)

    def record(self, compile_id: str, stage: str, name: str, record: AnyRecord) -> None:
        """Keep it, if it is one."""
        if isinstance(record, Breaks):
            self.breaks += [[b.code, operation(b.expression), f"{b.location.file}:{b.location.line}"]
                            for b in record.breaks]
        elif isinstance(record, Recompile):
            self.recompiles.append([record.guard, record.actual])

    def document(self) -> Answer:
        """All of it."""
        return {"breaks": self.breaks, "recompiles": self.recompiles}


class Seen:
    """The lines that run, of files in a folder, and the modules that come from there; values of expressions, where the
    files are `instrumented`."""

    def __init__(self, folder: str, stop_at: tuple[str, int] = ("", 0)) -> None:
        self.folder = os.path.join(os.path.realpath(folder), "")
        self.stop_at = stop_at
        self.lines: dict[str, set[int]] = {}
        self.known: dict[str, str] = {}  # file names as code objects have them, with the path they mean or ""
        self.values = Recorder()
        self.calls = Calls()
        self.before = set(sys.modules)

    def watch(self) -> None:
        """From now on."""
        setattr(builtins, HOOK, self.values)
        sys.settrace(self._trace)

    def end(self) -> None:
        """No longer."""
        self.values.on = False
        sys.settrace(None)

    def _trace(self, frame: FrameType, event: str, argument: Any) -> Any:
        if not self.values.on:
            return None
        name = frame.f_code.co_filename
        path = self.known.get(name)
        if path is None:
            path = self.known[name] = self.own(name)
        if not path:
            return None
        lines = self.lines.setdefault(path, set())
        lines.add(frame.f_lineno)
        self.calls.called(path, frame)

        def local(frame: FrameType, event: str, argument: Any) -> Any:
            if event == "return":
                self.calls.returned(path, frame.f_code, argument)
            if self.values.on:
                lines.add(frame.f_lineno)
                if (path, frame.f_lineno) == self.stop_at:
                    self.values.on = False
            return local

        return local

    def own(self, file: str) -> str:
        """The path of a file of the program; "" for others: an environment may be inside of the folder."""
        path = os.path.realpath(file)
        if not os.path.isabs(file) or not path.startswith(self.folder) or not path.endswith(".py"):
            return ""
        inside = path[len(self.folder) :].split(os.sep)
        return "" if any(part.startswith(".") or part.endswith("-packages") for part in inside) else path

    def document(self) -> Answer:
        """Lines by path, the paths of the modules, and values by number."""
        modules = [module for name, module in list(sys.modules.items()) if name not in self.before]
        names = (getattr(module, "__file__", None) for module in modules)
        files = {path for name in names if isinstance(name, str) and (path := self.own(name))}
        return {"reached": {path: sorted(lines) for path, lines in self.lines.items()},
                "files": sorted(files),
                "plain": list(self.values.plain.items()), "tensors": list(self.values.tensors.items()),
                "calls": self.calls.document()}
