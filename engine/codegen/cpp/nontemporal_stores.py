"""Prints non-temporal stores: a block is collected in L1, and streamed to memory by whole lines."""
from __future__ import annotations

import sympy

from ...ir.affine import renamed
from ...ir.loop_nest import Streamed
from .dtypes import ctype
from .emission import Emission
from .indices import c_expression
from .scope import buffer_name

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


def streamed(p: Emission, node: Streamed) -> None:
    """A block of results."""
    start, stop = p.span(node.axis)
    p.blocks = {s.buffer: p.scopes.name(f"{s.buffer}_block") for s in node.stores}
    for s in node.stores:
        p.writer.line(f"alignas(64) {ctype(s.dtype).memory} {p.blocks[s.buffer]}[{node.size}];")
    p.nodes(node.body)
    for s in node.stores:
        assert s.index is not None
        to = f"{buffer_name(s.buffer)} + {c_expression(renamed(s.index, {node.axis.symbol: sympy.Symbol(start)}))}"
        p.writer.line(f"past_cache({to}, {p.blocks[s.buffer]}, {stop} - {start});")
    p.blocks = {}
