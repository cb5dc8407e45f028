"""What went wrong in a run: the exception, the node and the line, the artifact of the failing stage, and a repro.

A failure is the exception that ended the program, a compilation that failed, or an internal error of ptdebug, after
which a function ran in eager.
"""
from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

from .recording import CompileInfo, Recording, RecordingError
from .records import Break, Breaks, Graph, Location, Node, Ref, Runtime, SavedInputs, ref, split_ref
from .render import listing
from .stages import GRAPHS, order_of

EXCEPTION, COMPILATION, INTERNAL = "exception", "compilation", "internal"
INTERNAL_ERROR = "internal error in the engine: "
MOST = 20  # failures of one recording
_PLACE = re.compile(r"^  (?:\d+\. )?(.+):(\d+): ", re.MULTILINE)  # in the message of a FullGraphError
_ORIGIN = re.compile(r"^in the stage (\w+)(?: of (\S+))?(?:, at the node (\S+))?$", re.MULTILINE)


@dataclass(frozen=True)
class Failure:
    """One failure; what is not known is "" or 0.

    `kind` is exception, compilation or internal; `node` the reference of the node, `artifact` what to look at first,
    as the part of a selector after the recording, and `row` its line, from 0; `repro` is what `ptdebug repro` takes,
    in the same form, for the call of that number (from 0). `about` says what all this means, `text` is the traceback
    or the whole message.
    """

    kind: str
    title: str
    about: str
    compile: str = ""
    function: str = ""
    file: str = ""
    line: int = 0
    source: str = ""
    node: Ref = ""
    stage: str = ""
    artifact: str = ""
    row: int = 0
    repro: str = ""
    call: int = 0
    text: str = ""


def failures(recording: Recording) -> list[Failure]:
    """The failures of a run: first the exception that ended it."""
    infos = recording.compiles()
    raised = _raised(recording, infos)
    found = [raised] if raised is not None else []
    for info in infos:
        if len(found) >= MOST:
            break
        failure = _of_compilation(recording, info)
        if failure is not None and not any(info.id == f.compile and f.kind == EXCEPTION and info.reason in f.text
                                           for f in found):
            found.append(failure)
    return found


# ---- the program's exception ----------------------------------------------------------------------------------------
def _raised(recording: Recording, infos: list[CompileInfo]) -> Failure | None:
    meta = recording.meta
    text = str(meta.get("exception") or "")
    if not text:
        return None
    raised = meta.get("raised")
    frames = _locations(raised)
    title = _title(raised, text)
    failed = next((i for i in infos if i.status == "failed" and i.reason and i.reason in text), None)
    if failed is not None:
        return _failed(recording, failed, title, EXCEPTION, text)
    owner, frame = _passed_through(frames, infos)
    if owner is None:
        last = next((f for f in reversed(frames) if f.file in recording.sources()), frames[-1] if frames else None)
        return Failure(EXCEPTION, title, _unowned(recording, frames), text=text, **_where(recording, last))
    # the innermost line of the program below the compiled function: of a function that it calls, if that was recorded
    below = frames[frames.index(frame):] if frame is not None else []
    program = [f for f in below if f.file == owner.file or recording.source(f.file) is not None]
    last = program[-1] if program else frame
    stopped = _break_at(recording, owner.id, last)
    where = _where(recording, last)
    if stopped is not None:
        about = f"the line is not in a graph ({stopped.code}): it ran in Python, and raised there as in eager"
        return Failure(EXCEPTION, title, about, owner.id, stage="breaks", artifact=f"{owner.id}:breaks",
                       repro=owner.id, text=text, **where)
    node = _node_at(recording, owner.id, last)
    outside = "raised outside of the captured graphs" if _is_own(recording) else "raised while its compiled code ran"
    about = "raised while this graph ran" if node else outside
    last_call = max(_calls(recording, owner.id) - 1, 0)
    kept = recording.find(SavedInputs, owner.id, "runtime", f"inputs_{last_call}") is not None
    if last_call:
        about += "; the repro gets the inputs of " + (
            "this call" if kept else "its first call: those of this one were not saved")
    shown = f"{owner.id}:capture" if node else owner.id
    return Failure(EXCEPTION, title, about, owner.id, node=node, stage="runtime" if node else "", artifact=shown,
                   row=_row(recording, owner.id, node), repro=owner.id, call=last_call * kept, text=text, **where)


