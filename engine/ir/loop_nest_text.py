"""A loop nest as text: one line for each node, what it does around others before them, indented.

    parallel
      for i0 in 400
        accumulate buf0.t1 = sum
          buf0: t0 = load x_1[300*i0 + r0] : float32
"""
from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from .ir import Axis, Statement
from .loop_nest import (
    BRANCHED,
    SERIAL,
    VECTOR,
    Accumulate,
    Allocate,
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
    MaskedStarts,
    Node,
    Nodes,
    Owners,
    OwnIteration,
    Parallel,
    Part,
    Piece,
    PrefetchGathered,
    PrefetchNext,
    Privatized,
    ScanBlocks,
    Streamed,
    SumBlocks,
    Threads,
    TileBlocks,
    TileRows,
    Widened,
    WidenRow,
    inside,
)
from .printer import format_expr, format_statement
from .tiles import Tile


def format_nest(nest: LoopNest, statements: bool = True) -> list[str]:
    """The lines of a nest; without `statements`, only which operations are where."""
    head = f"kernel {nest.group.kernel}" + ("" if nest.vector_bits == 512 else f", {nest.vector_bits}-bit vectors")
    lines = [head]
    _add_lines(lines, nest.body, "  ", statements)
    return lines


def _add_lines(lines: list[str], nodes: Nodes, indent: str, statements: bool) -> None:
    for node in nodes:
        if isinstance(node, Compute):
            lines += [indent + text for text in _computed(node, statements)]
            continue
        lines.append(indent + HEADS[type(node)](node))
        _add_lines(lines, inside(node), indent + "  ", statements)
        if isinstance(node, JammedRows) and node.rest:
            lines.append(f"{indent}rows that remain")
            _add_lines(lines, node.rest, indent + "  ", statements)


def _computed(node: Compute, statements: bool) -> list[str]:
    body = node.part.body.name
    if statements:
        return [f"{body}: {format_statement(s)}" for s in node.statements]
    words = [_brief(s) for s in node.statements if s.op != "constant"]
    return [f"{body}: {', '.join(words)}"] if words else []


def _brief(s: Statement) -> str:
    return " ".join([word for word in (s.op, s.mode, s.buffer) if word])


def _extent(axis: Axis) -> str:
    return f"{axis.symbol.name} in {format_expr(axis.extent)}"


def _threads(threads: Threads) -> str:
    return "" if threads.work is None else f" if {format_expr(threads.work)} > {threads.least}"


_WORDS = {SERIAL: "for", VECTOR: "vector", BRANCHED: "branched for"}


def _loop(node: Loop) -> str:
    text = f"{_WORDS[node.kind]} {_extent(node.axis)}"
    if node.masks:
        text += f", masked by {', '.join(_value_name(part, name) for part, name in node.masks)}"
    return text if node.threads is None else f"parallel {text}{_threads(node.threads)}"


def _value(part: Part, s: Statement) -> str:
    return f"{part.body.name}.{s.name}"


def _accumulate(node: Accumulate) -> str:
    found = [f"{_value(r.part, r.statement)} = {r.kind}{' in double' if r.wide else ''}" for r in node.reductions]
    found += [f"{_value(x.part, x.statement)} = running {x.statement.mode}" for x in node.scans]
    return f"accumulate {', '.join(found)}"


def _piece(node: Piece) -> str:
    known = [f"{_value_name(x.part, name)} = {value}" for x in node.known for name, value in x.values.items()]
    known += [f"{format_expr(a)} = {format_expr(b)}" for a, b in node.places.items()]
    return f"piece {node.axis.symbol} from {node.first} to {node.last}" + (f", {', '.join(known)}" if known else "")


def _value_name(part: Part, name: str) -> str:
    return f"{part.body.name}.{name}"


