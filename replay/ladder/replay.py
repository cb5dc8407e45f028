"""Replays one compilation: chooses the ladder for its kind of graph, and climbs it."""
from __future__ import annotations

import dataclasses

import torch

from ...artifacts.recording import Recording
from ..program.program import ProgramRuns
from ..program.served import ServedCalls
from ..recorded.graphs import ReplayError, on_device
from ..recorded.inputs import load_random
from ..recorded.precision import in_full_precision
from ..recorded.state import restored
from .control import ControlLadder, calls_functions, cuts
from .kernels_elsewhere import kernels_elsewhere
from .ladder import Ladder
from .options import Options
from .regenerate import reason
from .report import NO_SUCH_STAGE, Report, Rung
from .training import TrainingLadder


def replay(
    recording: Recording, compile_id: str, device: str = "cpu", trust: bool = False, runs: ProgramRuns | None = None,
    options: Options | None = None, served: ServedCalls | None = None,
) -> Report:
    """Climb the ladder of one compilation. To replay several of a recording, pass the same `runs` to all, so that the
    program runs once, and the same `served`, without which its calls are not compared. Raises ReplayError where it
    cannot be run again."""
    if device.startswith("cuda") and not torch.cuda.is_available():
        raise ReplayError("there is no CUDA device here: replay with --device cpu")
    kind = TrainingLadder if "joint" in recording.stages(compile_id) else Ladder
    if calls_functions(recording, compile_id) or cuts(recording, compile_id):
        kind = ControlLadder
    try:
        with on_device(device), kernels_elsewhere(device):
            ladder = kind(recording, compile_id, device, trust, runs, options, served)
            with restored(ladder.kept.state, load_random(recording.path, ladder.kept), device), in_full_precision():
                report = ladder.climb()
        ran = {rung.stage for rung in report.rungs}
        missing = [Rung(stage, device, "absent", why=NO_SUCH_STAGE) for stage in sorted(ladder.options.stages - ran)]
        missing = [] if ran else missing
        return dataclasses.replace(report, rungs=(*report.rungs, *missing), inputs=ladder.made_up)
    except ReplayError:
        raise
    except Exception as error:  # what is recorded is data: whatever it leads to is said of it
        raise ReplayError(f"{compile_id} cannot be run again from what is recorded: {reason(error)}") from error
