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
from contextlib import nullcontext
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING

import sympy
import torch

from ....artifacts.context import CompileContext
from ...ir.body_affine import static
from ...ir.ir import Axis, Buffer, Group, Statement
from .dtypes import ctype
from .indices import c_expression
from .nests import Nest
from .scope import buffer_name

if TYPE_CHECKING:
    from .nest_writer import NestWriter

BLOCK = 1024  # bytes of a block of a result; with 4096 the stores are as slow as others
FULL, FULL_ALONE = 1.0, 0.75  # results as a share of the cache, at least; the same for one thread
NAMED = 0.125  # share below which there is no decision
OPTIONS = ("temporal", "nontemporal")
PROCESSORS = ("x86_64", "AMD64")
SYSTEM = Path("/sys/devices/system/cpu")

PAST_CACHE = {
    "past_cache": """\
INLINE void past_cache_line(float* to, const float* from) {
  typedef float line16 __attribute__((vector_size(64), aligned(4), may_alias));
  typedef float line8 __attribute__((vector_size(32), aligned(4), may_alias));
  typedef float line4 __attribute__((vector_size(16), aligned(4), may_alias));
#if defined(__AVX512F__)
  __builtin_ia32_movntps512(to, *(const line16*)from);
#elif defined(__AVX__)
  for (int k = 0; k < 16; k += 8) __builtin_ia32_movntps256(to + k, *(const line8*)(from + k));
#else
  for (int k = 0; k < 16; k += 4) __builtin_ia32_movntps(to + k, *(const line4*)(from + k));
#endif
}
template <typename T> INLINE void past_cache(T* to, const T* from, int64 count) {
  const int64 line = 64 / sizeof(T);
  int64 k = 0;
  for (; k < count && ((uint64)(to + k) & 63); k++) to[k] = from[k];  // the rest of a line, which others write, too
  for (; k + line <= count; k += line) past_cache_line((float*)(to + k), (const float*)(from + k));
  for (; k < count; k++) to[k] = from[k];
}
INLINE void past_cache_done() { __builtin_ia32_sfence(); }  // before others are told that the result is there""",
}


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


def write_blocks(nest: NestWriter, loop: Axis, depth: int) -> bool:
    """Write the innermost loop in blocks with non-temporal stores, if its results get these."""
    kernel, writer, g = nest.kernel, nest.writer, loop.symbol
    stores = [s for p in nest.nest.parts for s in p.stores if s.buffer in kernel.nontemporal]
    if not stores:
        return False
    width, end = BLOCK // max(ctype(s.dtype).bytes for s in stores), c_expression(loop.extent)
    shared = kernel.sharing() if nest.threads and depth == 0 else nullcontext()
    with shared, nest.scopes.open(), writer.block(f"for (int64 {g}_0 = 0; {g}_0 < {end}; {g}_0 += {width})"):
        writer.line(f"const int64 {g}_1 = {g}_0 + {width} < {end} ? {g}_0 + {width} : {end};")
        kernel.blocks = {s.buffer: nest.scopes.name(f"{s.buffer}_block") for s in stores}
        for s in stores:
            writer.line(f"alignas(64) {ctype(s.dtype).memory} {kernel.blocks[s.buffer]}[{width}];")
        nest.pragma(depth, True, short=True)
        with nest.scopes.open(), writer.block(f"for (int64 {g} = {g}_0; {g} < {g}_1; {g}++)"):
            nest.innermost()
        for s in stores:
            assert s.index is not None
            to = f"{buffer_name(s.buffer)} + {c_expression(s.index.xreplace({g: sympy.Symbol(f'{g}_0')}))}"
            writer.line(f"past_cache({to}, {kernel.blocks[s.buffer]}, {g}_1 - {g}_0);")
        kernel.blocks = {}
    return True


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
    rest = sympy.expand(s.index - loop.symbol)
    extent = static(loop.extent)
    return loop.symbol not in rest.free_symbols and extent is not None and extent * ctype(s.dtype).bytes >= BLOCK


def _bytes(buffer: Buffer, most: int) -> int:
    size = static(sympy.Mul(*buffer.size))
    return 0 if size is None else min(size, most) * ctype(buffer.dtype).bytes


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
