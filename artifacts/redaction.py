"""Takes out of a recording where things are on the machine that made it: names of folders, and the machine's own.

Every text of a database is rewritten, compressed ones too, so that records still agree with each other: a file has the
same new name wherever it is mentioned. The program's code, its output and its values stay.
"""
from __future__ import annotations

import json
import re
import sqlite3
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from ..dependencies import zstandard
from .artifact import compress
from .tables import content_hash

_PYTHON = re.compile(rb"(?:/[^/\"'\s:\\,]+)+(/lib/python3\.\d+/)")
"""What stands before the folder of Python's library, or of a virtual environment's packages."""
_TEXTS = {
    "meta": ("value",), "compiles": ("function", "file", "reason"), "artifacts": ("name", "facts"),
    "absents": ("why",), "sources": ("path",), "notes": ("text",),
}
_OF_MACHINE = ("machine", "origin", "signature", "pid", "parent_pid", "process_start")


@dataclass(frozen=True)
class Redaction:
    """What is replaced by what, longest first; the folders of Pythons besides."""

    told: dict[str, str]

    def apply(self, text: bytes) -> bytes:
        """`text` (UTF-8, or JSON) without the names."""
        for pattern, new in self._patterns:
            text = pattern.sub(new, text)
        return _PYTHON.sub(rb"/python\1", text)

    @cached_property
    def _patterns(self) -> list[tuple[re.Pattern[bytes], bytes]]:
        found = []
        for old, new in sorted(self.told.items(), key=lambda pair: -len(pair[0])):
            for form in dict.fromkeys((old, json.dumps(old)[1:-1], json.dumps(old, ensure_ascii=False)[1:-1])):
                name = re.escape(form.encode("utf-8", "surrogateescape"))
                found.append((re.compile(name + rb"(?![\w-])"), new.encode()))
        return found


def redaction_of(meta: Mapping[str, Any], recording: Path, home: Path) -> Redaction:
    """What `redact` replaces in a recording with these facts, of a person whose home folder is `home`: the folders that
    the program and its script were in, and where recordings are."""
    script = next(iter(meta.get("command") or ()), "")
    folders = {"/program": meta.get("folder"), "/script": str(Path(script).parent),
               "/recordings": str(recording.parent), "/home": str(home)}
    told: dict[str, str] = {}
    for new, folder in folders.items():
        if isinstance(folder, str) and folder.startswith("/") and len(folder) > 1:
            told.setdefault(folder, new)
    return Redaction(told)


def redact(database: sqlite3.Connection, redaction: Redaction) -> None:
    """Rewrite all texts of a recording's database, and forget which machine it was."""
    with database:
        hashes = dict(_new_contents(database, redaction))
        for table, columns in _TEXTS.items():
            for column in columns:
                _rewrite(database, table, column, redaction)
        _rewrite_decisions(database, redaction)
        for table in ("artifacts", "sources"):
            changed = [(new, old) for old, new in hashes.items() if new != old]
            database.executemany(f"UPDATE {table} SET hash=? WHERE hash=?", changed)
        database.executemany("DELETE FROM meta WHERE key=?", [(key,) for key in _OF_MACHINE])
    database.execute("VACUUM")  # no page keeps what was there


def _new_contents(database: sqlite3.Connection, redaction: Redaction) -> Iterator[tuple[bytes, bytes]]:
    """Rewrite the contents; (old key, new key) of each."""
    for (key,) in database.execute("SELECT hash FROM blobs").fetchall():
        (data,) = database.execute("SELECT data FROM blobs WHERE hash=?", (key,)).fetchone()
        content = zstandard.ZstdDecompressor().decompress(data) if data else b""
        changed = redaction.apply(content)
        if changed != content:
            stored = compress(changed)
            new = content_hash(stored)
            database.execute("DELETE FROM blobs WHERE hash=?", (key,))
            database.execute("INSERT OR IGNORE INTO blobs VALUES(?,?,?)", (new, len(changed), stored))
            yield key, new


def _rewrite_decisions(database: sqlite3.Connection, redaction: Redaction) -> None:
    """Several decisions are compressed together; in older recordings each stands as it is (see `tables.py`)."""
    if ("size",) not in database.execute("SELECT name FROM pragma_table_info('decisions')").fetchall():
        for column in ("subject", "data"):
            _rewrite(database, "decisions", column, redaction)
        return
    changed = []
    for row, data in database.execute("SELECT rowid, data FROM decisions").fetchall():
        content = redaction.apply(zstandard.ZstdDecompressor().decompress(data))
        changed.append((len(content), compress(content), row))
    database.executemany("UPDATE decisions SET size=?, data=? WHERE rowid=?", changed)


def _rewrite(database: sqlite3.Connection, table: str, column: str, redaction: Redaction) -> None:
    rows = database.execute(f"SELECT rowid, {column} FROM {table} WHERE {column} IS NOT NULL").fetchall()
    changed = []
    for row, value in rows:
        old = value if isinstance(value, bytes) else str(value).encode("utf-8", "surrogateescape")
        new = redaction.apply(old)
        if new != old:
            changed.append((new if isinstance(value, bytes) else new.decode("utf-8", "replace"), row))
    database.executemany(f"UPDATE OR IGNORE {table} SET {column}=? WHERE rowid=?", changed)

