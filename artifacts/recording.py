"""Reading a recording: open it, list what is in it, get typed records and source texts.

Nothing is read before it is asked for, so opening costs a millisecond or two whatever the size. Nothing from a
recording is ever executed or unpickled. Where the file is damaged, the rest is read and `problems` says what is
missing.

A process that the recorded program forked writes a database of its own; its compilations appear here with the id
`F/C@PID`.
"""
from __future__ import annotations

import os
import re
import sqlite3
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, TypeVar

from ..dependencies import msgspec, zstandard
from .decode import revive
from .process_liveness import is_running
from .records import SCHEMA, Absent, AnyRecord, Decision, split_ref
from .stages import order_of
from .store import DATABASE, RUNNING, stopped_mark

R = TypeVar("R")

_decoder: msgspec.json.Decoder[Any] = msgspec.json.Decoder(AnyRecord)
MAX_BLOB = 1 << 30  # a damaged length must not ask for all memory


class RecordingError(Exception):
    """What was asked for is not there, or cannot be read. The message is for the person; the exit code is 2."""

    exit_code = 2


@dataclass(frozen=True)
class CompileInfo:
    """One compilation: `status` is compiled, skipped, eager, failed, or unknown where the recording stopped before its
    end; `seconds` by phase, as in the contract."""

    id: str
    function: str
    file: str
    line: int
    status: str
    reason: str
    started: float
    seconds: Mapping[str, float]


@dataclass(frozen=True)
class ArtifactInfo:
    """One record without its content; `items` counts what it holds (nodes, guards, lines, ...)."""

    compile: str
    stage: str
    name: str
    kind: str
    items: int
    hash: bytes

    @property
    def key(self) -> str:
        """`STAGE` or `STAGE:NAME`, as in selectors and references."""
        return f"{self.stage}:{self.name}" if self.name else self.stage


