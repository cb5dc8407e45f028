"""Writing a recording while the compiler runs.

A recording is a folder:

    recording.db          SQLite: the index and, compressed, everything but tensors
    recording-PID.db      the same for a child process (forked, or started with the same folder)
    tensors/*.safetensors saved inputs; those of children begin with PID-

Each call of the writer is one transaction (decisions are batched and written with the next one), in WAL mode without
fsync: what was written survives a crash of the process, though not of the operating system, and a commit costs about
ten microseconds. Equal contents are stored once, by hash.

The writer never raises into the recorded program: on the first error (no space, no permission) it reports one message
and stops recording, and the program goes on.
"""
from __future__ import annotations

import ctypes
import os
import re
import shutil
import sqlite3
import sys
import threading
import time
import weakref
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import cache, wraps
from importlib import metadata
from itertools import groupby
from operator import itemgetter
from pathlib import Path
from typing import Any, Concatenate, ParamSpec

from ..dependencies import msgspec
from ..version import __version__
from .artifact import Artifact, Stored, compress, encode
from .external_exceptions import came_from_outside, ran_out_of_stack
from .open_files import OpenFiles
from .process_liveness import machine, process_start
from .recorder import StageRecorder
from .records import AnyRecord, Decision, Runtime
from .signature import sign, sign_place
from .tables import DATABASE, FORM, RUNNING, TABLES, content_hash, stopped_mark

P = ParamSpec("P")

ENVIRONMENT = ("PTDEBUG_", "TORCH", "TRITON_", "OMP_", "MKL_", "CUDA_", "PYTHON", "CXX", "CC")
DECISIONS_AT_ONCE = 1024
DECISIONS_AT_LATEST = 0.5  # seconds
COUNTERS_AT_MOST = 2.0  # seconds between two writings of the run-time counters

Method = Callable[Concatenate["RecordingWriter", P], None]


def _guarded(method: Method[P]) -> Method[P]:
    """Make a method of the writer a transaction: locked, in the right process, raising nothing of its own."""

    @wraps(method)
    def call(self: RecordingWriter, *args: P.args, **kwargs: P.kwargs) -> None:
        with self._lock:
            if self._stopped:
                return
            start = time.perf_counter()
            try:
                if self._pid != os.getpid():
                    self._leave_parents_database()
                    self._open()
                elif not self._files.unchanged():
                    self._open_again()
                self._transaction(lambda: method(self, *args, **kwargs))
            except Exception as error:  # the program's work comes first, whatever failed here
                if ran_out_of_stack(error):  # there will be room again
                    raise
                if not came_from_outside(error):
                    self._stop(error)
                else:
                    self._transaction(lambda: method(self, *args, **kwargs))
                    raise
            name = method.__name__
            self.seconds[name] = self.seconds.get(name, 0.0) + time.perf_counter() - start

    return call


