"""Runs a program in eager until certain calls of its functions, and saves what those calls returned.

It is a process of its own, started by `program.py` with the path of a file of JSON, the spec. A call matches if it
sees what the recorded one saw: the state of torch; descriptions of objects (`identity.py`); local tensors bit for
bit; those inside of objects, such as parameters that eager has trained since, up to rounding (the call then runs on
the recorded numbers); and which of them share memory. It starts from the recorded state of the random number
generators, as the graphs do. The process ends when the last call has returned, or one that used random numbers from
another state than the program's: what follows would be another program (parameters trained with other noise).
"""
from __future__ import annotations

import functools
import json
import os
import runpy
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from types import FrameType
from typing import Any

import numpy as np
import torch
from safetensors.torch import load_file, save_file
from torch.utils._pytree import tree_leaves

from ..recorded.state import random_state, read_state, start_random
from .identity import code_digest, describe_at, describe_state
from .lines import Lines
from .places import Objects, look


class Probe:
    """A profile function that watches for the calls of `spec`."""

    def __init__(self, spec: dict[str, Any]) -> None:
        self.spec = spec
        self.missing: dict[int, list[dict[str, Any]]] = {}  # by the line where their function begins
        for call in spec["calls"]:
            expected = load_file(call["inputs"]) if call["inputs"] else {}
            self.missing.setdefault(call["line"], []).append(call | {"expected": expected})
        self.report: dict[str, Any] = {"seconds": {}, "until": {}, "differs": {}, "disturbed": False}
        self.frame: FrameType | None = None
        self.running: list[dict[str, Any]] = []
        self.replaced: list[tuple[torch.Tensor, ...]] = []
        self.program_state: dict[str, torch.Tensor] = {}
        self.start: dict[str, torch.Tensor] = {}
        self.began = 0.0
        self.agreed: dict[str, int] = {}

    def __call__(self, frame: FrameType, event: str, argument: Any) -> None:
        """See a call begin or end. What goes wrong here is no business of the program."""
        try:
            self._watch(frame, event, argument)
        except Exception as error:
            self.report["error"] = f"{type(error).__name__}: {error}"
            Path(self.spec["report"]).write_text(json.dumps(self.report))
            os._exit(1)

    def _watch(self, frame: FrameType, event: str, argument: Any) -> None:
        if event == "call":
            wanted = self.missing.get(frame.f_code.co_firstlineno)
            if wanted:
                self._begin(frame, [call for call in wanted if self._is_the_call(frame, call)])
        elif event == "return" and frame is self.frame:
            self._end(argument)

    def _is_the_call(self, frame: FrameType, call: dict[str, Any]) -> bool:
        code = frame.f_code
        if code_digest(code) != call["code"] if call["code"] else code.co_name != call["function"]:
            return False
        if os.path.realpath(code.co_filename) != call["file"]:
            return False
        agreed, differs = _agreement(frame, call)
        if differs and agreed > self.agreed.get(call["id"], -1):  # the nearest so far, in case there is no nearer one
            self.agreed[call["id"]] = agreed
            self.report["differs"][call["id"]] = differs
            Path(self.spec["report"]).write_text(json.dumps(self.report))
        return not differs

    def _begin(self, frame: FrameType, calls: list[dict[str, Any]]) -> None:
        if not calls:
            return
        if self.frame is not None:  # inside of another one, which has values of its own
            self.report["disturbed"] = True
            return
        self.frame, self.running = frame, calls[:1]
        self.replaced = _replace(frame, calls[0]["expected"])
        self.program_state = random_state()
        start_random(load_file(calls[0]["random"]) if calls[0]["random"] else {})  # as where the graph is run
        self.start = random_state()
        self.lines = Lines(frame)
        self.began = time.perf_counter()

    def _end(self, returned: Any) -> None:
        took = time.perf_counter() - self.began
        drew = not _equal(random_state(), self.start)
        disturbed = drew and not _equal(self.program_state, self.start)
        if disturbed:
            self.report["disturbed"] = True
        elif not drew:
            start_random(self.program_state)
        tensors = [leaf for leaf in tree_leaves(returned) if isinstance(leaf, torch.Tensor)]
        dense = {str(i): _dense(tensor) for i, tensor in enumerate(tensors) if _has_values(tensor)}
        _put_back(self.replaced)
        for call in self.running:
            save_file(dense, call["outputs"])
            save_file(self.lines.kept, f"{call['outputs']}.lines")
            self.report["seconds"][call["id"]] = took
            self.report["until"][call["id"]] = time.time() - self.spec["started"]
            self.missing[call["line"]].remove(call)
        self.frame, self.running = None, []
        Path(self.spec["report"]).write_text(json.dumps(self.report))
        if disturbed or not any(self.missing.values()):
            sys.stdout.flush()
            os._exit(0)  # what the program does afterwards does not matter here


