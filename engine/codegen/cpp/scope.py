"""Names of values: block scopes of the generated code, and identifiers that are unique in a kernel."""
from __future__ import annotations

import re
from collections.abc import Hashable, Iterator, Sequence
from contextlib import contextmanager

from ....artifacts.records import Ref

_NOT_A_NAME = re.compile(r"\W+")
_NUMBERED = re.compile(r"(arg|buf|tangent)\d+")


def c_name(name: str) -> str:
    """`name` as a C++ identifier."""
    clean = _NOT_A_NAME.sub("_", name)
    return clean if clean[:1].isalpha() or clean[:1] == "_" else f"_{clean}"


def buffer_name(name: str) -> str:
    """The C++ name of a buffer. What a backward reads is called after its operator (exp), which is a function here."""
    clean = c_name(name)
    return clean if _NUMBERED.fullmatch(clean) else f"{clean}_"


class Scopes:
    """A stack of tables from what a value is (any key) to the C++ text that names it."""

    def __init__(self) -> None:
        self._stack: list[dict[Hashable, str]] = [{}]
        self._taken: dict[str, int] = {}

    @property
    def names(self) -> Iterator[str]:
        """All names given out."""
        yield from self._taken

    @contextmanager
    def open(self) -> Iterator[None]:
        """A block: what is put inside is not seen after it."""
        self._stack.append({})
        yield
        self._stack.pop()

    def get(self, key: Hashable) -> str | None:
        """The text for `key`, from the innermost scope that has it."""
        for table in reversed(self._stack):
            if key in table:
                return table[key]
        return None

    def put(self, key: Hashable, text: str) -> str:
        """Remember `text` for `key` in the current scope."""
        self._stack[-1][key] = text
        return text

    def name(self, wanted: str) -> str:
        """`wanted` as an identifier that nothing else in the kernel has."""
        base = c_name(wanted)
        used = self._taken.get(base, 0)
        self._taken[base] = used + 1
        return base if not used else self.name(f"{base}_{used + 1}")  # a name made up here is taken in turn


def origins_of(body: str, statement: str, nodes: Sequence[str]) -> tuple[Ref, ...]:
    """Where a line for `statement` of `body` comes from: the loop IR, and the ATen nodes."""
    return (f"loop_ir:{body}#{statement}", *[f"forward#{node}" for node in nodes])
