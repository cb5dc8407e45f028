"""The loop structure of a group: which loops are outer, whether the vector loop runs over lanes, which are parallel."""
from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

import sympy

from ....artifacts.context import CompileContext
from ....artifacts.records import Option
from ...ir.body_affine import coefficient, index_forms, static
from ...ir.ir import Axis, Group, LoopBody
from ...ir.loop_nest import Threads
from ...ir.tiles import RowTile
from ...toolchain.cpp_build import cpu_features
from ..legality import accesses
from .cost import FEW_MASKED, FEW_ROWS, PARALLEL_WORK, body_work
from .distribution import cut, dependent
from .scatter import free_axes, owner, scatters, worth_owning
from .transposed_row_tiles import find_row_tile

FEW = 4  # outer iterations that are too few for threads
CHUNKS = 32  # of a reduction that runs in parallel itself; fixed, so that results do not depend on threads
LANES = 128  # elements of a block in lane mode, at least, where threads share the blocks
WIDE = 1024  # at most: in a narrow block each row is in another page
LANE_SCRATCH = 64 * 1024  # elements of scratch for all lanes of a block: about the size of L2
LONG = 64  # rows, at least, along which vectors run where the rows themselves fill none
INNER, IN_LANES = "inner", "lanes"
PARALLEL = {"outer": "outer", "nests": "inner", "": "serial"}  # options of the decision, by what Shape has
ALWAYS = Threads()
NEAR = (1, 2)  # steps of a vector loop: neighbours, or the real parts of complex numbers


@dataclass(frozen=True)
class Shape:
    """`outer` loops around everything; `lanes`: the next axis runs in blocks; `parallel`: outer | nests | owners |
    chunks | "".

    With "outer", threads share the first `shared` loops; with "owners", each runs all of them for its range of
    addresses; with "chunks", they share chunks of the first loop, each with its own accumulators.
    """

    outer: int
    lanes: bool
    parallel: str
    threads: Threads = ALWAYS  # with the condition, where the amount of work is not known
    shared: int = 0
    tile: RowTile | None = None  # blocks of an outer loop, inside of all others
    chunks: int = CHUNKS  # pieces of a reduction that threads share, or of loops that add to places


def loop_shape(group: Group, bodies: Sequence[LoopBody], local: Collection[str], context: CompileContext) -> Shape:
    """The shape of a group's loops; `local` are the buffers that never reach memory."""
    count = len(group.axes)
    pointwise = all(len(b.axes) == count and not b.reduction_axes for b in bodies)
    moded = [b for b in bodies if scatters(b)]
    adds = bool(moded) and all(accesses(b).adds for b in moded)
    lanes = not pointwise and count > 0 and not adds and _in_lanes(group, bodies, not moded, context)
    work = sum(map(body_work, bodies), sympy.S.Zero)
    amount = static(work)
    serial = amount is not None and amount < PARALLEL_WORK
    tile = None
    if not (pointwise or moded):
        tile, lanes = find_row_tile(group, bodies, local, lanes, 1 if serial else FEW, context)
    outer = count - 1 if (pointwise and count) or lanes else count
    threads = ALWAYS if amount is not None else Threads(work, PARALLEL_WORK)
    if serial and moded:
        return Shape(outer, lanes, "")
    if adds and len(bodies) > 1:
        if not outer or amount is None:
            return Shape(outer, False, "")
        return Shape(outer, False, "chunks", chunks=_chunks(group, False, context))
    if moded:
        return _scatter_shape(group, bodies, outer, threads, context)
    if tile is not None:
        parallel = _parallel(group, "" if serial else "outer", ("outer", ""), work, context)
        return Shape(outer, False, parallel, threads, outer, tile)
    ways = ("outer", "nests", "") if outer + lanes else ("nests", "")
    parallel = _parallel(group, "" if serial else _threaded(group, outer, lanes), ways, work, context)
    if not parallel:
        return Shape(outer, lanes, "")
    reduces = parallel == "nests" and any(b.reduction_axes for b in bodies)
    chunks = _chunks(group, lanes, context) if reduces else CHUNKS
    return Shape(outer, lanes, parallel, threads, outer + lanes, chunks=chunks)


def _in_lanes(group: Group, bodies: Sequence[LoopBody], free: bool, context: CompileContext) -> bool:
    """Whether vectors run along the last shared loop rather than inside of it: a decision, where both are `free`."""
    lane = group.axes[-1]
    lanes = prefers_lanes(bodies, lane)
    if not (free and context.asked):
        return lanes
    symbol = lane.symbol.name
    why = f"memory is contiguous {'along' if lanes else 'inside of'} {symbol}"
    options = (Option(INNER, why="along the innermost loops"), Option(IN_LANES, why=f"along {symbol}"))
    return context.decide("vector-axis", group.kernel, options, IN_LANES if lanes else INNER, why,
                          origins=group.origins) == IN_LANES