class Recording:
    """An open recording. All methods only read; a recording that is still being written may be read as it grows."""

    def __init__(self, path: Path, databases: list[tuple[str, sqlite3.Connection]], problems: list[str]) -> None:
        self.path = path
        self.name = path.name
        self.problems = problems
        self._databases = databases
        self._record = lru_cache(maxsize=512)(self._read_record)

    @classmethod
    def open(cls, path: str | os.PathLike[str]) -> Recording:
        """Open the recording in folder `path`. Raises RecordingError where there is none or it cannot be read."""
        folder = Path(path)
        main = folder / DATABASE
        if not main.is_file():
            raise RecordingError(f"no recording at {folder}: there is no {DATABASE} in it" if folder.exists()
                                 else f"no recording at {folder}: no such folder")
        problems: list[str] = []
        databases = [("", _connect(main))]
        for child in sorted(folder.glob("recording-*.db")):
            try:
                databases.append(("@" + child.stem.removeprefix("recording-"), _connect(child)))
            except RecordingError as error:
                problems.append(str(error))
        recording = cls(folder, databases, problems)
        schema = recording.meta.get("schema")
        if schema not in (None, SCHEMA):
            raise RecordingError(f"{folder} has the schema {schema}; this ptdebug reads {SCHEMA}")
        return recording

    def close(self) -> None:
        """Close the files. Further questions fail."""
        for _, connection in self._databases:
            connection.close()

    def __enter__(self) -> Recording:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    # ---- the recording as a whole -----------------------------------------------------------------------------------
    @property
    def meta(self) -> dict[str, Any]:
        """Facts about the run: schema, command, versions, environment, started, exit_code (if it ended), ..."""
        rows = self._rows("SELECT key, value FROM meta", main=True)
        return {key: msgspec.json.decode(value) for _, key, value in rows}

    def notes(self) -> list[str]:
        """Sentences about the recording as a whole."""
        return [text for _, text in self._rows("SELECT text FROM notes ORDER BY seq")]

    def compiles(self) -> list[CompileInfo]:
        """All compilations, in the order in which they started."""
        meta = self.meta
        unfinished = "the compilation did not end" if "exit_code" in meta or "ended" in meta else (
            "it is being compiled at this moment" if is_running(meta) else "the process ended during this compilation")
        found = []
        query = ("SELECT id, function, file, line, started, status, reason, seconds "
                 "FROM compiles ORDER BY started, rowid")
        for suffix, name, function, file, line, started, status, reason, seconds in self._rows(query):
            if status == RUNNING:
                status, reason = self._unended(suffix, unfinished)
            times = msgspec.json.decode(seconds or "{}")
            found.append(CompileInfo(name + suffix, function, file, line, status, reason, started, times))
        return found

    @property
    def stopped(self) -> str | None:
        """Why the recording of the program's own process stopped before it ended; None where it did not."""
        return _stopped(self.path / DATABASE)

    def _unended(self, suffix: str, why_not: str) -> tuple[str, str]:
        """The status and the reason of a compilation whose end is not recorded."""
        why = _stopped(self.path / f"recording{suffix.replace('@', '-')}.db")
        if why is not None:
            return "unknown", f"the recording stopped before this compilation ended: {why}"
        return "failed", why_not

    def compile(self, compile_id: str) -> CompileInfo:
        """The compilation with that id. Raises RecordingError."""
        known = {c.id: c for c in self.compiles()}
        if compile_id not in known:
            listed = ", ".join(list(known)[:12]) or "none"
            raise RecordingError(f"{self.name} has no compilation {compile_id}; it has: {listed}")
        return known[compile_id]

    def source(self, path: str) -> str | None:
        """The text of a source file as it was when the program ran, or None where it was not kept."""
        for suffix, key in self._rows("SELECT hash FROM sources WHERE path=?", path):
            content = self._blob(suffix, key)
            if content is not None:
                return content.decode("utf-8", "replace")
        return None

    def sources(self) -> list[str]:
        """Paths of the source files that were kept."""
        return sorted({path for _, path in self._rows("SELECT path FROM sources")})

    # ---- artifacts --------------------------------------------------------------------------------------------------
    def artifacts(self, compile_id: str | None = None, stage: str | None = None,
                  kind: str | None = None) -> list[ArtifactInfo]:
        """Artifacts (of one compilation, stage or kind of record), in the order of stages, then as recorded."""
        query = "SELECT compile, stage, name, kind, items, hash FROM artifacts WHERE 1"
        values: list[str] = []
        process = None
        if compile_id is not None:
            local, at, pid = compile_id.partition("@")
            process = at + pid
            query, values = query + " AND compile=?", [*values, local]
        for column, value in (("stage", stage), ("kind", kind)):
            if value is not None:
                query, values = f"{query} AND {column}=?", [*values, value]
        found = [ArtifactInfo(c + suffix, s, n, k, i, h)
                 for suffix, c, s, n, k, i, h in self._rows(query + " ORDER BY seq", *values)
                 if process is None or suffix == process]
        return sorted(found, key=lambda a: order_of(a.stage))

    def stages(self, compile_id: str) -> list[str]:
        """The stages that a compilation has left something of, in order."""
        present = {a.stage for a in self.artifacts(compile_id)}
        if self.count_decisions(compile_id):
            present.add("decisions")
        return sorted(present, key=order_of)

    def artifact(self, compile_id: str, stage: str, name: str = "") -> AnyRecord:
        """The record of an artifact. Raises RecordingError where it is absent (saying why) or damaged."""
        local, at, pid = compile_id.partition("@")
        for suffix, key in self._rows("SELECT hash FROM artifacts WHERE compile=? AND stage=? AND name=?",
                                      local, stage, name):
            if suffix == at + pid:
                record = self._record(suffix, key)
                if record is None:
                    raise RecordingError(f"{self.name}:{compile_id}:{stage}: the content is damaged")
                return record
        raise RecordingError(f"{self.name}:{compile_id} has no {stage}{':' + name if name else ''}"
                             f"{self._why_absent(compile_id, stage)}")

    def records(self, kind: type[R], compile_id: str | None = None) -> list[tuple[str, R]]:
        """All records of one type with the compilation they belong to, in order; damaged ones are left out."""
        found = []
        for info in self.artifacts(compile_id, kind=kind.__name__):
            record = self._record("@" + info.compile.partition("@")[2] if "@" in info.compile else "", info.hash)
            if isinstance(record, kind):
                found.append((info.compile, record))
        return found

    def decisions(self, compile_id: str | None = None, kind: str | None = None) -> list[tuple[str, Decision]]:
        """Decisions with the compilation they belong to, in the order in which they were taken."""
        query, values = _where("SELECT compile, data FROM decisions", compile_id, kind)
        found = []
        for suffix, owner, data in self._rows(query + " ORDER BY seq", *values):
            if compile_id is None or owner + suffix == compile_id:
                record = self._decode(data)
                if isinstance(record, Decision):
                    found.append((owner + suffix, record))
        return found

    def count_decisions(self, compile_id: str | None = None) -> int:
        """How many decisions there are, without reading them."""
        counts = self.decisions_by_compile(compile_id)
        return sum(counts.values()) if compile_id is None else counts.get(compile_id, 0)

    def decisions_by_compile(self, compile_id: str | None = None) -> dict[str, int]:
        """How many decisions each compilation (or the given one) has."""
        query, values = _where("SELECT compile, count(*) FROM decisions", compile_id, None)
        return {owner + suffix: count for suffix, owner, count in self._rows(query + " GROUP BY compile", *values)}

    def absents(self, compile_id: str | None = None) -> list[tuple[str, Absent]]:
        """Stages that were not produced, and why, with the compilation."""
        found = []
        query = ("SELECT compile, stage, why FROM absents a WHERE NOT EXISTS "
                 "(SELECT 1 FROM artifacts WHERE compile=a.compile AND stage=a.stage)")
        for suffix, owner, stage, why in self._rows(query):
            if compile_id is None or owner + suffix == compile_id:
                found.append((owner + suffix, Absent(stage, why)))
        return list(dict.fromkeys(found))

    def at(self, compile_id: str, reference: str) -> AnyRecord:
        """The record that a reference (`STAGE[:NAME]#ID`) of a compilation points into."""
        stage, name, _ = split_ref(reference)
        return self.artifact(compile_id, stage, name)

    # ---- inside -----------------------------------------------------------------------------------------------------
    def _rows(self, query: str, *values: object, main: bool = False) -> Iterator[tuple[Any, ...]]:
        """Rows of all databases, each with its database's suffix first; damage ends a database's rows, and is noted."""
        for suffix, connection in self._databases[:1] if main else self._databases:
            try:
                for row in connection.execute(query, values):
                    yield (suffix, *row)
            except sqlite3.Error as error:
                self._problem(f"recording{suffix.replace('@', '-')}.db is damaged ({error}): something is missing")

    def _problem(self, text: str) -> None:
        if text not in self.problems:
            self.problems.append(text)

    def _blob(self, suffix: str, key: bytes) -> bytes | None:
        for owner, data in self._rows("SELECT data FROM blobs WHERE hash=?", key):
            if owner == suffix:
                try:
                    return zstandard.ZstdDecompressor().decompress(data, max_output_size=MAX_BLOB)
                except (zstandard.ZstdError, TypeError, MemoryError):
                    self._problem(f"content {key.hex()[:12]} is damaged")
                    return None
        self._problem(f"content {key.hex()[:12]} is missing")
        return None

    def _read_record(self, suffix: str, key: bytes) -> AnyRecord | None:
        content = self._blob(suffix, key)
        return None if content is None else self._decode(content)

    def _decode(self, content: bytes) -> AnyRecord | None:
        try:
            return revive(_decoder.decode(content))
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
            self._problem(f"a record cannot be read: {error}")
            return None

    def _why_absent(self, compile_id: str, stage: str) -> str:
        for _, absent in self.absents(compile_id):
            if absent.stage == stage:
                return f": {absent.why}"
        named = [a.name for a in self.artifacts(compile_id, stage) if a.name]
        if named:
            return f" of that name; it has: {', '.join(named[:12])}{', ...' if len(named) > 12 else ''}"
        return f"; it has: {', '.join(self.stages(compile_id)) or 'nothing'}"


