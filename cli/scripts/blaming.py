"""Which compilation is to blame for a call that differs from eager, and for what: the guards that let the call in, the
captured graph, or the bytecode around it.

It is the guards if the call is right where it is compiled afresh. Else the frame is to blame whose compilation makes
the difference: with it in eager, the call is right. If the results of its graph are values that its lines have in
eager, with the same gradients, the graph is right, and what is around it is not.
"""
from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from types import FrameType
from typing import Any

import torch

from ...artifacts.input_names import in_words
from ...replay.ladder.derivatives import is_that
from ...replay.program.effects import reachable, variables, written
from ...replay.program.lines import Lines, first_unknown, same
from ...replay.verdicts.compare import Comparison
from .compared_calls import Call, Closely, Compiled, Ran

MOST_INLINED = 8
"""Levels of inlined functions that are looked into."""
RESUMED = "torch_dynamo_resume_in_"


def blamed(call: Call, eager: Ran, ran: Ran, found: Mapping[str, Comparison], number: int) -> dict[str, Any] | None:
    """The stage, the compilation and the line to blame for what was `found`; None where that cannot be told."""
    places = list(found)
    place = next((p for p in eager.left if p in found), places[0])

    def right(other: Ran) -> bool:
        return not any(p in found for p in call.differences(other, eager))

    said = {"call": number, "place": in_words(place), "why": found[place].why, "max_abs": found[place].max_abs,
            "max_rel": found[place].max_rel, "guard": "", "file": "", "line": 0}
    known = call.checker.collector.compiled
    fresh = call.served(fresh=True)
    if right(fresh):
        older = [name for name in dict.fromkeys(reversed(ran.served)) if name in known]
        for name in older:
            if right(call.served(without=name)):
                return said | {"stage": "guards", "id": name, **_guard(known[name], fresh)}
        return None
    everything = known | ran.made
    for name in dict.fromkeys(reversed(ran.served)):
        own = _left_in_eager(call, name, everything, ran.served, right)
        if own:
            inside = [_inside(call, name, one, place) for one in reversed(own)]
            return said | {"id": name, **next((i for i in inside if i["stage"] == "capture"), inside[-1])}
    return None


def _left_in_eager(
    call: Call, name: str, known: Mapping[str, Compiled], served: Sequence[str], right: Callable[[Ran], bool]
) -> list[Compiled]:
    """The frame of a compilation, and what it inlines, with all of which in eager the call is right; none if it is not.
    What a frame calls is compiled by itself once the frame is in eager."""
    own, others = [known[name]], {known[other].subject for other in served if other != name}
    for _ in range(MOST_INLINED):
        ran = call.served(eager=[one.subject for one in own])
        if right(ran):
            return own
        more = {made.subject: made for served_by in ran.served if (made := ran.made.get(served_by)) is not None
                and made.subject not in others}
        if not more:
            return []
        own += more.values()
    return []


def _guard(old: Compiled, fresh: Ran) -> dict[str, Any]:
    """The guard that a fresh compilation of the function has, and the one that served the call has not."""
    before = {guard.code for guard in old.guards.guards} if old.guards is not None else set()
    for one in fresh.made.values():
        if one.subject == old.subject and one.guards is not None:
            for guard in one.guards.guards:
                if guard.code not in before:
                    place = guard.location
                    return {"guard": guard.text or guard.code, "file": place.file if place else old.file,
                            "line": place.line if place else old.line}
    return {"file": old.file, "line": old.line}


def _inside(call: Call, name: str, one: Compiled, place: str) -> dict[str, Any]:
    """Whether the graph of a compilation is wrong or what is around it, and the line."""
    graphs = [ran for ran in call.served(closely=True).graphs if ran.name == name]
    lines, gradients, told = _lines(call, one, place)
    first = one.breaks.breaks[0].location.line if one.breaks is not None and one.breaks.breaks else 0
    lines = _window(lines, first, _resumed_at(one))
    known = [part for ran in graphs for value in ran.values.values()
             for part in (value if isinstance(value, (tuple, list)) else (value,))]
    known += [value for value in call.before.values() if isinstance(value, torch.Tensor)]
    wrong = first_unknown(lines, known)
    if all(_is_eagers(output, lines) for ran in graphs for output in ran.outputs):  # what it lacks, nobody needed
        wrong = 0
    wrong = wrong or next(
        (line for ran in graphs if (line := _wrong_gradient(ran, lines, gradients))), 0)
    if wrong:
        return {"stage": "capture", "file": one.file, "line": wrong}
    last = int(lines[-1][0].partition(":")[2]) if lines else one.line
    return {"stage": "output_bytecode", "file": one.file, "line": told or first or last}


