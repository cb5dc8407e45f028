"""One database of a recording, opened without trusting it: rows as typed values.

Rows are read only here. A row of the wrong types is skipped and counted; a query that a damaged or malicious file makes
endless is interrupted; problems are reported through `problem`.
"""
from __future__ import annotations

import re
import sqlite3
from collections.abc import Callable, Iterator
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Annotated, Any

from ..dependencies import msgspec, zstandard
from .files import NotAFileOfIt, plain_file
from .stages import NAMES
from .tables import DATABASE, TABLES, content_hash

MAX_BLOB = 1 << 28
"""Bytes of one record; real ones are far smaller."""
MAX_ROWS = 4_000_000  # that one query may return
BATCH = 500  # rows that are checked at once
STEPS = 100_000  # of SQLite's virtual machine between two calls of the progress handler
MAX_LOOKS = 10_000  # about ten seconds

CompileKey = Annotated[str, msgspec.Meta(pattern=r"^\d{1,9}/\d{1,9}$")]
Stage = Annotated[str, msgspec.Meta(pattern=f"^({'|'.join(NAMES)})$")]
Count = Annotated[int, msgspec.Meta(ge=0)]
Size = Annotated[int, msgspec.Meta(ge=0, le=MAX_BLOB)]
Moment = Annotated[float, msgspec.Meta(ge=0, le=1e12)]
_TABLES = re.findall(r"CREATE TABLE (\w+)", TABLES)
_DAMAGE = (sqlite3.Error, UnicodeDecodeError, MemoryError, OverflowError)
"""What reading a damaged file raises; SQLite's messages quote the file and may not be valid text."""
_BESIDE = ("-wal", "-shm", "-journal")  # files that SQLite opens or creates beside a database


class RecordingError(Exception):
    """Something is not in the recording or cannot be read. The message is shown to the user; the exit code is 2."""

    exit_code = 2


def has_database(folder: Path) -> bool:
    """Whether `folder` contains a recording, as far as permissions allow to see."""
    try:
        return (folder / DATABASE).is_file()
    except OSError:  # no permission, a name too long, ...
        return False


class Database:
    """An open database; `suffix` ("", "@PID" or "@rankN") is appended to the ids of its compilations."""

    def __init__(self, path: Path, suffix: str, problem: Callable[[str], None]) -> None:
        self.suffix = suffix
        self.path = path
        self._name = path.name
        self._problem = problem
        self._looks = 0
        self._connection = connect(path)
        self._connection.set_progress_handler(self._look, STEPS)
        self.has_facts = self._has("artifacts", "facts")  # as since recordings of 10,000 graphs open at once
        self._has_several = self._has("decisions", "items")  # as since `tables.FORM` is what it is

    def _has(self, table: str, column: str) -> bool:
        try:
            columns = self._connection.execute("SELECT name FROM pragma_table_xinfo(?)", (table,)).fetchall()
        except _DAMAGE:
            return False
        return (column,) in columns

    def close(self) -> None:
        """Close the file. Later queries fail."""
        self._connection.close()

    def rows(self, query: str, shape: Any, *values: object) -> Iterator[tuple[Any, ...]]:
        """The rows that have the types of `shape` (a tuple type). Damage to the file ends them and is reported."""
        self._looks = bad = 0
        batch: list[tuple[Any, ...]] = []
        try:
            for number, row in enumerate(self._rows(query, values)):
                if number >= MAX_ROWS:
                    raise sqlite3.DatabaseError("it has no end")
                batch.append(row)
                if len(batch) == BATCH:
                    good = _converted(batch, shape)
                    bad += len(batch) - len(good)
                    batch = []
                    yield from good
        except _DAMAGE as error:
            why = "reading it takes too long" if "interrupted" in str(error) else error
            self._problem(f"{self._name} is damaged ({why}): some of it is missing")
        good = _converted(batch, shape)
        bad += len(batch) - len(good)
        yield from good
        if bad:
            table = re.search(r"FROM (\w+)", query)
            self._problem(f"{self._name} is damaged: rows of {table[1] if table else 'a table'} have wrong "
                          "types and are left out")

    def _rows(self, query: str, values: tuple[object, ...]) -> Iterator[tuple[Any, ...]]:
        """As SQLite gives them; from the first on whose text is not UTF-8, with what is wrong in it replaced."""
        number = 0
        try:
            for row in self._connection.execute(query, values):
                number += 1
                yield row
            return
        except sqlite3.OperationalError as error:
            if "decode" not in str(error) or self._connection.text_factory is _text:
                raise
        self._connection.text_factory = _text  # a function of Python: three times as slow
        yield from islice(self._connection.execute(query, values), number, None)

    def content(self, key: bytes) -> bytes | None:
        """The content with that hash; None if it is missing or damaged."""
        return self.stored(key)()

    def stored(self, key: bytes) -> Callable[[], bytes | None]:
        """The content with that hash, read; the function decompresses it, in any thread: None if it is missing or
        damaged."""
        row = next(self.rows("SELECT size, data FROM blobs WHERE hash=?", tuple[Size, bytes], key), None)
        return partial(self._checked, key, row)

    def _checked(self, key: bytes, row: tuple[Any, ...] | None) -> bytes | None:
        if row is None:
            self._problem(f"content {key.hex()[:12]} is missing")
            return None
        size, data = row
        content = _unpacked(data, size)
        if content is not None and (key == content_hash(data) or key == content_hash(content)):
            return content
        self._problem(f"content {key.hex()[:12]} is damaged")
        return None

    def decisions(self, compile_id: str | None, kind: str | None) -> Iterator[tuple[str, bytes]]:
        """The compilations that took decisions, each with some of these, in order, as a list in JSON. There may be
        others than those of `kind` among them."""
        if not self._has_several:
            query, values = _where("SELECT compile, data FROM decisions", ("compile=?", compile_id), ("kind=?", kind))
            for owner, data in self.rows(query + " ORDER BY seq", tuple[CompileKey, bytes], *values):
                yield owner, b"[%b]" % data
            return
        query, values = _where("SELECT compile, size, data FROM decisions", ("compile=?", compile_id),
                               ("instr(kinds, ',' || ? || ',')", kind))
        for owner, size, data in self.rows(query + " ORDER BY seq", tuple[CompileKey, Size, bytes], *values):
            content = _unpacked(data, size)
            if content is not None:
                yield owner, content
            else:
                self._problem(f"decisions of {owner} are damaged")

    def decisions_by_compile(self, compile_id: str | None) -> Iterator[tuple[str, int]]:
        """How many decisions each compilation (or the given one) took; one may come several times."""
        counted = "items" if self._has_several else "1"
        query, values = _where(f"SELECT compile, {counted} FROM decisions", ("compile=?", compile_id))
        return self.rows(query, tuple[CompileKey, Count], *values)

    def _look(self) -> int:
        self._looks += 1
        return int(self._looks > MAX_LOOKS)


