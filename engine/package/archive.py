"""The file of a package: a zip of machine code, wrappers, weights and signatures, each with its checksum.

`manifest.json` (what it was made for), `entries/NAME` (signature and wrapper), `kernels/NAME.so` and `.cpp` (of a graph
with control flow one for each of its graphs, `NAME-0.so` and so on),
`own/NAME-DIGEST.so` (kernels of ptdebug that these call), `gpu/NAME.cubin` (kernels on a GPU), `weights.safetensors`,
`decisions.json` (what the compiler decided, and why); for programs without Python `cpp.txt` and
`constants.safetensors`.
"""
from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

from ...dependencies import msgspec
from ...version import __version__
from ..graph_cache import checked_zip
from ..graph_cache.half import decode_as, encode
from ..toolchain.cpp_build import cpu_features
from . import cpp_interface as cpp, gpus
from .entry import Entry
from .gpus import Gpu

SCHEMA = "ptdebug-package/1"
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_OWN = re.compile(r"own/([a-z0-9_]+)-([0-9a-f]+)\.so")
_CUBIN = re.compile(r"gpu/([0-9a-f]+)\.cubin")
_INSTRUCTIONS = re.compile(r"(sse|ssse|avx|fma|bmi|f16c|amx|abm|adx|aes|sha|vaes|vpclmul|gfni|movbe|popcnt|pclmul)\w*")


class PackageError(ValueError):
    """The file is no package, is damaged, or was made for another machine or torch; the message says which."""


class Weight(msgspec.Struct, frozen=True):
    """The layout of a weight, whose memory is a row in the file of weights: sizes and strides in elements, and where it
    is to be. The file cannot have `complex128`: it has float64."""

    size: tuple[int, ...]
    stride: tuple[int, ...]
    complex128: bool = False
    device: str = "cpu"


class Manifest(msgspec.Struct, frozen=True):
    """What is in the file and what it was made for (`cuda`: the version of CUDA that torch had, or whose compiler made
    machine code for GPUs that were not there); `files` are checksums by name."""

    schema: str
    torch: str
    cpu: tuple[str, ...]
    ptdebug: str
    entries: tuple[str, ...]
    weights: dict[str, Weight]
    files: dict[str, str]
    gpus: tuple[Gpu, ...] = ()
    cuda: str = ""


class Package(msgspec.Struct, frozen=True):
    """A package in memory. `kernels` are (machine code, C++ source) by the names of `Entry.codes`, `own` (machine
    code, digest of the source) of kernels of ptdebug by function, `binaries` that of kernels on `gpus` by the names of
    `MachineCode`; nothing of it has run. Where `gpus` were not there when it was made, its weights are on the
    CPU, and `cuda` is the version of CUDA whose compiler made its machine code."""

    entries: tuple[Entry, ...]
    kernels: dict[str, tuple[bytes, str]]
    weights: dict[str, torch.Tensor]
    decisions: bytes = b"[]"
    own: dict[str, tuple[bytes, str]] = {}
    binaries: dict[str, bytes] = {}
    gpus: tuple[Gpu, ...] = ()
    cuda: str = ""


def is_name(name: str) -> bool:
    """Whether an entry point may be called so: its files have the name."""
    return _NAME.fullmatch(name) is not None


def instructions() -> tuple[str, ...]:
    """The instruction sets of this CPU that compiled code may use."""
    return tuple(sorted({flag for flag in cpu_features().split() if _INSTRUCTIONS.fullmatch(flag)}))


def write(path: str | Path, package: Package) -> None:
    """Write the file, whole or not at all. Raises OSError."""
    checked_zip.replace(Path(path), packed(package))


