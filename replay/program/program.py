"""The lowest rung: the program itself, in eager, up to the recorded call.

The recorded command runs again in a process of its own with compilation turned off, and what the recorded function
returns for the recorded arguments is compared with the results of the captured graph. That finds errors of capture,
which no graph can show. It needs unchanged files and a compilation that covers its whole function (no graph break, no
resume function). One run serves all compilations of a recording. The program runs only if this user recorded it here,
as its signature shows, or trusts the recording.
"""
from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file

from ...artifacts.garbage import loading
from ...artifacts.recording import Recording, RecordingError
from ...artifacts.records import Breaks, CallIdentity, Frame, Guards, SavedInputs
from ...artifacts.signature import is_signed, was_written_here
from ..recorded.inputs import load_inputs, load_random
from ..verdicts.compare import Comparison, compare, worst
from .identity import ONE_OF_MANY, describe, describe_state
from .places import equality, is_place

TIMEOUT_SECONDS = 600
CHEAP_SECONDS = 60
"""A program that had reached the call by then, compiling on the way, is run again without being asked."""


class ProgramAbsent(Exception):
    """The program cannot be run again for this compilation; the message says why."""


@dataclass(frozen=True)
class Returned:
    """What a call of the program returned: its tensors, on the CPU, and the seconds that it took. `unsure` are places
    that may have held another object than at the recorded call; `run_seconds` counts from the program's start. `lines`
    are the values that its lines stored, by "number:line"."""

    tensors: list[torch.Tensor]
    seconds: float
    unsure: tuple[str, ...] = ()
    run_seconds: float = 0.0
    lines: Mapping[str, torch.Tensor] = field(default_factory=dict)

    @property
    def why_unsure(self) -> str:
        """Why it may be another call than the recorded one; "" if it is that one."""
        others = ", ".join(self.unsure[:3])
        known = "it is not known which of the program's calls was recorded: another one may differ in "
        return f"{known}{others}" if others else ""


class ProgramRuns:
    """The program of a recording, run in eager for the calls of `compile_ids`.

    The first question runs it once and looks for all of those calls. One that this run cannot show, because it happens
    inside of another one or because an earlier one drew random numbers from another seed than the program's, gets a run
    of its own when it is asked for. Calls that a program reached later than after CHEAP_SECONDS are looked for only if
    `asked`.
    """

    def __init__(
        self, recording: Recording, compile_ids: Sequence[str], trust: bool = False, asked: bool = False, call: int = 0
    ) -> None:
        self.asked = asked
        self.call = call
        self.recording = recording
        self.compile_ids = tuple(compile_ids)
        self.trust = trust
        self.returned: dict[str, Returned] | None = None
        self.disturbed = False
        self.last_words = ""
        self.differs: dict[str, str] = {}

    def ask(self, compile_id: str) -> Returned:
        """What the call of one compilation returns. Raises ProgramAbsent."""
        self._check(compile_id)
        if self.returned is None:
            self.returned = self._run([c for c in self.compile_ids if self._can_run(c)])
        if compile_id not in self.returned and self.disturbed:
            self.returned |= self._run([compile_id])
        if compile_id not in self.returned:
            differs = self.differs.get(compile_id, "")
            raise ProgramAbsent(self.last_words + (f": the nearest differs in {differs}" if differs else ""))
        return self.returned[compile_id]

    def _check(self, compile_id: str) -> None:
        """Raise ProgramAbsent if the program is not to be run for this compilation, as far as the recording says."""
        if not (words := self.recording.meta.get("command")) or words[0] in ("-c", "-"):
            raise ProgramAbsent("its program is not a file")
        if not self.trust and not is_ours(self.recording):
            raise ProgramAbsent(
                "its program was not recorded by you here, or has changed since: --trust runs it anyway"
            )
        _whole_frame(self.recording, compile_id)
        inputs = saved_inputs(self.recording, compile_id, self.call)
        if not inputs.file:
            raise ProgramAbsent("its calls are recognized by the values of their inputs, which were not kept")
        if not self.asked and inputs.call is not None and inputs.call.seconds > CHEAP_SECONDS:
            raise ProgramAbsent(f"this call came after {inputs.call.seconds:.0f} s: --program runs the program until "
                                "then")

    def _can_run(self, compile_id: str) -> bool:
        try:
            self._check(compile_id)
        except ProgramAbsent:
            return False
        return True

    def _run(self, compile_ids: Sequence[str]) -> dict[str, Returned]:
        """One run of the program: what those of `compile_ids` returned whose calls it met."""
        meta = self.recording.meta
        with tempfile.TemporaryDirectory(prefix="ptdebug-replay-") as folder:
            calls = [_call(self.recording, c, self.call, Path(folder, str(i))) for i, c in enumerate(compile_ids)]
            report = Path(folder, "report.json")
            spec = {
                "command": meta.get("command", []), "folder": meta.get("folder", "."), "calls": calls,
                "report": str(report), "started": time.time(),
            }
            Path(folder, "spec.json").write_text(json.dumps(spec))
            self.last_words = _run_probe(Path(folder, "spec.json"))
            found: dict[str, Any] = {"seconds": {}, "disturbed": False}
            if report.exists():
                found = json.loads(report.read_text())
            if "error" in found:
                self.last_words = f"the program's call cannot be looked at ({found['error']})"
            self.disturbed |= found["disturbed"]
            self.differs |= found.get("differs", {})
            outputs = {c["id"]: load_file(c["outputs"]) for c in calls if c["id"] in found["seconds"]}
            lines = {c["id"]: load_file(f"{c['outputs']}.lines") for c in calls if c["id"] in found["seconds"]}
        unsure = {c["id"]: tuple(c["unsure"]) for c in calls}
        return {
            c: Returned(list(tensors.values()), found["seconds"][c], unsure[c], found["until"][c], lines[c])
            for c, tensors in outputs.items()
        }


