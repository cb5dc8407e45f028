"""Around a program under `ptdebug run`: opening the recording before it, writing the summary after it."""
from __future__ import annotations

import argparse
import atexit
import os
import shutil
import sys
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..artifacts import profiles
from ..artifacts.home import existing_home, new_recording_folder, recordings_home
from ..artifacts.listing import printable_lines
from ..artifacts.recorder import NullRecorder, Recorder
from ..artifacts.recording import Recording
from ..artifacts.records import SCHEMA
from ..artifacts.store import RecordingWriter
from ..artifacts.summary import summary
from ..dependencies import msgspec
from . import session, subprocesses, torch_compile_patch
from .errors import CommandError
from .kept_output import KeptOutput
from .launch import Program, stay_interrupted
from .live_counters import LiveCounters
from .profile import QUIET, Profiler
from .program_exception import exception_facts
from .run_times import run_times
from .settings import gather, to_settings
from .summary_text import summary_lines


@dataclass
class RecordedRun:
    """One `ptdebug run`: `ended` gets the program's exit code, `finish` runs after its last atexit handler."""

    program: Program
    session: session.Session
    json_file: Path | None
    quiet: bool
    look_closer: str
    output: KeptOutput | None = None
    live: LiveCounters | None = None
    exit_code: int | None = None

    def ended(self, exit_code: int) -> None:
        """The program's code has ended; its threads and atexit handlers have not."""
        self.exit_code = exit_code

    def finish(self) -> None:
        """Close the recording and print the summary. Never raises; does nothing in a forked child."""
        if os.getpid() != self.session.pid:
            return
        with suppress(Exception):  # the interpreter tries again in a moment, and reports it as it always does
            if sys.stdout is not None:
                sys.stdout.flush()
        try:
            self.session.check_overrides()
            document = self._close()
            if self.json_file is not None:
                self.json_file.write_bytes(msgspec.json.format(msgspec.json.encode(document)) + b"\n")
            lines = summary_lines(document, self.session, self.look_closer)
        except Exception as error:
            lines = [*self.session.messages, f"ptdebug: no summary: {type(error).__name__}: {error}"]
        if not self.quiet:
            _say(lines)
        if self.exit_code == 130 and type(getattr(sys, "last_value", None)) is KeyboardInterrupt:
            stay_interrupted()

    def _close(self) -> dict[str, Any]:
        recorder = self.session.recorder
        if not isinstance(recorder, RecordingWriter) or self.session.folder is None:
            return _unrecorded(self)
        if self.live is not None:
            self.live.stopped = True
        if self.session.profiler is not None:
            self._profiled(self.session.profiler, self.session.folder)
        runtimes = run_times()
        if runtimes:
            recorder.flush_runtime(runtimes)
        if self.session.saw_compile or self.session.contexts:
            from .machine_code import add_machine_code  # loads the engine, which other programs do not need

            add_machine_code(recorder)
        for rerun in torch_compile_patch.reruns():
            self.session.say(f"ptdebug: {rerun}")
        for message in self.session.messages:
            recorder.note(message.removeprefix("ptdebug: "))
        if self.output is not None:
            recorder.set_meta("output", self.output.text)
        with suppress(Exception):  # nothing that the program left behind may cost the recording
            for key, value in exception_facts(self.exit_code).items():
                recorder.set_meta(key, value)
        recorder.close(self.exit_code)
        for message in recorder.messages:
            self.session.say(message)
        with Recording.open(self.session.folder) as recording:
            return {**summary(recording), "first_rank_difference": _first_difference(recording)}

    def _profiled(self, profiler: Profiler, folder: Path) -> None:
        try:
            profiler.stop()
            if profiler.profile is not None:
                profiles.keep(folder, profiler.profile)
            self.session.say(f"ptdebug: {profiler.said()}")
        except Exception as error:  # a full disk: the recording goes on
            self.session.say(f"ptdebug: the profile is lost: {type(error).__name__}: {error}")


def _first_difference(recording: Recording) -> dict[str, Any] | None:
    """Where the ranks of a distributed program first differ."""
    if len(recording.ranks) < 2:
        return None
    from ..artifacts.diff.ranks import difference_document, rank_differences  # loads Pygments, which is the program's

    found = rank_differences([(rank, recording.of_rank(rank)) for rank in recording.ranks])
    return difference_document(found[0]) if found else None