def _unowned(recording: Recording, frames: list[Location]) -> str:
    """What is known of an exception that passed through no function which is known to be compiled."""
    if not frames:
        return "where it was raised was not recorded"
    if _is_own(recording):
        return "no compiled function was running"
    return "whether a compiled function was running is not known: stock does not record qualified names"


def _is_own(recording: Recording) -> bool:
    return bool(recording.meta.get("compiler", "ptdebug") == "ptdebug")


def _calls(recording: Recording, compile_id: str) -> int:
    record = recording.find(Runtime, compile_id, "runtime")
    return record.calls if record is not None else 0


def _title(raised: Any, text: str) -> str:
    if isinstance(raised, dict) and isinstance(raised.get("type"), str):
        message = str(raised.get("message") or "").strip().partition("\n")[0]
        return f"{raised['type']}: {message}" if message else raised["type"]
    return text.rstrip().rpartition("\n")[2]


def _locations(raised: Any) -> list[Location]:
    found = []
    for frame in raised.get("frames", ()) if isinstance(raised, dict) else ():
        names, numbers = ("file", "function"), ("line", "column", "end_line", "end_column")
        if isinstance(frame, dict) and all(isinstance(frame.get(n), str) for n in names) \
                and all(isinstance(frame.get(n), int) for n in numbers):
            found.append(Location(**{name: frame[name] for name in (*names, *numbers)}))
    return found


def _passed_through(frames: list[Location], infos: list[CompileInfo]) -> tuple[CompileInfo | None, Location | None]:
    """The compilation of the innermost frame that has one: the last of its function."""
    for frame in reversed(frames):
        for info in reversed(infos):
            if info.file == frame.file and info.function == frame.function:
                return info, frame
    return None, None


def _break_at(recording: Recording, compile_id: str, place: Location | None) -> Break | None:
    if place is None:
        return None
    breaks = [found for _, record in recording.records(Breaks, compile_id) for found in record.breaks]
    return next((b for b in breaks if (b.location.file, b.location.line) == (place.file, place.line)), None)


def _node_at(recording: Recording, compile_id: str, place: Location | None) -> Ref:
    """The captured node of an expression: that of the same columns, else the first of the line."""
    graph = recording.find(Graph, compile_id, "capture")
    if graph is None or place is None:
        return ""
    on_line = [(node, at) for node in graph.nodes if node.op not in ("placeholder", "get_attr", "output")
               for at in node.stack if (at.file, at.line) == (place.file, place.line)]
    exact = [node for node, at in on_line if (at.column, at.end_column) == (place.column, place.end_column)]
    found = exact[:1] or [node for node, _ in on_line[:1]]
    return ref("capture", found[0].id) if found else ""


# ---- compilations ---------------------------------------------------------------------------------------------------
def _of_compilation(recording: Recording, info: CompileInfo) -> Failure | None:
    title = info.reason.strip().partition("\n")[0]
    if info.status == "failed" and info.reason:
        return _failed(recording, info, title, COMPILATION, info.reason)
    if info.status == "eager" and info.reason.startswith(INTERNAL_ERROR):
        return _in_engine(recording, info)
    if info.status == "eager" and info.reason.startswith("Traceback"):
        title = f"internal error in the tracer: {info.reason.rstrip().rpartition(chr(10))[2]}"
        return Failure(INTERNAL, title, "ptdebug failed; the function runs in eager", info.id, stage="capture",
                       artifact=_last_artifact(recording, info.id), text=info.reason, **_function(recording, info))
    return None