def is_ours(recording: Recording) -> bool:
    """Whether this user made the recording here, and its program is unchanged, as its signature shows."""
    meta = recording.meta
    return is_signed(meta.get("command", []), meta.get("folder", ""), meta.get("signature", ""))


def was_made_here(recording: Recording) -> bool:
    """Whether this user's ptdebug wrote the recording, whatever became of its program."""
    meta = recording.meta
    return was_written_here(recording.path, meta.get("started"), meta.get("origin")) or is_ours(recording)


def _run_probe(spec: Path) -> str:
    """Run the program that `spec` describes to its end or its last call; why a call that it did not meet is absent."""
    command = [sys.executable, "-c", loading(f"{__package__}.probe", "main", str(spec))]
    environment = os.environ | {"TORCHDYNAMO_DISABLE": "1"}
    try:
        ran = subprocess.run(
            command, env=environment, stdin=subprocess.DEVNULL, capture_output=True, timeout=TIMEOUT_SECONDS
        )
    except subprocess.TimeoutExpired:
        return f"the program did not reach the call within {TIMEOUT_SECONDS} s"
    last = ran.stderr.decode(errors="replace").strip().rpartition("\n")[2] if ran.returncode else ""
    return "the program, run again, made no call with these values" + (f" ({last})" if last else "")


def saved_inputs(recording: Recording, compile_id: str, call: int = 0) -> SavedInputs:
    """The record of the inputs of a call. Raises ProgramAbsent."""
    try:
        found = recording.artifact(compile_id, "runtime", f"inputs_{call}" if call else "inputs")
    except RecordingError as error:
        raise ProgramAbsent(str(error)) from error
    if not isinstance(found, SavedInputs):
        raise ProgramAbsent(f"{compile_id}:runtime/inputs is a {type(found).__name__}")
    return found


def _call(recording: Recording, compile_id: str, number: int, folder: Path) -> dict[str, Any]:
    """How the probe knows the call of one compilation: its function, and what it found in its variables."""
    folder.mkdir()
    frame = _whole_frame(recording, compile_id)
    inputs = saved_inputs(recording, compile_id, number)
    random = load_random(recording.path, inputs)
    if random:
        save_file(random, folder / "random.safetensors")
    values, unsure = _known_by(recording, compile_id, inputs)
    called = inputs.call or CallIdentity(file=frame.file, line=frame.line)
    return {
        "id": compile_id, "file": os.path.realpath(called.file), "function": frame.function.rpartition(".")[2],
        "code": called.code, "line": called.line, "outputs": str(folder / "outputs.safetensors"),
        "inputs": _save_tensors(folder / "inputs.safetensors", inputs, load_inputs(recording.path, inputs)),
        "shared": _shared(inputs), "random": str(folder / "random.safetensors") if random else "",
        "numbers": list(_numbers(inputs)), "values": values, "unsure": unsure,
        "state": None if inputs.state is None else describe_state(inputs.state),
    }


