"""Zip files whose members have checksums in a manifest: cache bundles, and exported packages."""
from __future__ import annotations

import hashlib
import io
import os
import tempfile
import zipfile
import zlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TypeVar

from ...dependencies import msgspec
from ..toolchain.cpp_build import PRIVATE

Record = TypeVar("Record")
LIMIT_BYTES = 64 << 30
LIMIT_ENTRIES = 20_000
_ERRORS = (zipfile.BadZipFile, zlib.error, KeyError, msgspec.MsgspecError, EOFError, OSError, ValueError, RuntimeError,
           OverflowError)


class Damaged(ValueError):
    """The file is not what was written; the message says how that shows."""


def packed(files: Mapping[str, bytes], compression: int = zipfile.ZIP_STORED) -> bytes:
    """These files as a zip."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", compression) as file:
        for name, content in files.items():
            file.writestr(name, content)
    return buffer.getvalue()


def opened(content: bytes) -> zipfile.ZipFile:
    """The zip in these bytes. Raises Damaged."""
    with _damage_told():
        file = zipfile.ZipFile(io.BytesIO(content))
    if sum(info.file_size for info in file.infolist()) > LIMIT_BYTES or len(file.namelist()) > LIMIT_ENTRIES:
        raise Damaged("it is larger than any of these")
    return file


def manifest(file: zipfile.ZipFile, kind: type[Record]) -> Record:
    """The manifest, a record of this class. Raises Damaged."""
    with _damage_told():
        found: Record = msgspec.json.decode(file.read("manifest.json"), type=kind)
    return found


def member(file: zipfile.ZipFile, name: str, sha256: str) -> bytes:
    """The content of a member. Raises Damaged where it does not have this checksum."""
    with _damage_told():
        content = file.read(name)
    if checksum(content) != sha256:
        raise Damaged(f"{name} in it is not what was written")
    return content


@contextmanager
def _damage_told() -> Iterator[None]:
    """Whatever a damaged file makes zipfile raise, as Damaged: an offset is negative, an entry says it is encrypted."""
    try:
        yield
    except _ERRORS as error:
        raise Damaged(f"{type(error).__name__}: {error}") from error


def checksum(content: bytes) -> str:
    """SHA-256, in hexadecimal digits."""
    return hashlib.sha256(content).hexdigest()


def replace(path: Path, content: bytes) -> None:
    """Write a file, whole or not at all. Raises OSError."""
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=PRIVATE)
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(content)
        os.replace(name, path)
    except OSError:
        Path(name).unlink(missing_ok=True)
        raise
