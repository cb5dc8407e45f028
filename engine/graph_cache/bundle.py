"""A cache bundle: compiled graphs and their libraries in one file, for other machines of the same kind.

A zip file: `manifest.json` (what is in it, for which torch, CPU and ptdebug), `graphs/KEY` and `libraries/NUMBER.so`
with their sources. All of it is code, which runs once it is installed in the cache; reading a bundle runs nothing.
"""
from __future__ import annotations

import hashlib
import io
import os
import re
import tempfile
import zipfile
import zlib
from collections.abc import Iterable, Iterator
from pathlib import Path

import torch

from ...dependencies import msgspec
from ..toolchain import cpp_build
from . import disk, state
from .history import Done
from .parts import Half, Parts, decode

SCHEMA = "ptdebug-cache/1"
LIMIT_BYTES = 4 << 30
LIMIT_ENTRIES = 20_000
_KEY = re.compile(r"[0-9a-f]{64}")


class BundleError(ValueError):
    """The file is no cache bundle, or damaged; the message says what is wrong."""


class Entry(msgspec.Struct, frozen=True):
    """One graph: its key in the cache, what it is, the checksum of its file."""

    key: str
    label: str
    sha256: str


class Library(msgspec.Struct, frozen=True):
    """One library: checksums of its source, its machine code, and what the compiler said."""

    source: str
    code: str
    log: str


class Manifest(msgspec.Struct, frozen=True):
    """What a bundle holds, and what it was made for."""

    schema: str
    torch: str
    cpu: str
    ptdebug: str
    graphs: tuple[Entry, ...]
    libraries: tuple[Library, ...]


class Bundle(msgspec.Struct, frozen=True):
    """A bundle that was read and checked; nothing of it has run."""

    manifest: Manifest
    graphs: dict[str, bytes]
    libraries: tuple[tuple[bytes, bytes, bytes], ...]

    def differences(self) -> tuple[str, ...]:
        """In what this machine, or installation, is another than what it was made for."""
        here, there = _here(), self.manifest
        pairs = (("torch", there.torch, here["torch"]), ("ptdebug", there.ptdebug[:12], here["ptdebug"][:12]))
        found = [f"{name} {theirs}, here {ours}" for name, theirs, ours in pairs if theirs != ours]
        lacking = set(there.cpu.split()) ^ set(here["cpu"].split())
        if lacking:
            found.append(f"a CPU that differs in {', '.join(sorted(lacking)[:6])}")
        return tuple(found)


def pack(done: Iterable[Done]) -> bytes:
    """The cached ones of these graphs as a bundle."""
    graphs: dict[str, tuple[str, bytes]] = {}
    libraries: dict[str, tuple[bytes, bytes, bytes]] = {}
    for each in done:
        content = disk.read(each.key) if each.key and each.key not in graphs else None
        if content is None:
            continue
        graphs[each.key] = each.label, content
        for source in filter(None, (half.source for half in _halves(decode(content)))):
            built = cpp_build.entry_of(source)
            if built is not None:
                libraries[source] = source.encode(), *built
    here = _here()
    manifest = Manifest(
        SCHEMA, here["torch"], here["cpu"], here["ptdebug"],
        tuple(Entry(key, label, _sha(content)) for key, (label, content) in graphs.items()),
        tuple(Library(*map(_sha, files)) for files in libraries.values()),
    )
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as file:
        file.writestr("manifest.json", msgspec.json.encode(manifest))
        for key, (_, content) in graphs.items():
            file.writestr(f"graphs/{key}", content)
        for number, files in enumerate(libraries.values()):
            for suffix, part in zip(("cpp", "so", "log"), files):
                file.writestr(f"libraries/{number}.{suffix}", part)
    return buffer.getvalue()


def read(content: bytes) -> Bundle:
    """The bundle in these bytes, checked against its manifest. Raises BundleError. Nothing of it runs."""
    try:
        with zipfile.ZipFile(io.BytesIO(content)) as file:
            if sum(info.file_size for info in file.infolist()) > LIMIT_BYTES or len(file.namelist()) > LIMIT_ENTRIES:
                raise BundleError("it is larger than any cache")
            manifest = msgspec.json.decode(file.read("manifest.json"), type=Manifest)
            if manifest.schema != SCHEMA:
                raise BundleError(f"it has the format {manifest.schema[:40]!r}, not {SCHEMA!r}")
            graphs = {entry.key: _checked(file, f"graphs/{entry.key}", entry.sha256) for entry in manifest.graphs
                      if _KEY.fullmatch(entry.key)}
            libraries = tuple(
                (_checked(file, f"libraries/{i}.cpp", each.source), _checked(file, f"libraries/{i}.so", each.code),
                 _checked(file, f"libraries/{i}.log", each.log))
                for i, each in enumerate(manifest.libraries)
            )
    except BundleError:
        raise
    except (zipfile.BadZipFile, zlib.error, KeyError, ValueError, EOFError, OSError, RuntimeError) as error:
        raise BundleError(f"it is no cache bundle, or damaged ({type(error).__name__}: {error})") from error
    if len(graphs) != len(manifest.graphs):
        raise BundleError("a graph in it has no valid key")
    return Bundle(manifest, graphs, libraries)


def install(bundle: Bundle) -> None:
    """Put what a trusted bundle holds into this machine's cache. Raises OSError where that cannot be written to."""
    for source, code, log in bundle.libraries:
        library = cpp_build.place_of(source.decode())
        library.parent.mkdir(parents=True, exist_ok=True)
        for suffix, content in ((".cpp", source), (".so", code), (".log", log)):  # the log, with the checksum, last
            _write(library.with_suffix(suffix), content)
    for key, content in bundle.graphs.items():
        disk.write(key, content)


def _halves(parts: Parts) -> Iterator[Half]:
    yield parts.call
    for half in (parts.backward, parts.outside):
        if half is not None:
            yield half
    if parts.folding is not None:
        yield parts.folding.call


def _here() -> dict[str, str]:
    return {"torch": f"{torch.__version__} {torch.version.git_version}", "cpu": cpp_build.cpu_features(),
            "ptdebug": state.sources()}


def _checked(file: zipfile.ZipFile, name: str, sha256: str) -> bytes:
    content = file.read(name)
    if _sha(content) != sha256:
        raise BundleError(f"{name} in it is not what was written")
    return content


def _write(path: Path, content: bytes) -> None:
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=cpp_build.PRIVATE)
    with os.fdopen(handle, "wb") as file:
        file.write(content)
    os.replace(name, path)


def _sha(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()
