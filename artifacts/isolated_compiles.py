"""Isolated compiles: one function compiled for each of many torch.compile calls, as in a loop, sharing nothing."""
from __future__ import annotations

from collections import defaultdict
from typing import Any

from .listing import plural
from .recording import Recording
from .records import Frame

MANY = 3
"""From this many torch.compile calls for one function on, it is reported: a model and its copy are two."""


def isolated_compiles(recording: Recording) -> list[dict[str, Any]]:
    """Each function that was compiled for many torch.compile calls: its location, compilations and seconds."""
    again: dict[tuple[str, str, int], list[tuple[str, Frame]]] = defaultdict(list)
    for info in recording.artifacts(stage="frame"):
        owner = info.compile
        frame = recording.find(Frame, owner, "frame") if info.facts.get("isolated") else None
        if frame is not None and not frame.origin:
            again[frame.function, frame.file, frame.line].append((owner, frame))
    seconds = {info.id: info.seconds.get("total", 0.0) for info in recording.compiles()}
    return [
        {"function": function, "file": file, "line": line, "times": len(found) + 1,
         "compiles": [owner for owner, _ in found], "seconds": sum(seconds[owner] for owner, _ in found),
         "call_site": _call_site(found[0][1])}
        for (function, file, line), found in again.items() if len(found) + 1 >= MANY
    ]


def _call_site(frame: Frame) -> dict[str, Any] | None:
    return {"file": frame.stack[-1].file, "line": frame.stack[-1].line} if frame.stack else None


def isolated_lines(found: dict[str, Any]) -> list[str]:
    """The lines for one of them: what happened, where, and what to change."""
    call = found["call_site"]
    return [
        f"{found['function']} was compiled for each of {plural(found['times'], 'call')} of torch.compile, "
        f"sharing nothing; {found['seconds']:.2f} s after the first",
        f"  {f'called from: {_place(call)}' if call else f'function: {_place(found)}'}",
        "  to avoid: call torch.compile once, before the loop, and reuse the result, without isolate_recompiles; "
        "for many modules of one class, compile the module that contains them",
    ]


def _place(found: dict[str, Any]) -> str:
    return f"{found['file'].rpartition('/')[2]}:{found['line']}"
