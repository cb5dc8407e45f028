"""The forms of compiled kernels for records: TTIR to PTX as Triton left them, and SASS as NVIDIA's tools read it.

`server.py` writes the forms beside each binary. Kernels that differ in names share one, so the lines of its line tables
are first made those of the kernel whose record it is.
"""
from __future__ import annotations

import gzip
import json
import os
import re
import shutil
import subprocess
import tempfile
import time
from collections.abc import Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import IO, Any

from ....artifacts.machine_lines import relined, sass_with_lines
from ....artifacts.records import Kernel
from ....dependencies import msgspec
from . import server
from .building import Binary
from .occupancy import occupancy
from .source import Launch, TritonSource

TOOLS = {"nvdisasm": ("-c", "-ndf", "-gp"), "cuobjdump": ("-res-usage",)}
"""NVIDIA's tools and their options: the code with lines of its PTX, and the resources."""
PATIENCE = 60.0  # seconds for one binary
_COMMENT = re.compile(r"\s*#.*")


def forms_of(binary: Binary, launch: Launch, source: TritonSource) -> dict[str, str]:
    """The forms of a launch of `source`, by name; none where they are not on disk."""
    try:
        kept: dict[str, str] = json.loads(gzip.decompress(Path(binary.path + server.FORMS_SUFFIX).read_bytes()))
    except (OSError, ValueError, EOFError):
        return {}
    lines = _same_lines(kept["text"].split("\n"), binary.name, [line.text for line in source.lines], launch.name)
    found = {name: relined(name, kept[name], lines) for name in server.FORMS if name in kept}
    if binary.name == launch.name:
        return found
    own = re.compile(rf"\b{re.escape(binary.name)}\b")
    return {name: own.sub(launch.name, text) for name, text in found.items()}


def _same_lines(compiled: Sequence[str], name: str, shown: Sequence[str], wanted: str) -> dict[int, int]:
    """For each line of the module that was compiled the line of the one that is shown, counted from 1: imports and
    helpers where they are the same, and the statements of the kernel, which differ in names and comments alone."""
    first, second = _statements(compiled, name), _statements(shown, wanted)
    found = {k: k for k, (one, other) in enumerate(zip(compiled, shown), 1) if one == other and k < first[0]}
    return found | dict(zip(first, second)) if len(first) == len(second) else found


def _statements(lines: Sequence[str], name: str) -> list[int]:
    """The numbers of the lines of function `name` that are more than a comment."""
    start = next(k for k, line in enumerate(lines) if line.startswith(f"def {name}("))
    end = next((k for k in range(start + 1, len(lines)) if lines[k][:1] not in ("", " ", ")")), len(lines))
    return [k + 1 for k in range(start, end) if _COMMENT.sub("", lines[k]).strip()]


def prefix_of(launch: str, launches: Sequence[str]) -> str:
    """What stands before the names of a launch's products and metrics in the record of a kernel of several launches."""
    return f"{launch}." if len(launches) > 1 else ""


def with_sass(records: Sequence[Kernel], seconds: float = float("inf")) -> list[Kernel | None]:
    """The records of Triton kernels with the SASS of their binaries and the resources that they take. The tools run as
    many at once as there are processors; None for what is not begun in time."""
    wanted = [(path, tool) for record in records for path in record.path.split(os.pathsep) if path for tool in TOOLS]
    printed = _run_all(list(dict.fromkeys(wanted)), seconds)
    return [_with_sass(record, printed) for record in records]


def _with_sass(record: Kernel, printed: Mapping[tuple[str, str], tuple[str, str]]) -> Kernel | None:
    outputs, metrics, log = dict(record.outputs), dict(record.metrics), [record.log] if record.log else []
    for launch, path in zip(record.kernels, record.path.split(os.pathsep)):
        if not path:
            continue
        if any((path, tool) not in printed for tool in TOOLS):
            return None
        prefix = prefix_of(launch, record.kernels)
        (sass, missing), (usage, unknown) = (printed[path, tool] for tool in TOOLS)
        log += [text for text in (missing, unknown) if text and text not in log]
        if sass:
            outputs[f"{prefix}sass"] = sass_with_lines(sass, outputs.get(f"{prefix}ptx", ""))
        warps, shared = (metrics.get(f"{prefix}{name}", 0) for name in ("num_warps", "shared_bytes"))
        facts = _resources(usage, int(record.target.partition(":")[2]), warps, shared)
        metrics |= {f"{prefix}{name}": value for name, value in facts.items()}
    return msgspec.structs.replace(record, outputs=outputs, metrics=metrics, log="\n".join(log))


def _resources(usage: str, capability: int, warps: int, shared: int) -> dict[str, Any]:
    """Registers and spilled bytes, as cuobjdump counts them, and the occupancy that they allow."""
    found = re.search(r"REG:(\d+).*?STACK:(\d+).*?SHARED:(\d+).*?LOCAL:(\d+)", usage)
    if found is None:
        return {}
    facts: dict[str, Any] = {"registers": int(found[1]), "stack_bytes": int(found[2]), "spills": int(found[4])}
    held = occupancy(capability, warps, facts["registers"], shared)
    return facts if held is None else {**facts, "occupancy": round(held.share, 4), "occupancy_limit": held.limit}


def _run_all(wanted: Sequence[tuple[str, str]], seconds: float) -> dict[tuple[str, str], tuple[str, str]]:
    """What each tool prints of each binary, and the reason where that is nothing. Without threads: none can be started
    when the program has ended."""
    found: dict[tuple[str, str], tuple[str, str]] = {}
    running: list[tuple[tuple[str, str], subprocess.Popen[bytes], IO[bytes]]] = []
    until = time.monotonic() + seconds
    for path, tool in wanted:
        command = _found(tool)
        if command is None:
            found[path, tool] = "", f"{tool} was not found: its output is missing"
            continue
        if time.monotonic() > until:
            break
        if len(running) >= (os.cpu_count() or 1):
            found |= [_finished(*running.pop(0))]
        output = tempfile.TemporaryFile()
        arguments = [command, *TOOLS[tool], path]
        process = subprocess.Popen(arguments, stdout=output, stderr=output, stdin=subprocess.DEVNULL)
        running.append(((path, tool), process, output))
    return found | dict(_finished(*one) for one in running)


def _finished(
    key: tuple[str, str], process: subprocess.Popen[bytes], output: IO[bytes]
) -> tuple[tuple[str, str], tuple[str, str]]:
    try:
        process.wait(timeout=PATIENCE)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
    with output:
        output.seek(0)
        text = output.read().decode(errors="replace")
    return key, (("", f"{key[1]}: {text.strip()[:200]}") if process.returncode else (text, ""))


@lru_cache(maxsize=8)
def _found(name: str) -> str | None:
    """The tool that comes with Triton, or on the PATH."""
    import triton

    bundled = Path(triton.__file__).parent / "backends" / "nvidia" / "bin" / name
    return str(bundled) if bundled.exists() else shutil.which(name)
