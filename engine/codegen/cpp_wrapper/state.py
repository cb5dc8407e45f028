"""What a C++ wrapper needs besides its library, as data: it is kept on disk with the rest of a compiled graph."""
from __future__ import annotations

from dataclasses import dataclass

from ....artifacts.records import CodeLine, Wrapper
from ....dependencies import msgspec


class Native(msgspec.Struct, frozen=True):
    """A C++ wrapper: the functions of torch that its library is given, in the order of its table; the names of the
    tensors that the graph holds; results that are Python's own values; and the nodes whose indices it checks. For who
    calls it without Python: the kind of each input (see `Caller`), and of each result its kind, its number among those
    of this kind (of an input, which), and its places."""

    functions: tuple[str, ...]
    held: tuple[str, ...] = ()
    plain: tuple[bool | int | float | str | None, ...] = ()
    bounds: tuple[str, ...] = ()
    inputs: str = ""
    results: tuple[tuple[str, int, tuple[int, ...]], ...] = ()


@dataclass(frozen=True)
class NativeSource:
    """A C++ wrapper: what it needs, and its lines, which also stand in the file of its kernels."""

    native: Native
    lines: tuple[CodeLine, ...]

    def record(self) -> Wrapper:
        """The record of stage `wrapper`, beside that of the Python wrapper."""
        return Wrapper("run", "cpp", self.lines)
