"""Whether the process that writes a recording still runs: by its pid and its start time, since pids are reused."""
from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any


def process_start(pid: int) -> str:
    """The start time of a process in the system's units; "" if unknown."""
    try:
        with open(f"/proc/{pid}/stat", encoding="utf-8", errors="replace") as file:
            state, *facts = file.read().rpartition(")")[2].split()
            return "" if state == "Z" else facts[18]  # Z: a zombie
    except (OSError, IndexError):
        return ""


def machine() -> str:
    """The name of this machine and of its system."""
    return " ".join(os.uname()) if hasattr(os, "uname") else ""


def is_running(meta: Mapping[str, Any]) -> bool | None:
    """Whether the program of a recording (its `meta`) runs now; None if unknown: it ran on another machine."""
    if "ended" in meta or "exit_code" in meta:
        return False
    if meta.get("machine") != machine() or not machine() or not isinstance(meta.get("pid"), int):
        return None
    try:
        os.kill(meta["pid"], 0)
    except ProcessLookupError:
        return False
    except OSError:  # it exists and belongs to another user
        pass
    return process_start(meta["pid"]) == meta.get("process_start", "")


def ending(meta: Mapping[str, Any]) -> str:
    """The state of a program without an exit code, in words."""
    if "imported" in meta:
        return "read from a trace, which does not say how the program ended"
    if "ended" in meta:  # a block of `ptdebug.record` ends without one
        return "the recorded block ended"
    running, process = is_running(meta), f"process {meta.get('pid', '?')}"
    if running is None:
        return f"had not ended when this was written ({process} of another machine: killed, or still running)"
    return f"still running ({process})" if running else (
        f"ended without an exit code ({process} is gone: killed, or left by os._exit)")
