"""Runs a recorded program again through the tracer, its graphs in eager, and compares each call with eager.

    python -m ptdebug.cli.scripts.served_calls SPEC.json

Before a call of what is compiled, it runs in copies of the process: in eager, and compiled. Where these differ, more
copies tell which compilation is to blame, and for what; then the program ends. The calls of the program itself are
compiled as ever.
"""
from __future__ import annotations

import functools
import json
import os
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch

from ...replay.recorded.new_memory import SMALL
from ...tracer.runtime import eval_frame
from ...tracer.runtime.compile_wrappers import mark_compiled
from .. import session, torch_compile_patch
from ..launch import Program, execute
from .blaming import blamed
from .compared_calls import Call, Collector, Compiled, Graphs
from .copies import CopyLost


class Checker:
    """Compares calls with eager, until one differs or the time is up."""

    def __init__(self, spec: Mapping[str, Any]) -> None:
        self.spec = spec
        self.graphs, self.collector = Graphs(), Collector()
        self.deadline = time.monotonic() + spec["seconds"]
        self.depth = 0
        self.forced: dict[str, str] = dict(spec["overrides"])  # decisions
        self.report: dict[str, Any] = {"calls": 0, "served": {}, "found": None, "why": ""}

    def around(self, compiled: Callable[..., Any], original: Any) -> Callable[..., Any]:
        """`compiled`, with its calls compared."""
        def checked(*args: Any, **kwargs: Any) -> Any:
            if self.depth == 0:
                self.depth += 1
                try:
                    self._check(Call(self, compiled, original, args, kwargs))
                finally:
                    self.depth -= 1
            return compiled(*args, **kwargs)

        eval_frame.skip_code(checked.__code__)
        functools.update_wrapper(checked, original, updated=())
        mark_compiled(checked, original)
        return checked

    def _check(self, call: Call) -> None:
        """What differs between two runs of eager, with other numbers in new memory too, is no difference."""
        if torch.cuda.is_initialized():
            self.end("a process that uses a GPU cannot be copied, in which calls are compared")
        if time.monotonic() > self.deadline:
            self.report["late"] = True
            self.end("")
        try:
            eager, ran = call.eager(), call.served()
            found = call.differences(ran, eager)
            for again in (call.eager, functools.partial(call.eager, SMALL)) if found else ():
                found = {place: found[place] for place in found.keys() - call.differences(again(), eager).keys()}
        except CopyLost as error:
            self.end(f"a call of the program cannot be run in a copy of its process: {error}")
        self.report["calls"] += 1
        known = self.collector.compiled | ran.made
        for name in dict.fromkeys(ran.served):
            self._served(name, known[name])
        if found:
            try:
                self.report["found"] = blamed(call, eager, ran, found, self.report["calls"])
            except CopyLost as error:
                self.end(f"a call of the program cannot be run in a copy of its process: {error}")
            if self.report["found"] is None:
                place = next(iter(found))
                self.end(f"a call differs from eager ({place}: {found[place].why}), but no compilation can be blamed")
            self.end("")

    def _served(self, name: str, made: Compiled) -> None:
        one = self.report["served"].setdefault(
            name, {"calls": 0, "function": made.function, "file": made.file, "line": made.line})
        one["calls"] += 1

    def end(self, why: str) -> None:
        """Say what was found, and end the program."""
        self.report["why"] = why
        self.save()
        sys.stdout.flush()
        os._exit(0)

    def save(self) -> None:
        """Write the report."""
        Path(self.spec["report"]).write_text(json.dumps(self.report))


def main(path: str) -> None:
    """Run the program that the spec names."""
    spec = json.loads(Path(path).read_text())
    checker = Checker(spec)
    settings = session.Settings(inputs="none", overrides=checker.forced, compile_all=spec["compile_all"])
    session.enter(session.Session(settings, checker.collector, observe=checker.around, graphs=checker.graphs))
    torch_compile_patch.watch_for_torch()
    os.chdir(spec["folder"])
    words = list(spec["command"])
    flagged = words[0] == "-m"
    program = Program("module" if flagged else "script", words[flagged], tuple(words[1 + flagged:]))
    execute(program, lambda code: checker.save())


if __name__ == "__main__":
    main(sys.argv[1])
