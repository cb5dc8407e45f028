"""The failure card: what failed, where, what was recorded of it, and how to run it alone."""
from __future__ import annotations

from ...artifacts.failures import Failure, failure_document, failures
from ...artifacts.render_failures import card_lines, commands
from ..session import SOURCE, Session, Target
from .answer import Answer, Details, fixed


def failure(session: Session, compile_id: str) -> list[Answer]:
    """Each failure (of a compilation, or of the run) with its line, compilation, node, artifact and repro below it."""
    return [row for found in failures(session.recording) if compile_id in ("", found.compile)
            for row in _card(session, found)]


def _card(session: Session, found: Failure) -> list[Answer]:
    whole = _whole(session, found)
    rows = [Answer(found.title, whole, _artifact(found), hint=_command(session, found, "repro"))]
    if found.line:
        owner = found.compile or (session.compiles[0].id if session.compiles else "")
        opens = (Target(owner, SOURCE, found.file), found.line - 1) if owner else None
        where = f"{session.short_path(found.file)}:{found.line}"
        details = fixed(where, f"in {found.function}", found.source)
        rows.append(Answer(f"line  {where}  {found.source}", details, opens, 1))
    compiled = f"{found.compile}: {found.about}" if found.compile else found.about
    opens = (Target(found.compile), 0) if found.compile else None
    rows.append(Answer(f"compiled  {compiled}", fixed(compiled), opens, 1))
    if found.stage:
        node = f", at {found.node.partition('#')[2]}" if found.node else ""
        rows.append(Answer(f"stage  {found.stage}{node}", whole, _artifact(found), 1))
    rows += [Answer(f"{title}  {command}", fixed(command), _artifact(found) if title == "look at" else None, 1, command)
             for title, command in _commands(session, found)]
    return [*rows, *_traceback(session, found)]


def _traceback(session: Session, found: Failure) -> list[Answer]:
    texts = found.text.rstrip().split("\n")
    output = session.recording.meta.get("output") or ""
    rows = [Answer(f"traceback  {len(texts)} lines", fixed(*texts), None, 1)] if found.text.strip() else []
    if output:
        rows.append(Answer("last output of the program", fixed(*output.rstrip("\n").split("\n")), None, 1))
    return rows


def _commands(session: Session, found: Failure) -> list[tuple[str, str]]:
    return commands(session.selector(Target()), failure_document(found))


def _command(session: Session, found: Failure, wanted: str) -> str:
    return next((command for title, command in _commands(session, found) if title == wanted), "")


def _artifact(found: Failure) -> tuple[Target, int] | None:
    if not found.artifact:
        return None
    compile_id, _, rest = found.artifact.partition(":")
    stage, _, name = rest.partition(":")
    return Target(compile_id, stage, name), found.row


def _whole(session: Session, found: Failure) -> Details:
    return lambda: [line.text.strip("\n") for line in
                    card_lines(session.selector(Target()), failure_document(found), whole=True)]
