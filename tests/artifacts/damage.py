"""Damage to recordings, deterministic: `damage(seed, folder)` does to a copy what disks, people and attackers do.

Each kind takes a random generator and the folder. Where a record inside is changed, its hash is made to fit again:
what is left is a recording that only looks whole.
"""
from __future__ import annotations

import hashlib
import json
import random
import sqlite3
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import zstandard

TABLES = ("meta", "compiles", "blobs", "artifacts", "decisions", "absents", "sources", "notes")
ODD: tuple[Any, ...] = (
    None, 0, -1, 1 << 62, 10**400, 1e308, -1e308, "", "x", "0/1", "9/9", "[/]", "\x1b[2J\x07", "\ud83d\ude00", [], {},
    [[]], [None], {"record": "NodeRef"}, {"record": "NodeRef", "node": 3}, {"record": []}, {"slice": 5}, {"list": 3},
    {"symbol": "9**9**9**9"}, {"tensor": 1, "dtype": 2}, True,
)
ODD_COLUMNS: tuple[Any, ...] = (
    None, 0, -1, 1 << 62, 1e300, "", "garbage", "9/9", "0/0", b"", b"\xff\xfe", "{", "[]", "null", "\x1b]0;x\x07",
)
Rng = random.Random


def _database(folder: Path) -> sqlite3.Connection:
    return sqlite3.connect(folder / "recording.db", isolation_level=None)


def _row(rng: Rng, db: sqlite3.Connection, table: str) -> int | None:
    rows = [row for row, in db.execute(f"SELECT rowid FROM {table} ORDER BY rowid")]
    return rng.choice(rows) if rows else None


# ---- files ----------------------------------------------------------------------------------------------------------
def flip_bytes(rng: Rng, folder: Path) -> None:
    content = bytearray((folder / "recording.db").read_bytes())
    for _ in range(rng.choice((1, 8, 64, 512))):
        content[rng.randrange(len(content))] = rng.randrange(256)
    (folder / "recording.db").write_bytes(content)


