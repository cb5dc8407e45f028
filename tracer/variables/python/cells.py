"""Closure cells, and deleted variables."""
from __future__ import annotations

from types import CellType
from typing import TYPE_CHECKING

from ...sources.source import Source
from ..core.base import Value

if TYPE_CHECKING:
    from ..core.base import Codegen, Translator


class Deleted(Value):
    """The content of an attribute, cell or global that traced code deleted."""

    __slots__ = ()

    def describe(self) -> str:
        """For messages."""
        return "a deleted variable"


DELETED = Deleted()


class CellValue(Value):
    """A closure cell. `real` is the cell object when it existed before the frame ran; `name` its name in the root
    frame's code when it is one of that frame's cells; `content` None while it is empty or not read yet."""

    __slots__ = ("content", "name", "real")

    def __init__(
        self, content: Value | None = None, source: Source | None = None, real: CellType | None = None, name: str = ""
    ) -> None:
        super().__init__(source)
        self.content = content
        self.real = real
        self.name = name

    def python_type(self) -> type:
        """The type of cells."""
        return CellType

    def has_content(self) -> bool:
        """Whether the trace knows a value in it."""
        return self.content is not None and self.content is not DELETED

    def getattr(self, tx: Translator, name: str) -> Value:
        """Its content."""
        if name != "cell_contents":
            return super().getattr(tx, name)
        content = tx.cell_content(self)
        return tx.raise_observed(ValueError, "Cell is empty") if content is None or content is DELETED else content

    def reconstruct(self, codegen: Codegen) -> None:
        """Push the cell object: the root frame's own, or that of the function through which it was read."""
        if self.name:
            codegen.emit_cell(self.name)
        elif self.source is not None:
            codegen.load_cell_source(self.source)
        else:
            codegen.new_object(self)

    def describe(self) -> str:
        """For messages."""
        return f"the closure variable {self.name or self.source or ''}"
