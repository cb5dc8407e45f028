"""Non-temporal stores for outputs larger than the last-level cache.

Before a store to a line that is in no cache, the processor reads that line, which is a third of the traffic of a
pointwise kernel. A non-temporal store of a whole line skips that read ("Non-temporal Store Instructions" in Intel's
Optimization Reference Manual). The vectorized loop stays plain code: it writes to a block in L1, and the block is
streamed to memory by whole lines. Blocks are small, since a core has few write-combining buffers.

Measured on a Zen 4 with 32 MB of last-level cache, one operand: outputs of 32 MB and more take 0.7 to 0.93 of the time,
and 0.79 to 1.0 together with a second compiled function that reads them at once. Smaller ones are still in cache for
such a reader: with 16 MB it loses a tenth on one thread and three quarters on two, though the kernel itself gains a
third. A single thread gains from 24 MB on.
"""
from __future__ import annotations

import os
import platform
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from pathlib import Path

import sympy
import torch

from ....artifacts.context import CompileContext
from ...ir.affine import without
from ...ir.body_affine import static
from ...ir.ir import Axis, Buffer, Group, Statement
from ...ir.loop_nest import Accumulate, Band, Blocks, Loop, Node, Nodes, Parallel, Streamed, rewritten
from .distribution import Nest
from .nest_facts import NestFacts

BLOCK = 1024  # bytes of a block of a result; with 4096 the stores are as slow as others
FULL, FULL_ALONE = 1.0, 0.75  # results as a share of the cache, at least; the same for one thread
NAMED = 0.125  # share below which there is no decision
OPTIONS = ("temporal", "nontemporal")
PROCESSORS = ("x86_64", "AMD64")
SYSTEM = Path("/sys/devices/system/cpu")


def nontemporal_results(
    group: Group, nests: Sequence[Nest], outer: Sequence[Axis], buffers: Mapping[str, Buffer], context: CompileContext
) -> frozenset[str]:
    """The results of a kernel that get non-temporal stores (a decision, where they are large).

    `buffers` are those that it reads from memory, or writes there, inside the loops `outer` and those of `nests`.
    """
    results = _candidates(nests, buffers)
    threads = torch.get_num_threads()
    cache = last_level_cache(threads) if results else None
    if cache is None:
        return frozenset()
    around = sympy.Mul(*[a.extent for a in outer])
    points = [static(sympy.Mul(around, *[a.extent for a in n.loops])) for n in nests if not n.inside]
    if None in points:
        return frozenset()
    most = max(n for n in points if n is not None)
    written = sum(_bytes(buffers[b], most) for b in results)
    if written < cache * NAMED:
        return frozenset()
    large = written >= cache * (FULL if threads > 1 else FULL_ALONE)
    why = f"{written >> 20} MB of results, {cache >> 20} MB of cache: " + (
        "too large for a later reader to hit in cache" if large else "a later reader may still hit in cache")
    chosen = context.decide("store-policy", group.kernel, OPTIONS, OPTIONS[large], why)
    return frozenset(results) if chosen == OPTIONS[1] else frozenset()


def stream_stores(band: Band, facts: NestFacts) -> Band:
    """The innermost loop in blocks with non-temporal stores, if its results get these."""
    streamed = facts.site.streamed
    stores = tuple([s for p in facts.nest.parts for s in p.stores if s.buffer in streamed])
    if not stores:
        return band
    loop, width = facts.axes[-1], BLOCK // max(s.dtype.itemsize for s in stores)

    def blocks(inner: Loop) -> Nodes:
        made: Node = Blocks(loop, width, (Streamed(loop, width, stores, (inner,)),))
        if facts.threads and len(facts.axes) == 1:
            made = Parallel((made,), facts.site.shape.threads, fence=True)
        return (made,)

    return replace(band, body=rewritten(band.body, loop, blocks, (Accumulate, Loop)))


def _candidates(nests: Sequence[Nest], buffers: Mapping[str, Buffer]) -> list[str]:
    """The results that a plain vector loop writes contiguously, once, and that nothing in the kernel reads."""
    if platform.machine() not in PROCESSORS:
        return []
    parts = [p for n in nests for p in n.all_parts]
    read = {s.buffer for p in parts for s in p.loads}
    stores = Counter(s.buffer for p in parts for s in p.stores)
    return [s.buffer for n in nests if not n.inside and len(n.loops) == 1 and _plain(n) for p in n.parts
            for s in p.stores if s.buffer in buffers and s.buffer not in read and stores[s.buffer] == 1
            and _along(s, n.loops[0])]


def _plain(nest: Nest) -> bool:
    """Whether the loop is not split, and does the same in each iteration."""
    statements = [s for p in nest.parts for s in p.statements]
    return not any(s.mask or s.op in ("reduce", "scan", "indirect", "index") or (s.op == "store" and s.mode)
                   or (s.index is not None and s.index.atoms(sympy.Function)) for s in statements)


def _along(s: Statement, loop: Axis) -> bool:
    """Whether a store is contiguous in its loop, for a block at least."""
    assert s.index is not None
    rest = without(s.index, loop.symbol)
    extent = static(loop.extent)
    return loop.symbol not in rest.free_symbols and extent is not None and extent * s.dtype.itemsize >= BLOCK


def _bytes(buffer: Buffer, most: int) -> int:
    size = static(sympy.Mul(*buffer.size))
    return 0 if size is None else min(size, most) * buffer.dtype.itemsize


def last_level_cache(threads: int) -> int | None:
    """Bytes of the last-level caches that so many threads share, as the system reports; None if it does not."""
    found = _last_level_caches()
    return sum(sorted(found, reverse=True)[:threads]) or None


@lru_cache(maxsize=1)
def _last_level_caches() -> Collection[int]:
    """The sizes of the last-level caches of the processors that this process may use."""
    found: dict[str, int] = {}
    try:
        for processor in os.sched_getaffinity(0):
            levels = sorted((SYSTEM / f"cpu{processor}" / "cache").glob("index*"))
            if levels:
                size = (levels[-1] / "size").read_text().strip()
                found[(levels[-1] / "shared_cpu_list").read_text()] = int(size.removesuffix("K")) << 10
    except (OSError, ValueError, AttributeError):  # no Linux, or another way to write sizes
        return []
    return list(found.values())
