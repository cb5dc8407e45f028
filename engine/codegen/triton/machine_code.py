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
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

from ....artifacts.machine_lines import relined, sass_with_lines
from ....artifacts.records import Kernel
from ....dependencies import msgspec
from . import server
from .building import Binary
from .occupancy import occupancy
from .source import Launch, TritonSource

_COMMENT = re.compile(r"\s*#.*")


def forms_of(binary: Binary, launch: Launch, source: TritonSource) -> dict[str, str]:
    """The forms of a launch of `source`, by name; none where they are not on disk."""
    try:
        kept: dict[str, str] = json.loads(gzip.decompress(Path(binary.forms).read_bytes()))
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


def with_sass(record: Kernel, capability: int) -> Kernel:
    """The record of a Triton kernel with the SASS of its binaries and the resources that they take."""
    outputs, metrics, log = dict(record.outputs), dict(record.metrics), [record.log] if record.log else []
    for launch, path in zip(record.kernels, record.path.split(os.pathsep)):
        if not path:
            continue
        prefix = prefix_of(launch, record.kernels)
        sass, missing = _tool("nvdisasm", ("-c", "-ndf", "-gp"), path)
        usage, unknown = _tool("cuobjdump", ("-res-usage",), path)
        log += [text for text in (missing, unknown) if text and text not in log]
        if sass:
            outputs[f"{prefix}sass"] = sass_with_lines(sass, outputs.get(f"{prefix}ptx", ""))
        warps, shared = (metrics.get(f"{prefix}{name}", 0) for name in ("num_warps", "shared_bytes"))
        facts = _resources(usage, capability, warps, shared)
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


@lru_cache(maxsize=64)  # the layers of a network share binaries
def _tool(name: str, options: tuple[str, ...], path: str) -> tuple[str, str]:
    """What one of NVIDIA's tools prints of a binary; "" and the reason otherwise."""
    tool = _found(name)
    if tool is None:
        return "", f"{name} was not found: its output is missing"
    try:
        done = subprocess.run([tool, *options, path], capture_output=True, text=True, timeout=60, check=False)
    except (OSError, subprocess.SubprocessError) as error:
        return "", f"{name}: {error}"
    return ("", f"{name}: {done.stderr.strip()}") if done.returncode else (done.stdout, "")


@lru_cache(maxsize=8)
def _found(name: str) -> str | None:
    """The tool that comes with Triton, or on the PATH."""
    import triton

    bundled = Path(triton.__file__).parent / "backends" / "nvidia" / "bin" / name
    return str(bundled) if bundled.exists() else shutil.which(name)
