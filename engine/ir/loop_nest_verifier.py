"""Checks a loop nest: that loops are not run twice or not at all around what is computed, pieces are whole, and each
reduction has an accumulator."""
from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import sympy

from .ir import Statement
from .loop_nest import (
    VECTOR,
    Accumulate,
    Band,
    Blocks,
    Chunks,
    Compute,
    Interleave,
    InterleavedLoop,
    JammedRows,
    Lanes,
    Loop,
    LoopNest,
    Node,
    Nodes,
    Part,
    Piece,
    Privatized,
    Reduction,
    ScanBlocks,
    SumBlocks,
    TileBlocks,
    TileRows,
    inside,
)
from .verifier import VerifyError

RANGES = (Blocks, Chunks, Lanes, Piece, Privatized, SumBlocks)


@dataclass(frozen=True)
class _Around:
    """What is around a node: loops that run, whether one runs as vectors, accumulators, and their number."""

    running: frozenset[sympy.Symbol] = frozenset()
    vector: bool = False
    reductions: frozenset[Reduction] = frozenset()
    count: int = 0
    band: Band | None = None

    def loop(self, symbol: sympy.Symbol, vector: bool = False) -> _Around:
        """Inside of a loop."""
        if symbol in self.running:
            raise VerifyError(f"a loop over {symbol} inside of another one")
        if self.vector:
            raise VerifyError(f"a loop over {symbol} inside of one that runs as vectors")
        return replace(self, running=self.running | {symbol}, vector=vector)


def verify_nest(nest: LoopNest) -> None:
    """Check one nest. Raises VerifyError."""
    try:
        stored = set(_check(nest.body, _Around()))
        for body in nest.bodies:
            missing = [b for b in body.writes if (id(body), b) not in stored]
            if missing:
                raise VerifyError(f"nothing stores {missing[0]}, which {body.name} computes")
    except VerifyError as fault:
        raise VerifyError(f"loop nest of {nest.group.kernel}: {fault}") from None


def _check(nodes: Nodes, around: _Around) -> Iterator[tuple[int, str]]:
    """Check nodes; what they store, by the body."""
    pieces = [node for node in nodes if isinstance(node, Piece)]
    if pieces:
        _check_pieces(pieces)
    for node in nodes:
        if isinstance(node, Compute):
            _check_statements(node, around)
            yield from [(node.part.key, s.buffer) for s in node.statements if s.op == "store"]
        yield from _check(inside(node), _inside(node, around))
        if isinstance(node, JammedRows):
            yield from _check(node.rest, around)


def _inside(node: Node, around: _Around) -> _Around:
    """What is around the body of a node."""
    if isinstance(node, RANGES) and node.axis.symbol in around.running:
        raise VerifyError(f"a part of the range of {node.axis.symbol} inside of the loop over it")
    if isinstance(node, TileBlocks) and node.tile.row.symbol in around.running:
        raise VerifyError(f"tiles of {node.tile.row.symbol} inside of the loop over it")
    if isinstance(node, Loop):
        return around.loop(node.axis.symbol, node.kind == VECTOR)
    if isinstance(node, InterleavedLoop):
        if node.count != around.count:
            raise VerifyError(f"{node.count} elements of {node.axis.symbol} at a time, but {around.count} accumulators")
        return around.loop(node.axis.symbol, True)
    if isinstance(node, ScanBlocks):
        return around.loop(node.axis.symbol, True)
    if isinstance(node, JammedRows):
        return around.loop(node.axis.symbol).loop(node.lane.symbol, True)
    if isinstance(node, TileRows):
        return around.loop(node.tile.row.symbol)
    if isinstance(node, Band):
        return replace(around, band=node)
    if isinstance(node, Accumulate):
        return replace(around, reductions=around.reductions | set(node.reductions))
    return replace(around, count=node.count) if isinstance(node, Interleave) else around


def _check_pieces(pieces: list[Piece]) -> None:
    """The pieces of a loop are all of it, in order."""
    end, name = 0, pieces[0].axis.symbol
    for piece in pieces:
        if piece.first != end or piece.last <= end:
            raise VerifyError(f"a piece of {name} is from {piece.first} to {piece.last}, after one that ends at {end}")
        end = piece.last
    if pieces[0].axis.extent != end:
        raise VerifyError(f"the pieces of {name} end at {end} of {pieces[0].axis.extent}")


def _check_statements(node: Compute, around: _Around) -> None:
    part = node.part
    if around.band is None or part not in around.band.parts:
        raise VerifyError(f"statements of {part.body.name} outside of their nest")
    for s in node.statements:
        outside = [str(symbol) for symbol in _axes_of(around.band, part, s) if symbol not in around.running]
        if outside:
            raise VerifyError(f"{part.body.name}.{s.name or s.buffer} is outside of the loop over {outside[0]}")
        if s.op == "reduce" and not any(r.part is part and r.statement is s for r in around.reductions):
            raise VerifyError(f"{part.body.name}.{s.name} has no accumulator")


def _axes_of(band: Band, part: Part, s: Statement) -> list[sympy.Symbol]:
    """The axes that a statement depends on by its index."""
    axes = {a.symbol for a in (*band.axes, *band.around, *part.body.axes, *part.body.reduction_axes)}
    return [] if s.index is None else sorted(axes & s.index.free_symbols, key=str)
