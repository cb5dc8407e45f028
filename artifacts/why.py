"""Answers questions about a recording: "buf3 buf4", "why was addmm not lowered?", "print".

Everything that has a reason is an answer: decisions, fusion candidates, graph breaks, recompilations, absent stages.
A question is matched by its words; the answers that share the most words with it are returned.
"""
from __future__ import annotations

import difflib
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from ..dependencies import msgspec
from .listing import Line, printable
from .recording import Recording
from .records import Fusion, Guards, Location, Schedule
from .related_decisions import related_decisions, within
from .render_lists import break_lines, candidate_lines, decision_lines, recompile_lines, symbol_lines
from .summary import breaks, recompiles

_WORD = re.compile(r"\d+/\d+|[A-Za-z_][A-Za-z_0-9]*|\d+")
_NAME = re.compile(r"\d+/\d+|[A-Za-z_]\w*(?:\.\w+)*|\d+")
"""As words, but with parts: `backward.buf3`."""
_COMPILE_ID = re.compile(r"(?<![\w/])\d+/\d+(?:@(?:rank)?\d+)?(?![\w/])")
_FILE = re.compile(r"[^\s:@\"']*\.py\b")
_LINE = re.compile(r"(?:\blines? |\.py:)(\d+)", re.IGNORECASE)
_DOTTED = re.compile(r"\b[A-Za-z_]\w*(?:\.(?!py\b)[A-Za-z_]\w*)+")
TOPICS: dict[frozenset[str], str] = {
    frozenset("break breaks broken broke breaking".split()): "break",
    frozenset("recompile recompiles recompiled recompiling recompilation recompilations".split()): "recompile",
    frozenset("eager uncompiled skipped".split()): "eager",
}
"""Words that ask for one kind of answer."""
_COMPILED = frozenset("compile compiled compiles".split())
CHOICES = ("decision", "fusion", "break", "recompile")
"""Kinds of answers that give a reason; they come before those that only describe."""
# Words that add nothing beside a word of TOPICS.
_FILLING = frozenset("graph graphs line lines function program code at on here there run runs running get gets".split())
# Function words; they count only where nothing else matches.
_QUESTION = frozenset("why was were is are did does do not no the a an of with into to in it by and or s t what which "
                      "how who when me this that there".split())


@dataclass(frozen=True)
class Answer:
    """One answer: `about` is the text that questions are matched with, `file` and `line` its place in the program."""

    compile: str
    kind: str  # decision | fusion | break | recompile | symbol | kernel | buffer | absent | compile
    about: str
    lines: tuple[Line, ...]
    document: dict[str, Any]
    line: int = -1
    file: str = ""


@dataclass(frozen=True)
class _Question:
    """A parsed question: `words` to look for, and if given a compilation, a file, a line, and kinds of answers."""

    words: frozenset[str]
    compile: str
    file: str
    line: int
    kinds: frozenset[str]

    @classmethod
    def of(cls, subject: str) -> _Question:
        """Parse a question."""
        words = _words(subject)
        found = _COMPILE_ID.search(subject)
        place, path = _LINE.search(subject), _FILE.search(subject)
        kinds = {kind for topic, kind in TOPICS.items() if words & topic}
        if {"not", "compiled"} <= words or {"not", "compile"} <= words:
            kinds.add("eager")
        if "again" in words and words & _COMPILED:
            kinds.add("recompile")
            words -= {"again", *_COMPILED}
        narrows = bool(kinds or place or path or found)
        told = frozenset().union(*TOPICS) | _QUESTION | _FILLING if narrows else _QUESTION
        taken = {found[0], *re.findall(r"\d+", found[0])} if found else set()
        taken |= {word for found_place in (place, path) if found_place for word in _words(found_place[0])}
        wanted = words - told - taken
        if not (wanted or narrows):
            wanted = words
        if found and not (wanted or place or path or kinds):
            kinds = {"compile", "recompile", "break", "absent", "decision"}
        line = int(place[1]) if place else -1
        return cls(frozenset(wanted), found[0] if found else "", path[0] if path else "", line, frozenset(kinds))

    def fits(self, answer: Answer) -> bool:
        """Whether an answer is about that compilation, file, line and kind."""
        return (
            (not self.compile or answer.compile == self.compile)
            and self._at(answer)
            and (not self.kinds or answer.kind in self.kinds
                 or ("eager" in self.kinds and answer.kind in ("compile", "break")))
        )

    def _at(self, answer: Answer) -> bool:
        """Whether an answer is about that file and line, or named after them (`helper@program.py:12`)."""
        here = self.line in (-1, answer.line) and within(self.file, answer.file)
        return here or (self.file != "" and f"{self.file}:{self.line}" in answer.about.split("@"))

    @property
    def narrows(self) -> bool:
        """Whether it names more than words."""
        return bool(self.compile or self.file or self.line >= 0 or self.kinds)


def _runs_in_eager(answer: Answer) -> bool:
    return answer.kind == "compile" and answer.document["status"] != "compiled"


