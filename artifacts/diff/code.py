"""The differences of two texts of code: lines that differ by more than spaces, comments and the numbers of names.

Generated code counts its names (`tmp12`, `buf3`, `arg0_1`): one more statement renames all that follow. Two lines are
alike if a renaming of such names makes them the same, and each name read is the one that the lines before have paired.
"""
from __future__ import annotations

import re
from collections.abc import Sequence
from difflib import SequenceMatcher
from functools import lru_cache

from pygments.lexers import get_lexer_by_name
from pygments.token import Comment, Name, Token
from pygments.util import ClassNotFound

from ..records import CodeLine, Ref, ref
from .changes import ADDED, CHANGED, REMOVED, Change, StageDiff

_FIXED = r"_*(?:u?int|b?float|complex|double|bool|fp|bf|tf|exp|log|atan|hypot|avx|sm|mm|m(?=128|256|512))\d"
"""How types and functions begin whose number is a part of the name: `int64`, `log10`, `_mm512`."""
_COUNTED = re.compile(rf"(?<![A-Za-z0-9])(?!{_FIXED})([A-Za-z_]*[A-Za-z])_?\d+(?:_\d+)*(?![A-Za-z0-9])")
_ADDRESS = re.compile(r"0x[0-9a-f]{6,}")
_TARGETS = re.compile(r"\s*[\w, ]+=(?!=)")
_ASSIGNED = re.compile(r"\]?\s*(=(?!=)|in\b)")
_COMMENTS = {"python": re.compile(r"\s*#.*"), "cpp": re.compile(r"\s*//.*")}
_SIGNATURE = re.compile(r"def |class |extern |template|[a-z_]+\(.*\)? *\{$|(static |void |int |const )[^=]*$")
_DECLARED = re.compile(r"(?!return )[A-Za-z_][\w:<>, ]* \*?\w+(\[\w+\])*;$")
LANGUAGES = {"triton": "python"}
CONTEXT = 0.6  # of two lines' tokens, alike: then one is the other, changed


def diff_code(
    first: Sequence[CodeLine], second: Sequence[CodeLine], language: str, stage: str = "", name: str = ""
) -> StageDiff:
    """The differences of two listings of code."""
    lexer = LANGUAGES.get(language, language)
    sides = [[(number, line.text, normal(line.text, lexer)) for number, line in enumerate(lines)]
             for lines in (first, second)]
    a, b = ([entry for entry in side if entry[2]] for side in sides)
    changes: list[Change] = []
    same = 0
    renaming = _Renaming(lexer)
    matcher = SequenceMatcher(None, [line[2] for line in a], [line[2] for line in b], autojunk=len(a) + len(b) > 20_000)
    for tag, a0, a1, b0, b1 in matcher.get_opcodes():
        if tag == "equal":
            for one, other in zip(a[a0:a1], b[b0:b1]):
                if renaming.fits(one[1], other[1]):
                    same += 1
                else:
                    changes.append(_changed(one, other, stage, name, "it reads other values"))
            continue
        changes += _block(a[a0:a1], b[b0:b1], stage, name)
    return StageDiff(stage, name, "line", tuple(changes), same)


Entry = tuple[int, str, str]


def _block(a: Sequence[Entry], b: Sequence[Entry], stage: str, name: str) -> list[Change]:
    """Lines that took each other's place: those that are near each other are one line, changed."""
    changes = []
    waiting = list(b)
    for line in a:
        near = next((other for other in waiting if _near(line[2], other[2])), None)
        if near is None:
            changes.append(Change(REMOVED, line[1].strip(), refs=(_ref(stage, name, line), "")))
            continue
        changes += [Change(ADDED, second=other[1].strip(), refs=("", _ref(stage, name, other)))
                    for other in waiting[: waiting.index(near)]]
        waiting = waiting[waiting.index(near) + 1:]
        changes.append(_changed(line, near, stage, name))
    changes += [Change(ADDED, second=other[1].strip(), refs=("", _ref(stage, name, other))) for other in waiting]
    return changes


def _changed(a: Entry, b: Entry, stage: str, name: str, detail: str = "") -> Change:
    return Change(CHANGED, a[1].strip(), b[1].strip(), detail, refs=(_ref(stage, name, a), _ref(stage, name, b)))


class _Renaming:
    """Which counted name of the first text is which of the second, as far as read, and back."""

    def __init__(self, language: str) -> None:
        self.comment = _COMMENTS.get(language)
        self.names: dict[str, str] = {}
        self.back: dict[str, str] = {}

    def fits(self, first: str, second: str) -> bool:
        """Whether two lines that are alike but for names read the same values; names that they define are paired."""
        first, second = (self.comment.sub("", line) if self.comment else line for line in (first, second))
        sides = [list(_COUNTED.finditer(line)) for line in (first, second)]
        fitting = len(sides[0]) == len(sides[1])
        targets = _TARGETS.match(first)
        end = len(first) if _defines(first.strip()) else targets.end() if targets else 0
        found = []
        for one, other in zip(*sides):
            is_new = one.start() < end or _ASSIGNED.match(first, one.end()) is not None
            found.append(((first.count(";", 0, one.start()), is_new), one[0], other[0]))
        for (_, is_new), name, partner in sorted(found, key=lambda entry: entry[0]):  # a statement reads, then assigns
            if not is_new and (name in self.names or partner in self.back):
                fitting = fitting and self.names.get(name) == partner and self.back.get(partner) == name
            else:
                self.names[name], self.back[partner] = partner, name
        return fitting


def _defines(line: str) -> bool:
    """Whether all names of a line are new: of functions, their parameters, and what is declared without a value."""
    return _SIGNATURE.match(line) is not None or _DECLARED.match(line) is not None


def _near(a: str, b: str) -> bool:
    return SequenceMatcher(None, a.split(), b.split()).ratio() >= CONTEXT


def _ref(stage: str, name: str, line: Entry) -> Ref:
    return ref(stage, line[0], name)


def normal(text: str, language: str) -> str:
    """A line without comments and counts of names, its tokens apart by one space; "" if nothing is left."""
    return " ".join(_COUNTED.sub(r"\1#", _ADDRESS.sub("0x", token)) for token in _tokens(text.strip(), language))


@lru_cache(maxsize=1 << 16)
def _tokens(text: str, language: str) -> tuple[str, ...]:
    if not text or (text.startswith(("//", "#")) and not text.startswith(("#pragma", "#include", "#define"))):
        return ()
    lexer = _lexer(language)
    if lexer is None:
        return tuple(text.split())
    found: list[str] = []
    for kind, token in lexer.get_tokens(text):
        if (kind in Comment and kind not in Comment.Preproc) or not token.strip():
            continue
        found += token.split() if kind in (Token.Text, Name) or kind in Comment.Preproc else [token]
    return tuple(found)


@lru_cache
def _lexer(language: str):  # type: ignore[no-untyped-def]
    try:
        return get_lexer_by_name(language)
    except ClassNotFound:
        return None
