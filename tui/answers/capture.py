"""What the tracer did: recompilations, guards, and the run itself."""
from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

from ...artifacts.guard_costs import costliest, guard_cost, guards_cost
from ...artifacts.listing import plural, short_place
from ...artifacts.recording import RecordingError
from ...artifacts.records import Guard, Guards, Recompile, Runtime
from ...artifacts.render_graph import source_text
from ...artifacts.render_lists import (
    failed_objects,
    failed_text,
    guard_text,
    recompile_lines,
    symbol_lines,
)
from ...artifacts.render_summary import render_summary
from ...artifacts.resumed import display_name, resumed
from ..session import SOURCE, Session, Target
from .answer import Answer, Details, fixed

COSTLIEST = 12  # checks whose nanoseconds are listed


def recompilations(session: Session, compile_id: str) -> list[Answer]:
    """Each recompilation: what changed, how to avoid it, and what is other in the new code."""
    after = resumed(session.recording)
    infos = {info.id: info for info in session.compiles}
    rows = []
    for owner, found in session.recording.records(Recompile):
        if owner not in infos:
            continue
        name = display_name(infos[owner], after)
        subject = found.subject or found.guard
        title = f"{owner}  {name}: {subject} was {found.expected}, is now {found.actual}"
        known = found.compared_with in infos
        rows.append(Answer(title, _recompilation(session, owner, found, name), (Target(owner, "guards"), 0),
                           hint=found.hint, compares=(found.compared_with, owner) if known else None))
    limits = [info for info in session.compiles if "the limit: " in info.reason]
    rows += [Answer(f"{i.id}  {i.function}: not compiled again", fixed(i.reason), (Target(i.id), 0)) for i in limits]
    return rows


def _recompilation(session: Session, owner: str, found: Recompile, name: str) -> Details:
    def details() -> Sequence[str]:
        seconds = next((info.seconds.get("total") for info in session.compiles if info.id == owner), None)
        lines = [line.text for line in
                 recompile_lines(found, session.recording.source, name, owner, seconds)]
        known = found.compared_with in {info.id for info in session.compiles}
        if known and any(session.is_large_compile(one) for one in (found.compared_with, owner)):
            lines += ["", f"{found.compared_with} -> {owner} is too large to be compared in passing: d compares"]
        elif known:
            lines += ["", f"{found.compared_with} -> {owner} (d: the whole difference)"]
            lines += [f"  {text}" for text in _other_now(session, found.compared_with, owner)]
        return lines

    return details


def _other_now(session: Session, first: str, second: str) -> list[str]:
    from ...artifacts.diff.compilations import Comparison, Side  # the table of questions is loaded at the start
    from ...artifacts.diff.summary import compilation_sentences

    try:
        return compilation_sentences(
            Comparison(Side.of(session.recording, first), Side.of(session.recording, second)).all())
    except RecordingError as error:  # a damaged one
        return [str(error)]


def guards(session: Session, compile_id: str) -> list[Answer]:
    """The guards as a tree: an object, and below it what is reached through it."""
    rows = []
    functions = {info.id: session.name_of(info) for info in session.compiles_of(compile_id)}
    for owner, record in session.recording.records(Guards, compile_id or None):
        runtime = session.recording.find(Runtime, owner, "runtime")
        took = f", {record.check_ns:,} ns a check" if record.check_ns else ""
        failed = failed_objects(record, runtime)
        often = f"; {failed_text(failed, 1)}" if failed else ""
        rows.append(Answer(f"{owner}  {functions.get(owner, '?')}: "
                           f"{plural(len(record.guards), 'guard')}{took}{often}", _guards(record, failed, runtime),
                           (Target(owner, "guards"), 0)))
        rows += _tree(session, owner, record, runtime)
        for symbol in record.symbols:
            lines = [line.text.removeprefix("# ") for line in symbol_lines(symbol, session.recording.source)]
            title = f"{symbol.name}: {symbol.subject} is dynamic"
            rows.append(Answer(title, fixed(*lines), (Target(owner, "guards"), 0), 1))
    return rows


