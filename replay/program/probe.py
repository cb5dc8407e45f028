"""Runs a program in eager until certain calls of its functions, and saves what those calls returned.

    python -m ptdebug.replay.program.probe SPEC.json

It is a process of its own, started by `program.py`. A call matches if it sees what the recorded one saw: local tensors
bit for bit; those inside of objects, such as parameters that eager has trained since, up to rounding; and the guarded
plain values. The first match runs from a fixed seed, as the graphs do; afterwards the random state is restored, if the
call used no random numbers. The process ends when the last call has returned, or one that used random numbers: what
follows would be another program (parameters trained with other noise).
"""
from __future__ import annotations

import json
import os
import runpy
import sys
import time
from pathlib import Path
from types import FrameType
from typing import Any

import numpy as np
import torch
from safetensors.torch import load_file, save_file
from torch.utils._pytree import tree_leaves

from .places import look


class Probe:
    """A profile function that watches for the calls of `spec`."""

    def __init__(self, spec: dict[str, Any]) -> None:
        self.spec = spec
        self.missing: dict[tuple[str, int], list[dict[str, Any]]] = {}
        for call in spec["calls"]:
            expected = load_file(call["inputs"]) if call["inputs"] else {}
            self.missing.setdefault((call["function"], call["line"]), []).append(call | {"expected": expected})
        self.report: dict[str, Any] = {"seconds": {}, "disturbed": False}
        self.frame: FrameType | None = None
        self.running: list[dict[str, Any]] = []

    def __call__(self, frame: FrameType, event: str, argument: Any) -> None:
        """See a call begin or end."""
        if event == "call":
            wanted = self.missing.get((frame.f_code.co_name, frame.f_code.co_firstlineno))
            if wanted:
                self._begin(frame, [c for c in wanted if _is_the_call(frame, c)])
        elif event == "return" and frame is self.frame:
            self._end(argument)

    def _begin(self, frame: FrameType, calls: list[dict[str, Any]]) -> None:
        if not calls:
            return
        if self.frame is not None:  # inside of another one, which runs from the seed
            self.report["disturbed"] = True
            return
        self.frame, self.running = frame, calls
        self.program_state = _random_state()
        torch.manual_seed(self.spec["seed"])  # random numbers as where the graph is run
        self.seeded_state = _random_state()

    def _end(self, returned: Any) -> None:
        drew = not all(map(torch.equal, _random_state(), self.seeded_state))
        if drew:
            self.report["disturbed"] = True
        else:
            _set_random_state(self.program_state)
        tensors = [leaf for leaf in tree_leaves(returned) if isinstance(leaf, torch.Tensor)]
        dense = {str(i): t.detach().cpu().contiguous().clone() for i, t in enumerate(tensors)}
        for call in self.running:
            save_file(dense, call["outputs"])
            self.report["seconds"][call["id"]] = time.time() - self.spec["started"]
            self.missing[call["function"], call["line"]].remove(call)
        self.frame, self.running = None, []
        Path(self.spec["report"]).write_text(json.dumps(self.report))
        if drew or not any(self.missing.values()):
            sys.stdout.flush()
            os._exit(0)  # what the program does afterwards does not matter here


def _is_the_call(frame: FrameType, call: dict[str, Any]) -> bool:
    if os.path.realpath(frame.f_code.co_filename) != call["file"]:
        return False
    return all(_is_that(look(frame, place), wanted) for place, wanted in call["values"]) and all(
        _holds(_as_tensor(look(frame, place)), wanted, place) for place, wanted in call["expected"].items()
    )


def _is_that(found: Any, wanted: Any) -> bool:
    if not isinstance(found, (bool, int, float, str, type(None))):
        return False
    return bool(found == wanted) or (found != found and wanted != wanted)


def _holds(found: Any, wanted: torch.Tensor, place: str) -> bool:
    if not isinstance(found, torch.Tensor) or found.shape != wanted.shape or found.dtype != wanted.dtype:
        return False
    there = found.detach().cpu()
    if place.count("[") + place.count(".") == 1:  # a variable of its own
        return torch.equal(there.nan_to_num(), wanted.nan_to_num())
    try:
        torch.testing.assert_close(there, wanted, equal_nan=True)
    except AssertionError:
        return False
    return True


def _as_tensor(value: Any) -> Any:
    """A NumPy array as the tensor that a graph gets in its place; anything else as it is."""
    if not isinstance(value, np.ndarray):
        return value
    try:
        return torch.from_numpy(value.copy())
    except TypeError:  # of a dtype that torch does not have
        return value


def _random_state() -> list[torch.Tensor]:
    """The state of torch's generators: the CPU's, then each GPU's."""
    return [torch.get_rng_state(), *(torch.cuda.get_rng_state_all() if torch.cuda.is_initialized() else ())]


def _set_random_state(state: list[torch.Tensor]) -> None:
    torch.set_rng_state(state[0])
    if len(state) > 1:
        torch.cuda.set_rng_state_all(state[1:])


def main(path: str) -> None:
    """Run the program that the spec names. The environment has turned torch.compile off (TORCHDYNAMO_DISABLE)."""
    spec = json.loads(Path(path).read_text())
    sys.argv = list(spec["command"])
    os.chdir(spec["folder"])
    probe = Probe(spec)
    if sys.argv[0] == "-m":
        module = sys.argv[1]
        sys.argv = sys.argv[1:]
        sys.path.insert(0, os.getcwd())
        sys.setprofile(probe)
        runpy.run_module(module, run_name="__main__", alter_sys=True)
    else:
        sys.path.insert(0, os.path.dirname(os.path.realpath(sys.argv[0])))
        sys.setprofile(probe)
        runpy.run_path(sys.argv[0], run_name="__main__")


if __name__ == "__main__":
    main(sys.argv[1])
