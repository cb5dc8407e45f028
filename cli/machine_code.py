"""Adds the machine code of each C++ kernel to its record after the program has ended."""
from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

from ..artifacts.recording import Recording
from ..artifacts.records import Kernel
from ..artifacts.store import RecordingWriter
from ..dependencies import msgspec
from ..engine.toolchain.cpp_build import disassemble

LIMIT_SECONDS = 2.0
"""Limit on disassembling; a note says that some kernels were left out."""

VECTORS = {"zmm": 512, "ymm": 256, "xmm": 128}


def add_machine_code(recorder: RecordingWriter) -> None:
    """Add `asm` to the outputs of each kernel's record, and the width of its widest vectors in bits to its metrics."""
    start = time.perf_counter()
    known: dict[str, str] = {}
    for compile_id, name, record in _cpp_kernels(recorder.folder):
        if time.perf_counter() - start > LIMIT_SECONDS:
            recorder.note(f"machine code is recorded for some kernels only: it took over {LIMIT_SECONDS:g} s")
            return
        if record.path not in known:
            known[record.path] = disassemble(Path(record.path))
        assembly = known[record.path]
        if assembly:
            width = next((bits for name, bits in VECTORS.items() if name in assembly), 0)
            metrics = record.metrics | {"vector_bits": width}
            outputs = record.outputs | {"asm": assembly}
            full = msgspec.structs.replace(record, outputs=outputs, metrics=metrics)
            recorder.record(compile_id, "kernels", name, full)


def _cpp_kernels(folder: Path) -> Iterator[tuple[str, str, Kernel]]:
    """(compilation, name of the artifact, record) of each."""
    with Recording.open(folder) as recording:
        named = [(info.compile, info.name) for info in recording.artifacts(kind="Kernel") if "@" not in info.compile]
        found = [(id, name, recording.artifact(id, "kernels", name)) for id, name in named]  # no other process's
    for compile_id, name, record in found:
        if not isinstance(record, Kernel) or record.language != "cpp" or "asm" in record.outputs:
            continue
        if Path(record.path).is_file():
            yield compile_id, name, record
