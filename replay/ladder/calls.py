"""The rungs that no graph can show: the guards of a compilation, and the bytecode around its graph."""
from __future__ import annotations

import time
from collections.abc import Callable

from ..program.program import ProgramAbsent
from ..program.served import ServedCalls
from .report import Difference, Rung

STAGES = ("guards", "output_bytecode")


def call_rungs(
    served: ServedCalls, compile_id: str, wants: Callable[[str], bool], tell: Callable[[str], None]
) -> tuple[list[Rung], Difference | None]:
    """The rungs of both stages, as far as they are asked for, and where the calls of a compilation first go wrong."""
    stages = [stage for stage in STAGES if wants(stage)]
    if not stages:
        return [], None
    tell("program")
    start = time.perf_counter()
    try:
        found = served.ask(compile_id)
    except ProgramAbsent as error:
        return [Rung(stage, "cpu", "absent", why=str(error)) for stage in stages], None
    finally:
        tell("")
    seconds, blame = time.perf_counter() - start, found.blame
    why = f"{found.calls} {'call' if found.calls == 1 else 'calls'} of the program that it serves, compared with eager"
    if blame is None:
        return [Rung(stage, "cpu", "equal", seconds=seconds, why=why) for stage in stages], None
    wrong = "guards" if blame.stage == "guards" else STAGES[-1]  # a wrong graph shows in what the bytecode makes of it
    rungs = [Rung(stage, "cpu", "different", blame.comparison, seconds) if stage == wrong else
             Rung(stage, "cpu", "equal", seconds=seconds, why=why) for stage in stages]
    first = Difference(blame.stage, blame.node, blame.location, blame.comparison, blame.inside)
    return rungs, first if wrong in stages else None