def _parallel(
    group: Group, default: str, ways: Sequence[str], work: sympy.Expr, context: CompileContext
) -> str:
    """Which loops threads share (a decision): of `ways`, each one of `Shape.parallel`."""
    if not context.asked:
        return default
    operations = "" if default == "nests" else f"about {work.p if work.is_Integer else work} operations"
    why = {
        "": f"{operations} are done before a thread has woken up",
        "outer": f"{operations}, and the shared loops run often enough",
        "nests": f"the shared loops run less than {FEW} times",
    }[default]
    names = [PARALLEL[way] for way in ways]
    chosen = context.decide("parallel-loops", group.kernel, names, PARALLEL[default], why,
                            origins=group.origins)
    return ways[names.index(chosen)]


def _chunks(group: Group, lanes: bool, context: CompileContext) -> int:
    """In how many pieces a reduction is shared out to threads (a decision)."""
    if not context.asked:
        return CHUNKS
    options = ["1", "8", "16", "32", *(["64"] if not lanes else [])]
    why = "as many on every machine, so that results do not depend on the number of threads"
    return int(context.decide("split-reduction", group.kernel, options, str(CHUNKS), why,
                              origins=group.origins))


def _threaded(group: Group, outer: int, lanes: bool) -> str:
    iterations = sympy.Mul(*[a.extent for a in group.axes[:outer]])
    shared = static(iterations)
    if lanes and shared is not None:
        width = static(group.axes[outer].extent)
        shared = None if width is None else shared * -(-width // LANES)
    return "nests" if shared is not None and shared < FEW else "outer"


def _scatter_shape(
    group: Group, bodies: Sequence[LoopBody], outer: int, threads: Threads, context: CompileContext
) -> Shape:
    """How threads share a scatter (a decision): its leading loops, where they are free; else ranges of addresses."""
    leading = group.axes[:outer]
    forms = {"serial": Shape(outer, False, "")}
    count, why = 0, "several bodies"
    if len(bodies) == 1 and not bodies[0].reduction_axes:
        free = free_axes(bodies[0])
        count = next((k for k, a in enumerate(leading) if a.symbol not in free), outer)
        why = "any two iterations may write to the same address, and there is little work for each"
        if owner(bodies[0], leading) is not None:
            forms["owner-computes"] = Shape(outer, False, "owners", threads)
    iterations = static(sympy.Mul(*[a.extent for a in leading[:count]]))
    default = "serial"
    if count and (iterations is None or iterations >= FEW):
        forms["parallel-loops"] = Shape(outer, False, "outer", threads, count)
        names = ", ".join(a.symbol.name for a in leading[:count])
        default, why = "parallel-loops", f"iterations of {names} write to different addresses"
    elif "owner-computes" in forms and worth_owning(bodies[0], leading):
        default, why = "owner-computes", "iterations may collide: each thread handles its range of addresses"
    return forms[context.decide("scatter", group.kernel, tuple(forms), default, why, origins=group.origins)]


def lane_width(row: int, extent: sympy.Expr) -> int:
    """Lanes of a block when a kernel keeps `row` elements for each: as many as fit and there are, by whole vectors."""
    there = static(extent)
    most = WIDE if there is None else min(WIDE, -(-there // 16) * 16)
    return max(16, min(most, LANE_SCRATCH // max(row, 1) // 16 * 16))


def prefers_lanes(bodies: Sequence[LoopBody], lane: Axis) -> bool:
    """True when memory is contiguous along `lane` rather than along the innermost loops of the bodies."""
    if _short_rows(bodies, lane):
        return True
    along, inner_along, once = 0, 0, 0
    for body in bodies:
        inner = body.reduction_axes or tuple(a for a in body.axes if a != lane)[-1:]
        if not inner or (body.axes[-1] == lane and not body.reduction_axes):
            continue
        names = {s.name for s in cut(body)[0].statements} if body.reduction_axes and not body.scans else None
        of_lane = dependent(body, frozenset({lane.symbol}))
        for position, form in index_forms(body).items():
            s = body.statements[position]
            if form is None or (names is not None and (s.op == "store" or s.name not in names)):
                continue
            factor = coefficient(form, lane.symbol)
            if factor == 0 and s.op == "load" and body.reduction_axes and s.name not in of_lane:
                continue  # invariant over lanes
            if s.op == "load" and all(coefficient(form, a.symbol) == 0 for a in inner):
                once += factor == 1  # invariant over an inner loop
                continue
            along += factor in NEAR
            inner_along += any(coefficient(form, a.symbol) in NEAR for a in inner)
    # Where every operand is invariant over lanes or over an inner loop, lanes avoid horizontal sums.
    return along > inner_along or (along == inner_along == 0 and once > 0)


def _short_rows(bodies: Sequence[LoopBody], lane: Axis) -> bool:
    """Whether the loops inside of `lane` are too short for vectors, and `lane` is long. Not for gathered rows, which
    each lane would read from another address."""
    many = static(lane.extent)
    if (many is not None and many < LONG) or any(s.op == "indirect" for b in bodies for s in b.statements):
        return False
    place = max(b.axes.index(lane) for b in bodies if lane in b.axes) + 1
    inner = [sympy.Mul(*[a.extent for a in (*b.axes[place:], *b.reduction_axes)]) for b in bodies]
    masks = "avx512bw" in cpu_features().split()  # then a row that is no whole vector is one under a mask
    return all(n.is_Integer and n <= (FEW_MASKED if masks else FEW_ROWS) for n in inner)