def _tile(node: TileBlocks) -> str:
    tile = node.tile
    if isinstance(tile, Tile):
        held = ", ".join(dict.fromkeys(s.buffer for s in tile.loads))
        return (f"tiles of {tile.rows} x {tile.columns} of {_extent(tile.row)} and {_extent(tile.column)}, with {held} "
                "transposed")
    held = ", ".join(dict.fromkeys(x.load.buffer for x in tile.operands.values()))
    return f"tiles of {tile.rows} rows of {_extent(tile.row)}, with {held} transposed"


def _band(node: Band) -> str:
    loops = " ".join(a.symbol.name for a in node.axes)
    return f"nest over {loops}" if loops else "nest"


def _blocks(axis: Axis, size: int) -> str:
    return f"blocks of {size} of {_extent(axis)}"


def _chunks(node: Chunks) -> str:
    return f"parallel, {node.count} chunks of {_extent(node.axis)}, joined in order{_threads(node.threads)}"


def _sum_blocks(node: SumBlocks) -> str:
    sums = ", ".join(_value(r.part, r.statement) for r in node.reductions)
    return f"{_blocks(node.axis, node.size)}, with float sums of {sums}"


def _widened(node: Widened) -> str:
    names = ", ".join(dict.fromkeys(s.buffer for _, s in node.accesses))
    return f"with {names} converted between float16 and float32"


def _prefetch(node: PrefetchNext) -> str:
    return "prefetch " + ", ".join(f"{buffer}[{format_expr(index)}]" for buffer, index, _ in node.reads)


def _gathered(node: PrefetchGathered) -> str:
    row = node.row
    return f"prefetch the row of {row.load.buffer} that is read {node.ahead} iterations of {row.around.symbol} later"


HEADS: Mapping[type, Callable[[Any], str]] = {
    Accumulate: _accumulate,
    Allocate: lambda x: f"scratch {x.buffer}: {x.elements}",
    Band: _band,
    Blocks: lambda x: _blocks(x.axis, x.size),
    Chunks: _chunks,
    Interleave: lambda x: f"{x.count} {'accumulators' if x.reductions else 'elements'} along {x.axis.symbol.name}",
    InterleavedLoop: lambda x: f"{'for' if x.kind == SERIAL else 'vector'} {_extent(x.axis)}, {x.count} at a time"
    + (", the rest masked" if x.rest == "masked" else ""),
    JammedRows: lambda x: f"{x.rows} rows of {_extent(x.axis)} at a time, vector {_extent(x.lane)}",
    Lanes: lambda x: f"lanes: blocks of {x.width} of {_extent(x.axis)}{', one for each thread' * x.each_thread}",
    Loop: _loop,
    MaskedStarts: lambda x: f"starts of {', '.join(s.load.buffer for s in x.starts)} under masks",
    Owners: lambda x: f"parallel, each thread for a range of {x.index.name}{_threads(x.threads)}",
    OwnIteration: lambda x: f"only for own {x.name}",
    Parallel: lambda x: f"parallel{f' over {x.collapse} loops' if x.collapse > 1 else ''}{_threads(x.threads)}",
    Piece: _piece,
    PrefetchGathered: _gathered,
    PrefetchNext: _prefetch,
    Privatized: lambda x: f"parallel, {x.count} chunks of {_extent(x.axis)}, "
                          f"with own {', '.join(name for name, _, _ in x.sums)}",
    ScanBlocks: lambda x: f"{_blocks(x.axis, x.size)}, scanned as vectors",
    Streamed: lambda x: f"non-temporal stores of {', '.join(s.buffer for s in x.stores)}",
    SumBlocks: _sum_blocks,
    TileBlocks: _tile,
    TileRows: lambda x: f"for the rows {x.tile.row.symbol} of a tile",
    Widened: _widened,
    WidenRow: lambda x: f"with a row of {x.buffer} converted to float32",
}


def describe_node(node: Node) -> str:
    """One node on one line, without what is inside of it."""
    return HEADS[type(node)](node)
