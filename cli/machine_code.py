"""Adds the machine code of each kernel to its record after the program has ended."""
from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

from ..artifacts.machine_lines import form_of
from ..artifacts.recording import Recording
from ..artifacts.records import Kernel
from ..artifacts.store import RecordingWriter
from ..dependencies import msgspec
from ..engine.toolchain.cpp_build import disassemble

LIMIT_SECONDS = 2.0
"""Limit on disassembling; a note says that some kernels were left out."""
GPU_LIMIT_SECONDS = 10.0
"""The same for kernels of a GPU, which NVIDIA's tools disassemble."""

VECTORS = {"zmm": 512, "ymm": 256, "xmm": 128}

Named = tuple[str, str, Kernel]  # compilation, name of the artifact, record


def add_machine_code(recorder: RecordingWriter) -> None:
    """Add `asm` to the outputs of each C++ kernel's record and the width of its widest vectors in bits to its metrics;
    `sass` to those of each kernel that a GPU ran, and the registers and memory that it takes."""
    kernels = list(_kernels(recorder.folder))
    _add_assembly(recorder, [named for named in kernels if named[2].language == "cpp"])
    _add_sass(recorder, [named for named in kernels if named[2].language == "triton"])


def _add_assembly(recorder: RecordingWriter, kernels: list[Named]) -> None:
    start = time.perf_counter()
    known: dict[str, str] = {}
    for compile_id, name, record in kernels:
        if "asm" in record.outputs or not Path(record.path).is_file():
            continue
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


def _add_sass(recorder: RecordingWriter, kernels: list[Named]) -> None:
    todo = [(compile_id, name, record) for compile_id, name, record in kernels
            if record.path and record.target.partition(":")[2].isdigit() and "sass" not in map(form_of, record.outputs)]
    if not todo:
        return
    from ..engine.codegen.triton import with_sass  # loads the code generators, which a program may not have needed

    made = with_sass([record for _, _, record in todo], GPU_LIMIT_SECONDS)
    for (compile_id, name, _), record in zip(todo, made):
        if record is not None:
            recorder.record(compile_id, "kernels", name, record)
    if None in made:
        recorder.note(f"SASS is recorded for some kernels only: it took over {GPU_LIMIT_SECONDS:g} s")


def _kernels(folder: Path) -> Iterator[Named]:
    """Each kernel of this process."""
    with Recording.open(folder) as recording:
        named = [(info.compile, info.name) for info in recording.artifacts(kind="Kernel") if "@" not in info.compile]
        found = [(id, name, recording.artifact(id, "kernels", name)) for id, name in named]  # no other process's
    for compile_id, name, record in found:
        if isinstance(record, Kernel):
            yield compile_id, name, record