class RecordingWriter(StageRecorder):
    """A `Recorder` that writes into `folder` (made if it is not there). Safe to share between threads and to fork.

    `messages` holds what the person should be told after the program ends; `seconds` is the wall time that each method
    of the writer took so far. `counters` gives the run-time counters as they stand: they are kept now and then as
    compilations end, so that a killed process leaves them too.
    """

    def __init__(self, folder: str | os.PathLike[str], command: Sequence[str] = (), compiler: str = "ptdebug",
                 meta: Mapping[str, Any] | None = None, counters: Callable[[], Mapping[str, Runtime]] = dict,
                 clock: Callable[[], float] = time.time, is_source: Callable[[str], bool] = os.path.isfile) -> None:
        self.folder = Path(folder).absolute()
        self.messages: list[str] = []
        self.seconds: dict[str, float] = {}
        self._extra = {"command": list(command), "compiler": compiler, **(meta or {})}
        self._lock = threading.RLock()
        self._counters = counters
        self._clock, self._is_source = clock, is_source
        self._begun: set[str] = set()
        self._stopped = False
        self._decisions: deque[tuple[str, Decision]] = deque()
        self._sources: set[str] = set()
        self._versions_known = False
        self._last_commit = self._last_counters = time.monotonic()
        self._db: sqlite3.Connection
        self._path = self.folder / DATABASE
        self._files: OpenFiles
        self._pid = os.getpid()
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            self._open()
        except Exception as error:
            self._stop(error)
        _tell_after_fork(weakref.ref(self))

    @property
    def file_prefix(self) -> str:
        """How the names of files begin that this process adds to the folder: with its id, if it is a child."""
        process = os.getpid()
        return "" if process == self._pid and self._path.name == DATABASE else f"{process}-"

    # ---- the Recorder protocol --------------------------------------------------------------------------------------
    @_guarded
    def begin(self, compile_id: str, function: str, file: str, line: int) -> None:
        """A compilation starts; until `end` its status is `running`."""
        if not self._versions_known:
            self._versions_known = True
            self._set_meta("versions", _versions())
        self._begun.add(compile_id)
        self._db.execute("INSERT OR REPLACE INTO compiles VALUES(?,?,?,?,?,?,?,?)",
                         (compile_id, function, file, line, self._clock(), RUNNING, "", "{}"))

    def record(self, compile_id: str, stage: str, name: str, record: AnyRecord) -> None:
        """Store `record`; it replaces an earlier one of the same compilation, stage and name."""
        self.record_stage(compile_id, (Artifact(stage, name, record),))

    @_guarded
    def record_stage(self, compile_id: str, artifacts: Sequence[Artifact]) -> None:
        """Store all of `artifacts`, as `record` does."""
        self._store(compile_id, [artifact.stored for artifact in artifacts])

    @_guarded
    def absent(self, compile_id: str, stage: str, why: str) -> None:
        """A stage was not produced."""
        self._db.execute("INSERT INTO absents VALUES(?,?,?)", (compile_id, stage, why))

    def decision(self, compile_id: str, decision: Decision) -> None:
        """Store a decision; it is written with the next record, or after half a second of decisions."""
        if self._stopped:
            return
        self._decisions.append((compile_id, decision))
        if (len(self._decisions) >= DECISIONS_AT_ONCE
                or time.monotonic() - self._last_commit > DECISIONS_AT_LATEST):
            self.flush()

    @_guarded
    def end(self, compile_id: str, status: str, reason: str, seconds: Mapping[str, float]) -> None:
        """A compilation ended: compiled, skipped, eager or failed."""
        self._db.execute("UPDATE compiles SET status=?, reason=?, seconds=? WHERE id=?",
                         (status, reason, encode(dict(seconds)).decode(), compile_id))
        self._set_meta("writer_seconds", self.seconds)
        if time.monotonic() - self._last_counters > COUNTERS_AT_MOST:
            self._last_counters = time.monotonic()
            self._write_runtime({id: runtime for id, runtime in self._counters().items() if id in self._begun})

    @_guarded
    def source_file(self, path: str) -> None:
        """Store the text of a source file as it is now (once)."""
        if path not in self._sources:
            self._keep_source(path)

    # ---- beyond the protocol ----------------------------------------------------------------------------------------
    @_guarded
    def flush_runtime(self, runtimes: Mapping[str, Runtime]) -> None:
        """Store the run-time counters (compile id -> current values), replacing earlier ones: of compilations that
        were recorded here: `explain` compiles without recording.

        Never called from a compiled call; the caller counts.
        """
        self._write_runtime({id: runtime for id, runtime in runtimes.items() if id in self._begun})

    @_guarded
    def note(self, text: str) -> None:
        """Store a sentence about the recording as a whole, for its reader."""
        self._db.execute("INSERT INTO notes(text) VALUES(?)", (text,))

    @_guarded
    def set_meta(self, key: str, value: Any) -> None:
        """Store a fact about the recording as a whole."""
        self._set_meta(key, value)

    @_guarded
    def flush(self) -> None:
        """Write pending decisions."""

    def close(self, exit_code: int | None = None) -> None:
        """The program ended with `exit_code`. The database becomes a single file; later calls do nothing."""
        if exit_code is not None:
            self.set_meta("exit_code", exit_code)
        self.set_meta("ended", time.time())
        self.set_meta("writer_seconds", self.seconds)
        with self._lock:
            if self._stopped:
                return
            self._stopped = True
            try:
                self._db.execute("PRAGMA busy_timeout=0")
                self._db.execute("PRAGMA wal_checkpoint(TRUNCATE)")
                with suppress(sqlite3.OperationalError):  # a workbench has it open: the log stays beside it, empty
                    self._db.execute("PRAGMA journal_mode=DELETE")
                self._db.close()
            except sqlite3.Error as error:
                self.messages.append(f"ptdebug: the recording was not closed properly: {error}")

    # ---- inside -----------------------------------------------------------------------------------------------------
    def _open(self) -> None:
        main = self.folder / DATABASE
        self._path = self.folder / f"recording-{self._pid}.db" if main.exists() else main
        self._begun.clear()
        self._sources.clear()
        self._versions_known = False
        self._connect()
        self._db.executescript("BEGIN;" + TABLES + "COMMIT;")
        self._transaction(self._first_meta)
        self._files = OpenFiles(self._parts())

    def _connect(self) -> None:
        self._db = sqlite3.connect(self._path, check_same_thread=False, isolation_level=None, timeout=5)
        self._db.execute("PRAGMA journal_mode=WAL")
        self._db.execute("PRAGMA synchronous=OFF")

    def _parts(self) -> list[Path]:
        """The files that SQLite writes."""
        return [self._path.with_name(self._path.name + suffix) for suffix in ("", "-wal", "-shm")]

    def _open_again(self) -> None:
        """The program has closed the recorder's descriptors and may use their numbers for its own files: continue with
        copies of the files, for SQLite recognizes an open file by its inode."""
        self._keep_connection()
        database, log, shared = self._parts()
        for part in (database, log):
            if part.exists():
                copy = part.with_name(part.name + ".new")
                shutil.copyfile(part, copy)
                os.replace(copy, part)
        shared.unlink(missing_ok=True)
        self._connect()
        self._transaction(lambda: self._set_meta("reopened", time.time()))
        self._files = OpenFiles(self._parts())

    def _first_meta(self) -> None:
        folder, started = str(Path.cwd()), time.time()
        facts = {
            "schema": FORM,
            **self._extra,
            "pid": self._pid,
            "parent_pid": os.getppid(),
            "process_start": process_start(self._pid),
            "started": started,
            "origin": sign_place(self.folder, started),
            "folder": folder,
            "signature": sign(self._extra["command"], folder) if self._extra["command"] else "",
            "machine": machine() or sys.platform,
            "environment": {k: v for k, v in sorted(os.environ.items()) if k.startswith(ENVIRONMENT)},
            "versions": {"ptdebug": __version__, "python": sys.version.split()[0]},
        }
        for key, value in facts.items():
            self._set_meta(key, value)

    def _transaction(self, work: Callable[[], None]) -> None:
        self._db.execute("BEGIN")
        try:
            work()
            waiting = [self._decisions.popleft() for _ in range(len(self._decisions))]  # others may append meanwhile
            for compile_id, decisions in groupby(waiting, itemgetter(0)):
                self._write_decisions(compile_id, [decision for _, decision in decisions])
            self._db.execute("COMMIT")
        except BaseException:
            if self._db.in_transaction:
                self._db.execute("ROLLBACK")
            self._sources.clear()  # what was kept just now is not
            raise
        self._last_commit = time.monotonic()

    def _write_decisions(self, compile_id: str, decisions: Sequence[Decision]) -> None:
        content = encode(decisions)
        kinds = f",{','.join(sorted({decision.kind for decision in decisions}))},"
        self._db.execute("INSERT INTO decisions(compile, kinds, items, size, data) VALUES(?,?,?,?,?)",
                         (compile_id, kinds, len(decisions), len(content), compress(content)))

    def _write_runtime(self, runtimes: Mapping[str, Runtime]) -> None:
        for compile_id, runtime in runtimes.items():
            stored = Artifact("runtime", "", runtime).stored
            self._store(compile_id, [msgspec.structs.replace(stored, items=0)])

    def _store(self, compile_id: str, artifacts: Sequence[Stored]) -> None:
        self._db.executemany("INSERT OR IGNORE INTO blobs VALUES(?,?,?)", [(a.hash, a.size, a.data) for a in artifacts])
        self._db.executemany(
            "INSERT OR REPLACE INTO artifacts(compile, stage, name, kind, items, hash, facts) VALUES(?,?,?,?,?,?,?)",
            [(compile_id, a.stage, a.name, a.kind, a.items, a.hash, a.facts) for a in artifacts],
        )
        for path in {path for artifact in artifacts for path in artifact.files} - self._sources:
            self._keep_source(path)

    def _keep_source(self, path: str) -> None:
        self._sources.add(path)
        if self._is_source(path):
            content = Path(path).read_bytes()
            data = compress(content)
            key = content_hash(data)
            self._db.execute("INSERT OR IGNORE INTO blobs VALUES(?,?,?)", (key, len(content), data))
            self._db.execute("INSERT OR REPLACE INTO sources VALUES(?,?)", (path, key))

    def _set_meta(self, key: str, value: Any) -> None:
        self._db.execute("INSERT OR REPLACE INTO meta VALUES(?,?)", (key, encode(value).decode()))

    def _stop(self, error: Exception) -> None:
        self._stopped = True
        self.messages.append(f"ptdebug: recording stopped, the program continues: {error} ({self.folder})")
        with suppress(OSError):
            stopped_mark(self._path).write_text(str(error))  # empty if the disk is full

    def _after_fork(self) -> None:
        self._lock = threading.RLock()  # a thread that is not in the child may have held it
        self._decisions = deque()  # the parent writes them

    def _keep_connection(self) -> None:
        """Never close it: closing it in a child would touch the parent's locks and files, and close descriptors that
        belong to the program by now."""
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(self._db))

    def _leave_parents_database(self) -> None:
        self._keep_connection()
        self._pid = os.getpid()
        self.seconds = {}


def _tell_after_fork(writer: weakref.ref[RecordingWriter]) -> None:
    def after() -> None:
        alive = writer()
        if alive is not None:
            alive._after_fork()

    os.register_at_fork(after_in_child=after)


def _versions() -> dict[str, str]:
    """Versions of what compiles."""
    found = {"ptdebug": __version__, "python": sys.version.split()[0]}
    return found | {package: version for package in ("torch", "triton") if (version := _version(package))}


@cache
def _version(package: str) -> str:
    """"" where it is not installed. To parse all that a package says of itself takes milliseconds."""
    try:
        text = metadata.distribution(package).read_text("METADATA") or ""
    except metadata.PackageNotFoundError:
        return ""
    found = re.search(r"^Version: *(.+)$", text, re.MULTILINE)
    return found[1].strip() if found is not None else metadata.version(package)
