"""Run recorded graphs again on their recorded inputs, stage by stage, and find where values first differ from eager.

Each rung runs one stage: the program in eager, the captured graph in eager, the ATen graph, the graph after the passes,
the loop IR in the reference interpreter, the compiled kernels. The verdict is equal, rounding (at most twice as far from
float64 as eager is), or different. The exit code is 1 if any rung is different.

The program runs again, in a process of its own, if it reached the call within 30 s when it was recorded, or if
--rung program asks for it. A recording from elsewhere runs only if you say so, or with --trust.
"""
from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import Any

from ...artifacts.listing import Line, printable
from ...artifacts.recording import Recording
from ...artifacts.selector import Selector
from ..errors import CommandError
from ..printing import add_selector, print_json, print_lines, print_title, say, selected
from ..trust import confirmed

EXAMPLE = "ptdebug replay @:0/0"
RUNGS = ("program", "capture", "joint", "forward", "backward", "passes", "loop_ir", "kernels", "wrapper")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """SELECTOR, --rung, --no-program, --call, --device, --repeat, --trust and --json."""
    add_selector(parser)
    add = parser.add_argument
    add("--rung", metavar="STAGE", action="append", choices=RUNGS, default=[],
        help=f"run this stage only (repeatable): {', '.join(RUNGS)}; also as RECORDING:F/C:STAGE")
    add("--no-program", action="store_true", help="do not run the program again")
    add("--call", metavar="N", type=int, default=0,
        help="the inputs of a later call of the graph, counted from 0; saved by run --inputs all")
    add("--device", metavar="DEVICES", default="", help="where to run: cpu, cuda, or cpu,cuda (default: as recorded)")
    add("--repeat", metavar="N", type=int, default=1, help="run N times, and say what is not deterministic")
    add("--trust", action="store_true", help="also run the program and the functions that a recording from elsewhere names")


def run(arguments: argparse.Namespace) -> int:
    """Replay one compilation, or all compiled ones of a recording, on each device."""
    from ...replay.ladder.ladder import replay
    from ...replay.ladder.options import Options
    from ...replay.program.program import ProgramRuns
    from ...replay.recorded.graphs import ReplayError  # imports torch

    with selected(arguments.selector) as (recording, selector):
        stages = _stages(arguments, selector)
        if arguments.call < 0 or arguments.repeat < 1:
            raise CommandError("--call counts from 0, and --repeat from 1")
        trust = confirmed(recording, arguments.trust, "replay")
        ids = [selector.compile] if selector.compile else _compiled(recording)
        if not ids:
            raise CommandError(f"{recording.name} has no compiled graph to replay")
        devices = _devices(arguments.device, recording, ids)
        runs = ProgramRuns(recording, ids, trust, "program" in arguments.rung or selector.stage == "program",
                           arguments.call)
        documents: list[dict[str, Any]] = []
        for compile_id in ids:
            for device in devices:
                own = stages if device == devices[0] or not stages - {"program"} else stages - {"program"}
                if device != devices[0] and not own:
                    own = frozenset(RUNGS) - {"program"}
                options = Options(repeat=arguments.repeat, stages=own, call=arguments.call)
                try:
                    document = replay(recording, compile_id, device, trust, runs, options).document()
                except ReplayError as error:
                    if selector.compile and len(devices) == 1:
                        raise CommandError(str(error)) from error
                    say(f"ptdebug: {compile_id}: {error}")
                    continue
                documents.append(document)
                if not arguments.json:
                    _print(compile_id, document)
        if not documents:
            raise CommandError(f"nothing of {recording.name} can be replayed")
        if arguments.json:
            print_json(**_combined(documents, arguments.selector))
    return 1 if any(d["verdict"] == "different" for d in documents) else 0


def _stages(arguments: argparse.Namespace, selector: Selector) -> frozenset[str]:
    """The stages to run; none: all of them."""
    if selector.stage and selector.stage not in RUNGS:
        raise CommandError(f"{selector.stage} is not a stage that replay runs: choose one of {', '.join(RUNGS)}")
    asked = {*arguments.rung, *([selector.stage] if selector.stage else [])}
    if arguments.no_program:
        asked = (asked or set(RUNGS)) - {"program"}
        if not asked:
            raise CommandError("--no-program leaves nothing of --rung program")
    return frozenset(asked)


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

    return ["cuda" if torch.cuda.is_available() and "cuda" in recorded_devices(recording, ids) else "cpu"]


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
    if document["inputs"] != "recorded":
        lines.append(f"  inputs: {document['inputs']}")
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
        "inputs": next((d["inputs"] for d in documents if d["inputs"] != "recorded"), "recorded"),
    }
