"""Run recorded graphs again on their recorded inputs, stage by stage, and find where values first differ from eager.

Each rung runs one stage: the captured graph in eager, the ATen graph, the graph after the passes, the loop IR in the
reference interpreter, the compiled kernels, the whole compiled graph. The verdict is equal, rounding, or different,
with the class of the difference; docs/replay.md says what each means. The exit code is 1 if any rung is different.
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
    """SELECTOR, --device, --repeat, --nan, --passes, --trust and --json."""
    add_selector(parser)
    parser.add_argument("--device", default="cpu", help="where to run: cpu (default) or cuda")
    parser.add_argument("--repeat", type=int, default=1, metavar="N",
                        help="run eager and the kernels N times, to find what differs from run to run")
    parser.add_argument("--nan", action="store_true",
                        help="say where NaNs and infinities are born, even if no result has any")
    parser.add_argument("--passes", action="store_true", help="run the graph after each pass")
    parser.add_argument("--trust", action="store_true",
                        help="also run the program and the functions that a recording from elsewhere names")


def run(arguments: argparse.Namespace) -> int:
    """Replay one compilation, or all compiled ones of a recording."""
    from ...replay.ladder.ladder import replay
    from ...replay.ladder.report import Options
    from ...replay.program.program import ProgramRuns
    from ...replay.recorded.graphs import ReplayError  # imports torch

    with selected(arguments.selector) as (recording, selector):
        ids = [selector.compile] if selector.compile else _compiled(recording)
        if not ids:
            raise CommandError(f"{recording.name} has no compiled graph to replay")
        documents = []
        runs = ProgramRuns(recording, ids, arguments.trust)
        options = Options(arguments.repeat, arguments.nan, arguments.passes)
        for compile_id in ids:
            try:
                document = replay(recording, compile_id, arguments.device, arguments.trust, runs, options).document()
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


def _compiled(recording: Recording) -> list[str]:
    captured = [c.id for c in recording.compiles() if c.status in ("compiled", "eager")]
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
    }
