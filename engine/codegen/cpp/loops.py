"""Prints loops: over axes, over blocks of them, over tiles, and as threads share them."""
from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import sympy

from ....artifacts.records import ref
from ...ir.ir import Axis, Statement
from ...ir.loop_nest import (
    BRANCHED,
    SERIAL,
    VECTOR,
    Blocks,
    Compute,
    JammedRows,
    Lanes,
    Loop,
    Owners,
    Parallel,
    Part,
    Piece,
    Privatized,
    Reduction,
    TileBlocks,
    TileRows,
    Widened,
)
from ...ir.tiles import ALONG, RowOperand, RowTile, Tile
from .accumulators import fields_of, variable
from .compute import masked_starts
from .dtypes import ctype
from .emission import Emission, block_end, block_header, condition, header
from .indices import c_expression
from .remainders import name_remainders
from .scope import buffer_name
from .statements import StatementWriter

LINE = 64  # bytes of a cache line


def loop(p: StatementWriter, node: Loop) -> None:
    """The current range of an axis."""
    ends, named = _mask_ends(p, node), _remainders(p, node)
    pragma(p, node)
    with p.loop(header(node.axis, *p.span(node.axis))):
        for (part, mask), end in ends.items():
            known = p.scopes.get(("lanes", end))
            if known is None:
                known = p.scopes.put(("lanes", end), p.scopes.name(end.removesuffix("_end") + "_lane"))
                p.writer.line(f"const bool {known} = ({_counted_in(node.axis)}){node.axis.symbol} < {end};")
            p.scopes.put(("value", part.key, mask), known)
        before = p.branched, p.alone
        p.branched = node.kind == BRANCHED
        p.alone = node.kind == SERIAL and all(isinstance(x, Compute) for x in node.body)
        p.nodes(node.body)
        p.branched, p.alone = before
    for remainder in named:
        del p.remainders[remainder]


def _remainders(p: StatementWriter, node: Loop) -> list[sympy.Basic]:
    """Those that do not change in a vector loop, by names."""
    if node.kind != VECTOR:
        return []
    around = {a.symbol for a in p.loops_around} | {a.symbol for a in p.nest.group.axes if a.symbol.name in p.nest.outer}
    statements = [s for x in node.body if isinstance(x, Compute) for s in x.statements]
    return name_remainders(p, statements, around - {node.axis.symbol})


def _mask_ends(p: StatementWriter, node: Loop) -> dict[tuple[Part, str], str]:
    """Where the lanes end for which each mask of a loop holds: before all of them, or behind."""
    ends: dict[tuple[Part, str], str] = {}
    named: dict[str, str] = {}
    first, last = p.ends(node.axis)
    for part, mask in node.masks:
        text = p.value(part, mask)
        if text in ("true", "false"):
            continue
        if text not in named:
            named[text] = p.scopes.name(f"{text}_end")
            kind = _counted_in(node.axis)
            p.writer.line(f"const {kind} {named[text]} = ({kind})({text} ? {last} : {first});")
        ends[part, mask] = named[text]
    return ends


def _counted_in(axis: Axis) -> str:
    return "int32" if axis.extent.is_Integer and int(axis.extent) < 1 << 31 else "int64"


def pragma(p: Emission, node: Loop) -> None:
    """The pragma of a loop that threads share, or that runs as vectors."""
    if node.kind == BRANCHED and node.threads is None:
        p.writer.line("#pragma GCC unroll 4")
    if node.kind != VECTOR and node.threads is None:
        return
    words = ["#pragma omp", *(["parallel for"] if node.threads is not None else [])]
    if node.kind == VECTOR:
        words += ["simd", *[clause for r in node.reductions for clause in _clauses(p, r)]]
    if node.checks:
        words.append(f"reduction(|:{p.outside})")
    if node.threads is not None:
        words.append("schedule(static)" + condition(node.threads))
    p.writer.line(" ".join(words))


def _clauses(p: Emission, r: Reduction) -> list[str]:
    return [f"reduction({f.clause}:{variable(p, r)}{f.suffix})" for f in fields_of(r)]


# ---- parts of loops --------------------------------------------------------------------------------------------------
def blocks(p: Emission, node: Blocks) -> None:
    """An axis in blocks."""
    a = node.axis.symbol
    first, last = p.ends(node.axis)
    start, stop = f"{a}_0", f"{a}_1"
    if any(isinstance(inner, Widened) for inner in node.body):  # its arrays are named after the kernel's other ones
        start, stop = p.scopes.name(start), p.scopes.name(stop)
    with p.loop(f"for (int64 {start} = {first}; {start} < {last}; {start} += {node.size})"):
        if node.even:
            stop = f"{start} + {node.size}"
        else:
            p.writer.line(f"const int64 {stop} = {start} + {node.size} < {last} ? {start} + {node.size} : {last};")
        with p.within(node.axis, start, stop):
            p.nodes(node.body)


