"""Generated Python: its text, line by line with provenance, and the objects that its names refer to."""
from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ...artifacts.records import CodeLine, Wrapper


@dataclass(frozen=True)
class WrapperSource:
    """The wrapper's text with provenance, and the objects that its names refer to.

    `operators` says which of the names are operators of ATen ("aten.mm.default").
    """

    lines: tuple[CodeLine, ...]
    names: Mapping[str, Any]
    operators: Mapping[str, str]

    @property
    def text(self) -> str:
        """Python source that defines `call(*inputs) -> tuple`."""
        return "\n".join(line.text for line in self.lines) + "\n"

    def record(self) -> Wrapper:
        """The record of stage `wrapper`."""
        return Wrapper("call", "python", self.lines)


@dataclass(frozen=True)
class Folding:
    """How further inputs of a graph are computed from frozen ones: Python that defines `call(*frozen) -> values`, and
    the positions of its arguments among the inputs of the captured graph (see `freezing/`)."""

    source: WrapperSource
    positions: tuple[int, ...]
