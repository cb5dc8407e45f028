"""The loop nest of a CPU kernel: what the scheduler decides, as an immutable tree.

A `LoopNest` is built from a `Group` by the transformations of `scheduler/cpu/`, shown by `loop_nest_text.py`, run by
`loop_nest_interpreter.py`, and printed as C++ by `codegen/cpp/`, which decides nothing.

A `Loop` runs over the current range of its axis. That is all of it, unless a node around the loop narrows the range:
`Blocks` (strip mining), `Piece` (index-set splitting), `Chunks` and `Privatized` (one share of a thread's), `Lanes` and
`TileBlocks`. So a transformation of a loop is a node around it, and transformations compose.
"""
from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

import sympy
import torch

from .affine import Size, axis_symbol
from .ir import DOTS, Axis, Group, LoopBody, Statement
from .tiles import RowTile, Tile

SERIAL, VECTOR, BRANCHED = "serial", "vector", "branched"
FIRST, COUNT = axis_symbol("first"), axis_symbol("count")
"""The iterations of its outermost loop that the shared nest of a `Foreach` runs."""


class Node:
    """Something that a kernel does. Nodes with a `body` do it around what the body does."""


Nodes = tuple[Node, ...]


# ---- what is computed ------------------------------------------------------------------------------------------------
@dataclass(frozen=True)
class Part:
    """Statements of one body that run in one nest. `after` marks those that follow the body's reductions."""

    body: LoopBody
    statements: tuple[Statement, ...]
    after: bool = False

    @property
    def key(self) -> int:
        """Identifies a body in its kernel; several may write one buffer, and so have one name."""
        return id(self.body)

    @property
    def loads(self) -> list[Statement]:
        return [s for s in self.statements if s.op == "load"]

    @property
    def stores(self) -> list[Statement]:
        return [s for s in self.statements if s.op == "store"]

    def dtype(self, name: str) -> torch.dtype:
        """The dtype of a value of the part's body."""
        return next(s.dtype for s in self.body.statements if s.name == name)


@dataclass(frozen=True, eq=False)
class Reduction:
    """A reduction in a nest, of values of `operand`. `wide`: a float sum (product) that is kept in double."""

    part: Part
    statement: Statement
    operand: torch.dtype
    wide: bool = False

    @property
    def kind(self) -> str:
        return "sum" if self.statement.mode in DOTS else self.statement.mode

    @property
    def vectorizes(self) -> bool:
        """False where one loop over all elements must run in order."""
        return self.kind not in ("argmax", "argmin")

    @property
    def is_plain(self) -> bool:
        """Whether its state is one number: the extremes of floats remember NaN, and positions the extreme."""
        return self.kind in ("sum", "prod", "any", "all") or (
            self.vectorizes and not self.operand.is_floating_point)


@dataclass(frozen=True, eq=False)
class RunningScan:
    """A scan in a nest, of values of `operand`."""

    part: Part
    statement: Statement
    operand: torch.dtype


@dataclass(frozen=True)
class Compute(Node):
    """Statements of a part, at each point of the loops around."""

    part: Part
    statements: tuple[Statement, ...]


@dataclass(frozen=True)
class MaskedStart:
    """Where a load under a mask starts if the mask is true; without it, it starts at element 0. `step` is the rest of
    its index."""

    load: Statement
    start: sympy.Expr
    step: sympy.Expr


@dataclass(frozen=True)
class MaskedStarts(Node):
    """Before a loop in which masks do not change: the start of each load under one, so that none is masked there."""

    part: Part
    starts: tuple[MaskedStart, ...]


# ---- loops -----------------------------------------------------------------------------------------------------------
@dataclass(frozen=True)
class Threads:
    """Threads share a loop; where `work` is given, only if it is more than `least` operations."""

    work: sympy.Expr | None = None
    least: int = 0


@dataclass(frozen=True)
class Loop(Node):
    """The current range of an axis, in order (`kind` BRANCHED: with a branch for each check), or (VECTOR) as vectors.

    `reductions`: those that the vectors carry; `checks`: whether indices are checked inside, so that each lane or
    thread has a flag of its own; `masks`: truth values, by part and name, that do not change in the loop, and that its
    vectors get by a comparison of its variable.
    """

    axis: Axis
    body: Nodes
    kind: str = SERIAL
    threads: Threads | None = None
    reductions: tuple[Reduction, ...] = ()
    checks: bool = False
    masks: tuple[tuple[Part, str], ...] = ()


@dataclass(frozen=True)
class Parallel(Node):
    """Threads share the first `collapse` loops of the body. `fence`: each waits for its non-temporal stores."""

    body: Nodes
    threads: Threads
    collapse: int = 1
    fence: bool = False