def piece(p: StatementWriter, node: Piece) -> None:
    """A piece of a loop, in which some values are known."""
    with p.scopes.open(), p.within(node.axis, str(node.first), str(node.last)):
        p.places = node.places
        for known in node.known:
            part = known.part
            for name, value in known.values.items():
                if isinstance(value, bool):
                    p.scopes.put(("value", part.key, name), "true" if value else "false")
            for name, value in known.values.items():
                if isinstance(value, str):
                    p.scopes.put(("value", part.key, name), p.value(part, value))
            for starts in known.starts:
                masked_starts(p, starts)
        p.nodes(node.body)
        p.places = {}


def lanes(p: Emission, node: Lanes) -> None:
    """Blocks of lanes."""
    before = p.lane, p.width, p.step
    p.lane, p.width = node.axis, node.width
    p.step = "lanes" if node.each_thread else str(node.width)
    a = node.axis.symbol
    with p.loop(block_header(node.axis, p.step)), p.within(node.axis, f"{a}_0", f"{a}_1"):
        p.writer.line(block_end(node.axis, p.step))
        p.nodes(node.body)
    p.lane, p.width, p.step = before


def jammed_rows(p: Emission, node: JammedRows) -> None:
    """Several rows at once, inside of the loop over lanes; then the rows that remain."""
    a, lane, rows = node.axis, node.lane, node.rows
    (first, end), at = p.ends(a), p.scopes.name(f"{a.symbol}_at")
    p.writer.line(f"int64 {at} = {first};")
    with p.loop(f"for (; {at} + {rows} <= {end}; {at} += {rows})"):
        p.writer.line("#pragma omp simd")
        with p.loop(header(lane, *p.span(lane))), _in_variables(p, node):
            p.writer.line(f"#pragma GCC unroll {rows}")
            with p.loop(f"for (int64 k = 0; k < {rows}; k++)"):
                p.writer.line(f"const int64 {a.symbol} = {at} + k;")
                p.nodes(node.body)
    with p.within(a, at, p.span(a)[1]):
        p.nodes(node.rest)


@contextmanager
def _in_variables(p: Emission, node: JammedRows) -> Iterator[None]:
    """Around the body of a lane: its accumulators are in variables there."""
    lane = f"[{node.lane.symbol} - {p.span(node.lane)[0]}]"
    found = [(f, f"{variable(p, r)}{f.suffix}{lane}", f"{variable(p, r)}{f.suffix}_now")
             for r in node.reductions for f in fields_of(r, r in p.partial)]
    for f, place, name in found:
        p.writer.line(f"{f.type} {name} = {f.start if node.once else place};")
    p.in_variables = True
    yield
    p.in_variables = False
    for _, place, name in found:
        p.writer.line(f"{place} = {name};")


# ---- threads ---------------------------------------------------------------------------------------------------------
def parallel(p: Emission, node: Parallel) -> None:
    """A parallel loop; where stores are non-temporal, each thread fences its own at the end."""
    collapse = f" collapse({node.collapse})" if node.collapse > 1 else ""
    if not node.fence:
        p.writer.line(f"#pragma omp parallel for{collapse}{condition(node.threads)} schedule(static)")
        p.nodes(node.body)
        return
    p.writer.line(f"#pragma omp parallel{condition(node.threads)}")
    with p.writer.block(""):
        p.writer.line(f"#pragma omp for{collapse} schedule(static) nowait")
        p.nodes(node.body)
        p.writer.line("past_cache_done();")


def owners(p: Emission, node: Owners) -> None:
    """All threads run the body, each for its range of addresses."""
    assert node.index.bound is not None
    bound = c_expression(node.index.bound)
    p.writer.line(f"#pragma omp parallel{condition(node.threads)}")
    with p.loop(""):
        p.writer.line("const int64 threads = omp_get_num_threads(), thread = omp_get_thread_num();")
        p.writer.line(f"const int64 own_first = thread * ({bound}) / threads, own_last = (thread + 1) * ({bound})"
                      " / threads;")
        p.nodes(node.body)