def answers(recording: Recording, subject: str, compile_id: str | None = None, limit: int = 20) -> list[Answer]:
    """The answers about `subject`, best first; empty where none of its words occurs."""
    known = list(_all(recording, compile_id))
    question = _Question.of(subject)
    found = _matching(known, subject, question, limit)
    names = [word for word in _NAME.findall(subject) if question.words & _words(word)]
    if question.kinds or len(names) > 1 or not (names or question.line >= 0):
        return found
    name = next(iter(names), "")
    place = (question.file, question.line)
    related = set(related_decisions(recording, name, place, question.compile or compile_id))
    if found and name and not all(_is_about(answer, name) for answer in found):
        return found
    about = [a for a in known if a.kind == "decision" and (a.compile, a.document["id"]) in related and a not in found]
    return [*found, *about][:limit]


def _rank(answer: Answer) -> int:
    """Of all that is known of a compilation, decisions come last: first those that were forced, then those about the
    function as a whole, which stand at a place or are about its graph."""
    if answer.kind != "decision":
        return 0
    subject = str(answer.document["subject"])
    return 1 if answer.document.get("forced") else 2 if subject == "graph" or ".py:" in subject else 3


def _words(text: str) -> set[str]:
    return {word.lower() for word in _WORD.findall(text)}


def _is_about(answer: Answer, name: str) -> bool:
    return name.lower() in answer.about.lower()


def _matching(known: list[Answer], subject: str, question: _Question, limit: int) -> list[Answer]:
    """Those of all answers whose subjects have the words of a question."""
    exact = [a for a in known if subject in (a.about, a.document.get("id"), a.document.get("subject"))]
    if exact and not question.compile:
        return exact[:limit]
    known = [answer for answer in known if question.fits(answer)]
    if "eager" in question.kinds and any(map(_runs_in_eager, known)) and not question.words:
        return [answer for answer in known if _runs_in_eager(answer)][:limit]
    eager = "eager" in question.kinds
    scored = [(_score(question.words, answer) + (0.5 if eager and _runs_in_eager(answer) else 0.0), number)
              for number, answer in enumerate(known)]
    best = max((score for score, _ in scored), default=0.0)
    if best < 1:
        if question.words or not question.narrows:
            return []
        return sorted(known, key=_rank if question.compile else lambda _: 0)[:limit]
    return [known[number] for score, number in sorted(scored, key=lambda s: -s[0]) if score == best][:limit]


POINTERS = (
    (frozenset("slow slower speed fast faster time".split()), "kernels",
     "what runs, in order, and how many bytes it moves"),
    (frozenset("slow slower speed fast faster time breaks break broken".split()), "breaks",
     "the graph breaks, the most expensive first"),
    (frozenset("slow recompile recompiles recompiled recompiling recompilation again".split()), "recompiles",
     "what was compiled again, why, and how to avoid it"),
    (frozenset("nan nans inf wrong differ differs different incorrect accuracy".split()), "replay",
     "runs the recorded graphs again, stage by stage, and finds where values first differ from eager"),
    (frozenset("guard guards guarded".split()), "guards", "what each compilation depends on, and which line needs it"),
)
"""(words of a question, the command that answers it, what it shows)."""


_POINTED = frozenset().union(*(topic for topic, _, _ in POINTERS)) | frozenset(
    "come comes from where so my its result results output outputs value values loss model program it".split())


def pointers(subject: str) -> list[tuple[str, str]]:
    """The commands that answer a general question, one about the recording as a whole, each with what it shows."""
    question = _Question.of(subject)
    if question.words - _POINTED or question.compile or question.file or question.line >= 0:
        return []
    words = _words(subject)
    return [(command, shows) for topic, command, shows in POINTERS if words & topic]


def left_out(recording: Recording, subject: str, found: list[Answer], compile_id: str | None = None) -> list[str]:
    """Names in the question (known, or looking like one) that some answer is not about.

    For "buf3 with buf5", a pair that was never a candidate, each answer is about one of the two. None where one answer
    is about all of them: the others are what was decided of the same.
    """
    asked = _Question.of(subject).words
    words = [word for word in dict.fromkeys(_WORD.findall(subject)) if word.lower() in asked]
    known = {word for answer in _all(recording, compile_id) for word in _WORD.findall(answer.about)}
    dotted = set(_WORD.findall(" ".join(_DOTTED.findall(subject))))
    names = [word for word in words if word in known or word in dotted or re.search(r"[a-z]_?\d", word)]
    told = [set(_WORD.findall(answer.about)) for answer in found]
    if any(about.issuperset(names) for about in told):
        return []
    return [word for word in names if not all(word in about for about in told)]


def subjects_near(recording: Recording, subject: str, compile_id: str | None = None) -> list[str]:
    """Subjects spelled like `subject`, for "did you mean"."""
    known = list(dict.fromkeys(answer.about for answer in _all(recording, compile_id)))
    return difflib.get_close_matches(subject, known, 5, 0.4) or known[:5]