def _guards(record: Guards, failed: Sequence[tuple[str, int]], runtime: Runtime | None) -> Details:
    def details() -> Sequence[str]:
        kinds: dict[str, int] = defaultdict(int)
        for guard in record.guards:
            kinds[guard.kind] += 1
        lines = [f"cost: {guards_cost(record)}"]
        if runtime is not None:
            lines.append(f"checked {plural(runtime.calls + runtime.guard_failures, 'time')}, "
                         f"failed {plural(runtime.guard_failures, 'time')}")
        lines += [f"  {plural(times, 'failure')} at {name}" for name, times in failed]
        lines += [f"{took:6,} ns  {what}" for what, took in costliest(record)[:COSTLIEST]]
        return [*lines, "", *(f"{number:5}  {kind}" for kind, number in sorted(kinds.items(), key=lambda e: -e[1]))]

    return details


def _tree(session: Session, owner: str, record: Guards, runtime: Runtime | None) -> list[Answer]:
    children: dict[str, list[Guard]] = defaultdict(list)
    ids = {guard.id for guard in record.guards}
    for guard in record.guards:
        children[guard.parent if guard.parent in ids and guard.parent != guard.id else ""].append(guard)
    rows: list[Answer] = []
    seen: set[str] = set()
    todo = [(1, guard) for guard in reversed(children[""])]
    while todo:
        depth, guard = todo.pop()
        if guard.id in seen:
            continue
        seen.add(guard.id)
        place = guard.location
        opens = (Target(owner, SOURCE, place.file), place.line - 1) if place else None
        rows.append(Answer(guard_text(guard), _guard(session, guard, record, runtime), opens, depth))
        todo += [(depth + 1, child) for child in reversed(children[guard.id])]
    return rows


def _guard(session: Session, guard: Guard, record: Guards, runtime: Runtime | None) -> Details:
    def details() -> Sequence[str]:
        implicit = " (only checks the type of a container)" if guard.implicit else ""
        lines = [guard.text or guard.code, f"kind: {guard.kind}{implicit}"]
        lines += [f"expected: {guard.expected}"] if guard.expected else []
        lines += [f"object: {guard.subject}"] if guard.subject else []
        lines += [f"reached as: {guard.source}"] if guard.object else []
        if guard.location:
            text = source_text(guard.location, session.recording.source)
            lines += [f"needed by: {short_place(guard.location)}  {text}".rstrip()]
        lines += [f"check: {guard.code}"] if guard.code and guard.code != guard.text else []
        cost = guard_cost(record, guard)
        lines += [f"cost: {cost}"] if cost else []
        times = runtime.failed.get(guard.source, 0) if runtime is not None else 0
        lines += [f"failed: {plural(times, 'time')}, this guard or another one of the same object, or of what is "
                  "reached through it"] if times else []
        return lines

    return details


def run(session: Session, compile_id: str) -> list[Answer]:
    """The run: command, environment, versions, options, how it ended."""
    meta = session.recording.meta
    document = session.summary
    ended = f"exit code {document['exit_code']}" if document["exit_code"] is not None else document["ending"]
    rows = [Answer("summary", lambda: [line.text for line in render_summary(document).lines], (Target(), 0)),
            Answer(f"command  {' '.join(document['command'])}", fixed(" ".join(document["command"]),
                                                                    f"in {meta.get('folder', '?')}", ended)),
            Answer(f"ended  {ended}", fixed(ended))]
    if failure := meta.get("exception"):
        last = str(failure).strip().rpartition("\n")[2]
        rows.append(Answer(f"exception  {last}", fixed(*str(failure).split("\n"))))
    for title, key in (("versions", "versions"), ("environment", "environment"), ("options", "options")):
        values = meta.get(key) or {}
        rows.append(Answer(f"{title}  {len(values)}", fixed(*(f"{k}={v}" for k, v in values.items()) or ("none",))))
        rows += [Answer(f"{k}={v}", fixed(f"{k}={v}"), depth=1) for k, v in values.items()]
    for title, texts in (("notes", session.recording.notes()), ("problems", session.recording.problems)):
        rows += [Answer(f"{title}: {text}", fixed(text)) for text in texts]
    return rows
