"""Runs a command of ptdebug in a child that was forked for it, and ends as the interpreter would.

`entry` (MODULE:FUNCTION) takes the arguments. Without it, the process becomes a fresh one. The forked one has torch
imported already, which spares seconds; a search compares the two once, and stays with the fresh one where they differ.
"""
from __future__ import annotations

import atexit
import importlib
import os
import sys
import threading
from typing import Any


def run_script(request: dict[str, Any]) -> int:
    """The exit code."""
    os.chdir(request["folder"])
    command = [sys.executable, "-m", __name__.partition(".")[0]]
    if not request["entry"]:
        os.execv(sys.executable, [*command, *request["argv"]])
    sys.argv[:] = [command[-1], *request["argv"]]
    sys.orig_argv[:] = [*command, *request["argv"]]
    module, _, function = request["entry"].partition(":")
    code = _ended(getattr(importlib.import_module(module), function), request["argv"])
    threading._shutdown()  # type: ignore[attr-defined]
    atexit._run_exitfuncs()
    for stream in (sys.stdout, sys.stderr):
        if stream is not None:
            stream.flush()
    return code


def _ended(entry: Any, arguments: list[str]) -> int:
    try:
        entry(arguments)
    except SystemExit as end:
        if end.code is None or isinstance(end.code, int):
            return (end.code or 0) & 0xFF
        print(end.code, file=sys.stderr)
        return 1
    except BaseException:
        sys.excepthook(*sys.exc_info())
        return 1
    return 0
