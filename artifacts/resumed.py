"""Display names of resume functions: the function that is resumed, and the break before it.

Their names in bytecode and records are those of stock PyTorch: `torch_dynamo_resume_in_forward_at_14`.
"""
from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from .recording import CompileInfo, Recording
from .records import Breaks, Location

LONGEST = 24
"""Characters of an expression that a short name has."""


@dataclass(frozen=True)
class Resumed:
    """`function` (its qualified name) resumes after the break at `place`."""

    function: str
    place: Location
    source: str = ""

    @property
    def display_name(self) -> str:
        """`Model.forward, resumed after the break at model.py:14`."""
        return f"{self.function}, resumed after the break at {self.place.file.rpartition('/')[2]}:{self.place.line}"


    @property
    def short_name(self) -> str:
        """`Model.forward, after print(x), line 14`: two breaks of one line are told apart."""
        what = " ".join(self.source.split())
        shown = what if len(what) <= LONGEST else what[:LONGEST].rstrip() + "…"
        return f"{self.function}, after {shown} (line {self.place.line})" if what else (
            f"{self.function}, after line {self.place.line}")


def resumed(recording: Recording) -> dict[str, Resumed]:
    """By compile id, the compilations of resume functions (`Frame.origin`, which `Break.resumes` names)."""
    origins = origins_of(recording)
    if not origins:
        return {}
    places: dict[tuple[str, str], tuple[Location, str]] = {}
    for owner, record in recording.records(Breaks):
        for found in record.breaks:
            for origin in found.resumes:
                places.setdefault((_process(owner), origin), (found.location, found.expression))
    return {
        owner: Resumed(origin.rpartition("+")[0].rpartition(":")[2], *places[_process(owner), origin])
        for owner, origin in origins.items() if (_process(owner), origin) in places
    }


def origins_of(recording: Recording) -> dict[str, str]:
    """By compile id, what each compilation of a resume function continues."""
    frames = recording.artifacts(stage="frame")
    return {info.compile: str(info.facts["origin"]) for info in frames if info.facts.get("origin")}


def resumed_here(recording: Recording, compile_id: str) -> dict[str, Resumed]:
    """`resumed`, as far as one compilation is concerned: nothing else is read if it is not of a resume function."""
    frames = recording.artifacts(compile_id, "frame")
    return resumed(recording) if any(info.facts.get("origin") for info in frames) else {}


def display_name(info: CompileInfo, after: Mapping[str, Resumed]) -> str:
    """The name of the compiled function; for resume functions (`after`: see `resumed`) the function and the line."""
    if info.id in after:
        return after[info.id].display_name
    match = re.fullmatch(r"torch_dynamo_resume_in_(.+)_at_(\d+)", info.function)
    return f"{match[1]}, resumed from line {match[2]}" if match else info.function


def _process(compile_id: str) -> str:
    return compile_id.partition("@")[2]
