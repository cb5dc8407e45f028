"""A question, and the rows of its answer."""
from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from ...artifacts.records import Ref
from ..acts import Act
from ..session import Session, Target

MOST = 2000
"""Rows of an answer over a large recording."""

Details = Callable[[], Sequence[str]]


@dataclass(frozen=True)
class Answer:
    """One row. `details` are its lines in full, made when the row is selected; `opens` is where Enter leads (a target
    and a row of it, or an item that a row shows). Rows of greater `depth` lie below. `hint` is what can be done about
    it, ready to be copied; `compares` are two compilations whose difference says more; `acts` what can be tried."""

    title: str
    details: Details
    opens: tuple[Target, int | Ref] | None = None
    depth: int = 0
    hint: str = ""
    compares: tuple[str, str] | None = None
    acts: tuple[Act, ...] = ()


@dataclass(frozen=True)
class Question:
    """A question with the key that asks it. `rows` gives the answer for a compilation ("": the whole recording);
    `command` is the command line that says the same, and `nothing` what is said where there are no rows.
    `per_compile`: the rows of the recording are those of its compilations, one after the other."""

    id: str
    key: str
    title: str
    rows: Callable[[Session, str], list[Answer]]
    command: str
    nothing: str
    per_compile: bool = True


def rows_of(question: Question, session: Session, compile_id: str) -> list[Answer]:
    """The rows of an answer; of a large recording those of its first compilations, and how many more there are."""
    if compile_id or not question.per_compile or not session.is_large:
        return question.rows(session, compile_id)
    rows: list[Answer] = []
    for number, info in enumerate(session.compiles):
        rows += question.rows(session, info.id)
        if len(rows) > MOST:
            left = len(session.compiles) - number - 1
            text = f"... {left:,} more compilations: choose one in the tree, and ask again"
            return [*rows, Answer(text, fixed(text))]
    return rows


@dataclass(frozen=True)
class Fixed:
    """Details that are known."""

    lines: tuple[str, ...]

    def __call__(self) -> Sequence[str]:
        return self.lines


def fixed(*lines: str) -> Details:
    """Details that are known."""
    return Fixed(lines)


def filtered(rows: Sequence[Answer], text: str) -> list[int]:
    """The places of the rows that hold all words of `text` (`!word`: that do not hold it), in title or hint, with the
    rows above them. Case does not count."""
    words = text.lower().split()
    if not words:
        return list(range(len(rows)))
    found: set[int] = set()
    above: list[int] = []
    for place, row in enumerate(rows):
        del above[row.depth:]
        above += [place] * (row.depth + 1 - len(above))
        shown = f"{row.title} {row.hint}".lower()
        if all((word[1:] not in shown) if word.startswith("!") and len(word) > 1 else word in shown for word in words):
            found.add(place)
            found.update(above[: row.depth])
    return sorted(found)


def unfolded(rows: Sequence[Answer], places: Sequence[int], closed: set[int]) -> list[int]:
    """Those of `places` that no closed row hides."""
    found = []
    hidden_below: int | None = None
    for place in places:
        depth = rows[place].depth
        if hidden_below is not None and depth > hidden_below:
            continue
        hidden_below = depth if place in closed else None
        found.append(place)
    return found


def is_branch(rows: Sequence[Answer], place: int) -> bool:
    """Whether rows lie below that one."""
    return place + 1 < len(rows) and rows[place + 1].depth > rows[place].depth
