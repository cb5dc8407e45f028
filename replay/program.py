"""The lowest rung: the program itself, in eager, up to the recorded call.

The recorded command runs again in a process of its own with compilation turned off, and the value that the recorded
function returned for the recorded arguments is held against the results of the captured graph. That shows what no graph
can: a capture that is not what the program means. Only a program whose files are unchanged since, and a compilation
that covers its whole function (no graph break, no resumed part), can be held against its graph.
"""
from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file

from ..artifacts.recording import Recording, RecordingError
from ..artifacts.records import Breaks, Frame, SavedInputs
from .compare import Comparison, compare, worst
from .rungs import SEED

TIMEOUT_SECONDS = 600


class ProgramAbsent(Exception):
    """The program cannot be run again for this compilation; the message says why."""


def run_program(
    recording: Recording, compile_id: str, inputs: SavedInputs, values: Sequence[Any]
) -> list[torch.Tensor]:
    """The tensors that the recorded call returns when the program runs in eager. Raises ProgramAbsent."""
    frame = _whole_frame(recording, compile_id)
    meta = recording.meta
    with tempfile.TemporaryDirectory(prefix="ptdebug-replay-") as folder:
        outputs = Path(folder, "outputs.safetensors")
        spec = {
            "command": meta.get("command", []), "folder": meta.get("folder", "."), "file": os.path.realpath(frame.file),
            "function": frame.function.rpartition(".")[2], "line": frame.line, "outputs": str(outputs),
            "inputs": _save_locals(Path(folder, "inputs.safetensors"), inputs, values), "seed": SEED,
        }
        Path(folder, "spec.json").write_text(json.dumps(spec))
        command = [sys.executable, "-m", f"{__package__}.probe", str(Path(folder, "spec.json"))]
        environment = os.environ | {"TORCHDYNAMO_DISABLE": "1"}
        try:
            ran = subprocess.run(
                command, env=environment, stdin=subprocess.DEVNULL, capture_output=True, timeout=TIMEOUT_SECONDS
            )
        except subprocess.TimeoutExpired as error:
            raise ProgramAbsent(f"the program did not reach the call within {TIMEOUT_SECONDS} s") from error
        if not outputs.exists():
            last = ran.stderr.decode(errors="replace").strip().rpartition("\n")[2]
            detail = f" ({last})" if last else ""
            raise ProgramAbsent(f"run again, the program made no such call with these values{detail}")
        found = load_file(outputs)
        return [found[str(i)] for i in range(len(found))]


def _whole_frame(recording: Recording, compile_id: str) -> Frame:
    try:
        frame = recording.artifact(compile_id, "frame")
    except RecordingError as error:
        raise ProgramAbsent(str(error)) from error
    if not isinstance(frame, Frame):
        raise ProgramAbsent("the frame was not recorded")
    if "torch_dynamo_resume_in" in frame.function:
        raise ProgramAbsent("this compilation is the part of a function after a graph break")
    try:
        breaks = recording.artifact(compile_id, "breaks")
    except RecordingError:
        breaks = None
    if isinstance(breaks, Breaks) and breaks.breaks:
        raise ProgramAbsent("this compilation is the part of a function before a graph break")
    path, recorded = Path(frame.file), recording.source(frame.file)
    if recorded is None or not path.is_file() or path.read_text(errors="replace") != recorded:
        raise ProgramAbsent(f"{frame.file} is not what it was when it was recorded")
    return frame


def _save_locals(path: Path, inputs: SavedInputs, values: Sequence[Any]) -> str:
    """Keep the inputs that are plain local variables, by name; "" when there are none."""
    found = {}
    for item, value in zip(inputs.inputs, values):
        name = item.name.removeprefix("L['").removesuffix("']")
        if isinstance(value, torch.Tensor) and item.name == f"L[{name!r}]":
            found[name] = value.contiguous().clone()
    if not found:
        return ""
    save_file(found, path)
    return str(path)


def compare_returned(returned: Sequence[torch.Tensor], observed: Sequence[Any]) -> Comparison:
    """Hold what the function returned against what the graph gave: each tensor against the nearest of its kind."""
    found = []
    for tensor in returned:
        like = [o.detach().cpu().contiguous() for o in observed if _alike(o, tensor)]
        if not like:
            found.append(Comparison("different", why=f"no result of the graph is a {tensor.dtype}{list(tensor.shape)}"))
            continue
        nearest = min(like, key=lambda o: _distance(o, tensor))
        found.append(compare(nearest, tensor))
    return worst(found)


def _alike(value: Any, tensor: torch.Tensor) -> bool:
    return isinstance(value, torch.Tensor) and value.shape == tensor.shape and value.dtype == tensor.dtype


def _distance(a: torch.Tensor, b: torch.Tensor) -> float:
    apart = (a.double() - b.double()).abs().nan_to_num()
    return apart.max().item() if apart.numel() else 0.0


def timed_program(
    recording: Recording, compile_id: str, inputs: SavedInputs, values: Sequence[Any], observed: Sequence[Any]
) -> tuple[Comparison, float]:
    """The comparison of the program with its captured graph, and the seconds that the process took."""
    start = time.perf_counter()
    returned = run_program(recording, compile_id, inputs, values)
    seconds = time.perf_counter() - start
    return compare_returned(returned, observed), seconds
