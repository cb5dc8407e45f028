"""Reading a recording: open it, list what is in it, get typed records and source texts.

Everything is read on demand, so opening costs a millisecond or two whatever the size. Nothing from a recording is ever
executed or unpickled. If the file is damaged, the rest is read and `problems` says what is missing.

A process that the recorded program started writes a database of its own; its compilations appear here with the id
`F/C@PID`, or `F/C@rankN` where it is rank N of a distributed program.
"""
from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, TypeVar

from ..dependencies import msgspec
from .database import CompileKey, Count, Database, Moment, RecordingError, Stage, has_database
from .decode import encoded_graph, revive
from .facts import facts_of
from .process_liveness import is_running
from .records import Absent, AnyRecord, Decision, Graph, split_ref
from .stages import OPTIONS, order_of
from .tables import COUNTED_AT_FIRST, DATABASE, FORM, OLDER_FORMS, RUNNING, UNREADABLE_FORMS, stopped_mark
from .weighted_cache import WeightedCache

__all__ = ["ArtifactInfo", "CompileInfo", "Recording", "RecordingError"]

R = TypeVar("R")
T = TypeVar("T")

_facts_decoder: msgspec.json.Decoder[dict[str, int | str]] = msgspec.json.Decoder(
    dict[str, Annotated[int, msgspec.Meta(ge=0, le=(1 << 63) - 1)] | str])
_seconds_decoder: msgspec.json.Decoder[dict[str, float]] = msgspec.json.Decoder(dict[str, float])
_decoder: msgspec.json.Decoder[Any] = msgspec.json.Decoder(AnyRecord)
_decisions_decoder: msgspec.json.Decoder[list[Decision]] = msgspec.json.Decoder(list[Decision])
META: dict[str, Any] = {
    "schema": str, "command": list[str], "compiler": str, "folder": str, "machine": str, "environment": dict[str, str],
    "versions": dict[str, str], "writer_seconds": dict[str, float], "started": Moment, "ended": Moment,
    "exit_code": int, "signature": str, "exception": str, "options": dict[str, Any], "output": str,
    "raised": dict[str, Any], "rank": int, "ranks": int,
}
"""The types of facts about a run; other facts may be anything."""
CACHED_BYTES = 8 << 20
"""Bytes of encoded records that are kept decoded, which takes some ten times as much memory."""
CACHED_ANSWERS = 64  # about captured graphs
LARGE = 20_000
"""Nodes of a graph above which it is never held as a whole to be shown."""
LOST = "unknown"
"""The status of a compilation whose row is damaged or missing, while some of its artifacts exist."""

COMPILED_NOW = "it is being compiled now"
DID_NOT_END = "the compilation did not end"
PROCESS_ENDED = "the process ended during this compilation"
"""Why a compilation failed whose end is not recorded."""


class CompileInfo(msgspec.Struct, frozen=True):
    """One compilation: `status` is compiled, skipped, eager, failed, running, or unknown where the recording does not
    say; `seconds` by phase."""

    id: str
    function: str
    file: str
    line: int
    status: str
    reason: str
    started: float
    seconds: Mapping[str, float]

    @property
    def was_left_unended(self) -> bool:
        """Whether the process ended in the middle of it: killed, or crashed."""
        return self.status == "failed" and self.reason in (DID_NOT_END, PROCESS_ENDED)


@dataclass(frozen=True)
class ArtifactInfo:
    """One record without its content; `items` counts what it holds (nodes, guards, lines, ...); `facts` are those of
    `facts.py`."""

    compile: str
    stage: str
    name: str
    kind: str
    items: int
    hash: bytes
    facts: Mapping[str, int | str] = field(default_factory=dict, compare=False)

    @property
    def key(self) -> str:
        """`STAGE` or `STAGE:NAME`, as in selectors and references."""
        return f"{self.stage}:{self.name}" if self.name else self.stage


