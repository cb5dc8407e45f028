"""From a group to its loop nest: plain loops, and then one transformation after the other.

There are two forms. Along rows, the outer loops of the group are parallel and the innermost loop of each nest is
vectorized. Along lanes, the last outer axis is the contiguous one (column sums): it is strip-mined, and the vectorized
loop of every nest runs over the lanes of a block. Where the outer loops have too few iterations for the threads, the
nests themselves are parallel; a reduction then runs in chunks whose results are combined in order, so that the result
does not depend on the number of threads.
"""
from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

import sympy

from ....artifacts.context import CompileContext
from ...ir.body_affine import form_of, static
from ...ir.ir import Axis, Group, Program, Statement
from ...ir.loop_nest import (
    Allocate,
    Band,
    Lanes,
    Loop,
    LoopNest,
    Node,
    Nodes,
    Owners,
    Parallel,
    PrefetchNext,
    Privatized,
    Scratch,
    TileBlocks,
    TileRows,
)
from ...ir.tiles import RowTile, Tile
from .blocked_scans import block_scans
from .blocked_sums import block_sums
from .distribution import Nest, nests_of
from .gather_loops import gather_in_order
from .gather_prefetch import prefetched_gathers
from .half_precision import widen_blocks, widened_rows
from .index_set_splitting import split_index_set
from .lane_masks import compare_in_lanes
from .loop_shape import LANES, Shape, lane_width, loop_shape, prefers_lanes
from .masked_ends import mask_ends
from .multiple_accumulators import accumulate_side_by_side, interleave_loops
from .nest_facts import NestFacts, Site
from .nontemporal_stores import nontemporal_results, stream_stores
from .plain_loops import plain
from .prefetch import Prefetch, prefetch_rows, prefetched_rows
from .row_blocks import row_blocks
from .scatter import owner, scatters
from .storage import layout, needing_arrays, stores_of
from .threads_and_vectors import chunk_reductions, share, vectorize
from .transpose_tiles import find_tile
from .unmasked_loads import without_masks
from .unroll_and_jam import jam_rows
from .vector_width import streams
from .welford import expand

SUMS_LIMIT = 64 * 1024  # elements of all sums of all chunks: half a megabyte of the caller's stack


def loop_nest(group: Group, program: Program, context: CompileContext, threads: bool = True) -> LoopNest:
    """The loop nest of a group; without `threads`, for a kernel that others call in parallel."""
    return _Build(group, program, context, threads).nest()