def _shared(inputs: SavedInputs) -> dict[str, str]:
    """For each place of a tensor the first that shares its memory."""
    return {i.name: i.alias_of or i.name for i in inputs.inputs if i.tensor and is_place(i.name)}


def _numbers(inputs: SavedInputs) -> Iterator[tuple[str, Any]]:
    """The inputs of the graph that are plain numbers, and where they came from."""
    for item in inputs.inputs:
        if isinstance(item.value, (bool, int, float)) and is_place(item.name):
            yield item.name, item.value


def _known_by(recording: Recording, compile_id: str, inputs: SavedInputs) -> tuple[dict[str, str], list[str]]:
    """What the call is known by besides its tensors and numbers, and at which places that may not be enough."""
    drawn = [i.name for i in inputs.inputs if i.meta is None and not is_place(i.name)]
    if inputs.call is not None:
        return inputs.call.values, [*inputs.call.unsure, *drawn]
    values, unsure = _assumed(recording, compile_id)
    return values, [*unsure, *drawn]


def _assumed(recording: Recording, compile_id: str) -> tuple[dict[str, str], list[str]]:
    """The same from what the guards say, of recordings that do not describe the call."""
    try:
        guards = recording.artifact(compile_id, "guards")
    except RecordingError:
        return {}, []
    values, unsure = {}, []
    for guard in guards.guards if isinstance(guards, Guards) else ():
        found = equality(guard.code) if guard.kind in _VALUES else None
        if found and (found[1] is None or isinstance(found[1], (bool, int, float, str))):
            values[found[0]] = describe(found[1])[0]
        elif guard.kind in ONE_OF_MANY and not guard.source.startswith("__"):
            unsure.append(guard.source)
    return values, unsure


_VALUES = ("EQUALS_MATCH", "BOOL", "NONE")


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
        raise ProgramAbsent(f"{frame.file} has changed since it was recorded")
    return frame


def _save_tensors(path: Path, inputs: SavedInputs, values: Sequence[Any]) -> str:
    """Keep the inputs that are tensors or NumPy arrays, by the places where the call found them; "" if none."""
    found = {}
    for item, value in zip(inputs.inputs, values):
        place = item.name.removeprefix("tensor_of(").removesuffix(")")  # the memory of an array
        plain = isinstance(value, torch.Tensor) and value.layout is torch.strided and value.device.type != "meta"
        if plain and is_place(place):
            found[place] = value.resolve_conj().resolve_neg().contiguous().clone()
    if not found:
        return ""
    save_file(found, path)
    return str(path)


def compare_returned(returned: Sequence[torch.Tensor], observed: Sequence[Any]) -> Comparison:
    """Compare what the function returned with the graph's results: each tensor with the nearest of its kind."""
    found = []
    for tensor in returned:
        like = [o.detach().cpu().resolve_conj().resolve_neg().contiguous() for o in observed if _alike(o, tensor)]
        if not like:
            found.append(Comparison("different", why=f"no result of the graph is a {tensor.dtype}{list(tensor.shape)}"))
            continue
        nearest = min(like, key=lambda o: _distance(o, tensor))
        found.append(compare(nearest, tensor))
    return worst(found)


def _alike(value: Any, tensor: torch.Tensor) -> bool:
    same = isinstance(value, torch.Tensor) and value.shape == tensor.shape and value.dtype == tensor.dtype
    return same and value.layout is torch.strided and not value.is_meta


def _distance(a: torch.Tensor, b: torch.Tensor) -> float:
    wide = torch.complex128 if a.is_complex() else torch.float64
    apart = (a.to(wide) - b.to(wide)).abs().nan_to_num()
    return apart.max().item() if apart.numel() else 0.0
