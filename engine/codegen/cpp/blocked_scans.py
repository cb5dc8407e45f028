"""Cumulative sums and products in blocks: vectors of eight elements with an in-register scan of three steps.

A sequential scan in double waits four cycles for each addition; here only one addition of each vector depends on the
vector before. That reorders the additions, which is invisible where doubles accumulate floats; scans that accumulate in
their own precision keep eager's order. Integer scans are not blocked: an addition takes one cycle, and they wait for
memory.
"""
from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import torch

from ...ir.ir import Axis, Statement
from .dtypes import ctype
from .indices import c_expression
from .nests import Part
from .scope import origins_of

if TYPE_CHECKING:
    from .nest_writer import NestWriter

BLOCK = 64  # elements of a block: stores of one vector width retire before loads of another read them
LEAST = 16  # points of a row
OPTIONS = ("blocked", "sequential")

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


def write_scan_blocks(nest: NestWriter, loop: Axis, first: str, last: str) -> bool:
    """Write the innermost loop in blocks, if it is a scan that may be reassociated (a decision)."""
    part, s = _scan(nest)
    if part is None or s is None or (loop.extent.is_Integer and loop.extent < LEAST):
        return False
    scan, writer, scopes, context = nest.scans[0], nest.writer, nest.scopes, nest.kernel.context
    subject = f"{nest.kernel.group.kernel}:{part.body.name}"
    why = f"reassociating a {s.mode} of {scan.accumulator.operand} does not change the result"
    if context.decide("scan-algorithm", subject, OPTIONS, OPTIONS[0], why) != OPTIONS[0]:
        return False
    at, block = scopes.name(f"{loop.symbol}_0"), scopes.name(f"{scan.name}_block")
    end = last or c_expression(loop.extent)
    product = "true" if s.mode == "prod" else "false"
    with scopes.open(), writer.block(f"for (int64 {at} = {first}; {at} < {end}; {at} += {BLOCK})"):
        count = scopes.name("count")
        writer.line(f"const int64 {count} = {end} - {at} < {BLOCK} ? {end} - {at} : {BLOCK};")
        writer.line(f"alignas(64) double {block}[{BLOCK}];")
        with _points(nest, loop, at, count):
            writer.line(f"{block}[k] = {nest.statements.value(part, s.args[0])};")
        writer.line(f"{scan.name} = scan_block<{product}>({block}, {count}, {scan.name});")
        with _points(nest, loop, at, count):
            name = scopes.name(f"{s.origins[-1] if s.origins else part.body.name}_{s.name}")
            writer.line(f"const double {name} = {block}[k];", origins_of(part.body.name, s.name, s.origins))
            scopes.put(("value", part.key, s.name), name)
            nest.innermost()
    return True


@contextmanager
def _points(nest: NestWriter, loop: Axis, start: str, count: str) -> Iterator[None]:
    """A vector loop over the points of a block."""
    nest.writer.line("#pragma omp simd")
    with nest.scopes.open(), nest.writer.block(f"for (int64 k = 0; k < {count}; k++)"):
        nest.writer.line(f"const int64 {loop.symbol} = {start} + k;")
        yield


def _scan(nest: NestWriter) -> tuple[Part | None, Statement | None]:
    """The scan of a nest, if it may be blocked and nothing else in the nest prevents it."""
    if len(nest.scans) != 1 or nest.reductions or nest.lane is not None or nest.scatters or nest.kernel.floats:
        return None, None
    scan = nest.scans[0]
    made, s = {x.name: x for x in scan.part.body.statements}, scan.statement
    source = made[s.args[0]]
    floats = scan.accumulator.operand is torch.float64 and source.op == "cast" and (
        made[source.args[0]].dtype is not torch.float64)
    plain = not any(x.op == "indirect" for p in nest.nest.parts for x in p.statements)
    fits = s.mode in ("sum", "prod") and ctype(s.dtype).value == "double"
    return (scan.part, s) if floats and plain and fits else (None, None)