@dataclass
class _Build:
    """One group, on its way to a loop nest."""

    group: Group
    program: Program
    context: CompileContext
    threads: bool
    fetched: set[tuple[object, ...]] = field(default_factory=set)  # rows of tables that are prefetched

    def __post_init__(self) -> None:
        buffers = self.program.buffers
        changed = {n for b in self.group.bodies for n in b.writes} | self.group.internal
        self.bodies, local = expand(without_masks(self.group.bodies, changed, buffers))
        self.local = {b: buffers[b].dtype for b in self.group.internal} | local
        shape = loop_shape(self.group, self.bodies, self.local, self.context)
        self.shape: Shape = shape if self.threads else replace(shape, parallel="")
        self.blocks = row_blocks(self.group, self.bodies, self.shape, self.context)
        if self.blocks is None:
            self.nests: Sequence[Nest] = nests_of(self.bodies, self.shape.outer + (1 if self.shape.lanes else 0))
        else:
            self.nests, self.bodies = self.blocks.nests, list(self.blocks.bodies)
            self.group = replace(self.group, axes=self.blocks.axes)
            self.local |= self.blocks.local
        names = dict.fromkeys(n for b in self.bodies for n in (*b.reads, *b.writes) if n not in self.local)
        self.memory = {name: buffers[name] for name in names}
        self.written = {n for b in self.bodies for n in b.writes}
        self.outer = self.group.axes[: self.shape.outer]
        self.lane: Axis | None = self.group.axes[self.shape.outer] if self.shape.lanes else None
        self.inside = frozenset([a.symbol.name for a in (*self.outer, *([self.lane] if self.lane else ()))])

    # ---- the kernel --------------------------------------------------------------------------------------------------
    def nest(self) -> LoopNest:
        """All of it."""
        narrow = streams(self.group, self.bodies, self.memory, self.context)
        tile = self._tile()
        if tile is not None and self.shape.parallel:
            count = self.shape.outer + (1 if isinstance(tile, Tile) else 0)
            self.shape = replace(self.shape, parallel="outer", shared=count)
        streamed: frozenset[str] = frozenset()
        prefetch: Prefetch | None = None
        if tile is None and self.lane is None and self.shape.parallel in ("outer", "nests", ""):
            streamed = nontemporal_results(self.group, self.nests, self.outer, self.memory, self.context)
            if self.shape.parallel != "nests" and not streamed and self.blocks is None:
                prefetch = prefetched_rows(
                    self.group, self.nests, self.outer, self.memory, self.written, self.context)
        site = Site(
            self.group, self.context, self.shape, self.program.buffers, self.memory, self.local, self.written,
            self.outer, self.lane, self._width, (), tile, self._owner(), (), streamed)
        body = self._around(self._row(site, prefetch), tile, site)
        return LoopNest(
            self.group, tuple(self.bodies), self.local, self.arrays, self.inside, self.lane, body,
            self.shape.parallel != "", 256 if narrow else 512, bool(streamed) and not self.shape.parallel)

    def _tile(self) -> Tile | RowTile | None:
        if self.shape.tile is not None or self.lane or self.arrays or len(self.nests) > 1 or self.nests[0].inside:
            return self.shape.tile
        return find_tile(self.group, self.bodies, self.written, set(self.local), self.context)

    def _owner(self) -> Statement | None:
        return owner(self.bodies[0], self.outer) if self.shape.parallel == "owners" else None

    def _row(self, site: Site, prefetch: Prefetch | None) -> Nodes:
        """What is inside of the outer loops: scratch, converted rows, and the nests in order."""
        lanes = self._width if self.lane is not None else 1
        made: list[Node] = [Allocate(name, x.elements * lanes) for name, x in self.arrays.items()]
        if site.tile is None:
            rows = widened_rows(self.nests, site)
            made += rows
            widened = frozenset([
                (r.buffer, sympy.expand(r.start + a.symbol)) for r in rows for a in r.axes])
            site = replace(site, widened=widened) if rows else site
        nests: list[Node] = []
        for nest in self.nests:
            nests += self._nest(nest, site, prefetch)
        return (*made, *([TileRows(site.tile, tuple(nests))] if site.tile is not None else nests))

    def _around(self, body: Nodes, tile: Tile | RowTile | None, site: Site) -> Nodes:
        """The outer loops around `body`, and how threads share them."""
        if self.lane is not None:
            each_thread = self.shape.parallel == "outer" and self._width > LANES
            body = (Lanes(self.lane, self._width, body, each_thread),)
        outer = self.outer
        if tile is not None:
            body, outer = (TileBlocks(tile, body),), tuple([a for a in outer if a != tile.row])
        for axis in reversed(outer):
            body = (Loop(axis, body),)
        if self.shape.parallel == "chunks":
            body = self._privatized(body)
        if site.owner is not None:
            body = (Owners(site.owner, self.shape.threads, body),)
        if self.shape.parallel == "outer" and (outer or tile is not None or self.lane is not None):
            body = (Parallel(body, self.shape.threads, max(self.shape.shared, 1), bool(site.streamed)),)
        return body

    def _privatized(self, body: Nodes) -> Nodes:
        """Chunks of the first loop, each with its own sums, where they fit."""
        names = dict.fromkeys(s.buffer for b in self.bodies for s in scatters(b))
        found = [self.program.buffers[name] for name in names]
        sums = tuple([(b.name, b.dtype, int(sympy.Mul(*b.size))) for b in found])
        axis, elements = self.group.axes[0], sum(size for _, _, size in sums)
        count = min(self.shape.chunks, SUMS_LIMIT // max(elements, 1), int(axis.extent))
        return (Privatized(axis, count, sums, body),) if count > 1 else body

    # ---- memory of the kernel ----------------------------------------------------------------------------------------
    @cached_property
    def arrays(self) -> dict[str, Scratch]:
        """The buffers that stay inside, but not in registers, and their layouts."""
        found = {}
        for name in sorted(needing_arrays(self.nests, self.local.keys(), self.lane is not None)):
            terms: dict[object, int] = {}
            for loops, store in stores_of(self.nests, name):
                extents = {a.symbol.name: a.extent for a in loops}
                if self.blocks is not None:
                    extents[self.blocks.row.symbol.name] = sympy.Integer(self.blocks.rows)
                form = form_of(store.index, loops, self.group.axes)
                for atom, factor in form.terms.items():
                    if atom.name not in self.inside:
                        terms[factor] = int(extents[atom.name])
            found[name] = layout(terms)
        return found

    @cached_property
    def _width(self) -> int:
        """Lanes that a block has room for."""
        if self.lane is None:
            return LANES
        return lane_width(sum(s.elements for s in self.arrays.values()), self.lane.extent)

    # ---- nests -------------------------------------------------------------------------------------------------------
    def _nest(self, nest: Nest, site: Site, prefetch: Prefetch | None) -> Nodes:
        if not nest.inside:
            return (self._band(nest, site, prefetch),)
        own = self._own_lane(nest)
        width = self._width if own is None else min(LANES, static(own.extent) or LANES)
        inner = replace(site, lane=own or site.lane, width=width, around=nest.loops)
        body: Nodes = tuple([self._band(n, inner, prefetch) for n in nest.inside])
        if own is not None:
            body = (Lanes(own, width, body),)
        for axis in reversed(nest.loops if own is None else nest.loops[:-1]):
            body = (Loop(axis, body),)
        return (Parallel(body, self.shape.threads),) if self.shape.parallel == "nests" else body

    def _own_lane(self, nest: Nest) -> Axis | None:
        last = nest.loops[-1]
        return last if self.lane is None and prefers_lanes([nest.inside[0].parts[0].body], last) else None

    def _band(self, nest: Nest, site: Site, prefetch: Prefetch | None) -> Band:
        return transformed(NestFacts(nest, site), prefetch, self.fetched)


def transformed(facts: NestFacts, prefetch: Prefetch | None, fetched: set[tuple[object, ...]]) -> Band:
    """A nest after all transformations. Each leaves alone what an earlier one has changed already."""
    fetch = None
    if prefetch is not None and facts.nest is prefetch.nest:
        fetch = PrefetchNext(facts.axes[-1], prefetch.reads)
    band = plain(facts, prefetched_gathers(facts, fetched))
    band = block_sums(band, facts)
    band = chunk_reductions(band, facts)
    band = accumulate_side_by_side(band, facts)
    band = split_index_set(band, facts)
    band = widen_blocks(band, facts, fetch)
    band = interleave_loops(band, facts)
    band = block_scans(band, facts)
    band = stream_stores(band, facts)
    band = prefetch_rows(band, facts, prefetch)
    band = vectorize(band, facts)
    band = gather_in_order(band, facts)
    band = mask_ends(band, facts)
    band = share(band, facts)
    band = compare_in_lanes(band, facts)
    return jam_rows(band, facts)
