"""Recordings in the form before this one."""
from __future__ import annotations

import json
import sqlite3
from contextlib import closing
from pathlib import Path

import zstandard
from ptdebug.artifacts.tables import DATABASE, content_hash


def make_older(folder: Path) -> None:
    """Rewrite a recording as `ptdebug/2` had it: keys are hashes of contents, and each decision has a row."""
    with closing(sqlite3.connect(folder / DATABASE)) as database, database:
        for key, data in database.execute("SELECT hash, data FROM blobs").fetchall():
            own = content_hash(zstandard.ZstdDecompressor().decompress(data))
            for table in ("blobs", "artifacts", "sources"):
                database.execute(f"UPDATE {table} SET hash=? WHERE hash=?", (own, key))
        rows = database.execute("SELECT compile, data FROM decisions ORDER BY seq").fetchall()
        database.executescript("DROP INDEX counted_at_first; DROP TABLE decisions; CREATE TABLE decisions("
                               "seq INTEGER PRIMARY KEY, compile TEXT, kind TEXT, subject TEXT, data BLOB);")
        for owner, data in rows:
            for one in json.loads(zstandard.ZstdDecompressor().decompress(data)):
                database.execute("INSERT INTO decisions(compile, kind, subject, data) VALUES(?,?,?,?)",
                                 (owner, one["kind"], one["subject"], json.dumps(one).encode()))
        database.execute("UPDATE meta SET value='\"ptdebug/2\"' WHERE key='schema'")