def zero_a_page(rng: Rng, folder: Path) -> None:
    content = bytearray((folder / "recording.db").read_bytes())
    start = rng.randrange(len(content) // 4096) * 4096
    content[start: start + 4096] = bytes(4096)
    (folder / "recording.db").write_bytes(content)


def cut_the_file(rng: Rng, folder: Path) -> None:
    content = (folder / "recording.db").read_bytes()
    (folder / "recording.db").write_bytes(content[: rng.randrange(len(content))])


def damage_tensors(rng: Rng, folder: Path) -> None:
    files = sorted((folder / "tensors").glob("*")) if (folder / "tensors").is_dir() else []
    for path in files:
        content = bytearray(path.read_bytes())
        for _ in range(4):
            content[rng.randrange(min(len(content), 200))] = rng.randrange(256)
        path.write_bytes(content[: rng.randrange(len(content))] if rng.random() < 0.5 else content)


# ---- rows -----------------------------------------------------------------------------------------------------------
def change_a_column(rng: Rng, folder: Path) -> None:
    db = _database(folder)
    for _ in range(rng.choice((1, 3))):
        table = rng.choice(TABLES)
        columns = [name for _, name, *_ in db.execute(f"PRAGMA table_info({table})")]
        row = _row(rng, db, table)
        if row is not None:
            with suppress(sqlite3.IntegrityError):  # the number of a row is a number
                db.execute(f"UPDATE OR IGNORE {table} SET {rng.choice(columns)}=? WHERE rowid=?",
                           (rng.choice(ODD_COLUMNS), row))
    db.close()


def null_a_column(rng: Rng, folder: Path) -> None:
    db = _database(folder)
    table = rng.choice(TABLES)
    columns = [name for _, name, _, _, _, key in db.execute(f"PRAGMA table_info({table})") if not key]
    db.execute(f"UPDATE OR IGNORE {table} SET {rng.choice(columns or ['rowid'])}=NULL" if columns else "SELECT 1")
    db.close()


def delete_rows(rng: Rng, folder: Path) -> None:
    db = _database(folder)
    table = rng.choice(TABLES)
    for _ in range(rng.choice((1, 2, 10))):
        db.execute(f"DELETE FROM {table} WHERE rowid=?", (_row(rng, db, table),))
    db.close()


def double_rows(rng: Rng, folder: Path) -> None:
    db = _database(folder)
    table = rng.choice(TABLES)
    db.execute(f"CREATE TABLE copied AS SELECT * FROM {table}")
    db.execute(f"INSERT INTO copied SELECT * FROM {table}")
    db.execute(f"DROP TABLE {table}")
    db.execute(f"ALTER TABLE copied RENAME TO {table}")
    db.close()


def drop_a_table(rng: Rng, folder: Path) -> None:
    db = _database(folder)
    db.execute(f"DROP TABLE {rng.choice(TABLES)}")
    db.close()


def swap_contents(rng: Rng, folder: Path) -> None:
    """One artifact shows another one's content."""
    db = _database(folder)
    hashes = [h for h, in db.execute("SELECT hash FROM artifacts ORDER BY seq")]
    for _ in range(3):
        db.execute("UPDATE artifacts SET hash=? WHERE rowid=?", (rng.choice(hashes), _row(rng, db, "artifacts")))
    db.close()


# ---- records --------------------------------------------------------------------------------------------------------
def flip_bytes_of_a_blob(rng: Rng, folder: Path) -> None:
    db = _database(folder)
    row = _row(rng, db, "blobs")
    (data,), = db.execute("SELECT data FROM blobs WHERE rowid=?", (row,))
    content = bytearray(data)
    content[rng.randrange(len(content))] ^= 1 << rng.randrange(8)
    db.execute("UPDATE blobs SET data=? WHERE rowid=?", (bytes(content), row))
    db.close()


def cut_json(rng: Rng, folder: Path) -> None:
    _rewrite_blob(rng, folder, lambda content: content[: rng.randrange(len(content) + 1)])


def change_json(rng: Rng, folder: Path) -> None:
    def changed(content: bytes) -> bytes:
        try:
            tree = json.loads(content)
        except ValueError:
            return content
        for _ in range(rng.choice((1, 1, 4))):
            tree = _changed(rng, tree)
        return _json(tree)

    for _ in range(rng.choice((1, 3))):
        _rewrite_blob(rng, folder, changed)


def change_a_decision(rng: Rng, folder: Path) -> None:
    db = _database(folder)
    row = _row(rng, db, "decisions")
    for data, in db.execute("SELECT data FROM decisions WHERE rowid=?", (row,)).fetchall():
        content = _json(_changed(rng, json.loads(zstandard.ZstdDecompressor().decompress(data))))
        db.execute("UPDATE decisions SET size=?, data=? WHERE rowid=?", (
            len(content), zstandard.ZstdCompressor().compress(content), row))
    db.close()


def change_a_fact(rng: Rng, folder: Path) -> None:
    db = _database(folder)
    for key, value in db.execute("SELECT key, value FROM meta").fetchall():
        if rng.random() < 0.3:
            odd = _json(_changed(rng, json.loads(value))).decode()
            db.execute("UPDATE meta SET value=? WHERE key=?", (odd[: rng.choice((1, 10**6))], key))
    db.close()


def _rewrite_blob(rng: Rng, folder: Path, change: Callable[[bytes], bytes]) -> None:
    db = _database(folder)
    row = _row(rng, db, "blobs")
    (key, data), = db.execute("SELECT hash, data FROM blobs WHERE rowid=?", (row,))
    content = change(zstandard.ZstdDecompressor().decompress(data))
    put_blob(db, key, content)
    db.close()


def put_blob(db: sqlite3.Connection, key: bytes, content: bytes) -> None:
    """Put `content` in the place of the content with that hash, with a hash that fits."""
    new = hashlib.blake2b(content, digest_size=16).digest()
    db.execute("UPDATE OR REPLACE blobs SET hash=?, size=?, data=? WHERE hash=?",
               (new, len(content), zstandard.ZstdCompressor().compress(content), key))
    db.execute("UPDATE artifacts SET hash=? WHERE hash=?", (new, key))
    db.execute("UPDATE sources SET hash=? WHERE hash=?", (new, key))


def _json(tree: Any) -> bytes:
    return json.dumps(tree).encode("utf-8", "replace")


def _changed(rng: Rng, tree: Any) -> Any:
    """The tree with one part of it, chosen at random, changed."""
    if isinstance(tree, dict) and tree and rng.random() < 0.9:
        key = rng.choice(sorted(tree))
        if rng.random() < 0.15:
            return {k: v for k, v in tree.items() if k != key}
        return tree | {key: _changed(rng, tree[key])}
    if isinstance(tree, list) and tree and rng.random() < 0.9:
        at = rng.randrange(len(tree))
        how = rng.random()
        if how < 0.1:
            return tree[:at] + tree[at + 1:]
        if how < 0.2:
            return tree + [tree[at]]
        return [*tree[:at], _changed(rng, tree[at]), *tree[at + 1:]]
    if rng.random() < 0.1:
        return _deep(rng.choice((20, 90, 300)))
    return rng.choice(ODD)


def _deep(depth: int) -> Any:
    tree: Any = 1
    for _ in range(depth):
        tree = [tree]
    return tree


KINDS: tuple[Callable[[Rng, Path], None], ...] = (
    flip_bytes, change_json, change_a_column, null_a_column, cut_json, zero_a_page, change_json, delete_rows,
    double_rows, change_a_decision, cut_the_file, flip_bytes_of_a_blob, change_json, drop_a_table, swap_contents,
    change_a_fact, change_json, damage_tensors,
)


def damage(seed: int, folder: Path) -> str:
    """Damage the recording in `folder`; what was done."""
    kind = KINDS[seed % len(KINDS)]
    kind(random.Random(seed), folder)
    return kind.__name__
