"""The result of code generation: the text with provenance, and how to launch it."""
from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import sympy
import torch

from ....artifacts.records import CodeLine, Ref
from ...ir.ir import KernelSignature
from ...runtime.kernel_tables import Table
from .index import index_text
from .prelude import HEADER, helpers_used

# From here extents and indices need int64.
WIDE_FROM = 1 << 31
STAGES = 3  # what Triton takes where nothing is said


@dataclass(frozen=True)
class Workspace:
    """Memory that a launch allocates for itself, dense; `numel` over the size symbols."""

    name: str
    dtype: torch.dtype
    numel: sympy.Expr


@dataclass(frozen=True)
class Launch:
    """One Triton kernel of a group. Parameters: pointers, then size symbols, then constants.

    `pointers` names buffers and workspaces, `types` their launch types ("*fp32"). `grid` are the numbers of programs.
    """

    name: str
    pointers: tuple[str, ...]
    types: tuple[str, ...]
    symbols: tuple[sympy.Symbol, ...]
    constants: Mapping[str, int]
    grid: tuple[sympy.Expr, ...]
    warps: int
    index: str  # int32 | int64 | dynamic: then the constant INDEX is chosen at each call
    lines: tuple[CodeLine, ...]
    tile: str = ""
    stages: int = STAGES  # of loads that a loop has on the way
    copied: tuple[tuple[int, int], ...] = ()  # (place, bytes) of pointers that descriptors need aligned to 16 bytes


@dataclass(frozen=True)
class TritonSource:
    """The Triton form of one group: its kernels in launch order, and what it is called with.

    `extents` are sizes (over the symbols) that must stay below 2**31 for int32 positions to do.
    """

    signature: KernelSignature
    launches: tuple[Launch, ...]
    workspaces: tuple[Workspace, ...] = ()
    extents: tuple[sympy.Expr, ...] = ()
    lines: tuple[CodeLine, ...] = field(default=())
    table: Table | None = None

    @property
    def text(self) -> str:
        """The module: imports, the helpers that are used, the kernels."""
        return "\n".join(line.text for line in self.lines) + "\n"

    @property
    def meta(self) -> dict[str, object]:
        """Block sizes and warps by kernel name, for records."""
        return {k.name: {**k.constants, "num_warps": k.warps, **_stages(k), "tile": k.tile} for k in self.launches}

    def grid(self, name: str) -> Callable[..., tuple[int, ...]]:
        """The grid of kernel `name` as a function of the signature's size symbols."""
        launch = next(k for k in self.launches if k.name == name)
        return function_of(self.signature.symbols, launch.grid)


def _stages(launch: Launch) -> dict[str, int]:
    return {} if launch.stages == STAGES else {"num_stages": launch.stages}


def assemble(launches: Sequence[Launch]) -> tuple[CodeLine, ...]:
    """The lines of a module with these kernels and the helpers that they call."""
    bodies = "\n".join(line.text for launch in launches for line in launch.lines)
    lines = [CodeLine(text) for text in HEADER.rstrip("\n").split("\n")]
    for helper in helpers_used(bodies):
        lines += [CodeLine("")] + [CodeLine(text) for text in helper.rstrip("\n").split("\n")]
    for launch in launches:
        lines += [CodeLine(""), CodeLine(""), *launch.lines]
    return tuple(lines)


def function_of(symbols: Sequence[sympy.Symbol], values: Sequence[sympy.Expr]) -> Callable[..., tuple[int, ...]]:
    """A Python function of the symbols (ints, in order) that returns the values as a tuple."""
    parameters = ", ".join(s.name for s in symbols)
    body = "".join(f"{index_text(v, python=True)}, " for v in values)
    function: Callable[..., tuple[int, ...]] = eval(f"lambda {parameters}: ({body})")
    return function


class SourceWriter:
    """Collects indented lines, each with what it came from."""

    def __init__(self, indent: int = 0) -> None:
        self.lines: list[CodeLine] = []
        self.indent = indent

    def line(self, text: str, origins: tuple[Ref, ...] = ()) -> None:
        """Add one line at this writer's indentation."""
        self.lines.append(CodeLine(" " * 4 * self.indent + text if text else "", origins))
