"""Finds what a recording knows about a subject: "buf3 buf4", "why was addmm not lowered?", "print".

Everything with a reason can answer: decisions, candidate pairs of the fusion, graph breaks, recompilations, stages
that are absent. A question matches by the words in it that are words of a subject; the answers with the most such
words come back.
"""
from __future__ import annotations

import difflib
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from ..dependencies import msgspec
from .listing import Line, printable
from .recording import Recording
from .records import Fusion, Guards
from .render_lists import break_lines, candidate_lines, decision_lines, recompile_lines, symbol_lines
from .summary import breaks, recompiles

_WORD = re.compile(r"[A-Za-z_][A-Za-z_0-9]*|\d+")
# Words that a question is made of; they count only where nothing else matches.
_QUESTION = frozenset("why was were is are did does do not no the a an of with into to in it by and or s t".split())


@dataclass(frozen=True)
class Answer:
    """One thing with a reason: `about` is the text that subjects are looked for in."""

    compile: str
    kind: str  # decision | fusion | break | recompile | absent | compile
    about: str
    lines: tuple[Line, ...]
    document: dict[str, Any]


def answers(recording: Recording, subject: str, compile_id: str | None = None, limit: int = 20) -> list[Answer]:
    """What is known about `subject`, best first; empty where no word of it occurs anywhere."""
    known = list(_all(recording, compile_id))
    exact = [a for a in known if subject in (a.about, a.document.get("id"), a.document.get("subject"))]
    if exact:
        return exact[:limit]
    words = {word.lower() for word in _WORD.findall(subject)}
    wanted = words - _QUESTION or words
    scored = [(_score(wanted, answer), number) for number, answer in enumerate(known)]
    best = max((score for score, _ in scored), default=0.0)
    if best < 1:
        return []
    return [known[number] for score, number in sorted(scored, key=lambda s: -s[0]) if score == best][:limit]


def left_out(recording: Recording, subject: str, found: list[Answer], compile_id: str | None = None) -> list[str]:
    """Names in the question (known ones, and whatever looks like one) that not all of the answers are about.

    For "buf3 with buf5" where no such pair was ever considered, the answers are about one of them.
    """
    words = [word for word in dict.fromkeys(_WORD.findall(subject)) if word.lower() not in _QUESTION]
    known = {word for answer in _all(recording, compile_id) for word in _WORD.findall(answer.about)}
    names = [word for word in words if word in known or re.search(r"[a-z]_?\d", word)]
    return [word for word in names if not all(word in _WORD.findall(answer.about) for answer in found)]


def subjects_near(recording: Recording, subject: str, compile_id: str | None = None) -> list[str]:
    """Subjects that are spelled like `subject`, for "did you mean"."""
    known = list(dict.fromkeys(answer.about for answer in _all(recording, compile_id)))
    return difflib.get_close_matches(subject, known, 5, 0.4) or known[:5]


def _score(wanted: set[str], answer: Answer) -> float:
    """Whole words count 1, beginnings (fus-e, fus-ed) a tenth: they only break ties."""
    having = {word.lower() for word in _WORD.findall(answer.about)}
    score = float(len(wanted & having))
    kinds = {answer.kind, str(answer.document.get("kind", ""))}
    hinted = any(len(kind) > 2 and word[:3] == kind[:3] for word in wanted for kind in kinds)
    return score + (0.1 if hinted else 0.0)


def _all(recording: Recording, compile_id: str | None) -> Iterator[Answer]:
    for owner, decision in recording.decisions(compile_id):
        yield Answer(owner, "decision", decision.subject, tuple(decision_lines(decision)), _plain(decision))
    for owner, fusion in recording.records(Fusion, compile_id):
        for candidate in fusion.candidates:
            yield Answer(owner, "fusion", f"{candidate.first} {candidate.second}", tuple(candidate_lines(candidate)),
                         _plain(candidate))
    for owner, found, _ in breaks(recording, compile_id):
        about = f"{found.source} {found.code} {found.message}"
        yield Answer(owner, "break", about, tuple(break_lines(found, recording.source)), _plain(found))
    for owner, recompile in recompiles(recording, compile_id):
        lines = tuple(recompile_lines(recompile, recording.source))
        yield Answer(owner, "recompile", f"{recompile.guard} {recompile.what}", lines, _plain(recompile))
    for owner, guards in recording.records(Guards, compile_id):
        for symbol in guards.symbols:
            lines = tuple(symbol_lines(symbol, recording.source))
            yield Answer(owner, "symbol", f"{symbol.name} {symbol.what} {symbol.source}", lines, _plain(symbol))
    for owner, absent in recording.absents(compile_id):
        line = Line(printable(f"absent {absent.stage}: {absent.why}"))
        yield Answer(owner, "absent", absent.stage, (line,), _plain(absent))
    for info in recording.compiles():
        if info.reason and compile_id in (None, info.id):
            text = f"{info.function} ({info.file}:{info.line}) {info.status}: {info.reason}"
            yield Answer(info.id, "compile", info.function, (Line(printable(text)),),
                         {"id": info.id, "status": info.status, "reason": info.reason})


def _plain(record: msgspec.Struct) -> dict[str, Any]:
    return {key: value for key, value in msgspec.to_builtins(record).items() if key != "record"}
