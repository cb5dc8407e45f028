"""A recording as a trace in Chrome's format, which Perfetto (ui.perfetto.dev) and chrome://tracing open.

A compilation begins where it was recorded and takes as long as it took; its stages' seconds are measured, and drawn one
after the other from its beginning, since only their sums are recorded. What ran is there where it was profiled
(`run --profile`), and one call as `replay --time` measured it.
"""
from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from . import profiles
from .listing import printable
from .measured import Measured, kept, of_groups
from .recording import CompileInfo, Recording
from .records import Break, Breaks, Recompile, Runtime
from .render_lists import change_text
from .resumed import display_name, resumed
from .stages import TIMINGS
from .summary import recompile_document

PHASES = ("cache", *TIMINGS, "recording")  # in the order in which most of their work happens
_MICRO = 1_000_000


def chrome_trace(recording: Recording, compile_id: str = "") -> dict[str, Any]:
    """The document; of one compilation with `compile_id`."""
    infos = [info for info in recording.compiles() if compile_id in ("", info.id)]
    meta = recording.meta
    start = min([meta.get("started", 0.0), *(info.started for info in infos if info.started)])
    events = [*_names(recording, infos), *_run(recording, meta, start)]
    names = resumed(recording)
    breaks, again = _by_compile(recording, Breaks), _by_compile(recording, Recompile)
    runtimes, timed = _by_compile(recording, Runtime), kept(recording.path)
    for info in infos:
        events += _compilation(recording, info, display_name(info, names), start, runtimes.get(info.id))
        pid = recording.process(info.id)
        events += _instants(info, pid, start, breaks.get(info.id), again.get(info.id))
        if info.id in timed:
            events += _kernels(recording, info, timed[info.id], start)
    profile = profiles.kept(recording.path)
    if profile is not None:
        events += _profiled(recording, profile, compile_id, start)
    note = "stages, and the kernels of a call, are drawn one after the other: only their durations are measured"
    return {"displayTimeUnit": "ms", "otherData": {"recording": recording.name, "note": note}, "traceEvents": events}


def _by_compile(recording: Recording, kind: type[Any]) -> dict[str, Any]:
    return dict(recording.records(kind))


def _names(recording: Recording, infos: list[CompileInfo]) -> Iterator[dict[str, Any]]:
    for pid in dict.fromkeys([recording.process(), *(recording.process(info.id) for info in infos)]):
        for thread, title in ((0, "program"), (1, "compilations"), (2, "kernels of one call, as measured")):
            yield {"ph": "M", "pid": pid, "tid": thread, "name": "thread_name", "args": {"name": title}}
        yield {"ph": "M", "pid": pid, "name": "process_name", "args": {"name": f"ptdebug {recording.name}"}}


def _run(recording: Recording, meta: dict[str, Any], start: float) -> Iterator[dict[str, Any]]:
    if "started" in meta and "ended" in meta:
        command = printable(" ".join(meta.get("command", [])))
        yield {"ph": "X", "pid": recording.process(), "tid": 0, "name": command or "the recorded block", "cat": "run",
               "ts": _us(meta["started"] - start), "dur": _us(meta["ended"] - meta["started"]),
               "args": {"exit_code": meta.get("exit_code"), "exception": meta.get("exception")}}


def _compilation(
    recording: Recording, info: CompileInfo, name: str, start: float, runtime: Runtime | None,
) -> Iterator[dict[str, Any]]:
    pid = recording.process(info.id)
    total = info.seconds.get("total", sum(info.seconds.values()))
    at = _us(info.started - start) if info.started else 0.0
    args: dict[str, Any] = {"status": info.status, "reason": info.reason, "place": f"{info.file}:{info.line}",
                            "show": f"ptdebug show {recording.name}:{info.id}"}
    if runtime is not None:
        args |= {"calls": runtime.calls, "guard_failures": runtime.guard_failures}
    yield {"ph": "X", "pid": pid, "tid": 1, "name": f"{info.id} {printable(name)}", "cat": f"compile,{info.status}",
           "ts": at, "dur": _us(total), "args": args}
    end = at + _us(total)
    phases = [*PHASES, *(phase for phase in info.seconds if phase not in PHASES)]
    for phase in phases:
        duration = min(_us(info.seconds.get(phase, 0.0)), end - at)
        if phase != "total" and duration > 0:
            yield {"ph": "X", "pid": pid, "tid": 1, "name": phase, "cat": "stage", "ts": at, "dur": duration,
                   "args": {"seconds": info.seconds[phase]}}
            at += duration


def _instants(
    info: CompileInfo, pid: int, start: float, breaks: Breaks | None, again: Recompile | None,
) -> Iterator[dict[str, Any]]:
    """Graph breaks and the reason of a recompilation, as marks at the compilation."""
    base = {"ph": "i", "pid": pid, "tid": 1, "s": "t", "ts": _us(info.started - start) if info.started else 0.0}
    if again is not None:
        change = change_text(recompile_document(info, again))
        yield base | {"name": f"recompilation: {printable(change)}", "cat": "recompile", "args": {"guard": again.guard}}
    found: tuple[Break, ...] = breaks.breaks if breaks is not None else ()
    for entry in found:
        place = f"{entry.location.file}:{entry.location.line}"
        yield base | {"name": f"graph break: {entry.code}", "cat": "break",
                      "args": {"place": place, "source": entry.source, "message": entry.message}}


def _kernels(recording: Recording, info: CompileInfo, measured: Measured, start: float) -> Iterator[dict[str, Any]]:
    """The kernels and library calls of one call, each with the command that shows what it computes."""
    at = _us(info.started - start + info.seconds.get("total", 0.0)) if info.started else 0.0
    for part, group, kernel in of_groups(recording, info.id, measured):
        shown = f"{recording.name}:{info.id}:schedule" + (f":{part}" if part else "")
        eager = {} if kernel.eager_seconds is None else {"eager_seconds": kernel.eager_seconds}
        yield {"ph": "X", "pid": recording.process(info.id), "tid": 2, "name": printable(kernel.name),
               "cat": f"kernel,{kernel.kind}", "ts": at, "dur": _us(kernel.seconds),
               "args": {"group": group, "took": kernel.text, "device": measured.device, **eager,
                        "show": f"ptdebug show {shown}"}}
        at += _us(kernel.seconds)


def _profiled(
    recording: Recording, profile: profiles.Profile, compile_id: str, start: float
) -> Iterator[dict[str, Any]]:
    """What the profiler saw, each thread and stream in a row of its own, with the command that shows what ran."""
    pid, rows = recording.process(), dict[tuple[bool, int], int]()
    for event in profile.events:
        if compile_id not in ("", event.compile):
            continue
        row = rows.setdefault((event.kind == "gpu", event.thread), 3 + len(rows))
        stage = "schedule" if event.kernel else "wrapper"
        shown = f"{recording.name}:{event.compile}:{stage}" + (f":{event.part}" if event.part else "")
        ran = {"kernel": event.kernel} if event.kernel else {}
        yield {"ph": "X", "pid": pid, "tid": row, "name": printable(event.name), "cat": f"profiled,{event.kind}",
               "ts": _us(event.start - start), "dur": _us(event.seconds),
               "args": {"compile": event.compile, "part": event.part, **ran, "show": f"ptdebug show {shown}"}}
    for (on_gpu, thread), row in rows.items():
        title = f"stream {thread}, as profiled" if on_gpu else f"thread {thread}, as profiled"
        yield {"ph": "M", "pid": pid, "tid": row, "name": "thread_name", "args": {"name": title}}


def _us(seconds: float) -> float:
    return max(0.0, round(seconds * _MICRO, 1))
