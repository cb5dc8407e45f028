"""A writer of source lines that takes provenance with each line: the line map is never parsed out of comments."""
from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager

from ....artifacts.records import CodeLine, Ref


class Writer:
    """Collects `CodeLine`s; indentation follows `block`."""

    def __init__(self) -> None:
        self.lines: list[CodeLine] = []
        self._indent = 0

    def line(self, text: str = "", origins: Iterable[Ref] = ()) -> None:
        """Add one line (or several, where `text` has newlines), each with `origins`."""
        where = tuple(origins)
        for part in text.split("\n"):
            self.lines.append(CodeLine("  " * self._indent + part if part else "", where))

    @contextmanager
    def block(self, header: str, origins: Iterable[Ref] = (), end: str = "}") -> Iterator[None]:
        """`header {` ... `}` around what is written inside."""
        self.line(f"{header} {{" if header else "{", origins)
        self._indent += 1
        yield
        self._indent -= 1
        self.line(end)
