"""Run recorded graphs again on their recorded inputs, stage by stage, and find where values first differ from eager.

Each rung runs one stage: the captured graph in eager, the ATen graph, the graph after the passes, the loop IR in the
reference interpreter, the compiled kernels. The verdict is equal, rounding (at most twice as far from float64 as eager
is), or different. The exit code is 1 if any rung is different.
"""
from __future__ import annotations

import argparse
from typing import Any

from ...artifacts.listing import Line, printable
from ...artifacts.recording import Recording
from ..errors import CommandError
from ..printing import add_selector, print_json, print_lines, print_title, say, selected

EXAMPLE = "ptdebug replay @:0/0"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """SELECTOR, --device, --trust and --json."""
    add_selector(parser)
    parser.add_argument("--device", default="cpu", help="where to run: cpu (default) or cuda")
    parser.add_argument("--time", action="store_true",
                        help="time each graph and kernel instead, compiled and in eager")
    parser.add_argument("--trust", action="store_true",
                        help="also run the program and the functions that a recording from elsewhere names")


def run(arguments: argparse.Namespace) -> int:
    """Replay one compilation, or all compiled ones of a recording."""
    if arguments.time:
        return _time(arguments)
    from ...replay.ladder.ladder import replay
    from ...replay.program.program import ProgramRuns
    from ...replay.recorded.graphs import ReplayError  # imports torch

    with selected(arguments.selector) as (recording, selector):
        ids = [selector.compile] if selector.compile else _compiled(recording)
        if not ids:
            raise CommandError(f"{recording.name} has no compiled graph to replay")
        documents = []
        runs = ProgramRuns(recording, ids, arguments.trust)
        for compile_id in ids:
            try:
                document = replay(recording, compile_id, arguments.device, arguments.trust, runs).document()
                documents.append(document)
                if not arguments.json:
                    _print(compile_id, document)
            except ReplayError as error:
                if selector.compile:
                    raise CommandError(str(error)) from error
                say(f"ptdebug: {compile_id}: {error}")
        if not documents:
            raise CommandError(f"nothing of {recording.name} can be replayed")
        if arguments.json:
            print_json(**_combined(documents, arguments.selector))
    return 1 if any(d["verdict"] == "different" for d in documents) else 0


def _time(arguments: argparse.Namespace) -> int:
    """Time one compilation, or all compiled ones of a recording; 0 also where eager is faster."""
    from ...replay.failures.case import Case
    from ...replay.measure.regions import measure
    from ...replay.recorded.graphs import ReplayError  # imports torch
    from ..measured import print_region

    with selected(arguments.selector) as (recording, selector):
        regions = []
        for compile_id in [selector.compile] if selector.compile else _compiled(recording):
            try:
                case = Case.from_recording(recording, compile_id, arguments.device, arguments.trust)
                regions.append(measure(case, f"{recording.name}:{compile_id}"))
            except ReplayError as error:
                if selector.compile:
                    raise CommandError(str(error)) from error
                say(f"ptdebug: {compile_id}: {error}")
                continue
            if not arguments.json:
                print_region(regions[-1])
        if arguments.json:
            print_json(selector=arguments.selector, regions=[region.document() for region in regions])
    return 0


def _compiled(recording: Recording) -> list[str]:
    captured = [c.id for c in recording.compiles() if c.status in ("compiled", "eager")]
    return [id for id in captured if "capture" in recording.stages(id)]


def _print(compile_id: str, document: dict[str, Any]) -> None:
    print_title(f"{compile_id}  {document['verdict']}")
    lines = []
    for rung in document["rungs"]:
        difference = f"max abs {_text(rung['max_abs'])}, rel {_text(rung['max_rel'])}; "
        figures = difference if rung["verdict"] in ("rounding", "different") else ""
        took = "" if rung["verdict"] == "absent" else f"{rung['seconds'] * 1e3:9.2f} ms"
        head = f"  {rung['stage']:<9} {rung['device']:<5} {rung['verdict']:<10} {took:12}"
        lines.append(f"{head}  {figures}{rung['why']}".rstrip())
    first = document["first_difference"]
    if first is not None:
        where = f"{first['file']}:{first['line']}" if first["file"] else "source line unknown"
        size = _text(first["max_abs"])
        lines.append(f"  values first differ in {first['stage']} at {first['node']} ({where}), max abs {size}")
    if document["drift"]:
        lines.append(f"  generated again, these stages differ from the recording: {', '.join(document['drift'])}")
    print_lines([Line(printable(line)) for line in lines])


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
    }