@dataclass(frozen=True)
class Blocks(Node):
    """Strip mining: the range of an axis in blocks of `size`. `even`: they are all whole, of a whole axis."""

    axis: Axis
    size: int
    body: Nodes
    even: bool = False


@dataclass(frozen=True)
class Lanes(Node):
    """Strip mining of the axis along which all vectors of the body run: what is reduced or kept, is for each lane.

    A block has room for `width` lanes; it has fewer where `each_thread` needs one.
    """

    axis: Axis
    width: int
    body: Nodes
    each_thread: bool = False


@dataclass(frozen=True)
class Known:
    """What is known of a part in a piece of a loop: booleans that are constant, or equal another one, and where loads
    start under masks that do not change."""

    part: Part
    values: Mapping[str, bool | str]
    starts: tuple[MaskedStarts, ...]


@dataclass(frozen=True)
class Piece(Node):
    """Index-set splitting: the elements from `first` up to `last` of an axis. `places`: what quotients and remainders
    in indices are there."""

    axis: Axis
    first: int
    last: int
    known: tuple[Known, ...]
    places: Mapping[sympy.Basic, sympy.Expr]
    body: Nodes


@dataclass(frozen=True)
class JammedRows(Node):
    """Unroll-and-jam: `rows` rows of an axis at once, inside of the loop over lanes; `rest` for the rows that remain.

    `once`: these are all rows, so that the accumulators start here.
    """

    axis: Axis
    lane: Axis
    rows: int
    reductions: tuple[Reduction, ...]
    once: bool
    body: Nodes
    rest: Nodes = ()


# ---- reductions and scans --------------------------------------------------------------------------------------------
@dataclass(frozen=True)
class Accumulate(Node):
    """Reductions (and the state of scans) over the loops of the body: they start before it, and have a value after it.

    `positions`: maxima and minima that another reduction finds, together with their positions. `once`: `JammedRows`
    starts them.
    """

    reductions: tuple[Reduction, ...]
    scans: tuple[RunningScan, ...]
    positions: tuple[tuple[Part, Statement, Reduction], ...]
    body: Nodes
    once: bool = False


@dataclass(frozen=True)
class Chunks(Node):
    """A reduction shared by threads: `count` chunks of an axis, each with accumulators of its own, which are combined
    in order. `aligned`: chunks are whole vectors of `aligned` elements; `checks`: each has a flag."""

    axis: Axis
    count: int
    reductions: tuple[Reduction, ...]
    threads: Threads
    body: Nodes
    aligned: int = 0
    checks: bool = False


@dataclass(frozen=True)
class SumBlocks(Node):
    """Blocked summation: within blocks of `size` of an axis, sums of `reductions` are float; over the blocks, double.

    `one`: a single block holds all.
    """

    axis: Axis
    size: int
    reductions: tuple[Reduction, ...]
    body: Nodes
    one: bool = False


@dataclass(frozen=True)
class Interleave(Node):
    """Multiple accumulators: `count` for each reduction, joined after the body."""

    axis: Axis
    count: int
    reductions: tuple[Reduction, ...]
    narrow: bool  # whether positions fit 32 bits
    body: Nodes


@dataclass(frozen=True)
class InterleavedLoop(Node):
    """The range of an axis, `count` elements at a time, one for each accumulator. `rest`: how what remains is done."""

    axis: Axis
    count: int
    body: Nodes
    kind: str = VECTOR
    rest: str = "singly"  # or "masked", as a block under a mask, or "": nothing remains
    checks: bool = False


@dataclass(frozen=True)
class ScanBlocks(Node):
    """A scan of the range of an axis in blocks of `size`: values first, then the scan of the block, then its users."""

    axis: Axis
    scan: RunningScan
    size: int
    body: Nodes


# ---- memory ----------------------------------------------------------------------------------------------------------
@dataclass(frozen=True)
class Scratch:
    """A scratch array: the stride of an inner axis in the buffer -> its stride in the array."""

    elements: int
    strides: Mapping[Size, int]


@dataclass(frozen=True)
class Allocate(Node):
    """Scratch for a buffer that never reaches memory."""

    buffer: str
    elements: int


@dataclass(frozen=True)
class WidenRow(Node):
    """A row of a float16 buffer, from `start`, converted once for all the loops (`axes`) that read it."""

    buffer: str
    start: sympy.Expr
    extent: sympy.Expr
    axes: tuple[Axis, ...]


@dataclass(frozen=True)
class Widened(Node):
    """Contiguous float16 loads of a block are converted before the body, stores after it; the body works on floats.

    `streamed`: buffers with non-temporal stores.
    """

    axis: Axis
    size: int
    accesses: tuple[tuple[Part, Statement], ...]
    streamed: frozenset[str]
    body: Nodes


