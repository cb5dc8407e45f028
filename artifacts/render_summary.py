"""The summary of a recording, and the overview of one compilation, as listings."""
from __future__ import annotations

import shlex
from pathlib import Path
from typing import Any

from .home import existing_home
from .isolated_compiles import isolated_lines
from .listing import Line, Listing, plural, printable, source_ref
from .recording import CompileInfo, Recording
from .records import Ref
from .render_failures import failure_lines
from .render_lists import change_text, render_absents
from .render_run import settings_lines, text_block
from .resumed import display_name, resumed_here

MAX_COMPILES = 40  # in a summary; the rest is counted
MAX_RECOMPILES = 200
SHOWN_TRACEBACK = 12  # lines
SHOWN_OUTPUT = 10


def render_summary(document: dict[str, Any]) -> Listing:
    """The document of `summary` for a person."""
    counts = document["counts"]
    exit_code = document["exit_code"]
    if exit_code is not None:
        ended = f"exit code {exit_code}"
    elif document["stopped"] is not None:
        ended = f"the recording stopped: {document['stopped']}"
    else:
        ended = document["ending"]
    texts = [
        f"{document['recording']}",
        f"command   {shlex.join(document['command'])}   {ended}",
        *(line.text for line in settings_lines(document)),
        "counts    " + ", ".join(_count(name, number) for name, number in counts.items() if number),
    ]
    if len(document["ranks"]) > 1:
        texts.append(f"ranks     {', '.join(map(str, document['ranks']))} (compared by `ptdebug ranks`)")
    if document["compiles"]:
        total = sum(c["seconds"]["total"] for c in document["compiles"])
        texts.append(f"recording took {document['overhead_seconds']['recording']:.3f} s of {total:.2f} s compile time")
    lines = [Line(printable(text)) for text in texts]
    lines += failure_lines(_name(document["recording"]), document["failures"])
    lines += text_block("traceback", document["exception"] or "", SHOWN_TRACEBACK)
    lines += text_block("last output", document["output"] or "", SHOWN_OUTPUT)
    lines += [Line(""), Line("compilations" if document["compiles"] else "nothing was compiled")]
    lines += [_compile_line(c) for c in document["compiles"][:MAX_COMPILES]]
    hidden = len(document["compiles"]) - MAX_COMPILES
    lines += [Line(f"  ... and {hidden} more")] if hidden > 0 else []
    if document["graph_breaks"]:
        lines += [Line(""), Line("graph breaks")]
        for found in document["graph_breaks"]:
            place = source_ref(found["file"], found["line"])
            lines += [Line(printable(f"  {_base(found['file'])}:{found['line']}  {found['source']}"), place),
                      Line(printable(f"      {found['message']}"), place)]
            lines += [Line(printable(f"      change: {found['hint']}"), place)] if found["hint"] else []
    if document["isolated_compiles"]:
        lines += [Line(""), Line("compiled for many calls of torch.compile")]
        texts = [text for found in document["isolated_compiles"] for text in isolated_lines(found)]
        lines += [Line(printable(f"  {text}")) for text in texts]
    if document["recompiles"]:
        lines += [Line(""), Line("recompilations")]
        lines += [Line(printable(f"  {f['compile']}  {change_text(f)}"), open_ref(f["compile"], "guards", "recompile"))
                  for f in document["recompiles"][:MAX_RECOMPILES]]
        hidden = len(document["recompiles"]) - MAX_RECOMPILES
        lines += [Line(f"  ... and {hidden} more (`ptdebug recompiles` lists all)")] if hidden > 0 else []
    for title in ("notes", "problems"):
        if document.get(title):
            lines += [Line(""), Line(title), *(Line(printable(f"  {text}")) for text in document[title])]
    return Listing(document["recording"], "text", tuple(lines))


def render_compile(recording: Recording, info: CompileInfo) -> Listing:
    """One compilation: status, where the time went, what each stage left."""
    seconds = {name: value for name, value in info.seconds.items() if value >= 0.0005}
    texts = [
        f"{info.id}  {display_name(info, resumed_here(recording, info.id))}  ({info.file}:{info.line})",
        *(f"{'status    ' if number == 0 else ' ' * 10}{line}" for number, line in enumerate(
            (info.status + (": " + info.reason if info.reason else "")).split("\n"))),
        "seconds   " + (", ".join(f"{name} {value:.3f}" for name, value in seconds.items()) or "none recorded"),
    ]
    first = source_ref(info.file, info.line)
    lines = [Line(printable(text), first if number == 0 else "") for number, text in enumerate(texts)] + [Line("")]
    artifacts = recording.artifacts(info.id)
    width = min(max([16, *(len(artifact.key) for artifact in artifacts)]), 56)
    for artifact in artifacts:
        count = items_text(artifact.kind, artifact.items)
        text = f"{artifact.key:<{width}} {artifact.kind:<12} {count}".rstrip()
        lines.append(Line(printable(text), open_ref(info.id, artifact.stage, artifact.name)))
    decisions = recording.count_decisions(info.id)
    if decisions:
        lines.append(Line(f"{'decisions':<{width}} {'Decision':<12} {decisions}", open_ref(info.id, "decisions", "")))
    lines += render_absents([absent for _, absent in recording.absents(info.id)])
    return Listing(f"{recording.name}:{info.id}", "text", tuple(lines))


UNITS = {"Graph": "node", "Bytecode": "instruction", "Breaks": "break", "Guards": "guard", "Loops": "statement",
         "Fusion": "pair", "Schedule": "group", "Kernel": "line", "Wrapper": "line", "SavedInputs": "input",
         "Partition": "saved value", "Steps": "step"}


def open_ref(compile_id: str, stage: str, name: str) -> Ref:
    """A reference from an overview to what its line is about: an artifact, or without a stage a compilation."""
    return f"open#{compile_id}:{stage}:{name}"


def items_text(kind: str, items: int) -> str:
    """`12 nodes`; "" for a record that is one thing."""
    unit = UNITS.get(kind)
    return "" if unit is None else plural(items, unit)


def _compile_line(document: dict[str, Any]) -> Line:
    counted = {"graph_nodes": "node", "kernels": "kernel", "extern_calls": "library call", "guards": "guard",
               "calls": "call"}
    parts = [plural(document[key], noun) for key, noun in counted.items()]
    what = ", ".join(p for p in parts if not p.startswith("0 "))
    reason = (document["reason"] or "").partition("\n")[0]
    what = f"{what}; {reason}" if what and reason else what or reason
    where = document["display_name"]
    if where == document["function"]:  # else it names a place itself
        where += f" {_base(document['file'])}:{document['line']}"
    return Line(printable(f"  {document['id']:<6} {document['status']:<9} {document['seconds']['total']:6.2f} s  "
                          f"{where}  {what}".rstrip()), open_ref(document["id"], "", ""))


def _count(name: str, number: int) -> str:
    name = name.replace("_", " ")
    return f"{number} {name[:-1] if number == 1 and name.endswith('s') else name}"


def _name(path: str) -> str:
    """How selectors name a recording."""
    found = Path(path)
    return found.name if found.parent.absolute() == existing_home() else path


def _base(file: str) -> str:
    return file.rpartition("/")[2]