def _where(query: str, *conditions: tuple[str, str | None]) -> tuple[str, list[str]]:
    """A query with those conditions that have a value, and these."""
    asked = [(condition, value) for condition, value in conditions if value is not None]
    return " AND ".join([f"{query} WHERE 1", *(c for c, _ in asked)]), [value for _, value in asked]


def _converted(rows: list[tuple[Any, ...]], shape: Any) -> list[tuple[Any, ...]]:
    """Those of `rows` that have the types of `shape`. All at once is four times as fast as one by one."""
    try:
        return msgspec.convert(rows, list[shape])
    except msgspec.ValidationError:
        pass
    good = []
    for row in rows:
        try:
            good.append(msgspec.convert(row, shape))
        except msgspec.ValidationError:
            continue
    return good


def _unpacked(data: bytes, size: int) -> bytes | None:
    """`data` decompressed, if that gives `size` bytes. The library trusts the size that a zstd frame claims."""
    try:
        if zstandard.frame_content_size(data) != size:
            return None
        return zstandard.ZstdDecompressor().decompress(data, max_output_size=size) if size else b""
    except (zstandard.ZstdError, MemoryError):
        return None


def connect(path: Path) -> sqlite3.Connection:
    """Open read-only; in a folder without write permission a database in WAL mode needs `immutable`."""
    try:
        plain_file(path.parent, path.name)
        for beside in _BESIDE:
            if path.with_name(path.name + beside).is_symlink() or path.with_name(path.name + beside).exists():
                plain_file(path.parent, path.name + beside)
    except (NotAFileOfIt, OSError) as unsafe:
        raise RecordingError(f"{path} is not a recording: {unsafe}") from None
    error: Exception | None = None
    for options in ("mode=ro", "mode=ro&immutable=1"):
        connection = sqlite3.connect(f"{path.absolute().as_uri()}?{options}", uri=True, check_same_thread=False)
        try:
            connection.text_factory = _text
            connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, MAX_BLOB)
            connection.execute("PRAGMA trusted_schema=OFF")
            _refuse_what_is_no_table(connection)
            connection.execute("SELECT value FROM meta LIMIT 1").fetchone()
            connection.text_factory = str
            return connection
        except _DAMAGE as failure:
            error = failure
            connection.close()
    what = "is not a recording" if re.search("not a database|no such table|no table", str(error)) else "cannot be read"
    raise RecordingError(f"{path} {what}: {error}")


def _text(raw: bytes) -> str:
    return raw.decode("utf-8", "replace")


def _refuse_what_is_no_table(connection: sqlite3.Connection) -> None:
    """Refuse views and computed columns in place of tables: they would execute SQL of the recording."""
    marks = ",".join("?" * len(_TABLES))
    query = f"SELECT name, type, rootpage FROM sqlite_master WHERE name COLLATE NOCASE IN ({marks}) LIMIT 100"
    for name, kind, page in connection.execute(query, _TABLES).fetchall():
        columns = connection.execute("SELECT hidden FROM pragma_table_xinfo(?)", (name,)).fetchall()
        if (kind == "table" and not page) or kind == "view" or any(hidden for hidden, in columns):
            raise sqlite3.DatabaseError(f"{name} is no table of a recording")
