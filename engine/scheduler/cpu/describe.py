"""A loop nest as a record: what was chosen, by kind, and the whole nest as text."""
from __future__ import annotations

from ....artifacts.records import LoopSchedule
from ...ir.loop_nest import (
    VECTOR,
    Allocate,
    Chunks,
    Compute,
    Interleave,
    InterleavedLoop,
    JammedRows,
    Lanes,
    Loop,
    LoopNest,
    Node,
    Owners,
    Parallel,
    Piece,
    PrefetchGathered,
    PrefetchNext,
    Privatized,
    ScanBlocks,
    Streamed,
    SumBlocks,
    TileBlocks,
    Widened,
    WidenRow,
    inside,
    walk,
)
from ...ir.loop_nest_text import describe_node, format_nest
from ...ir.tiles import Tile
from .foreach import PARTS


def loop_schedule(nest: LoopNest, shared: bool = False) -> LoopSchedule:
    """The record of a nest; `shared`: it is that of the members of a `Foreach`, which threads share."""
    nodes = walk(nest.body)
    there = set(map(type, nodes))

    def found(*kinds: type) -> tuple[str, ...]:
        if there.isdisjoint(kinds):
            return ()
        return tuple(dict.fromkeys([describe_node(node) for node in nodes if isinstance(node, kinds)]))

    tiles, scatters = found(TileBlocks), found(Owners, Privatized)
    scratch = [f"{node.buffer}: {node.elements} elements" for node in nodes if isinstance(node, Allocate)]
    threads = tuple(dict.fromkeys([text for node in nodes for text in _threads(node)]))
    if shared:
        threads = f"{PARTS} parts of the work of all members",
    moded = any(s.mode and s.op == "store" for n in nodes if isinstance(n, Compute) for s in n.statements)
    return LoopSchedule(
        threads=threads,
        vectors=_vectors(nodes, nest.vector_bits),
        tile=tiles[0].removeprefix("tiles of ") if tiles else "",
        pieces=found(Piece),
        accumulators=found(Interleave, SumBlocks, JammedRows, ScanBlocks),
        stores=found(Streamed),
        conversions=found(Widened, WidenRow),
        prefetch=found(PrefetchNext, PrefetchGathered),
        scatter=_scatter(scatters, threads) if moded else "",
        scratch=tuple(scratch),
        nest=tuple(format_nest(nest, statements=False)),
    )


def _scatter(apart: tuple[str, ...], threads: tuple[str, ...]) -> str:
    """How stores to addresses that data says are kept apart."""
    if apart:
        return apart[0]
    return "threads share loops along which no two iterations collide" if threads else "no threads"


def _threads(node: Node) -> tuple[str, ...]:
    """What threads share because of a node."""
    if isinstance(node, Parallel):
        return ", ".join(_loops_under(node, node.collapse)),
    if isinstance(node, (Chunks, Owners, Privatized)) or (isinstance(node, Loop) and node.threads is not None):
        return describe_node(node),
    return ()


def _loops_under(node: Node, count: int) -> list[str]:
    """The symbols of the outermost loops inside of a node."""
    for first in inside(node):
        symbol = [first.axis.symbol.name] if isinstance(first, (Loop, Lanes)) else []
        if isinstance(first, TileBlocks):
            tile = first.tile
            symbol = [a.symbol.name for a in ((tile.row, tile.column) if isinstance(tile, Tile) else (tile.row,))]
        rest = _loops_under(first, count - len(symbol)) if count > len(symbol) else []
        return [*symbol, *rest]
    return []


def _vectors(nodes: list[Node], bits: int) -> tuple[str, ...]:
    axes = [node.axis for node in nodes if isinstance(node, (Loop, InterleavedLoop)) and node.kind == VECTOR]
    axes += [node.lane for node in nodes if isinstance(node, JammedRows)]
    width = "" if bits == 512 else f", {bits} bits"
    return tuple(dict.fromkeys(f"{a.symbol.name}{width}" for a in axes))