def _failed(recording: Recording, info: CompileInfo, title: str, kind: str, text: str) -> Failure:
    place = _PLACE.search(info.reason)
    where = _function(recording, info)
    if place is not None:
        where |= _where(recording, Location(place[1], int(place[2]), info.function))
    about = "the compilation failed"
    if info.was_left_unended:
        about = "killed, or crashed; what was recorded until then is there"
    return Failure(kind, title, about, info.id, stage="" if info.was_left_unended else "capture",
                   artifact=_last_artifact(recording, info.id), text=text, **where)


def _in_engine(recording: Recording, info: CompileInfo) -> Failure:
    decisions = [d for _, d in recording.decisions(info.id, "engine") if d.chosen == "eager"]
    detail = decisions[-1].why if decisions else info.reason
    origin = _ORIGIN.search(detail)
    stage, part, node_id = (origin[1], origin[2] or "", origin[3] or "") if origin else ("", "", "")
    artifact, node = _find_node(recording, info.id, part, node_id)
    where = _where(recording, node.stack[-1]) if node is not None and node.stack else _function(recording, info)
    found = ref(artifact.partition(":")[0], node.id, artifact.partition(":")[2]) if node is not None else ""
    shown = f"{info.id}:{artifact}" if artifact else _last_artifact(recording, info.id)
    return Failure(INTERNAL, info.reason.partition("\n")[0], "ptdebug failed; the graph runs in eager", info.id,
                   node=found, stage=stage, artifact=shown, row=_row(recording, info.id, found), text=detail,
                   repro=f"{info.id}:capture", **where)


def _find_node(recording: Recording, compile_id: str, part: str, node_id: str) -> tuple[str, Node | None]:
    """The last recorded graph that has the node, as STAGE[:NAME], and the node."""
    if not node_id:
        return "", None
    infos = [info for info in recording.artifacts(compile_id) if info.kind == "Graph"]
    rank = {name: number for number, name in enumerate(("capture", *GRAPHS))}
    for info in sorted(infos, key=lambda i: (i.stage == part, rank.get(i.stage, -1)), reverse=True):
        graph = recording.find(Graph, compile_id, info.stage, info.name)
        node = next((n for n in graph.nodes if n.id == node_id), None) if graph is not None else None
        if node is not None:
            return info.key, node
    return "", None


def _last_artifact(recording: Recording, compile_id: str) -> str:
    """The last thing that was recorded of a compilation before it failed."""
    infos = [i for i in recording.artifacts(compile_id) if i.stage not in ("frame", "runtime", "guards")]
    last = max(infos, key=lambda info: order_of(info.stage), default=None)
    return f"{compile_id}:{last.key}" if last is not None else compile_id


def _row(recording: Recording, compile_id: str, item: Ref) -> int:
    if not item:
        return 0
    stage, name, _ = split_ref(item)
    try:
        lines = listing(recording, compile_id, stage, name).lines
    except RecordingError:
        return 0
    return next((row for row, line in enumerate(lines) if line.ref == item), 0)


def _function(recording: Recording, info: CompileInfo) -> dict[str, Any]:
    return _where(recording, Location(info.file, info.line, info.function))


def _where(recording: Recording, place: Location | None) -> dict[str, Any]:
    if place is None:
        return {}
    lines = (recording.source(place.file) or "").split("\n")
    text = lines[place.line - 1].strip() if 0 < place.line <= len(lines) else ""
    return {"function": place.function, "file": place.file, "line": place.line, "source": text}


def failure_document(f: Failure) -> dict[str, Any]:
    """A failure as JSON."""
    return {"kind": f.kind, "title": f.title, "about": f.about, "compile": f.compile or None,
            "function": f.function, "file": f.file, "line": f.line, "source": f.source, "node": f.node,
            "stage": f.stage, "artifact": f.artifact, "artifact_line": f.row + 1, "repro": f.repro, "call": f.call,
            "text": f.text}
