"""The program run again through the tracer: whether the calls that each compilation serves are what they are in eager.

No graph shows a guard that lets in a call which it should not, or bytecode that loses a side effect. So the recorded
command runs again in a process of its own, with captured graphs in eager, and each call of what is compiled is compared
with eager (`cli/scripts/served_calls.py`). One run serves all compilations of a recording.
"""
from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ...artifacts.garbage import loading
from ...artifacts.recording import Recording, RecordingError
from ...artifacts.records import Frame, Location
from ..verdicts.compare import Comparison
from .program import CHEAP_SECONDS, TIMEOUT_SECONDS, ProgramAbsent, is_ours, saved_inputs


@dataclass(frozen=True)
class Blame:
    """A call that differs from eager: the stage to blame, what is wrong, and the line of the program."""

    stage: str  # guards | output_bytecode | capture
    node: str
    comparison: Comparison
    location: Location | None
    inside: str = ""


@dataclass(frozen=True)
class Served:
    """The calls that a compilation served, as far as they were compared, and the one that is wrong."""

    calls: int
    blame: Blame | None = None


class ServedCalls:
    """The program of a recording, each call of what is compiled compared with eager. `entry` (MODULE:FUNCTION) runs a
    program so; a program that was recorded for longer than CHEAP_SECONDS is run only if `asked`."""

    def __init__(self, recording: Recording, entry: str, trust: bool = False, asked: bool = False) -> None:
        self.recording, self.entry, self.trust, self.asked = recording, entry, trust, asked
        self._report: dict[str, Any] | None = None
        self.seconds = 0.0

    def ask(self, compile_id: str) -> Served:
        """What became of the calls that one compilation served. Raises ProgramAbsent."""
        frame = self._frame(compile_id)
        if self._report is None:
            self._report = self._run()
        report = self._report
        found, served = report.get("found"), report.get("served", {}).get(compile_id)
        if found is not None and found["id"] == compile_id and served is not None:
            _check_same(frame, served)
            return Served(served["calls"], _blame(found, frame))
        if served is None:
            late = f" within {self._limit} s" if report.get("late") else ""
            why = report.get("why") or f"the program, run again, made no call that it serves{late}"
            raise ProgramAbsent(why + (" before the first wrong call" if found is not None else ""))
        _check_same(frame, served)
        if report.get("why") and found is None:
            raise ProgramAbsent(report["why"])
        return Served(served["calls"])

    def _frame(self, compile_id: str) -> Frame:
        meta = self.recording.meta
        if not self.trust and not is_ours(self.recording):
            raise ProgramAbsent(
                "its program was not recorded by you here, or has changed since: --trust runs it anyway")
        if meta.get("compiler", "ptdebug") != "ptdebug":
            raise ProgramAbsent("it was not compiled by ptdebug")
        words = list(meta.get("command", []))
        if not words or words[0] in ("-c", "-"):
            raise ProgramAbsent("its program is not a file")
        try:
            frame = self.recording.artifact(compile_id, "frame")
        except RecordingError as error:
            raise ProgramAbsent(str(error)) from error
        if not isinstance(frame, Frame):
            raise ProgramAbsent("the frame was not recorded")
        path, recorded = Path(frame.file), self.recording.source(frame.file)
        if recorded is None or not path.is_file() or path.read_text(errors="replace") != recorded:
            raise ProgramAbsent(f"{frame.file} has changed since it was recorded")
        seconds = self._seconds(compile_id)
        if seconds > self._limit:
            raise ProgramAbsent(f"it was first called after {seconds:.0f} s: --program runs the program until then")
        return frame

    def _seconds(self, compile_id: str) -> float:
        """When the program first called it, as far as that was recorded."""
        try:
            call = saved_inputs(self.recording, compile_id).call
        except ProgramAbsent:
            return 0.0
        return call.seconds if call is not None else 0.0

    @property
    def _limit(self) -> int:
        """Seconds for which calls are compared."""
        return TIMEOUT_SECONDS if self.asked else CHEAP_SECONDS

    def _run(self) -> dict[str, Any]:
        meta, limit = self.recording.meta, self._limit
        forced = {d.id: d.chosen for _, d in self.recording.decisions() if d.forced}
        with tempfile.TemporaryDirectory(prefix="ptdebug-replay-") as folder:
            report, spec = Path(folder, "report.json"), Path(folder, "spec.json")
            spec.write_text(json.dumps({
                "command": list(meta.get("command", [])), "folder": meta.get("folder", "."), "report": str(report),
                "overrides": forced, "compile_all": bool(dict(meta.get("options") or {}).get("compile-all")),
                "seconds": limit,
            }))
            module, _, function = self.entry.partition(":")
            call = loading(module, function, str(spec))
            environment = os.environ | {"OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
            try:
                ran = subprocess.run([sys.executable, "-c", call], env=environment, stdin=subprocess.DEVNULL,
                                     capture_output=True, timeout=limit * 2)
            except subprocess.TimeoutExpired:
                return {"why": f"the program, its calls compared with eager, did not end within {limit * 2} s"}
            if not report.exists():
                last = ran.stderr.decode(errors="replace").strip().rpartition("\n")[2]
                return {"why": f"the program, run again, ended with exit code {ran.returncode} ({last})"}
            found: dict[str, Any] = json.loads(report.read_text())
        return found


def _check_same(frame: Frame, served: dict[str, Any]) -> None:
    """Raise ProgramAbsent where a compilation of this run is of another function than the recorded one of that id."""
    if (served["function"], served["line"]) != (frame.function, frame.line):
        raise ProgramAbsent("the program, run again, compiles in another order")


def _blame(found: dict[str, Any], frame: Frame) -> Blame:
    comparison = Comparison("different", found["max_abs"], found["max_rel"], why=f"{found['place']}: {found['why']}")
    place = Location(found["file"], found["line"], frame.function) if found["line"] else None
    call = f"call {found['call']} of the program"
    inside = {
        "guards": f"{call}: {frame.function} compiled afresh is right"
                  + (f", and has the guard {found['guard']}" if found["guard"] else ""),
        "output_bytecode": f"{call}: the values of the graph are eager's, and what is made of them is not",
    }.get(found["stage"], f"{call}: {frame.function} in eager has a value here that its graph has not")
    return Blame(found["stage"], found["place"], comparison, place, inside)
