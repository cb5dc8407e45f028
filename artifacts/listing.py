"""A listing: lines of text, each with the item that it shows and that item's origins.

All views (terminal, pipe, workbench) print listings; nothing else turns records into text.
"""
from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property, lru_cache

from .records import Location, Ref

# Control characters, bidirectional marks, which make code look like other code, and lone surrogates, which file names
# may contain and terminals cannot print.
_ESCAPES = {
    code: f"\\x{code:02x}" if code < 256 else f"\\u{code:04x}"
    for code in (*range(0x20), 0x7F, *range(0x80, 0xA0), 0x061C, 0x200E, 0x200F, *range(0x202A, 0x202F),
                 *range(0x2066, 0x206A), 0x2028, 0x2029, 0xFEFF, *range(0xD800, 0xE000))
}
_ESCAPES[ord("\t")] = "    "

SourceText = Callable[[str], "str | None"]


def plural(number: int, noun: str) -> str:
    """`1 call`, `2 calls`."""
    return f"{number} {noun}{'' if number == 1 else 's'}"


@dataclass(frozen=True, slots=True)  # a stage may have 200,000
class Line:
    """One line: `ref` names the item it shows ("" for none), `origins` what that was derived from."""

    text: str
    ref: Ref = ""
    origins: tuple[Ref, ...] = ()

    def numbered(self, number: int) -> Line:
        """The same line with a number before it."""
        return Line(f"{number}. {self.text}", self.ref, self.origins)


@dataclass(frozen=True)
class Listing:
    """The text of an artifact. `language` is a Pygments lexer's name."""

    title: str
    language: str
    lines: tuple[Line, ...]

    @cached_property
    def longest(self) -> int:
        """Characters of the longest line."""
        return max((len(line.text) for line in self.lines), default=0)

    @cached_property
    def rows_of(self) -> dict[Ref, list[int]]:
        """For each item that is shown, its rows."""
        found: dict[Ref, list[int]] = {}
        for row, line in enumerate(self.lines):
            if line.ref:
                found.setdefault(line.ref, []).append(row)
        return found

    @property
    def text(self) -> str:
        """All lines, each ended by a newline."""
        return "".join(line.text + "\n" for line in self.lines)


def printable(text: str) -> str:
    """`text` on one line, with control sequences escaped: a recording must not control the terminal."""
    return text if text.isprintable() else text.translate(_ESCAPES)


def printable_lines(text: str) -> str:
    """Like `printable`, but keeps newlines: for a message of several lines."""
    return "\n".join(map(printable, text.split("\n")))


def text_lines(text: str) -> tuple[Line, ...]:
    """Lines without items."""
    return tuple(Line(printable(line)) for line in text.split("\n")[: -1 if text.endswith("\n") else None])


def source_ref(file: str, line: int) -> Ref:
    """The reference to a line of the program."""
    return f"source:{file.replace('%', '%25').replace('#', '%23')}#{line}"


def source_path(name: str) -> str:
    """The path in a reference to a line of the program (the name part, as `split_ref` gives it)."""
    return name.replace("%23", "#").replace("%25", "%")


@lru_cache(maxsize=4096)  # nodes of one line share them
def place_refs(places: tuple[Location, ...]) -> tuple[Ref, ...]:
    """References to the program's lines of a stack, innermost first."""
    return tuple(dict.fromkeys(source_ref(place.file, place.line) for place in reversed(places) if place.line > 0))


def source_listing(path: str, text: str) -> Listing:
    """The program's own text as a listing."""
    lines = tuple(Line(line.text, source_ref(path, number)) for number, line in enumerate(text_lines(text), 1))
    return Listing(path, "python", lines)


def short_place(place: Location | None) -> str:
    """`model.py:12`, or "" for no place."""
    if place is None:
        return ""
    return printable(f"{place.file.replace(chr(92), '/').rpartition('/')[2]}:{place.line}")