def privatized(p: Emission, node: Privatized) -> None:
    """Zeros for each chunk that threads share, and the sum of the chunks in order."""
    sums = {buffer_name(name): (ctype(dtype).memory, size) for name, dtype, size in node.sums}
    for name, (kind, size) in sums.items():
        p.writer.line(f"{kind} {name}_chunks[{node.count * size}];")
    p.writer.line("#pragma omp parallel for schedule(static)")
    with p.loop(f"for (int64 chunk = 0; chunk < {node.count}; chunk++)"):
        for name, (kind, size) in sums.items():
            p.writer.line(f"{kind}* __restrict {name} = {name}_chunks + {size} * chunk;")
            p.writer.line(f"for (int64 k = 0; k < {size}; k++) {name}[k] = 0;")
        ends = [f"{at} * ({c_expression(node.axis.extent)}) / {node.count}" for at in ("chunk", "(chunk + 1)")]
        with p.within(node.axis, *ends):
            p.nodes(node.body)
    for name, (_, size) in sums.items():
        with p.writer.block(f"for (int64 chunk = 0; chunk < {node.count}; chunk++)"):
            p.writer.line("#pragma omp simd")
            p.writer.line(f"for (int64 k = 0; k < {size}; k++) {name}[k] += {name}_chunks[{size} * chunk + k];")


# ---- tiles -----------------------------------------------------------------------------------------------------------
def tile_blocks(p: Emission, node: TileBlocks) -> None:
    """The loops over tiles."""
    tile = node.tile
    with p.loop(block_header(tile.row, tile.rows)):
        if isinstance(tile, RowTile):
            p.nodes(node.body)
            return
        with p.loop(block_header(tile.column, tile.columns)):
            p.nodes(node.body)


def tile_rows(p: Emission, node: TileRows) -> None:
    """Transposed operands, the loop over the rows of a tile, and its results."""
    tile, (first, last) = node.tile, _tile_span(node.tile.row.symbol)
    p.writer.line(block_end(tile.row, tile.rows))
    if isinstance(tile, Tile):
        p.writer.line(block_end(tile.column, tile.columns))
        _copy_operands(p, tile)
    else:
        for operand in tile.operands.values():
            _fill(p, tile, operand)
    p.tile = tile
    with p.loop(header(tile.row, first, last)):
        if isinstance(tile, Tile):
            with p.within(tile.column, *_tile_span(tile.column.symbol)):
                p.nodes(node.body)
        else:
            p.nodes(node.body)
    p.tile = None
    if isinstance(tile, RowTile):
        for operand in tile.operands.values():
            _write_back(p, tile, operand)


def _tile_span(symbol: sympy.Symbol) -> tuple[str, str]:
    return f"{symbol}_0", f"{symbol}_1"


def _copy_operands(p: Emission, tile: Tile) -> None:
    (i, rows), (j, columns) = ((a.symbol, f"{a.symbol}_1 - {a.symbol}_0") for a in (tile.row, tile.column))
    for load in tile.loads:
        assert load.index is not None
        kind, array = ctype(load.dtype).memory, tile.array(load)
        start = load.index.subs({i: sympy.Symbol(f"{i}_0"), j: sympy.Symbol(f"{j}_0")})
        stride = c_expression(sympy.expand(load.index).coeff(j))
        source = f"{buffer_name(load.buffer)} + {c_expression(start)}"
        _line(p, f"{kind} {array}[{tile.rows * tile.columns}];", load)
        _line(p, f"transposed<{kind}>({source}, {stride}, {array}, {tile.columns}, {rows}, {columns});", load)


def _fill(p: Emission, tile: RowTile, x: RowOperand) -> None:
    first, last = _tile_span(tile.row.symbol)
    kind = ctype(x.load.dtype).memory
    _line(p, f"alignas({LINE}) {kind} {x.array}[{tile.rows * x.wide}];", x.load)
    if x.read:
        start, step = _memory(tile, x)
        _line(p, f"transposed<{kind}>({start}, {step}, {x.array}, {x.wide}, {last} - {first}, {x.place[2]});", x.load)


def _write_back(p: Emission, tile: RowTile, x: RowOperand) -> None:
    (first, last), kind = _tile_span(tile.row.symbol), ctype(x.load.dtype).memory
    if x.written:
        start, step = _memory(tile, x)
        _line(p, f"transposed<{kind}>({x.array}, {x.wide}, {start}, {step}, {x.place[2]}, {last} - {first});", x.load)


def _memory(tile: RowTile, x: RowOperand) -> tuple[str, str]:
    """Where the first row of a tile starts, and the way from one of its elements to the next."""
    buffer, index, _ = x.place
    first = index.subs({tile.row.symbol: sympy.Symbol(f"{tile.row.symbol}_0"), ALONG: 0})
    return f"{buffer_name(buffer)} + {c_expression(first)}", c_expression(sympy.expand(index).coeff(ALONG))


def _line(p: Emission, text: str, s: Statement) -> None:
    p.writer.line(text, [ref("loop_ir", "", s.buffer)])
