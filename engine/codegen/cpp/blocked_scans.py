"""Prints scans in blocks: vectors of eight elements with an in-register scan of three steps."""
from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from ...ir.loop_nest import ScanBlocks
from .emission import Emission
from .scope import origins_of
from .statements import StatementWriter

SCAN_BLOCKS = {
    "scan_block": """\
#ifdef __AVX2__
typedef int64 whole8 __attribute__((vector_size(64)));
typedef double double8 __attribute__((vector_size(64), aligned(8), may_alias));
template <bool PRODUCT> INLINE double8 joined(double8 a, double8 b) { return PRODUCT ? a * b : a + b; }
#endif
template <bool PRODUCT>
static __attribute__((noinline)) double scan_block(double* block, int64 count, double so_far) {
  int64 k = 0;
#ifdef __AVX2__
  const double8 none = {PRODUCT, PRODUCT, PRODUCT, PRODUCT, PRODUCT, PRODUCT, PRODUCT, PRODUCT};
  double8 before = {so_far, so_far, so_far, so_far, so_far, so_far, so_far, so_far};
  for (; k + 8 <= count; k += 8) {
    double8 v = *(const double8*)(block + k);
    v = joined<PRODUCT>(__builtin_shuffle(none, v, (whole8){0, 8, 9, 10, 11, 12, 13, 14}), v);
    v = joined<PRODUCT>(__builtin_shuffle(none, v, (whole8){0, 1, 8, 9, 10, 11, 12, 13}), v);
    v = joined<PRODUCT>(__builtin_shuffle(none, v, (whole8){0, 1, 2, 3, 8, 9, 10, 11}), v);
    if (PRODUCT && !(__builtin_fabs(v[7]) > 0.0)) {  // a zero, perhaps of numbers that are none, or a NaN of some zero
      so_far = before[0];
      for (int64 i = k; i < k + 8; i++) block[i] = so_far = so_far * block[i];
      before = (double8){so_far, so_far, so_far, so_far, so_far, so_far, so_far, so_far};
      continue;
    }
    *(double8*)(block + k) = joined<PRODUCT>(before, v);
    before = joined<PRODUCT>(before, __builtin_shuffle(v, (whole8){7, 7, 7, 7, 7, 7, 7, 7}));
  }
  so_far = before[0];
#endif
  for (; k < count; k++) block[k] = so_far = PRODUCT ? so_far * block[k] : so_far + block[k];
  return so_far;
}""",
}


def scan_blocks(p: StatementWriter, node: ScanBlocks) -> None:
    """A scan in blocks: the values of a block, their scan, and what uses it."""
    scan, (first, end) = node.scan, p.ends(node.axis)
    part, s, name = scan.part, scan.statement, p.names[scan]
    start, block = p.scopes.name(f"{node.axis.symbol}_0"), p.scopes.name(f"{name}_block")
    product = "true" if s.mode == "prod" else "false"
    with p.loop(f"for (int64 {start} = {first}; {start} < {end}; {start} += {node.size})"):
        count = p.scopes.name("count")
        p.writer.line(f"const int64 {count} = {end} - {start} < {node.size} ? {end} - {start} : {node.size};")
        p.writer.line(f"alignas(64) double {block}[{node.size}];")
        with _points(p, node, start, count):
            p.writer.line(f"{block}[k] = {p.value(part, s.args[0])};")
        p.writer.line(f"{name} = scan_block<{product}>({block}, {count}, {name});")
        with _points(p, node, start, count):
            own = p.scopes.name(f"{s.origins[-1] if s.origins else part.body.name}_{s.name}")
            p.writer.line(f"const double {own} = {block}[k];", origins_of(part.body.name, s.name, s.origins))
            p.scopes.put(("value", part.key, s.name), own)
            p.nodes(node.body)


@contextmanager
def _points(p: Emission, node: ScanBlocks, start: str, count: str) -> Iterator[None]:
    """A vector loop over the points of a block."""
    p.writer.line("#pragma omp simd")
    with p.loop(f"for (int64 k = 0; k < {count}; k++)"):
        p.writer.line(f"const int64 {node.axis.symbol} = {start} + k;")
        yield