def packed(package: Package) -> bytes:
    """The content of the file."""
    from safetensors.torch import save

    files: dict[str, bytes] = {"decisions.json": package.decisions}
    for entry in package.entries:
        files[f"entries/{entry.signature.name}"] = encode(entry)
    for name, (code, source) in package.kernels.items():
        files[f"kernels/{name}.so"], files[f"kernels/{name}.cpp"] = code, source.encode()
    files |= {f"own/{name}-{digest}.so": code for name, (code, digest) in package.own.items()}
    files |= {f"gpu/{name}.cubin": code for name, code in package.binaries.items()}
    for name, tensors in ((cpp.WEIGHTS, package.weights), (cpp.CONSTANTS, cpp.held_by(package.entries))):
        files[name] = save({each: _row(tensor) for each, tensor in tensors.items()})
    places = gpus.places(package.gpus, package.weights)
    cuda = package.cuda or str(torch.version.cuda or "") if package.gpus else ""
    files["cpp.txt"] = cpp.text(package.entries, package.weights, places, files, package.own, instructions(),
                                package.gpus, cuda)
    layouts = {name: Weight(tuple(t.shape), tuple(t.stride()), t.dtype is torch.complex128, str(places[name]))
               for name, t in package.weights.items()}
    names = tuple(entry.signature.name for entry in package.entries)
    manifest = Manifest(
        SCHEMA, str(torch.__version__), instructions(), __version__, names, layouts,
        {name: checked_zip.checksum(content) for name, content in files.items()}, package.gpus, cuda)
    return checked_zip.packed({"manifest.json": msgspec.json.encode(manifest), **files})


def read(path: str | Path) -> Package:
    """The package in a file, checked. Nothing of it runs. Raises PackageError, and OSError where it cannot be read."""
    return unpacked(path, Path(path).read_bytes())


def unpacked(path: str | Path, content: bytes) -> Package:
    """The package in the content of a file. Raises PackageError, which names `path`."""
    try:
        with checked_zip.opened(content) as file:
            manifest = checked_zip.manifest(file, Manifest)
            _fits(path, manifest)
            files = {name: checked_zip.member(file, name, checksum) for name, checksum in manifest.files.items()}
        return _package(manifest, files)
    except checked_zip.Damaged as error:
        raise PackageError(f"{path} is no package of ptdebug, or is damaged: {error}") from error
    except (KeyError, msgspec.MsgspecError, ValueError) as error:
        if isinstance(error, PackageError):
            raise
        why = f"{type(error).__name__}: {error}"
        raise PackageError(f"{path} is no package of ptdebug, or is damaged ({why})") from error


def _fits(path: str | Path, manifest: Manifest) -> None:
    if manifest.schema != SCHEMA:
        raise PackageError(f"{path} has the format {manifest.schema[:40]!r}, and this version reads {SCHEMA!r}")
    if manifest.torch.partition("+")[0] != torch.__version__.partition("+")[0]:
        there, here = manifest.torch, torch.__version__
        raise PackageError(f"{path} was compiled for torch {there}, and this is {here}: export it again")
    lacking = sorted(set(manifest.cpu) - set(instructions()))
    if lacking:
        what = ", ".join(lacking)
        raise PackageError(f"{path} was compiled for a CPU with {what}, which this one lacks: export it here")
    why_not = gpus.why_not(manifest.gpus, manifest.cuda)
    if why_not:
        raise PackageError(f"{path} was compiled for {why_not}")
    if not all(map(is_name, manifest.entries)):
        raise PackageError(f"{path} has an entry point without a valid name")


def _package(manifest: Manifest, files: Mapping[str, bytes]) -> Package:
    from safetensors.torch import load

    rows = load(files["weights.safetensors"])
    weights = {}
    for name, each in manifest.weights.items():
        row = rows[name].view(torch.complex128) if each.complex128 else rows[name]
        weights[name] = row.to(each.device).as_strided(each.size, each.stride)
    entries = tuple(decode_as(files[f"entries/{name}"], Entry) for name in manifest.entries)
    kernels = {name: (files[f"kernels/{name}.so"], files[f"kernels/{name}.cpp"].decode())
               for entry in entries for name, _ in entry.codes() if f"kernels/{name}.so" in files}
    own = {match[1]: (content, match[2]) for name, content in files.items() if (match := _OWN.fullmatch(name))}
    binaries = {match[1]: content for name, content in files.items() if (match := _CUBIN.fullmatch(name))}
    return Package(entries, kernels, weights, files["decisions.json"], own, binaries, manifest.gpus)


def _row(tensor: torch.Tensor) -> torch.Tensor:
    """The memory of a tensor from its first to its last element, as a row of its own."""
    span = 0 if 0 in tensor.shape else 1 + sum((n - 1) * s for n, s in zip(tensor.shape, tensor.stride()))
    row = tensor.detach().as_strided((span,), (1,), tensor.storage_offset()).cpu().clone()
    return row.view(torch.float64) if row.dtype is torch.complex128 else row


def decisions_of(content: bytes) -> list[dict[str, Any]]:
    """The decisions of a package."""
    found: list[dict[str, Any]] = msgspec.json.decode(content)
    return found
