"""The failure card: exception, line, node, stage, artifact and repro of each failure, as lines."""
from __future__ import annotations

from typing import Any

from .listing import Line, printable, source_ref
from .render_run import text_block

SHOWN = 3  # in a summary


def card_lines(recording: str, failure: dict[str, Any], whole: bool = False) -> list[Line]:
    """One failure; `recording` is what names the recording in selectors. With `whole`, all of the traceback."""
    place = source_ref(failure["file"], failure["line"]) if failure["line"] else ""
    rows = [("", failure["title"], place)]
    if failure["line"]:
        where = f"{failure['file']}:{failure['line']}" + (f" in {failure['function']}" if failure["function"] else "")
        rows.append(("line", f"{where}: {failure['source']}" if failure["source"] else where, place))
    if failure["compile"]:
        rows.append(("compiled", f"{failure['compile']}: {failure['about']}", f"open#{failure['compile']}::"))
    else:
        rows.append(("compiled", failure["about"], ""))
    if failure["stage"]:
        rows.append(("stage", failure["stage"], ""))
    if failure["node"]:
        rows.append(("node", failure["node"].partition("#")[2], _opens(failure["artifact"])))
    rows += [(title, command, _opens(failure["artifact"]) if title == "look at" else "")
             for title, command in commands(recording, failure)]
    lines = [Line(printable(f"  {title:<9} {text}" if title else f"  {text}"), item) for title, text, item in rows]
    return lines + (text_block("traceback" if whole else "", failure["text"]) if whole else [])


def commands(recording: str, failure: dict[str, Any]) -> list[tuple[str, str]]:
    """What to do next, as (title, command line)."""
    found = []
    if failure["artifact"]:
        line = f" --line {failure['artifact_line']}" if failure["artifact_line"] > 1 else ""
        found.append(("look at", f"ptdebug show {recording}:{failure['artifact']}{line}"))
    if failure["repro"]:
        call = f" --call {failure['call']}" if failure["call"] else ""
        found.append(("repro", f"ptdebug repro {recording}:{failure['repro']}{call} -o repro.py"))
    return found


def failure_lines(recording: str, failures: list[dict[str, Any]]) -> list[Line]:
    """The failures for a summary."""
    if not failures:
        return []
    lines = [Line(""), Line("what failed")]
    for failure in failures[:SHOWN]:
        lines += card_lines(recording, failure)
    hidden = len(failures) - SHOWN
    if hidden > 0:
        lines.append(Line(f"  ... and {hidden} more (`ptdebug show {recording} --json` has all)"))
    return lines


def _opens(artifact: str) -> str:
    compile_id, _, rest = artifact.partition(":")
    stage, _, name = rest.partition(":")
    return f"open#{compile_id}:{stage}:{name}" if artifact else ""