def prepare(program: Program, arguments: argparse.Namespace) -> Callable[[int], None]:
    """Open the recording, and arrange for torch.compile and the summary. Raises CommandError before anything runs."""
    values = gather(arguments)
    settings = to_settings(values)
    if settings.profile and arguments.no_record:
        raise CommandError("--profile keeps what it sees beside the recording: leave out --no-record")
    json_file = _writable(arguments.json)
    recorder: Recorder = NullRecorder() if arguments.no_record else _new_recorder(values, settings.compiler, program)
    folder = recorder.folder if isinstance(recorder, RecordingWriter) else None
    run = RecordedRun(
        program, session.enter(session.Session(settings, recorder, folder)), json_file, bool(values["quiet"]),
        _look_closer(folder), _kept_output(values["keep-output"]),
    )
    if settings.profile:
        run.session.profiler = Profiler(settings.profile)
        os.environ.update({name: value for name, value in QUIET.items() if name not in os.environ})
    if arguments.live and isinstance(recorder, RecordingWriter):
        run.live = LiveCounters(recorder, run_times)
        run.live.start()
    atexit.register(run.finish)  # before the program's own, and so after them
    torch_compile_patch.watch_for_torch()
    subprocesses.take_along(settings, folder)
    return run.ended


def _kept_output(lines: object) -> KeptOutput | None:
    if not isinstance(lines, int) or lines < 0:
        raise CommandError(f"keep-output = {lines!r}: a number of lines was expected")
    if not lines:
        return None
    output = KeptOutput(lines)
    output.start()
    return output


def _new_recorder(values: dict[str, Any], compiler: str, program: Program) -> RecordingWriter:
    home = recordings_home(values["out"])
    try:
        folder = new_recording_folder(home, program.label, values["name"])
    except OSError as error:
        raise _cannot_record(home, error.strerror) from None
    recorder = RecordingWriter(folder, command=program.words, compiler=compiler, counters=run_times)
    recorder.set_meta("options", {key: value for key, value in values.items() if value not in (None, False)})
    if recorder.messages:
        shutil.rmtree(folder, ignore_errors=True)
        raise _cannot_record(home, recorder.messages[0].partition(" continues: ")[2].partition(" (")[0])
    return recorder


def _cannot_record(home: Path, why: str | None) -> CommandError:
    advice = "choose another folder with -o DIR, or run with --no-record"
    return CommandError(f"can't write recordings in '{home}': {why} ({advice})")


def _writable(path: str | None) -> Path | None:
    if path is None:
        return None
    file = Path(path).absolute()
    if file.is_dir() or not os.access(file if file.exists() else file.parent, os.W_OK):
        raise CommandError(f"can't write the summary to '{file}'")
    return file


def _look_closer(folder: Path | None) -> str:
    """The shortest command that opens this recording."""
    if folder is None:
        return "ptdebug run --help"
    if folder.parent == existing_home():
        return "ptdebug tui @"
    here = os.path.relpath(folder)
    return f"ptdebug tui {here if not here.startswith('..') else folder}"


def _unrecorded(run: RecordedRun) -> dict[str, Any]:
    """The summary of a run without a recording, from the process's counters."""
    stats = torch_compile_patch.stats()
    counts = {name: stats.get(name, 0) for name in ("graphs", "ops", "graph_breaks", "recompiles")}
    return {
        "schema": SCHEMA, "recording": None, "command": list(run.program.words), "exit_code": run.exit_code,
        "compiler": run.session.settings.compiler, "versions": {}, "counts": counts, "compiles": [],
        "graph_breaks": [], "recompiles": [], "absent": [], "overhead_seconds": {"recording": 0.0},
    }


def _say(lines: list[str]) -> None:
    stream = sys.__stderr__
    if stream is None or not lines:
        return
    try:
        stream.write("\n".join(map(printable_lines, lines)) + "\n")
        stream.flush()
    except (OSError, ValueError):  # closed, or nobody reads it any more
        return
