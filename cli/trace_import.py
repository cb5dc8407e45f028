"""Makes a recording of a trace that PyTorch wrote by itself (TORCH_TRACE), perhaps on another machine.

The recording has what `run --compiler torch` records. What the trace does not hold is not known, and said to be so: the
command, the environment, the calls, and the program's text, unless the files are here and were not changed since.
"""
from __future__ import annotations

import os
import shutil
from pathlib import Path

from ..artifacts.home import new_recording_folder
from ..artifacts.listing import plural
from ..artifacts.store import RecordingWriter
from . import session
from .errors import CommandError
from .torch_trace_files import TraceFile, TraceReader, is_trace, trace_files
from .torch_trace_import import StockRecorder


def import_trace(path: Path, home: Path, name: str | None) -> tuple[list[Path], list[str]]:
    """A recording for each file of the trace at `path` that holds a compilation: their folders, by rank; and what could
    not be read. Raises CommandError where nothing can be."""
    try:
        files = [file for file in trace_files(path) if is_trace(file.path)]
    except OSError as error:
        raise CommandError(f"can't read {path}: {error.strerror or error}") from None
    if not files:
        raise CommandError(f"{path} is no trace of PyTorch: run the program with TORCH_TRACE=FOLDER, and name that")
    made: list[Path] = []
    told: list[str] = []
    for file in files:
        of_file = f"{name}-rank-{file.rank}" if name and file.rank >= 0 and len(files) > 1 else name
        folder = _import(file, home, of_file, told)
        made += [folder] if folder is not None else []
    if not made:
        raise CommandError(f"{path} has no compilation")
    return made, told


def _import(file: TraceFile, home: Path, name: str | None, told: list[str]) -> Path | None:
    reader = TraceReader(file.path, file.path.stat().st_mtime)
    stem = "trace" if file.rank < 0 else f"trace-rank-{file.rank}"
    folder = new_recording_folder(home, stem, name)
    writer = RecordingWriter(folder, compiler="torch", clock=lambda: reader.time,
                             is_source=lambda path: _is_unchanged(path, reader.time))
    recorder = StockRecorder()
    inside = session.enter(session.Session(session.Settings(compiler="torch"), writer, folder))
    first = 0.0
    try:
        for facts, text in reader.events():
            first = first or reader.time
            recorder.event(facts, text)
    except (OSError, EOFError) as error:
        told.append(f"{file.path} ends early: {error}")
    finally:
        recorder.finish()
        session.leave(inside)
    _describe(writer, reader, file, first)
    for note in inside.messages:
        writer.note(note.removeprefix("ptdebug: "))
    if reader.damaged:
        writer.note(f"{plural(reader.damaged, 'line')} of the trace could not be read")
    writer.close()
    told += [message.removeprefix("ptdebug: ") for message in (*inside.messages, *writer.messages)]
    if not recorder.known:
        shutil.rmtree(folder)
    return folder if recorder.known else None


def _describe(writer: RecordingWriter, reader: TraceReader, file: TraceFile, first: float) -> None:
    """What is known of the run, in place of what is true of this process."""
    facts = {
        "imported": str(file.path.absolute()), "versions": reader.versions, "environment": {}, "folder": "",
        "command": [], "pid": reader.pid, "parent_pid": 0, "process_start": "", "machine": "", "started": first,
        **({"rank": file.rank} if file.rank >= 0 else {}),
    }
    for key, value in facts.items():
        writer.set_meta(key, value)


def _is_unchanged(path: str, since: float) -> bool:
    """Whether the file is here, and older than the trace: its text is what was compiled, as far as can be told."""
    return os.path.isfile(path) and os.path.getmtime(path) <= since
