"""List the recordings, newest first."""
from __future__ import annotations

import argparse
import shlex
import time
from pathlib import Path
from typing import Any

from ...artifacts.home import existing_home, recordings
from ...artifacts.listing import Line, printable
from ...artifacts.process_liveness import is_running
from ...artifacts.recording import Recording, RecordingError
from ...artifacts.summary import breaks
from ..printing import add_json, print_json, print_lines

EXAMPLE = "ptdebug ls --json"
AGES = ((86400, "d"), (3600, "h"), (60, "m"), (1, "s"))


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """FOLDER and --json."""
    parser.add_argument("folder", metavar="FOLDER", nargs="?",
                        help="where to look (default: $PTDEBUG_HOME, else .ptdebug here or above)")
    add_json(parser)


def run(arguments: argparse.Namespace) -> int:
    """Print the table; 0 also where there are none."""
    home = existing_home(arguments.folder)
    documents = [_document(path) for path in recordings(home)]
    if arguments.json:
        print_json(home=str(home), recordings=documents)
    elif not documents:
        print(f"no recordings in {printable(str(home))}; make one: ptdebug run SCRIPT")
    else:
        print_lines(_table(documents))
    return 0


def _document(path: Path) -> dict[str, Any]:
    try:
        with Recording.open(path) as recording:
            meta = recording.meta
            statuses = [info.status for info in recording.compiles()]
            return {"name": path.name, "path": str(path), "started": meta.get("started"),
                    "command": meta.get("command", []), "exit_code": meta.get("exit_code"), "running": is_running(meta),
                    "compiles": statuses.count("compiled"), "graph_breaks": len(breaks(recording)),
                    "failed": statuses.count("failed"), "problems": list(recording.problems)}
    except RecordingError as error:
        return {"name": path.name, "path": str(path), "problems": [str(error)]}


def _table(documents: list[dict[str, Any]]) -> list[Line]:
    rows = [("", "NAME", "AGE", "EXIT", "COMPILES", "BREAKS", "COMMAND")]
    for number, document in enumerate(documents):
        mark = f"@~{number}" if number else "@"
        if "command" not in document:
            rows.append((mark, document["name"], "?", "?", "?", "?", document["problems"][0]))
            continue
        rows.append((mark, document["name"], _age(document["started"]), _exit(document),
                     str(document["compiles"]), str(document["graph_breaks"]), shlex.join(document["command"])))
    widths = [max(len(row[i]) for row in rows) for i in range(6)]
    return [Line(printable("  ".join([cell.ljust(width) for cell, width in zip(row, widths)] + [row[-1]])))
            for row in rows]


def _exit(document: dict[str, Any]) -> str:
    if document["exit_code"] is not None:
        return str(document["exit_code"])
    return "running" if document["running"] else "-"


def _age(started: float | None) -> str:
    seconds = max(0.0, time.time() - (started or 0.0))
    return next((f"{int(seconds // size)}{unit}" for size, unit in AGES if seconds >= size), "0s")