class Recording:
    """An open recording. All methods only read; a recording that is still being written may be read as it grows."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.name = path.name
        self.problems: list[str] = []
        self._databases: list[Database] = []
        self._ranks: dict[int, Database] = {}
        self._records: WeightedCache[tuple[str, bytes], AnyRecord | None] = WeightedCache(CACHED_BYTES)
        self._texts: WeightedCache[str, str] = WeightedCache(CACHED_BYTES)
        self._asked: WeightedCache[tuple[str, Callable[[Graph], Any]], Any] = WeightedCache(CACHED_ANSWERS)

    @classmethod
    def open(cls, path: str | os.PathLike[str]) -> Recording:
        """Open the recording in folder `path`. Raises RecordingError where there is none or it cannot be read."""
        folder = Path(path)
        main = folder / DATABASE
        if not has_database(folder):
            raise RecordingError(f"no recording at {folder}: there is no {DATABASE} in it" if os.path.exists(folder)
                                 else f"no recording at {folder}: no such folder")
        recording = cls(folder)
        recording._databases.append(Database(main, "", recording._problem))
        for child in sorted(folder.glob("recording-*.db")):
            try:
                suffix = "@" + child.stem.removeprefix("recording-")
                recording._databases.append(Database(child, suffix, recording._problem))
            except RecordingError as error:
                recording._problem(str(error))
        recording._name_ranks()
        schema = recording.meta.get("schema")
        if schema not in (None, FORM, *OLDER_FORMS):
            recording.close()
            raise RecordingError(f"{folder} {_other_version(str(schema))}")
        return recording

    def _name_ranks(self) -> None:
        """Ranks get their numbers in place of process ids; of two processes with one rank (the launcher started it
        again), the later one."""
        facts = [(database, self._meta(database)) for database in self._databases]
        for database, meta in sorted(facts, key=lambda fact: fact[1].get("started", 0.0)):
            rank = meta.get("rank")
            if isinstance(rank, int) and not isinstance(rank, bool) and rank >= 0:
                self._ranks[rank] = database
        for rank, database in self._ranks.items():
            database.suffix = database.suffix and f"@rank{rank}"
        self._databases[1:] = sorted(self._databases[1:], key=lambda database: (
            next((rank for rank, there in self._ranks.items() if there is database), len(self._databases))))

    @property
    def ranks(self) -> list[int]:
        """The ranks of a distributed program that recorded here."""
        return sorted(self._ranks)

    def of_rank(self, rank: int) -> Recording:
        """What one rank recorded, as a recording that has nothing else; its files are closed with this one's."""
        part = Recording(self.path)
        part.name = f"{self.name}@rank{rank}"
        part.problems = self.problems
        part._databases, part._ranks = [self._ranks[rank]], {rank: self._ranks[rank]}
        return part

    def close(self) -> None:
        """Close the files. Further questions fail."""
        for database in self._databases:
            database.close()

    def __enter__(self) -> Recording:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    # ---- the recording as a whole -----------------------------------------------------------------------------------
    @property
    def meta(self) -> dict[str, Any]:
        """Facts about the run: schema, command, versions, environment, started, exit_code (if it ended), ..."""
        return self._meta(self._databases[0])

    def _meta(self, database: Database) -> dict[str, Any]:
        facts = {}
        for key, value in database.rows("SELECT key, value FROM meta", tuple[str, str]):
            try:
                facts[key] = msgspec.json.decode(value, type=META.get(key, Any))
            except (msgspec.MsgspecError, RecursionError):
                self._problem(f"the entry {key} is damaged")
        return facts

    def process(self, compile_id: str = "") -> int:
        """The id of the process that did a compilation (of the program itself, without one); 1 if unknown."""
        _, at, process = compile_id.partition("@")
        database = self._database(at + process) if compile_id else self._databases[0]
        pid = self._meta(database).get("pid")
        return pid if isinstance(pid, int) and pid else 1

    def notes(self) -> list[str]:
        """Sentences about the recording as a whole."""
        return [text for _, text in self._rows("SELECT text FROM notes ORDER BY seq", tuple[str])]

    def compiles(self) -> list[CompileInfo]:
        """All compilations, in the order in which they started; last those whose row is missing."""
        found: dict[str, CompileInfo] = {}
        for info in self._infos(""):
            found.setdefault(info.id, info)
        for database in self._databases:
            suffix = database.suffix
            for name, in database.rows("SELECT DISTINCT compile FROM artifacts", tuple[CompileKey]):
                if name + suffix not in found:
                    why = "its entry in the recording is damaged or missing"
                    found[name + suffix] = CompileInfo(name + suffix, "?", "", 0, LOST, why, 0.0, {})
        return list(found.values())

    def _infos(self, compile_id: str) -> Iterator[CompileInfo]:
        """What the rows of compilations say: of one, or of all ("")."""
        meta = self.meta
        unfinished = DID_NOT_END if "exit_code" in meta or "ended" in meta else (
            COMPILED_NOW if is_running(meta) else PROCESS_ENDED)
        where, values = (" WHERE id=?", [compile_id.partition("@")[0]]) if compile_id else ("", [])
        query = f"SELECT id, function, file, line, started, status, reason, seconds FROM compiles{where}"
        shape = tuple[CompileKey, str, str, Count, Moment, str, str, str]
        for suffix, name, function, file, line, started, status, reason, seconds in self._rows(
                f"{query} ORDER BY started, rowid", shape, *values):
            if status == RUNNING:
                status, reason = self._unended(suffix, unfinished)
            yield CompileInfo(name + suffix, function, file, line, status, reason, started, self._seconds(seconds))

    def _facts(self, text: str | None) -> dict[str, int | str]:
        try:
            return _facts_decoder.decode(text) if text else {}
        except msgspec.MsgspecError:
            self._problem("facts about an artifact are damaged")
            return {}

    def _seconds(self, text: str) -> dict[str, float]:
        try:
            return _seconds_decoder.decode(text or "{}")
        except msgspec.MsgspecError:
            self._problem("the seconds of a compilation are damaged")
            return {}

    @property
    def stopped(self) -> str | None:
        """Why recording of the main process stopped before it ended; None if it did not."""
        return _stopped(self.path / DATABASE)

    def _unended(self, suffix: str, why_not: str) -> tuple[str, str]:
        """The status and the reason of a compilation whose end is not recorded."""
        why = _stopped(self._database(suffix).path)
        if why is not None:
            return "unknown", f"the recording stopped before this compilation ended: {why}"
        return (RUNNING if why_not == COMPILED_NOW else "failed"), why_not

    def compile(self, compile_id: str) -> CompileInfo:
        """The compilation with that id. Raises RecordingError."""
        own = next((info for info in self._infos(compile_id) if info.id == compile_id), None)
        if own is not None:
            return own
        known = {c.id: c for c in self.compiles()}
        if compile_id not in known:
            listed = ", ".join(list(known)[:12]) or "none"
            raise RecordingError(f"{self.name} has no compilation {compile_id}; it has: {listed}")
        return known[compile_id]

    def source(self, path: str) -> str | None:
        """The text of a source file as it was when the program ran, or None where it was not kept."""
        if path in self._texts:  # listings ask for it once for each line
            return self._texts[path]
        for suffix, key in self._rows("SELECT hash FROM sources WHERE path=?", tuple[bytes], path):
            content = self._database(suffix).content(key)
            if content is not None:
                text = content.decode("utf-8", "replace")
                self._texts.put(path, text, len(text))
                return text
        return None

    def sources(self) -> list[str]:
        """Paths of the source files that were kept."""
        return sorted({path for _, path in self._rows("SELECT path FROM sources", tuple[str])})

    # ---- artifacts --------------------------------------------------------------------------------------------------
    def artifacts(self, compile_id: str | None = None, stage: str | None = None,
                  kind: str | None = None, name: str | None = None) -> list[ArtifactInfo]:
        """Artifacts (of one compilation, stage, kind of record or name), in the order of stages, then as recorded."""
        query = ""
        values: list[str] = []
        process = None
        if compile_id is not None:
            local, at, pid = compile_id.partition("@")
            process = at + pid
            query, values = query + " AND compile=?", [*values, local]
        for column, value in (("stage", stage), ("kind", kind), ("name", name)):
            if value is not None:
                query, values = f"{query} AND {column}=?", [*values, value]
        shape = tuple[CompileKey, Stage, str, str, Count, bytes, str | None]
        found = {}
        for database in self._databases:
            if process is not None and database.suffix != process:
                continue
            facts = "facts" if database.has_facts else "NULL"
            columns = f"SELECT compile, stage, name, kind, items, hash, {facts} FROM artifacts WHERE 1"
            for c, s, n, k, i, h, f in database.rows(f"{columns}{query} ORDER BY seq", shape, *values):
                owner = c + database.suffix
                known = self._facts(f) if f is not None else facts_of(self._record(database.suffix, h))
                found[owner, s, n] = ArtifactInfo(owner, s, n, k, i, h, known)
        return sorted(found.values(), key=lambda a: order_of(a.stage))

    def counted_at_first(self) -> dict[str, dict[str, int]]:
        """For Recompile and Breaks, the compilations that have such, and how many items these hold; none is read."""
        found: dict[str, dict[str, int]] = {"Recompile": {}, "Breaks": {}}
        query = (f"SELECT kind, compile, sum(items) FROM artifacts WHERE {COUNTED_AT_FIRST} "
                 "GROUP BY kind, compile ORDER BY min(seq)")
        for suffix, kind, owner, count in self._rows(query, tuple[str, CompileKey, Count]):
            found[kind][owner + suffix] = count
        return found

    def count_items(self) -> int:
        """How many items all artifacts hold; none is read."""
        query = "SELECT coalesce(sum(items), 0) FROM artifacts WHERE typeof(items)='integer' AND items >= 0"
        return sum(count for _, count in self._rows(query, tuple[Count]))

    def stages(self, compile_id: str) -> list[str]:
        """The stages that a compilation has artifacts of, in order."""
        present = {a.stage for a in self.artifacts(compile_id)}
        if self.count_decisions(compile_id):
            present.add("decisions")
        return sorted(present, key=order_of)

    def artifact(self, compile_id: str, stage: str, name: str = "") -> AnyRecord:
        """The record of an artifact. Raises RecordingError where it is absent (saying why) or damaged."""
        found = self.artifacts(compile_id, stage, name=name)
        if not found:
            raise RecordingError(f"{self.name}:{compile_id} has no {stage}{':' + name if name else ''}"
                                 f"{self._why_absent(compile_id, stage)}")
        record = self._content(found[-1])
        if record is None:
            raise RecordingError(f"{self.name}:{compile_id}:{stage}: the content is damaged")
        return record

    def large_graph(self, compile_id: str, stage: str, name: str = "") -> Graph | None:
        """The graph of an artifact, if it is a large one, for one walk over its nodes, which are decoded meanwhile."""
        info = next(iter(self.artifacts(compile_id, stage, "Graph", name)), None)
        if info is None or info.items <= LARGE:
            return None
        _, at, pid = compile_id.partition("@")
        content = self._database(at + pid).content(info.hash)
        try:
            return None if content is None else encoded_graph(content)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
            return None

    def of_capture(self, compile_id: str, ask: Callable[[Graph], T]) -> T | None:
        """What `ask` says of the captured graph of a compilation, kept for later; None where there is none."""
        key = compile_id, ask
        if key not in self._asked:
            graph = self.large_graph(compile_id, "capture") or self.find(Graph, compile_id, "capture")
            if graph is None:  # so far
                return None
            self._asked.put(key, ask(graph), 1)
        answer: T = self._asked[key]
        return answer

    def find(self, kind: type[R], compile_id: str, stage: str, name: str = "") -> R | None:
        """The record of an artifact if it is there, whole, and of that type."""
        found = self.artifacts(compile_id, stage, name=name)
        record = self._content(found[-1]) if found else None
        return record if isinstance(record, kind) else None

    def records(self, kind: type[R], compile_id: str | None = None) -> list[tuple[str, R]]:
        """All records of one type with the compilation they belong to, in order; damaged ones are left out."""
        found = []
        for info in self.artifacts(compile_id, kind=kind.__name__):
            record = self._content(info)
            if isinstance(record, kind):
                found.append((info.compile, record))
        return found

    def decisions(self, compile_id: str | None = None, kind: str | None = None) -> list[tuple[str, Decision]]:
        """Decisions with the compilation they belong to, in the order in which they were taken."""
        found = []
        for database, owner_there in self._databases_of(compile_id):
            for owner, content in database.decisions(owner_there, kind):
                there = self._decisions(content)
                found += [(owner + database.suffix, d) for d in there if kind is None or d.kind == kind]
        return found

    def encoded_decisions(self, compile_id: str) -> Iterator[bytes]:
        """The decisions of a compilation as they are stored, some at a time."""
        for database, owner_there in self._databases_of(compile_id):
            yield from (content for _, content in database.decisions(owner_there, None))

    def count_decisions(self, compile_id: str | None = None) -> int:
        """How many decisions there are, without reading them."""
        counts = self.decisions_by_compile(compile_id)
        return sum(counts.values()) if compile_id is None else counts.get(compile_id, 0)

    def decisions_by_compile(self, compile_id: str | None = None) -> dict[str, int]:
        """How many decisions each compilation (or the given one) has."""
        found: dict[str, int] = {}
        for database, owner_there in self._databases_of(compile_id):
            for owner, count in database.decisions_by_compile(owner_there):
                found[owner + database.suffix] = found.get(owner + database.suffix, 0) + count
        return found

    def absents(self, compile_id: str | None = None) -> list[tuple[str, Absent]]:
        """Stages that were not produced, and why, with the compilation."""
        found = []
        query = ("SELECT compile, stage, why FROM absents a WHERE NOT EXISTS "
                 "(SELECT 1 FROM artifacts WHERE compile=a.compile AND stage=a.stage)")
        for suffix, owner, stage, why in self._rows(query, tuple[CompileKey, Stage, str]):
            if compile_id is None or owner + suffix == compile_id:
                found.append((owner + suffix, Absent(stage, why)))
        return list(dict.fromkeys(found))

    def at(self, compile_id: str, reference: str) -> AnyRecord:
        """The record that a reference (`STAGE[:NAME]#ID`) of a compilation points into."""
        stage, name, _ = split_ref(reference)
        return self.artifact(compile_id, stage, name)

    def content_of(self, info: ArtifactInfo) -> Callable[[], bytes | None]:
        """What is stored of an artifact, read; the function decompresses it, in any thread."""
        _, at, pid = info.compile.partition("@")
        return self._database(at + pid).stored(info.hash)

    # ---- inside -----------------------------------------------------------------------------------------------------
    def _rows(self, query: str, shape: Any, *values: object) -> Iterator[tuple[Any, ...]]:
        """Rows of all databases, each with its database's suffix first."""
        for database in self._databases:
            for row in database.rows(query, shape, *values):
                yield (database.suffix, *row)

    def _databases_of(self, compile_id: str | None) -> Iterator[tuple[Database, str | None]]:
        """The database that has a compilation, and the id that it has there; all of them, without one."""
        if compile_id is None:
            yield from ((database, None) for database in self._databases)
            return
        owner, at, process = compile_id.partition("@")
        yield from ((database, owner) for database in self._databases if database.suffix == at + process)

    def _database(self, suffix: str) -> Database:
        return next(database for database in self._databases if database.suffix == suffix)

    def _problem(self, text: str) -> None:
        if text not in self.problems:
            self.problems.append(text)

    def _content(self, info: ArtifactInfo) -> AnyRecord | None:
        """The record of an artifact; None where it is damaged, or of another type than its row says."""
        _, at, pid = info.compile.partition("@")
        record = self._record(at + pid, info.hash)
        if record is not None and type(record).__name__ != info.kind:
            self._problem(f"{info.compile}:{info.key} is a {type(record).__name__}, not a {info.kind}")
            return None
        return record

    def _record(self, suffix: str, key: bytes) -> AnyRecord | None:
        if (suffix, key) in self._records:
            return self._records[suffix, key]
        content = self._database(suffix).content(key)
        record = None if content is None else self._decode(content)
        self._records.put((suffix, key), record, len(content or b""))
        return record

    def _decode(self, content: bytes) -> AnyRecord | None:
        try:
            return revive(_decoder.decode(content))
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
            self._problem(f"a record cannot be read: {error}")
            return None

    def _decisions(self, content: bytes) -> list[Decision]:
        try:
            return _decisions_decoder.decode(content)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
            self._problem(f"decisions cannot be read: {error}")
            return []

    def _why_absent(self, compile_id: str, stage: str) -> str:
        for _, absent in self.absents(compile_id):
            if absent.stage == stage:
                return f": {absent.why}"
        named = [a.name for a in self.artifacts(compile_id, stage) if a.name]
        if stage in OPTIONS and not named:
            return f": it is recorded where `ptdebug run {OPTIONS[stage]} ...` asks for it"
        if named:
            return f" of that name; it has: {', '.join(named[:12])}{', ...' if len(named) > 12 else ''}"
        return f"; it has: {', '.join(self.stages(compile_id)) or 'nothing'}"


def _other_version(schema: str) -> str:
    """What is wrong with a recording of that schema, in one line."""
    if schema in UNREADABLE_FORMS:
        return f"was recorded by an older version of ptdebug ({schema}; this one reads {FORM}): record it again"
    return f"was recorded by another version of ptdebug ({schema}; this one reads {FORM}): open it with that version"


def _stopped(database: Path) -> str | None:
    mark = stopped_mark(database)
    return (mark.read_text("utf-8", "replace") or "no space for more") if mark.exists() else None