def _is_eagers(output: Any, lines: Sequence[tuple[str, Any]]) -> bool:
    """Whether a result of a graph is the value of a line in eager."""
    return not isinstance(output, torch.Tensor) or any(same(kept, output) for _, kept in lines)


def _resumed_at(one: Compiled) -> int:
    number = one.function.rpartition("_at_")[2] if RESUMED in one.function else ""
    return int(number) if number.isdecimal() else 0


def _window(lines: Sequence[tuple[str, Any]], until: int, since: int) -> list[tuple[str, Any]]:
    """The values of the lines that a compilation covers: from where it resumes to where it breaks."""
    numbers = [int(key.partition(":")[2]) for key, _ in lines]
    start = next((i for i, line in enumerate(numbers) if line >= since), 0) if since else 0
    end = next((i for i, line in enumerate(numbers) if i >= start and line >= until), len(numbers)) if until else None
    return list(lines[start:end])


def _lines(call: Call, one: Compiled, place: str) -> tuple[list[tuple[str, Any]], dict[str, Any], int]:
    """What the lines of a function store in eager, with the gradients, and the last that changes what is at `place`."""
    inside = place.removeprefix("len(")
    root = inside.partition("]")[0] + "]" if inside[:2] in ("L[", "G[") else ""
    name = one.function.removeprefix(RESUMED).rpartition("_at_")[0] if RESUMED in one.function else one.function
    name = name.rpartition(".")[2]
    seen: list[Any] = []
    told: list[int] = [0]
    state: list[Any] = [None]

    def now() -> Any:
        roots = {root: call.roots[root]} if root in call.roots and root[0] == "L" else {}
        frame: Mapping[str, Any] = seen[0].f_globals if seen else {}
        found = reachable(roots or {k: v for k, v in variables(frame).items() if k == root})
        return [(k, _key(v)) for k, v in written(found, {}).items()]

    def line_ended(line: int) -> None:
        if root and (new := now()) != state[0]:
            state[0], told[0] = new, line

    def profile(frame: FrameType, event: str, argument: Any) -> None:
        code = frame.f_code
        if event == "call" and not seen and code.co_name == name and code.co_filename == one.file:
            seen.append(frame)
            state[0] = now()
            seen.append(Lines(frame, gradients=True, seen=line_ended))

    def watch(run: Callable[[], Any]) -> Any:
        sys.setprofile(profile)
        try:
            return run()
        finally:
            sys.setprofile(None)

    def answer() -> Any:
        found = seen[1] if len(seen) > 1 else None
        return (list(found.kept.items()), found.gradients or {}, told[0]) if found is not None else ([], {}, 0)

    found: tuple[list[tuple[str, Any]], dict[str, Any], int] = call.watched(watch, answer)
    return found


def _key(value: Any) -> Any:
    """What can be compared with ==."""
    kind, content = value
    if kind != "tensor":
        return value
    numbers = content[1]  # as bytes, since numpy has not all dtypes
    if isinstance(numbers, torch.Tensor):
        return kind, numbers.reshape(-1).view(torch.uint8).numpy().tobytes()
    return kind, numbers


def _wrong_gradient(ran: Closely, lines: Sequence[tuple[str, Any]], gradients: Mapping[str, Any]) -> int:
    """The line of the operation through which a wrong gradient arrives: the last that reads the last value whose
    gradient in the graph is not that of any line which stores it; 0 for none."""
    for node, value in reversed(ran.values.items()):
        stored = [gradients.get(key) for key, kept in lines if isinstance(value, torch.Tensor) and same(kept, value)]
        mine = ran.gradients.get(node)
        if stored and node in ran.readers and not any(
                one is mine if one is None or mine is None else is_that(mine, one) for one in stored):
            return ran.readers[node]
    return 0
