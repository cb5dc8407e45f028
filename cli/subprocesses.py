"""Sets up the processes that a program starts as `ptdebug run` set up the program itself.

A forked child inherits the setup. A child of multiprocessing that is spawned (or one of a fork server) is a new
interpreter that first unpickles its preparation data: a small object in them starts recording there (the way of
coverage.py's `Stowaway`). Any other process inherits two variables, by which Python imports
`child_startup/sitecustomize.py`; the program does not see them in its own `os.environ`. Each process records into a
file of its own in the one folder; to a process that is no Python of this installation the variables say nothing.
"""
from __future__ import annotations

import atexit
import dataclasses
import json
import os
import sys
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

from ..artifacts.recorder import Recorder
from ..artifacts.store import RecordingWriter
from . import session, torch_compile_patch
from .interpose import after_import
from .launch import PACKAGE
from .ranks import note_rank
from .run_times import run_times

VARIABLE, PATH = "PTDEBUG_CHILD", "PYTHONPATH"


@dataclass(frozen=True)
class Stowaway:
    """Pickled into a child's preparation data; unpickling it calls `start_in_child`."""

    settings: session.Settings
    folder: Path | None

    def __reduce__(self) -> tuple[Callable[..., None], tuple[Any, ...]]:
        return start_in_child, (self.settings, self.folder)


def take_along(settings: session.Settings, folder: Path | None) -> None:
    """Set up the children of this process: those of multiprocessing, and all others."""

    def patch(spawn: ModuleType) -> None:
        stock = spawn.get_preparation_data

        def get_preparation_data(name: str) -> dict[str, Any]:
            return {**stock(name), "ptdebug": Stowaway(settings, folder)}

        spawn.get_preparation_data = get_preparation_data  # type: ignore[attr-defined]

    after_import({"multiprocessing.spawn": patch})
    _take_along_by_environment(settings, folder)


def _take_along_by_environment(settings: session.Settings, folder: Path | None) -> None:
    """Add the variables to the environment that children get, but not to `os.environ`."""
    facts = {"package": PACKAGE, "python": [sys.version, sys.prefix], "folder": None if folder is None else str(folder),
             "settings": dataclasses.asdict(settings)}

    def added(environment: Mapping[str, str]) -> dict[str, str]:
        given = environment.get(PATH)
        path = os.pathsep.join([os.path.join(PACKAGE, "cli", "child_startup"), *([given] if given else [])])
        return {PATH: path, VARIABLE: json.dumps({**facts, "path": given})}

    def patch(subprocess: ModuleType) -> None:
        stock = subprocess.Popen._execute_child

        def _execute_child(self: Any, args: Any, executable: Any, preexec_fn: Any, close_fds: Any, pass_fds: Any,
                           cwd: Any, env: Any, *others: Any) -> Any:
            environment = os.environ if env is None else env
            if all(isinstance(name, str) for name in environment):
                env = {**environment, **added(environment)}
            return stock(self, args, executable, preexec_fn, close_fds, pass_fds, cwd, env, *others)

        subprocess.Popen._execute_child = _execute_child

    for name, value in added(os.environ).items():
        os.putenv(name, value)
    after_import({"subprocess": patch})


def start_below(facts: Mapping[str, Any]) -> None:
    """In a Python process that was started by its command line, when it imports torch."""
    settings = session.Settings(**facts["settings"])
    start_in_child(settings, None if facts["folder"] is None else Path(facts["folder"]))


def start_in_child(settings: session.Settings, folder: Path | None) -> None:
    """In a child, before its `__main__` is imported or when it imports torch: the same compiler, recording into the
    same folder.

    The recording is opened by the first torch.compile: most children (data loaders) never call it. A child that is a
    `ptdebug run` of its own has its own recording.
    """
    if session.has_begun():
        return
    child = session.enter(session.Session(settings, folder=folder))
    if folder is not None:
        child.open_recorder = lambda: _open(child, folder)
    torch_compile_patch.watch_for_torch()
    take_along(settings, folder)


def _open(child: session.Session, folder: Path) -> Recorder:
    writer = RecordingWriter(folder, compiler=child.settings.compiler, counters=run_times)

    def finish() -> None:
        """Keep the counts of calls and what there is to say; the parent tells it."""
        if os.getpid() != child.pid:
            return
        with suppress(Exception):
            note_rank(child)
            writer.flush_runtime(run_times())
            for message in [*child.messages, *(f"ptdebug: {rerun}" for rerun in torch_compile_patch.reruns())]:
                writer.note(message.removeprefix("ptdebug: "))
            writer.close()

    atexit.register(finish)
    if "multiprocessing.util" in sys.modules:  # its children end without atexit handlers
        sys.modules["multiprocessing.util"].Finalize(None, finish, exitpriority=-100)
    return writer
