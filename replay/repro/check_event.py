"""The part of a script that shows a graph break or a recompilation (see `check.py`)."""
from __future__ import annotations

import argparse
import sys
import tempfile
import traceback
from collections.abc import Callable
from typing import Any

import torch

COMPILER = "ptdebug"
KIND, WANTED = "break", ""


def make() -> list[tuple[Callable[..., Any], list[Any], bool]]:
    """The calls: the function, its arguments, and the grad mode."""
    raise NotImplementedError


# ---- the check: the calls, compiled, and what the compiler counts ----------------------------------------------------
def outcome(kind: str, detail: str = "") -> None:
    """Print the last line, which says what happened, and end."""
    print(f"outcome: {kind}" + (f": {detail}" if detail else ""), flush=True)
    sys.exit(0 if kind == "passed" else 2 if kind == "invalid" else 1)


def counted_by_torch(calls: list[Any]) -> tuple[list[str], list[str]]:
    """The reasons of graph breaks, and the calls for which the function was compiled again."""
    if KIND == "break":
        function, arguments, grad = calls[0]
        with torch.set_grad_enabled(grad):
            found = torch._dynamo.explain(function)(*arguments)
        return [reason.reason.splitlines()[0] for reason in found.break_reasons], []
    graphs: list[Any] = []

    def keep(module: Any, _inputs: Any) -> Any:
        graphs.append(module)
        return module

    compiled, again = torch.compile(calls[0][0], backend=keep), []
    for number, (_, arguments, grad) in enumerate(calls):
        before = len(graphs)
        with torch.set_grad_enabled(grad):
            compiled(*arguments)
        again += [f"call {number}"] if number and len(graphs) > before else []
    return [], again


def recorded_by_ptdebug(calls: list[Any]) -> tuple[list[str], list[str]]:
    """The codes of graph breaks, and the guards that failed."""
    import ptdebug
    from ptdebug.artifacts.records import Breaks, Recompile

    compiled = ptdebug.compile(calls[0][0])
    with ptdebug.record(out=tempfile.mkdtemp(), inputs="none") as recording:
        for _, arguments, grad in calls:
            with torch.set_grad_enabled(grad):
                compiled(*arguments)
        codes = [found.code for _, record in recording.records(Breaks) for found in record.breaks]
        return codes, [record.guard for _, record in recording.records(Recompile)]


def main() -> None:
    """Count and print the verdict. Exit code 1: it shows."""
    options = argparse.ArgumentParser(description="Shows a graph break or a recompilation.")
    options.add_argument("--compiler", default=COMPILER, choices=("ptdebug", "torch", "eager"))
    compiler = options.parse_args().compiler
    try:
        for function, arguments, grad in make():
            with torch.set_grad_enabled(grad):
                function(*arguments)
    except Exception as error:
        traceback.print_exc()
        outcome("invalid", f"eager raises {type(error).__name__}")
    if compiler == "eager":
        outcome("passed")
    breaks, recompiles = (counted_by_torch if compiler == "torch" else recorded_by_ptdebug)(make())
    print(f"{compiler}: graph breaks: {', '.join(breaks) or 'none'}")
    print(f"recompiled for: {', '.join(recompiles) or 'nothing'}")
    found = breaks if KIND == "break" else recompiles
    if WANTED in found or (found and compiler == "torch"):
        outcome(KIND, WANTED)
    outcome("passed")


if __name__ == "__main__":
    main()