@dataclass(frozen=True)
class Streamed(Node):
    """Results of a block are collected in L1, and written by non-temporal stores after the body."""

    axis: Axis
    size: int
    stores: tuple[Statement, ...]
    body: Nodes


@dataclass(frozen=True)
class PrefetchNext(Node):
    """The lines of the next row that a block of the last loop brings: (buffer, index there, bytes of an element).

    `lines`: as many instructions as the block has lines, `size` elements; else a loop over them.
    """

    axis: Axis
    reads: tuple[tuple[str, sympy.Expr, int], ...]
    size: int = 0


@dataclass(frozen=True)
class GatheredRow:
    """A contiguous load of a row of a table. The row is a load of an index in each iteration of the loop `around`."""

    part: Part
    load: Statement
    row: str  # the name of the index in the load's
    index: Statement
    around: Axis
    size: int  # bytes of an element

    @property
    def key(self) -> tuple[object, ...]:
        """Equal for loads of one row: the table, and the address of the index."""
        return self.load.buffer, self.index.buffer, self.index.index


@dataclass(frozen=True)
class PrefetchGathered(Node):
    """The row that the loop `row.around` reads `ahead` iterations later."""

    row: GatheredRow
    ahead: int
    inner: Axis
    lanes: bool


@dataclass(frozen=True)
class TileBlocks(Node):
    """The loops over tiles."""

    tile: Tile | RowTile
    body: Nodes


@dataclass(frozen=True)
class TileRows(Node):
    """The rows of a tile: its transposed operands before them, its results after them."""

    tile: Tile | RowTile
    body: Nodes


# ---- scatters --------------------------------------------------------------------------------------------------------
@dataclass(frozen=True)
class Owners(Node):
    """Owner-computes: each thread runs the whole body, for its range of the values of `index`."""

    index: Statement
    threads: Threads
    body: Nodes


@dataclass(frozen=True)
class OwnIteration(Node):
    """Goes on with the next iteration where the value belongs to another thread."""

    part: Part
    name: str


@dataclass(frozen=True)
class Privatized(Node):
    """Threads share `count` chunks of an axis, each with its own copy of what the body adds to: (buffer, dtype,
    elements)."""

    axis: Axis
    count: int
    sums: tuple[tuple[str, torch.dtype, int], ...]
    body: Nodes


# ---- nests and kernels -----------------------------------------------------------------------------------------------
@dataclass(frozen=True)
class Band(Node):
    """The loops that some parts share, inside the kernel's outer loops (`around`: and others), maybe along lanes;
    `checks`: some index is checked; `flag`: by one flag for all of the band."""

    parts: tuple[Part, ...]
    loops: tuple[Axis, ...]
    lane: Axis | None
    around: tuple[Axis, ...]
    checks: bool
    flag: bool
    body: Nodes

    @property
    def axes(self) -> tuple[Axis, ...]:
        """Its loops, the innermost last."""
        return self.loops if self.lane is None else (*self.loops, self.lane)


@dataclass(frozen=True)
class LoopNest:
    """A kernel as loops.

    `bodies` are those of the group in the form that is computed; `local` the buffers that stay inside, of which
    `arrays` has those that do not stay in registers. `outer` names the axes around everything, which scratch has not.
    `threaded`: threads share some loop. `fence`: it ends by waiting for non-temporal stores.
    """

    group: Group
    bodies: tuple[LoopBody, ...]
    local: Mapping[str, torch.dtype]
    arrays: Mapping[str, Scratch]
    outer: frozenset[str]
    lane: Axis | None
    body: Nodes
    threaded: bool = False
    vector_bits: int = 512
    fence: bool = False


# ---- walks -----------------------------------------------------------------------------------------------------------
def inside(node: Node) -> Nodes:
    """The body of a node, if it has one."""
    body: Nodes = getattr(node, "body", ())
    return body


def walk(nodes: Nodes) -> list[Node]:
    """All nodes, from the outside in."""
    found: list[Node] = []
    for node in nodes:
        found += [node, *walk(inside(node)), *(walk(node.rest) if isinstance(node, JammedRows) else ())]
    return found


def rewritten(nodes: Nodes, axis: Axis, change: Callable[[Loop], Nodes], through: tuple[type, ...]) -> Nodes:
    """`nodes` with `change` made to the loop over `axis`, looked for inside nodes of the types `through`."""
    made: list[Node] = []
    for node in nodes:
        if isinstance(node, Loop) and node.axis is axis:
            made += change(node)
        elif isinstance(node, through):
            body = rewritten(inside(node), axis, change, through)
            made.append(node if body is inside(node) else replace(node, body=body))  # type: ignore[type-var]
        else:
            made.append(node)
    return nodes if len(made) == len(nodes) and all(a is b for a, b in zip(made, nodes)) else tuple(made)