def _score(wanted: frozenset[str], answer: Answer) -> float:
    """Whole words count 1; common prefixes (fuse, fused) count a tenth, to break ties."""
    having = _words(answer.about)
    score = float(len(wanted & having))
    kinds = {answer.kind, str(answer.document.get("kind", ""))}
    hinted = any(len(kind) > 2 and word[:3] == kind[:3] for word in wanted for kind in kinds)
    return score + (0.1 if hinted else 0.0) + (0.05 if answer.kind in CHOICES else 0.0)


def _all(recording: Recording, compile_id: str | None) -> Iterator[Answer]:
    functions = {info.id: info.function for info in recording.compiles()}
    for owner, decision in recording.decisions(compile_id):
        yield Answer(owner, "decision", decision.subject, tuple(decision_lines(decision)), _plain(decision),
                     *_place(decision.location))
    for owner, fusion in recording.records(Fusion, compile_id):
        for candidate in fusion.candidates:
            yield Answer(owner, "fusion", f"{candidate.first} {candidate.second}", tuple(candidate_lines(candidate)),
                         _plain(candidate))
    for owner, found, _ in breaks(recording, compile_id):
        about = f"{found.source} {found.code} {found.message}"
        yield Answer(owner, "break", f"{about} {found.location.function}", tuple(break_lines(found, recording.source)),
                     _plain(found), *_place(found.location))
    for owner, recompile in recompiles(recording, compile_id):
        lines = tuple(recompile_lines(recompile, recording.source))
        about = f"{recompile.guard} {recompile.subject} {functions.get(owner, '')}"
        yield Answer(owner, "recompile", about, lines, _plain(recompile), *_place(recompile.location))
    for owner, guards in recording.records(Guards, compile_id):
        for symbol in guards.symbols:
            lines = tuple(symbol_lines(symbol, recording.source))
            yield Answer(owner, "symbol", f"{symbol.name} {symbol.subject} {symbol.source}", lines, _plain(symbol))
    for owner, absent in recording.absents(compile_id):
        line = Line(printable(f"absent {absent.stage}: {absent.why}"))
        yield Answer(owner, "absent", absent.stage, (line,), _plain(absent))
    for artifact in recording.artifacts(compile_id, "schedule"):
        schedule = recording.find(Schedule, artifact.compile, "schedule", artifact.name)
        if schedule is not None:
            yield from _planned(artifact.compile, schedule, artifact.name and f"{artifact.name}.")
    for info in recording.compiles():
        if compile_id in (None, info.id):
            why = f": {info.reason}" if info.reason else ""
            text = f"{info.function} ({info.file}:{info.line}) {info.status}{why}"
            yield Answer(info.id, "compile", f"{info.id} {info.function}", (Line(printable(text)),),
                         {"id": info.id, "status": info.status, "reason": info.reason}, info.line, info.file)


def _planned(owner: str, schedule: Schedule, part: str) -> Iterator[Answer]:
    """The kernels and extern kernels, and the buffers: what writes and what reads each. `part` is in front of what has
    a name of its own: `backward.buf3`."""
    def named(names: Sequence[str]) -> str:
        return ", ".join(part + name for name in names)

    for group in schedule.groups:
        what = "a kernel" if group.kind == "loops" else "an extern kernel"
        own = part + group.id
        name, about = (own, own) if group.kernel == group.id else (f"{group.kernel} ({own})", f"{group.kernel} {own}")
        texts = [f"{name}: {what} that computes {', '.join(group.members)}",
                 f"  reads {named(group.reads) or 'nothing'}; writes {named(group.writes) or 'nothing'}"
                 + (f"; not materialized: {named(group.internal)}" if group.internal else "")]
        lines = tuple(Line(printable(text)) for text in texts)
        yield Answer(owner, "kernel", about, lines, _plain(group))
    for buffer in schedule.buffers:
        size = f"{buffer.bytes:,} bytes" if buffer.bytes is not None else "size known at run time"
        writers = [group.kernel for group in schedule.groups if buffer.id in group.writes]
        readers = [group.kernel for group in schedule.groups if buffer.id in group.reads]
        reuse = f", reuses the memory of {part}{buffer.reuses}" if buffer.reuses else ""
        texts = [f"{part}{buffer.id}: {buffer.role}, {size}{reuse}"]
        texts += [f"  written by {', '.join(writers)}"] if writers else []
        texts += [f"  read by {', '.join(readers)}"] if readers else []
        yield Answer(owner, "buffer", part + buffer.id, tuple(Line(printable(text)) for text in texts), _plain(buffer))
    for group in schedule.groups:
        for name in group.internal:
            text = f"{part}{name}: not materialized; {group.kernel} computes it where it is used"
            yield Answer(owner, "buffer", part + name, (Line(printable(text)),), {"id": name, "internal": group.kernel})


def _place(location: Location | None) -> tuple[int, str]:
    return (location.line, location.file) if location is not None else (-1, "")


def _plain(record: msgspec.Struct) -> dict[str, Any]:
    return {key: value for key, value in msgspec.to_builtins(record).items() if key != "record"}
