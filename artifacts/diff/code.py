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

_COUNTED = re.compile(r"(?<![A-Za-z0-9])([A-Za-z_]*[A-Za-z])_?\d+(?:_\d+)*(?![A-Za-z0-9])")
_ADDRESS = re.compile(r"0x[0-9a-f]{6,}")
_ASSIGNED = re.compile(r"\]?\s*=(?!=)")
_COMMENT = re.compile(r"\s*(//|#(?!pragma|include|define)).*")
_DEFINES = re.compile(r"def |class |for |extern |static |void |int |auto |const |template|[a-z_]+\(.*\)? *\{$")
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
    renaming = _Renaming()
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
    """Which counted name of the first text is which of the second, as far as read."""

    def __init__(self) -> None:
        self.names: dict[str, str] = {}

    def fits(self, first: str, second: str) -> bool:
        """Whether two lines that are alike but for names read the same values; names that they define are paired."""
        sides = [list(_COUNTED.finditer(_COMMENT.sub("", line))) for line in (first, second)]
        fitting = len(sides[0]) == len(sides[1])
        defines = _DEFINES.match(first.strip()) is not None
        for one, other in zip(*sides):
            known = self.names.get(one[0])
            assigned = _ASSIGNED.match(first, one.end()) is not None
            if known is None or defines or assigned:
                self.names[one[0]] = other[0]
            elif known != other[0]:
                fitting = False
        return fitting


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
