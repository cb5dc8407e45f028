"""A cache bundle: compiled graphs and their libraries in one file, for other machines of the same kind.

A zip file: `manifest.json` (what is in it, for which torch, CPU and ptdebug), `graphs/KEY` and `libraries/NUMBER.so`
with their sources. All of it is code, which runs once it is installed in the cache; reading a bundle runs nothing.
"""
from __future__ import annotations

import re
import zipfile
from collections.abc import Iterable, Iterator

import torch

from ...dependencies import msgspec
from ..toolchain import cpp_build
from . import checked_zip, disk, state
from .half import Half
from .history import Done
from .parts import Parts, decode

SCHEMA = "ptdebug-cache/1"
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
        tuple(Entry(key, label, checked_zip.checksum(content)) for key, (label, content) in graphs.items()),
        tuple(Library(*map(checked_zip.checksum, files)) for files in libraries.values()),
    )
    files = {"manifest.json": msgspec.json.encode(manifest)}
    files |= {f"graphs/{key}": content for key, (_, content) in graphs.items()}
    for number, parts in enumerate(libraries.values()):
        files |= {f"libraries/{number}.{suffix}": part for suffix, part in zip(("cpp", "so", "log"), parts)}
    return checked_zip.packed(files, zipfile.ZIP_DEFLATED)


def read(content: bytes) -> Bundle:
    """The bundle in these bytes, checked against its manifest. Raises BundleError. Nothing of it runs."""
    try:
        with checked_zip.opened(content) as file:
            manifest = checked_zip.manifest(file, Manifest)
            if manifest.schema != SCHEMA:
                raise BundleError(f"it has the format {manifest.schema[:40]!r}, not {SCHEMA!r}")
            graphs = {entry.key: checked_zip.member(file, f"graphs/{entry.key}", entry.sha256)
                      for entry in manifest.graphs if _KEY.fullmatch(entry.key)}
            libraries = tuple(
                (checked_zip.member(file, f"libraries/{i}.cpp", each.source),
                 checked_zip.member(file, f"libraries/{i}.so", each.code),
                 checked_zip.member(file, f"libraries/{i}.log", each.log))
                for i, each in enumerate(manifest.libraries)
            )
    except checked_zip.Damaged as error:
        raise BundleError(f"it is no cache bundle, or damaged ({error})") from error
    if len(graphs) != len(manifest.graphs):
        raise BundleError("a graph in it has no valid key")
    return Bundle(manifest, graphs, libraries)


def install(bundle: Bundle) -> None:
    """Put what a trusted bundle holds into this machine's cache. Raises OSError where that cannot be written to."""
    for source, code, log in bundle.libraries:
        library = cpp_build.place_of(source.decode())
        library.parent.mkdir(parents=True, exist_ok=True)
        for suffix, content in ((".cpp", source), (".so", code), (".log", log)):  # the log, with the checksum, last
            checked_zip.replace(library.with_suffix(suffix), content)
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