def _where(query: str, compile_id: str | None, kind: str | None) -> tuple[str, list[str]]:
    values = []
    query += " WHERE 1"
    if compile_id is not None:
        query, values = query + " AND compile=?", [compile_id.partition("@")[0]]
    if kind is not None:
        query, values = query + " AND kind=?", [*values, kind]
    return query, values



def _stopped(database: Path) -> str | None:
    mark = stopped_mark(database)
    return (mark.read_text("utf-8", "replace") or "no space for more") if mark.exists() else None


def _connect(path: Path) -> sqlite3.Connection:
    """Open read-only; where the folder cannot be written to, a database in WAL mode needs `immutable`."""
    attempts: list[Callable[[], str]] = [
        lambda: f"{path.absolute().as_uri()}?mode=ro",
        lambda: f"{path.absolute().as_uri()}?mode=ro&immutable=1",
    ]
    error: sqlite3.Error | None = None
    for uri in attempts:
        connection = sqlite3.connect(uri(), uri=True, check_same_thread=False)
        try:
            connection.execute("SELECT count(*) FROM sqlite_master").fetchone()
            connection.execute("SELECT value FROM meta LIMIT 1").fetchone()
            return connection
        except sqlite3.Error as failure:
            error = failure
            connection.close()
    what = "is not a recording" if re.search("not a database|no such table", str(error)) else "cannot be read"
    raise RecordingError(f"{path} {what}: {error}")
