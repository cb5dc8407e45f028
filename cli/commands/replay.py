"""Run recorded graphs again on their recorded inputs, stage by stage, and find where values first differ from eager.

Each rung runs one stage: the program in eager, the captured graph in eager, the ATen graph, the graph after the passes,
the loop IR in the reference interpreter, the compiled kernels, the whole compiled graph. The verdict is equal,
rounding, or different, with the class of the difference; docs/replay.md says what each means. The exit code is 1 if
any rung is different.

The program runs again, in a process of its own, if it reached the call within a minute when it was recorded, or if
--program or --rung program asks for it. A recording from elsewhere runs only if you say so, or with --trust.
"""
from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from ...artifacts.garbage import fewer_collections
from ...artifacts.listing import Line, printable
from ...artifacts.measured import keep
from ...artifacts.recording import Recording
from ...artifacts.selector import Selector
from ..errors import CommandError
from ..printing import add_selector, print_json, print_lines, print_title, say, selected
from ..trust import confirmed

EXAMPLE = "ptdebug replay @:0/0"
OF_PROGRAM = ("program", "guards", "output_bytecode")
"""Rungs for which the program runs again."""
RUNGS = (*OF_PROGRAM, "capture", "joint", "forward", "backward", "passes", "loop_ir", "kernels", "wrapper", "runtime")
CHECKED = "ptdebug.cli.scripts.served_calls:main"
"""Runs a program, its calls compared with eager."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """SELECTOR and the options."""
    add_selector(parser)
    add = parser.add_argument
    add("--rung", metavar="STAGE", action="append", choices=RUNGS, default=[],
        help=f"run this stage only (repeatable): {', '.join(RUNGS)}; also as RECORDING:F/C:STAGE")
    add("--program", dest="again", action=argparse.BooleanOptionalAction, default=None,
        help="run the program again, however long it takes, or not at all")
    add("--call", metavar="N", type=int, default=0,
        help="the inputs of a later call of the graph, counted from 0: one that raised, or with run --inputs all, any")
    add("--device", metavar="DEVICES", default="", help="where to run: cpu, cuda, or cpu,cuda (default: as recorded)")
    add("--repeat", metavar="N", type=int, default=1,
        help="run eager and the kernels N times, to find what differs from run to run")
    add("--nan", action="store_true", help="say where NaNs and infinities are born, even if no result has any")
    add("--passes", action="store_true", help="run the graph after each pass")
    add("--time", action="store_true", help="time each graph and kernel instead, compiled and in eager")
    add("--limit", metavar="SECONDS", type=float, default=600.0,
        help="compiled code that takes longer never ends; any other stage is absent (600)")
    add("--trust", action="store_true", help="run what a recording from elsewhere names, without asking")


def run(arguments: argparse.Namespace) -> int:
    """Replay one compilation, or all compiled ones of a recording, on each device."""
    if arguments.time:
        return _time(arguments)
    fresh = "torch" not in sys.modules  # torch's threads do not live on in a child of fork, which would wait for them
    with selected(arguments.selector) as (recording, selector):
        stages = _stages(arguments, selector)
        if arguments.call < 0 or arguments.repeat < 1:
            raise CommandError("--call counts from 0, and --repeat from 1")
        if not arguments.limit > 0:
            raise CommandError("--limit is a number of seconds above 0")
        with fewer_collections():
            from ...replay.ladder.contained import Climb, contained
            from ...replay.ladder.options import Options
            from ...replay.ladder.replay import replay
            from ...replay.program.program import ProgramRuns
            from ...replay.program.served import ServedCalls
            from ...replay.recorded.graphs import ReplayError  # imports torch

        trust = confirmed(recording, arguments.trust, "replay")
        ids = [selector.compile] if selector.compile else _compiled(recording)
        if not ids:
            raise CommandError(f"{recording.name} has no compiled graph to replay")
        devices = _devices(arguments.device, recording, ids)
        asked = bool(arguments.again) or "program" in stages
        asked = (asked or bool({*OF_PROGRAM} & stages)) and arguments.again is not False
        runs = ProgramRuns(recording, ids, trust, asked, arguments.call)
        served = ServedCalls(recording, CHECKED, trust, asked)
        wanted = [(compile_id, device) for compile_id in ids for device in devices]

        def climb(compile_id: str, device: str) -> tuple[str, str, Climb]:
            own = stages if device == devices[0] else _without_program(stages)  # which runs on no other device
            options = Options(arguments.repeat, arguments.nan, arguments.passes, own, arguments.call)
            return f"{recording.name}:{compile_id}", device, lambda told: replay(
                recording, compile_id, device, trust, runs, replace(options, told=told), served)

        documents: list[dict[str, Any]] = []
        found = contained([partial(climb, *one) for one in wanted], arguments.limit,
                          fork=fresh and devices == ["cpu"])
        for (compile_id, _), end in zip(wanted, found):
            if isinstance(end, ReplayError):
                if selector.compile and len(devices) == 1:
                    raise CommandError(str(end)) from end
                say(f"ptdebug: {compile_id}: {end}")
                continue
            documents.append(end.document())
            if not arguments.json and _ran(documents[-1:], stages):
                _print(compile_id, documents[-1])
        _check_that_something_ran(recording, documents, stages)
        if arguments.json:
            print_json(**_combined(documents, arguments.selector))
    return 1 if any(d["verdict"] == "different" for d in documents) else 0


def _check_that_something_ran(
    recording: Recording, documents: Sequence[dict[str, Any]], stages: frozenset[str]
) -> None:
    """Raise CommandError where there is nothing that a verdict could be about."""
    if not documents:
        raise CommandError(f"nothing of {recording.name} can be replayed")
    if not _ran(documents, stages):
        raise CommandError(f"no {' or '.join(sorted(stages))} can be run: {documents[0]['rungs'][0]['why']}")


def _ran(documents: Sequence[dict[str, Any]], stages: frozenset[str]) -> bool:
    """Whether any of the rungs that were asked for has run."""
    return not stages or any(rung["verdict"] != "absent" for document in documents for rung in document["rungs"])


def _without_program(stages: frozenset[str]) -> frozenset[str]:
    return (stages or frozenset(RUNGS)) - {*OF_PROGRAM}


def _stages(arguments: argparse.Namespace, selector: Selector) -> frozenset[str]:
    """The stages to run; none: all of them."""
    if selector.stage and selector.stage not in RUNGS:
        raise CommandError(f"{selector.stage} is not a stage that replay runs: choose one of {', '.join(RUNGS)}")
    asked = {*arguments.rung, *([selector.stage] if selector.stage else [])}
    if arguments.again is not False:
        return frozenset(asked | {"program"} if asked and arguments.again else asked)
    if asked and not asked - {*OF_PROGRAM}:
        raise CommandError(f"--no-program leaves nothing of --rung {' --rung '.join(sorted(asked))}")
    return _without_program(frozenset(asked))


def _devices(text: str, recording: Recording, ids: Sequence[str]) -> list[str]:
    """Where to run: as asked, or where the inputs were recorded, if there is such a device here."""
    import torch

    asked = [word.strip() for word in text.split(",") if word.strip()]
    for device in asked:
        if device.partition(":")[0] not in ("cpu", "cuda"):
            raise CommandError(f"replay does not run on {device!r}: choose cpu, cuda, or both")
        if device.startswith("cuda") and not torch.cuda.is_available():
            raise CommandError("there is no CUDA device here: replay with --device cpu")
    if asked:
        return list(dict.fromkeys(asked))
    from ...replay.recorded.inputs import recorded_devices

    on_cuda = "cuda" in recorded_devices(recording, ids)  # first: a process that has looked for CUDA should not fork
    return ["cuda" if on_cuda and torch.cuda.is_available() else "cpu"]


def _time(arguments: argparse.Namespace) -> int:
    """Time one compilation, or all compiled ones of a recording; 0 also where eager is faster."""
    with selected(arguments.selector) as (recording, selector):
        from ...replay.failures.case import Case
        from ...replay.measure.regions import measure
        from ...replay.recorded.graphs import ReplayError  # imports torch
        from ..measured import measured_of, print_region

        trust = confirmed(recording, arguments.trust, "time")
        ids = [selector.compile] if selector.compile else _compiled(recording)
        devices = _devices(arguments.device, recording, ids)
        regions, found = [], {}
        for compile_id, device in ((compile_id, device) for compile_id in ids for device in devices):
            try:
                case = Case.from_recording(recording, compile_id, device, trust)
                regions.append(measure(case, f"{recording.name}:{compile_id}"))
            except ReplayError as error:
                if selector.compile:
                    raise CommandError(str(error)) from error
                say(f"ptdebug: {compile_id}: {error}")
                continue
            found[compile_id] = measured_of(regions[-1])
            if not arguments.json:
                print_region(regions[-1])
        keep(recording.path, found)
        if arguments.json:
            print_json(selector=arguments.selector, regions=[region.document() for region in regions])
    return 0


def _compiled(recording: Recording) -> list[str]:
    captured = [c.id for c in recording.compiles() if c.status in ("compiled", "eager") or c.was_left_unended]
    return [id for id in captured if "capture" in recording.stages(id)]


def _print(compile_id: str, document: dict[str, Any]) -> None:
    print_title(f"{compile_id}  {document['summary']}")
    lines = []
    for rung in document["rungs"]:
        lines.append(_rung_line(rung))
        if rung["explanation"]:
            lines.append(f"            {rung['class']}: {rung['explanation']}")
        lines += [f"            {kernel['name']} alone is {kernel['verdict']}, max abs {_text(kernel['max_abs'])}"
                  for kernel in rung["kernels"] if kernel["verdict"] == "different"]
    lines += _gradient_lines(document["rungs"])
    lines += _first_lines(document["first_difference"])
    lines += [f"  {birth['text']}" for birth in document["nan"]]
    if document["inputs"] != "recorded":
        lines.append(f"  inputs: {document['inputs']}")
    if document["drift"]:
        lines.append(f"  generated again, these stages differ from the recording: {', '.join(document['drift'])}")
    print_lines([Line(printable(line)) for line in lines])


def _rung_line(rung: dict[str, Any]) -> str:
    difference = f"max abs {_text(rung['max_abs'])}, rel {_text(rung['max_rel'])}; "
    figures = difference if rung["verdict"] in ("rounding", "different") else ""
    took = "" if rung["verdict"] == "absent" else f"{rung['seconds'] * 1e3:9.2f} ms"
    name = f"{rung['name']}: " if rung.get("name") else ""
    head = f"  {rung['stage']:<9} {rung['device']:<5} {rung['verdict']:<10} {took:12}"
    return f"{head}  {name}{figures}{rung['why']}".rstrip()


def _gradient_lines(rungs: list[dict[str, Any]]) -> list[str]:
    """Each gradient, as it is on the last rung that has it."""
    last = next((rung for rung in reversed(rungs) if rung["gradients"]), None)
    if last is None:
        return []
    rows = [f"    {g['name']:<40} {g['verdict']:<10} max abs {_text(g['max_abs'])}, rel {_text(g['max_rel'])}"
            for g in last["gradients"]]
    return [f"  gradients ({last['stage']}):", *rows]


def _first_lines(first: dict[str, Any] | None) -> list[str]:
    if first is None:
        return []
    where = f"{first['file']}:{first['line']}" if first["file"] else "source line unknown"
    size = _text(first["max_abs"])
    lines = [f"  values first differ in {first['stage']} at {first['node']} ({where}), max abs {size}"]
    if first["inside"]:
        lines.append(f"    in {first['inside']}")
    at = first["at"]
    if at:
        given = ", ".join(f"{name} = {value}" for name, value in at.get("operands", {}).items())
        lines.append(f"    at {at['index']} it is {at['value']}, and should be {at['expected']}"
                     + (f" ({given})" if given else ""))
    return lines


def _text(value: float | None) -> str:
    return "unbounded" if value is None else f"{value:.3g}"


def _combined(documents: list[dict[str, Any]], selector: str) -> dict[str, Any]:
    """One document: of the only compilation, or of all of them with the worst verdict."""
    if len(documents) == 1:
        return {k: v for k, v in documents[0].items() if k != "schema"}
    order = ("equal", "rounding", "different")
    worst = max(documents, key=lambda d: order.index(d["verdict"]))
    return {
        "selector": selector, "verdict": worst["verdict"], "first_difference": worst["first_difference"],
        "rungs": [{"compile": d["selector"].rpartition(":")[2], **rung} for d in documents for rung in d["rungs"]],
        "drift": sorted({stage for d in documents for stage in d["drift"]}),
        "class": worst["class"], "summary": worst["summary"],
        "coverage": {key: sum(d["coverage"][key] for d in documents) for key in ("ran", "rungs")},
        "nan": [birth for d in documents for birth in d["nan"]],
        "inputs": next((d["inputs"] for d in documents if d["inputs"] != "recorded"), "recorded"),
    }
