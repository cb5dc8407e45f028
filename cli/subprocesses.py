"""Sets up multiprocessing's children as `ptdebug run` set up the parent.

A forked child inherits the setup. A spawned one (or one of a fork server) is a new interpreter that first unpickles its
preparation data: a small object in them starts recording there, into a file of its own in the same folder (the way of
coverage.py's `Stowaway`). Processes that the program starts in other ways are not recorded.
"""
from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

from ..artifacts.store import RecordingWriter
from . import session, torch_compile_patch
from .interpose import after_import
from .run_times import run_times


@dataclass(frozen=True)
class Stowaway:
    """Pickled into a child's preparation data; unpickling it calls `start_in_child`."""

    settings: session.Settings
    folder: Path | None

    def __reduce__(self) -> tuple[Callable[..., None], tuple[Any, ...]]:
        return start_in_child, (self.settings, self.folder)


def take_along(settings: session.Settings, folder: Path | None) -> None:
    """Put a `Stowaway` into the data of each child, once the program imports multiprocessing's spawn."""

    def patch(spawn: ModuleType) -> None:
        stock = spawn.get_preparation_data

        def get_preparation_data(name: str) -> dict[str, Any]:
            return {**stock(name), "ptdebug": Stowaway(settings, folder)}

        spawn.get_preparation_data = get_preparation_data  # type: ignore[attr-defined]

    after_import({"multiprocessing.spawn": patch})


def start_in_child(settings: session.Settings, folder: Path | None) -> None:
    """In a spawned child, before its `__main__` is imported: the same compiler, recording into the same folder.

    The recording is opened by the first torch.compile: most children (data loaders) never call it.
    """
    child = session.enter(session.Session(settings, folder=folder))
    if folder is not None:
        counters = run_times
        child.open_recorder = lambda: RecordingWriter(folder, compiler=settings.compiler, counters=counters)
    torch_compile_patch.watch_for_torch()
    take_along(settings, folder)
