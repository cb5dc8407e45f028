"""Counts of a recording, held against limits.

A limit is a row of LIMITS, which is also an option of `ptdebug check` and a key of [tool.ptdebug.budget].
"""
from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

LIMITS = {
    "graph_breaks": "graph breaks", "recompiles": "recompilations", "graphs": "graphs", "kernels": "kernels",
    "extern_calls": "library calls", "skipped_frames": "functions that were left to eager",
    "failures": "failed compilations",
    "compile_seconds": "seconds of compilation",
}
"""What may be limited, in words. All but failures and seconds are counts of the summary."""


@dataclass(frozen=True)
class Verdict:
    """One limit, what was found, and the places to blame, where there are some."""

    name: str
    limit: float
    found: float
    places: tuple[Mapping[str, Any], ...] = ()

    @property
    def kept(self) -> bool:
        """Whether no more was found than the limit."""
        return self.found <= self.limit


def incomplete(summary: Mapping[str, Any]) -> str:
    """Why the counts of a recording may be too small; "" where they are those of the whole run."""
    if summary["stopped"]:
        return f"recording stopped early: {summary['stopped']}"
    if summary["running"]:
        return "the program still runs"
    return "" if summary["ended"] else "the program did not end by itself, and its last compilations may be missing"


def verdicts(summary: Mapping[str, Any], limits: Mapping[str, float]) -> list[Verdict]:
    """What a recording's summary (`artifacts/summary.py`) says to each limit, in their order."""
    return [Verdict(name, limit, _found(summary, name), tuple(_places(summary, name)))
            for name, limit in limits.items()]


def _found(summary: Mapping[str, Any], name: str) -> float:
    if name == "compile_seconds":
        return float(sum(entry["seconds"].get("total", 0.0) for entry in summary["compiles"]))
    if name == "failures":
        return sum(entry["status"] == "failed" for entry in summary["compiles"])
    found: int = summary["counts"][name]
    return found


def _places(summary: Mapping[str, Any], name: str) -> Sequence[Mapping[str, Any]]:
    """file, line, what and compile of each occurrence."""
    if name == "graph_breaks":
        return [_place(entry, entry["message"]) for entry in summary["graph_breaks"]]
    if name == "recompiles":
        return [_place(entry, f"{entry['guard']}: was {entry['expected']}, is {entry['actual']}")
                for entry in summary["recompiles"]]
    status = {"skipped_frames": "skipped", "failures": "failed"}.get(name)
    return [_place({**entry, "compile": entry["id"]}, f"{entry['function']}: {entry['reason']}")
            for entry in summary["compiles"] if status is not None and entry["status"] == status]


def _place(entry: Mapping[str, Any], what: str) -> Mapping[str, Any]:
    return {"file": entry["file"], "line": entry["line"], "what": what, "compile": entry["compile"]}
