"""When two outcomes are one failure: the kind, and what of its detail does not change while a case is made smaller."""
from __future__ import annotations

import re
from dataclasses import dataclass

from .outcome import Outcome

LONGEST = 200

_REPLACED = (
    (re.compile(r"0x[0-9a-fA-F]+"), "ADDRESS"),
    (re.compile(r"(/[\w.\-+@]+)+"), "PATH"),
    (re.compile(r"'[^']*'|\"[^\"]*\"|`[^`]*`"), "NAME"),
    (re.compile(r"\b([a-z]\w*?)_?\d+\b"), r"\1"),  # names of nodes and buffers: add_1, buf3
    (re.compile(r"-?\d+(\.\d+)?([eE][-+]?\d+)?"), "N"),
    (re.compile(r"(\bN\b(, ?|x))+\bN\b"), "N"),  # shapes of any rank
    (re.compile(r"\s+"), " "),
)


def normalized(message: str) -> str:
    """The first line of a message, without numbers, addresses, paths and the names of nodes."""
    text = next((line for line in message.splitlines() if line.strip()), "")
    for pattern, word in _REPLACED:
        text = pattern.sub(word, text)
    return text.strip()[:LONGEST]


@dataclass(frozen=True)
class Signature:
    """A failure by which others are known: `about` is the normalized detail, "" where the kind is enough."""

    kind: str
    about: str = ""

    @classmethod
    def of(cls, outcome: Outcome) -> Signature:
        """The signature of an outcome."""
        return cls(outcome.kind, _about(outcome))

    def matches(self, outcome: Outcome) -> bool:
        """Whether an outcome is this failure."""
        return outcome.kind == self.kind and (not self.about or _about(outcome) == self.about)

    def __str__(self) -> str:
        return f"{self.kind}: {self.about}" if self.about else self.kind


def _about(outcome: Outcome) -> str:
    if outcome.kind == "exception":
        kind, _, message = outcome.detail.partition(": ")
        return f"{kind}: {normalized(message)}"
    if outcome.kind == "values":  # what differs: sizes, dtypes or strides, or the numbers
        return "layout" if _LAYOUT.match(outcome.detail) else "numbers"
    if outcome.kind in ("signal", "break", "recompile", "exit", "output"):
        return outcome.detail
    return ""


_LAYOUT = re.compile(r"strides |\S*(torch\.\w+)?\[.*\] is not|\S+ is not ")