def _equal(one: dict[str, torch.Tensor], other: dict[str, torch.Tensor]) -> bool:
    return one.keys() == other.keys() and all(torch.equal(one[device], other[device]) for device in one)


def _has_values(tensor: torch.Tensor) -> bool:
    return tensor.layout is torch.strided and not tensor.is_meta and not tensor.is_quantized


def _dense(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.detach().cpu().resolve_conj().resolve_neg().contiguous().clone()


def _agreement(frame: FrameType, call: dict[str, Any]) -> tuple[int, str]:
    """In how many things the call that begins is the recorded one, and the first in which it is not; "" if it is."""
    number = 0
    for number, (name, is_same) in enumerate(_comparisons(frame, call)):
        if not is_same:
            return number, name
    return number, ""


def _comparisons(frame: FrameType, call: dict[str, Any]) -> Iterator[tuple[str, bool]]:
    """(what is compared, whether it is the same), the cheap ones first."""
    objects = Objects(frame.f_locals, frame.f_globals)
    for key, wanted in call["values"].items():
        found = describe_at(objects, key)
        yield key, found is not None and found[0] == wanted
    for place, wanted in call["numbers"]:
        yield place, _is_that(look(frame, place), wanted)
    yield "torch's modes", call["state"] is None or describe_state(read_state()) == call["state"]
    tensors = {place: _as_tensor(look(frame, place)) for place in call["expected"]}
    for place, wanted in call["expected"].items():
        yield place, _holds(tensors[place], wanted, place)
    yield "which tensors share memory", _same_sharing(tensors, call["shared"])


def _same_sharing(tensors: dict[str, torch.Tensor], shared: dict[str, str]) -> bool:
    """Whether those tensors share memory that did at the recorded call."""
    places = [place for place in tensors if place in shared and tensors[place].numel()]
    storages = {place: tensors[place].untyped_storage().data_ptr() for place in places}
    groups = {(storages[place], shared[place]) for place in places}
    return len(groups) == len({storage for storage, _ in groups}) == len({group for _, group in groups})


def _replace(frame: FrameType, expected: dict[str, torch.Tensor]) -> list[tuple[torch.Tensor, ...]]:
    """Put the recorded numbers in place of those that differ by rounding: (tensor, its own numbers, the recorded)."""
    replaced: list[tuple[torch.Tensor, ...]] = []
    for place, wanted in expected.items():
        found = look(frame, place)
        if isinstance(found, torch.Tensor) and not torch.equal(_dense(found).nan_to_num(), wanted.nan_to_num()):
            own = found.detach().clone()
            with suppress(RuntimeError):  # memory that cannot be written: the rounding stays
                found.data.copy_(wanted)
                replaced.append((found, own, found.detach().clone()))
    return replaced


def _put_back(replaced: list[tuple[torch.Tensor, ...]]) -> None:
    """Give the program its own numbers back, where the call has written no others."""
    for tensor, own, recorded in replaced:
        if torch.equal(tensor.detach(), recorded):
            tensor.data.copy_(own)


def _is_that(found: Any, wanted: Any) -> bool:
    if not isinstance(found, (bool, int, float, str, type(None))):
        return False
    return (type(found) is type(wanted) and bool(found == wanted)) or (found != found and wanted != wanted)


def _holds(found: Any, wanted: torch.Tensor, place: str) -> bool:
    if not isinstance(found, torch.Tensor) or found.shape != wanted.shape or found.dtype != wanted.dtype:
        return False
    if not _has_values(found):
        return False
    there = _dense(found)
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


def _uncompiled(model: Any = None, **_options: Any) -> Any:
    """`torch.compile` while it is turned off, without loading Dynamo, which takes longer than torch itself."""
    return _uncompiled if model is None else model


def main(path: str) -> None:
    """Run the program that the spec names. The environment has turned Dynamo off (TORCHDYNAMO_DISABLE), also where the
    program calls it by another name than `torch.compile`."""
    spec = json.loads(Path(path).read_text())
    torch.compile = functools.wraps(torch.compile)(_uncompiled)
    sys.argv = list(spec["command"])
    os.chdir(spec["folder"])
    probe = Probe(spec)
    if sys.path[:1] == [""]:  # of `python -c`, which runs this
        del sys.path[0]
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
