"""Runs cases: several at once, each in a child of a warm process, with a limit of seconds; what is known is not run.

    with Pool() as pool:
        first, second = pool([case, replace(case, forced={"fuse:*": "separate"})])
"""
from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from signal import Signals
from types import TracebackType
from typing import Any

from safetensors.torch import save_file

from ...dependencies import msgspec
from ..failures.case import Case, Inputs
from ..failures.decisions import Made, read_told
from ..failures.outcome import Outcome
from .client import Workers
from .memo import Memo, forget_old

MOST = 8  # cases at once: each may have threads of its own
LIMIT = 60.0
"""Seconds for one case."""

OF_STOCK = ("torch._dynamo.convert_frame", "torch._inductor.compile_fx")
"""What stock's compiler imports when it is first used."""

Predicate = Callable[[Sequence[Case]], Sequence[Outcome]]
"""Runs cases and says what came of each. Searches hand over all that they would like to know at once."""


@dataclass(frozen=True)
class _Answer:
    outcome: Outcome
    made: tuple[Made, ...] = ()


Asked = tuple[Outcome, tuple[Made, ...]]
UNKNOWN = Outcome("invalid", "it was not run")


class Pool:
    """A predicate over cases. `workers` at once; `limit` seconds each; `keep` outcomes on disk, for later searches."""

    def __init__(
        self, workers: int = 0, limit: float = LIMIT, keep: bool = True, told: Callable[[], None] | None = None,
        processes: Workers | None = None,
    ) -> None:
        self.workers = workers or min(MOST, max(2, len(os.sched_getaffinity(0))))
        self.limit = limit
        self.ran = 0
        self.cpu = 0.0
        self._keep = keep
        self._told = told or (lambda: None)
        self._memos: dict[bool, Memo] = {}
        self.processes = processes or Workers()
        self._inputs: dict[str, Path] = {}
        forget_old()

    def __enter__(self) -> Pool:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """End all processes."""
        self.processes.close()

    # ---- asking
    def __call__(self, cases: Sequence[Case], again: bool = False) -> list[Outcome]:
        """What comes of each case, in order: `again`, although it is known."""
        keys = [case.key() for case in cases]
        missing: dict[str, Case] = {}
        for key, case in zip(keys, cases):
            if again or self._memo(case).get(key) is None:
                missing.setdefault(key, case)
        self._run(missing, False)
        found = []
        for key, case in zip(keys, cases):
            outcome = self._memo(case).get(key)
            assert outcome is not None
            found.append(outcome)
        return found

    def decisions(self, case: Case) -> Asked:
        """What comes of a case, and the decisions that its compilation makes."""
        return self.all_decisions([case])[0]

    def all_decisions(self, cases: Sequence[Case], but_passing: bool = False) -> list[Asked]:
        """The same of several at once; `but_passing`: without the decisions of those known to pass."""
        keys = [case.key() for case in cases]
        known = {key: self._memo(case).get(key) if but_passing else None for key, case in zip(keys, cases)}
        asked = {key: case for key, case in zip(keys, cases) if (outcome := known[key]) is None or not outcome.passed}
        answers = self._run(asked, True)
        return [(answers[key].outcome, answers[key].made) if key in answers else (known[key] or UNKNOWN, ())
                for key in keys]

    def _memo(self, case: Case) -> Memo:
        runs_other_code = bool(case.imports) or case.trust  # which may change before the next search
        if runs_other_code not in self._memos:
            self._memos[runs_other_code] = Memo(keep=self._keep and not runs_other_code)
        return self._memos[runs_other_code]

    # ---- running
    def _run(self, cases: dict[str, Case], ask: bool) -> dict[str, _Answer]:
        keys, found = list(cases), {}
        requests = [partial(self._request, case, ask) for case in cases.values()]
        for position, file, line in self.processes.run(requests, self.workers):
            key = keys[position]
            found[key] = answer = self._answer(file, line, cases[key])
            self.ran += 1
            self.cpu += answer.outcome.cpu
            self._memo(cases[key]).put(key, answer.outcome)
            self._told()
        return found

    def _request(self, case: Case, ask: bool, answer: Path) -> dict[str, Any]:
        header = answer.with_suffix(".json")
        header.write_bytes(case.header())
        return {"header": str(header), "tensors": str(self._tensors(case.inputs)), "ask": ask, "limit": self.limit,
                "load": OF_STOCK if case.compiler == "torch:inductor" else ()}

    def _tensors(self, inputs: Inputs) -> Path:
        """The file with the values of the inputs, which many cases share."""
        if inputs.key not in self._inputs:
            path = self.processes.folder / f"{len(self._inputs)}.safetensors"
            save_file({k: v.contiguous() for k, v in inputs.flats.items()}, path)
            self._inputs[inputs.key] = path
        return self._inputs[inputs.key]

    def _answer(self, file: Path, line: dict[str, Any], case: Case) -> _Answer:
        spent = {"seconds": line["seconds"], "cpu": line["cpu"]}
        died = line["late"] or line["code"] < 0
        told = tuple(read_told(file.with_suffix(".decisions"), case.graph)) if died else ()
        if line["late"]:
            return _Answer(Outcome("hang", f"longer than {self.limit:g} s", **spent), told)
        if line["code"] < 0:
            return _Answer(Outcome("signal", Signals(-line["code"]).name, **spent), told)
        try:
            found = msgspec.json.decode(file.read_bytes(), type=_Found)
        except (OSError, msgspec.MsgspecError):
            words = line["words"].strip().rpartition("\n")[2]
            return _Answer(Outcome("invalid", f"the case could not be run: {words}", **spent))
        file.unlink()
        return _Answer(replace(found.outcome, **spent), found.made)


class _Found(msgspec.Struct):
    outcome: Outcome
    made: tuple[Made, ...] = ()
