"""What is said of a replay whose process crashes, is killed, or does not end."""
from __future__ import annotations

import faulthandler
import os
import signal
import time
from collections.abc import Callable, Iterable

import pytest
from ptdebug.replay.ladder.contained import Told, contained
from ptdebug.replay.ladder.report import Difference, Report, Rung
from ptdebug.replay.recorded.graphs import ReplayError
from ptdebug.replay.verdicts.compare import Comparison

WRONG = Comparison("different", 1.0)


def climbing(stage: str, end: Callable[[], object], rungs: Iterable[Rung] = (), first: Difference | None = None
             ) -> tuple[str, str, Callable[[Told], Report]]:
    """A replay that ends at a stage."""
    def climb(told: Told) -> Report:
        told(stage, list(rungs), first)
        end()
        return Report("r:0/0", tuple(rungs))

    return "r:0/0", "cpu", climb


def dying(number: int) -> Callable[[], object]:
    return lambda: (faulthandler.disable(), os.kill(os.getpid(), number), time.sleep(9))


ENDS = {
    "a kernel crashes": ("kernels", dying(signal.SIGSEGV), "different", "killed by SIGSEGV"),
    "a kernel never ends": ("kernels", lambda: time.sleep(9), "different", "did not end within the limit"),
    "a kernel's process is killed from outside": ("kernels", dying(signal.SIGKILL), "absent", "killed by SIGKILL"),
    "the interpreter is slow": ("loop_ir", lambda: time.sleep(9), "absent", "did not end within the limit"),
    "eager crashes": ("forward", dying(signal.SIGFPE), "different", "killed by SIGFPE"),
}


@pytest.mark.parametrize("name", ENDS)
def test_how_a_replay_ends(name: str) -> None:
    stage, end, verdict, why = ENDS[name]
    before = Rung("capture", "cpu", "equal")
    (found, after) = contained([lambda: climbing(stage, end, [before]), lambda: climbing("", int, [before])], 0.5)
    assert isinstance(found, Report) and isinstance(after, Report) and after.rungs == (before,)
    capture, last = found.rungs
    assert (capture, last.stage, last.verdict) == (before, stage, verdict) and why in last.document()["why"]
    assert found.verdict == ("different" if verdict == "different" else "equal")
    assert (found.first is not None) == (verdict == "different")


def test_what_differed_before_a_crash_stays_the_first_difference() -> None:
    first = Difference("passes", "relu", None, WRONG)
    passes = Rung("passes", "cpu", "different", WRONG)
    (found,) = contained([lambda: climbing("kernels", dying(signal.SIGSEGV), [passes], first)], 5)
    assert isinstance(found, Report) and found.first == first
    assert [rung.stage for rung in found.rungs] == ["passes", "kernels"]


def test_between_stages_only_compiled_code_is_to_blame() -> None:
    (found,) = contained([lambda: climbing("", lambda: time.sleep(9), [Rung("joint", "cpu", "equal")])], 0.5)
    assert isinstance(found, ReplayError) and "between stages" in str(found)
    kernels = Rung("kernels", "cpu", "equal")
    (found,) = contained([lambda: climbing("", dying(signal.SIGSEGV), [kernels])], 5)
    assert isinstance(found, Report) and [(r.stage, r.verdict) for r in found.rungs] == [("kernels", "different")]
