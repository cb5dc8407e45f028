"""A recording as one file, to hand over, and back.

The file is a zip archive, which any tool opens: the databases as they stood at one moment (a program that still runs
may go on writing), what else is in the folder, and `manifest.json` with the size and SHA-256 of each member. Nothing is
compressed again: what databases hold is compressed.
"""
from __future__ import annotations

import hashlib
import os
import shutil
import sqlite3
import tempfile
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from ..dependencies import msgspec
from .database import RecordingError, connect, has_database
from .files import is_name, plain_file
from .home import new_recording_folder
from .records import SCHEMA
from .redaction import Redaction, redact
from .tables import DATABASE

MANIFEST = "manifest.json"
TENSORS = "tensors"
_BESIDE = ("-wal", "-shm", "-journal")
_CHUNK = 1 << 20
_MANY = 100_000  # members that a packed recording may have
_LONGEST = 1 << 25  # bytes of a manifest


class Member(msgspec.Struct, frozen=True):
    """One file of a packed recording: its bytes, and their SHA-256 in hexadecimal."""

    bytes: Annotated[int, msgspec.Meta(ge=0)]
    sha256: str


class Manifest(msgspec.Struct, frozen=True):
    """What a packed recording holds. `inputs` says whether tensors are among it, `redacted` which names stand for
    others."""

    schema: str
    recording: str
    files: dict[str, Member]
    inputs: bool
    redacted: tuple[str, ...] = ()


@dataclass(frozen=True)
class Packed:
    """A packed recording that was written: its file, bytes, and manifest."""

    path: Path
    bytes: int
    manifest: Manifest


def pack(folder: Path, target: Path, inputs: bool = True, redaction: Redaction | None = None) -> Packed:
    """Write the recording in `folder` to the file `target`, which appears when it is complete.

    Without `inputs`, tensors are left out, and so is what replay computes from them. Raises RecordingError for what is
    no recording, and OSError where the file cannot be written.
    """
    with tempfile.TemporaryDirectory(dir=target.absolute().parent, prefix=".ptdebug-pack-") as temporary:
        work = Path(temporary)
        members: dict[str, Path] = {}
        for name in _names(folder):
            if not inputs and name.startswith(f"{TENSORS}/"):
                continue
            members[name] = _kept(plain_file(folder, name), work / name.replace("/", "-"), redaction)
        archive = work / "packed"
        with zipfile.ZipFile(archive, "w", zipfile.ZIP_STORED) as written:
            files = {name: _add(written, name, path) for name, path in members.items()}
            manifest = Manifest(SCHEMA, folder.name, files, inputs, tuple(redaction.told.values()) if redaction else ())
            written.writestr(MANIFEST, msgspec.json.format(msgspec.json.encode(manifest), indent=1))
        os.replace(archive, target)
    return Packed(target, target.stat().st_size, manifest)


def unpack(file: Path, home: Path, name: str | None = None) -> Path:
    """Make a recording below `home` of a packed one, and return its folder: `name`, or as it was called, numbered where
    that is taken.

    Raises RecordingError for a file that is damaged, incomplete, or no packed recording; nothing of it is left then.
    OSError where there is no room for it.
    """
    try:
        with zipfile.ZipFile(file) as archive:
            manifest = _manifest(archive, file)
            home.mkdir(parents=True, exist_ok=True)
            free = shutil.disk_usage(home).free
            needed = sum(member.bytes for member in manifest.files.values())
            if needed > free:
                raise RecordingError(f"{file} takes {needed:,} bytes, and {home} has {free:,} left")
            with tempfile.TemporaryDirectory(dir=home, prefix=".ptdebug-unpack-") as temporary:
                work = Path(temporary) / "recording"
                for member, told in manifest.files.items():
                    _extract(archive, member, told, work, file)
                folder = new_recording_folder(home, manifest.recording, name or manifest.recording)
                os.replace(work, folder)
                return folder
    except (zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError, RuntimeError, KeyError) as error:
        raise RecordingError(f"{file} is not a packed recording, or damaged: {error}") from None


def _names(folder: Path) -> Iterator[str]:
    """The files of a recording, relative to its folder: databases first."""
    if not has_database(folder):
        raise RecordingError(f"{folder} is not a recording: it has no {DATABASE}")
    found = [path.relative_to(folder).as_posix() for path in folder.rglob("*") if not path.is_dir()]
    kept = [name for name in found if not name.endswith(_BESIDE)]
    yield from sorted(kept, key=lambda name: (not name.endswith(".db"), name))


def _kept(source: Path, copy: Path, redaction: Redaction | None) -> Path:
    """The file whose contents are packed in the place of `source`: that itself, or a copy."""
    if source.suffix == ".db":
        return _snapshot(source, copy, redaction)
    if redaction is None or source.parent.name == TENSORS:
        return source
    copy.write_bytes(redaction.apply(source.read_bytes()))
    return copy


def _snapshot(source: Path, copy: Path, redaction: Redaction | None) -> Path:
    """The database as it is now, in a file of its own that needs none beside it."""
    with closing(connect(source)) as recorded, closing(sqlite3.connect(copy)) as database:
        recorded.backup(database)
        database.execute("PRAGMA journal_mode=DELETE")
        if redaction:
            redact(database, redaction)
    return copy


def _add(archive: zipfile.ZipFile, name: str, path: Path) -> Member:
    digest, size = hashlib.sha256(), 0
    with path.open("rb") as source, archive.open(name, "w", force_zip64=True) as target:
        while chunk := source.read(_CHUNK):
            digest.update(chunk)
            size += len(chunk)
            target.write(chunk)
    return Member(size, digest.hexdigest())


def _manifest(archive: zipfile.ZipFile, file: Path) -> Manifest:
    try:
        if archive.getinfo(MANIFEST).file_size > _LONGEST:
            raise RecordingError(f"{file} is not a packed recording: its {MANIFEST} is too long")
        manifest = msgspec.json.decode(archive.read(MANIFEST), type=Manifest)
    except (KeyError, msgspec.MsgspecError) as error:
        raise RecordingError(f"{file} is not a packed recording: {error}") from None
    if manifest.schema != SCHEMA:
        raise RecordingError(f"{file} was packed by a version with the schema {manifest.schema}; this one has {SCHEMA}")
    if DATABASE not in manifest.files or len(manifest.files) > _MANY:
        raise RecordingError(f"{file} is not a packed recording: it has no {DATABASE}")
    return manifest


def _extract(archive: zipfile.ZipFile, name: str, told: Member, folder: Path, file: Path) -> None:
    """Write one member, no more of it than the manifest says, and compare it with that."""
    if not is_name(name):
        raise RecordingError(f"{file} is not a packed recording: {name!r} is no name of a file in one")
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    digest, size = hashlib.sha256(), 0
    with archive.open(name) as source, path.open("xb") as target:
        while size <= told.bytes and (chunk := source.read(_CHUNK)):
            digest.update(chunk)
            size += len(chunk)
            target.write(chunk)
    if size != told.bytes or digest.hexdigest() != told.sha256:
        raise RecordingError(f"{file} is damaged: {name} is not what was packed")

