"""The form of a recording's database, which the writer makes and the reader relies on."""
from __future__ import annotations

import hashlib
from pathlib import Path

DATABASE = "recording.db"
PACKED = ".ptdr"  # how the name of a packed recording ends (see packing.py)
COUNTED_AT_FIRST = "kind IN ('Recompile', 'Breaks')"
"""The records that an overview counts; a query that is to find them by the index has this condition as it is here."""
TABLES = f"""
CREATE TABLE meta(key TEXT PRIMARY KEY, value TEXT);
CREATE TABLE compiles(id TEXT PRIMARY KEY, function TEXT, file TEXT, line INTEGER, started REAL,
                      status TEXT, reason TEXT, seconds TEXT);
CREATE TABLE blobs(hash BLOB PRIMARY KEY, size INTEGER, data BLOB);
CREATE TABLE artifacts(seq INTEGER PRIMARY KEY, compile TEXT, stage TEXT, name TEXT, kind TEXT, items INTEGER,
                       hash BLOB, facts TEXT, UNIQUE(compile, stage, name));
CREATE INDEX counted_at_first ON artifacts(kind, compile, items) WHERE {COUNTED_AT_FIRST};
CREATE TABLE decisions(seq INTEGER PRIMARY KEY, compile TEXT, kinds TEXT, items INTEGER, size INTEGER, data BLOB);
CREATE INDEX decisions_of ON decisions(compile);
CREATE TABLE absents(compile TEXT, stage TEXT, why TEXT);
CREATE INDEX absents_of ON absents(compile);
CREATE TABLE sources(path TEXT PRIMARY KEY, hash BLOB);
CREATE TABLE notes(seq INTEGER PRIMARY KEY, text TEXT);
"""
FORM = "ptdebug/3"
"""Of recordings: a content's key is the hash of what is stored, and a row has several decisions."""
OLDER_FORMS = ("ptdebug/2",)
"""Those that are still read: a content's key was its own hash, and each decision had a row, with `kind`."""
UNREADABLE_FORMS = ("ptdebug/1",)
RUNNING = "running"  # the status of a compilation that has not ended


def stopped_mark(database: Path) -> Path:
    """The file that says why recording stopped before the process ended, if it did."""
    return database.with_suffix(".stopped")


def content_hash(data: bytes) -> bytes:
    """The key under which a content is stored that is `data` when compressed, a tenth as long."""
    return hashlib.blake2b(data, digest_size=16).digest()
