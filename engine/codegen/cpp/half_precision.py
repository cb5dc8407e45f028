"""float16 converted a block of a row at a time: memory holds 16 bits, the loop works on float scratch arrays.

Processors convert whole vectors of float16 with one instruction, which gcc does not emit in a vectorized loop: its
bit-twiddling takes 8 instructions for a load, and 15 for a store. So a contiguous loop runs over blocks: the float16
values it reads are converted into an array in L1, the loop itself is float32, and its results are converted at the end.
What is not read contiguously is converted bit by bit, in the loop.

Measured on a Zen 5, one thread, against conversion by bits: a sum of two takes a quarter of the time, a layer norm
before a softmax two thirds, a cumulative sum a quarter.
"""
from __future__ import annotations

from collections.abc import Mapping
from contextlib import nullcontext
from typing import TYPE_CHECKING

import sympy
import torch

from ...ir.body_affine import static
from ...ir.ir import Axis, Statement
from .bitwise_copies import Moves
from .indices import c_expression
from .nests import Part
from .prefetch import prefetch_block
from .scope import buffer_name

if TYPE_CHECKING:
    from .kernel import Kernel
    from .nest_writer import NestWriter

BLOCK = 512  # elements of a block
LEAST = 64  # elements of a row: fewer are not worth the calls
LONGEST = 4096  # elements of a row that several loops share: its floats fit L1
MOST = 12  # arrays of a loop
OPTIONS = ("blocked", "elementwise")

HALF_CONVERSIONS = {
    "half_to_float": """\
INLINE float half_to_float(uint16 x) {  // 2^112 moves the exponent, subnormals come out exact
  uint32 magnitude = (uint32)(x & 0x7fff) << 13;
  float scaled = bits_float((int32)magnitude) * 0x1p112f;
  uint32 bits = magnitude >= (0x7c00u << 13) ? magnitude | 0x7f800000u : (uint32)float_bits(scaled);
  return bits_float((int32)(bits | ((uint32)(x & 0x8000) << 16)));
}""",
    "float_to_half": """\
INLINE uint16 float_to_half(float x) {  // to nearest, ties to even
  uint32 bits = (uint32)float_bits(x);
  uint32 sign = (bits >> 16) & 0x8000u;
  uint32 magnitude = bits & 0x7fffffffu;
  uint32 normal = (magnitude - 0x38000000u + 0xfffu + ((magnitude >> 13) & 1u)) >> 13;
  uint32 subnormal = (uint32)float_bits(bits_float((int32)magnitude) + 0.5f) - 0x3f000000u;
  uint32 special = magnitude > 0x7f800000u ? 0x7e00u : 0x7c00u;
  uint32 half = magnitude < 0x38800000u ? subnormal : normal;
  return (uint16)(sign | (magnitude >= 0x47800000u ? special : half));
}""",
    "as_half": """\
INLINE float as_half(float x) {  // the half that is nearest, as a float
  uint32 bits = (uint32)float_bits(x), magnitude = bits & 0x7fffffffu;
  float normal = bits_float((int32)((magnitude + 0xfffu + ((magnitude >> 13) & 1u)) & 0xffffe000u));
  float subnormal = bits_float((int32)magnitude) + 0.5f - 0.5f;
  float half = magnitude < 0x38800000u ? subnormal : normal < 65536.0f ? normal : __builtin_inff();
  half = magnitude > 0x7f800000u ? __builtin_nanf("") : half;
  return bits_float(float_bits(half) | (int32)(bits & 0x80000000u));
}""",
    "half_lanes": """\
#if defined(__AVX512F__)
typedef float half_floats __attribute__((vector_size(64), aligned(4), may_alias));
typedef short half_bits __attribute__((vector_size(32), aligned(2), may_alias));
INLINE half_floats wide_lanes(half_bits x) { return __builtin_ia32_vcvtph2ps512_mask(x, (half_floats){}, -1, 4); }
INLINE half_bits half_lanes(half_floats x) { return __builtin_ia32_vcvtps2ph512_mask(x, 8, (half_bits){}, -1); }
#elif defined(__AVX2__) && defined(__F16C__)
typedef float half_floats __attribute__((vector_size(32), aligned(4), may_alias));
typedef short half_bits __attribute__((vector_size(16), aligned(2), may_alias));
INLINE half_floats wide_lanes(half_bits x) { return __builtin_ia32_vcvtph2ps256(x); }
INLINE half_bits half_lanes(half_floats x) { return __builtin_ia32_vcvtps2ph256(x, 0); }
#else
#define NO_HALF_LANES
#endif""",
    "halves_to_floats": """\
// The floats come by another pointer: a loop over a local array may read what it adds up, for all that gcc knows of the
// addresses that it makes, and would keep its sums in memory.
static __attribute__((noinline)) const float* halves_to_floats(float* to, const uint16* from, int64 n) {
  int64 k = 0;
#ifndef NO_HALF_LANES  // half_lanes
  const int64 lanes = sizeof(half_bits) / 2;
  for (; k + lanes <= n; k += lanes) *(half_floats*)(to + k) = wide_lanes(*(const half_bits*)(from + k));
#endif
  #pragma omp simd
  for (int64 i = k; i < n; i++) to[i] = half_to_float(from[i]);
  __asm__("" : "+r"(to));
  return to;
}""",
    "floats_to_halves": """\
static __attribute__((noinline)) void floats_to_halves(uint16* __restrict to, const float* __restrict from, int64 n) {
  int64 k = 0;
#ifndef NO_HALF_LANES  // half_lanes
  const int64 lanes = sizeof(half_bits) / 2;
  for (; k + lanes <= n; k += lanes) *(half_bits*)(to + k) = half_lanes(*(const half_floats*)(from + k));
#endif
  #pragma omp simd
  for (int64 i = k; i < n; i++) to[i] = float_to_half(from[i]);
}""",
}


def write_half_blocks(nest: NestWriter, loop: Axis, depth: int, first: str, last: str) -> bool:
    """Write the innermost loop in blocks whose float16 operands are converted around it (a decision)."""
    kernel, writer, scopes, g = nest.kernel, nest.writer, nest.scopes, loop.symbol
    found = _accesses(nest, loop)
    if not 0 < len(found) <= MOST or not _decided(nest, found):
        return False
    end, one = last or c_expression(loop.extent), (first, last) == ("0", "") and _fits(loop)
    start, stop = scopes.name(f"{g}_0"), scopes.name(f"{g}_1")
    width, at = int(loop.extent) if one else BLOCK, sympy.Symbol(start, integer=True)
    shared = kernel.sharing() if nest.shares(depth) else nullcontext()
    with shared, scopes.open(), writer.block(f"for (int64 {start} = {first}; {start} < {end}; {start} += {width})"):
        writer.line(f"const int64 {stop} = {start} + {width} < {end} ? {start} + {width} : {end};")
        prefetch_block(nest, start, stop)
        names = {}
        for key, (part, s) in found.items():
            names[key] = scopes.name(f"{s.buffer}_floats")
            if s.op == "load":
                declare_floats(kernel, names[key], nest.statements.place(part, s, {g: at}), width, f"{stop} - {start}")
            else:
                writer.line(f"alignas(64) float {names[key]}[{width}];")
        kernel.floats = {key: f"{name}[{g} - {start}]" for key, name in names.items()}
        nest.loop_in_block(loop, depth, start, stop)
        kernel.floats = {}
        for key, (part, s) in found.items():
            if s.op == "store":
                _store(nest, s, nest.statements.place(part, s, {g: at}), names[key], f"{stop} - {start}", width)
    return True


def convert_half_rows(kernel: Kernel) -> None:
    """Before the nests of a row: float16 rows that several of them read are converted once."""
    nests = [n for n in kernel.nests if n.loops]
    if not kernel.outer_names or kernel.lane is not None or any(n.inside or len(n.loops) != 1 for n in nests):
        return
    stored = {s.buffer for n in nests for p in n.all_parts for s in p.stores}
    found: dict[tuple[str, sympy.Expr, sympy.Expr], list[Statement]] = {}
    for nest in nests:
        loop, length = nest.loops[0], static(nest.loops[0].extent) or 0
        reads: dict[tuple[str, sympy.Expr, sympy.Expr], Statement] = {}
        for part in nest.parts:
            moves = Moves(part)
            for s in part.loads:
                if s.dtype is torch.float16 and not s.mask and s.buffer not in stored and s.buffer not in kernel.local:
                    rest = _rest(s, loop)
                    known = {x.name for x in rest.free_symbols} <= kernel.outer_names
                    if known and s.name not in moves.loads and LEAST <= length <= LONGEST:
                        reads[s.buffer, rest, loop.extent] = s
        for place, s in reads.items():
            found.setdefault(place, []).append(s)
    for (buffer, rest, extent), loads in found.items():
        subject, size = f"{kernel.group.kernel}:{buffer}", c_expression(extent)
        why = f"{len(loads)} loops read a row of {buffer}, in float16: it is converted once"
        if len(loads) < 2 or kernel.context.decide("half-conversion", subject, OPTIONS, OPTIONS[0], why) != OPTIONS[0]:
            continue
        name = kernel.scopes.name(f"{buffer}_floats")
        declare_floats(kernel, name, f"{buffer_name(buffer)} + {c_expression(rest)}", int(extent), size)
        for nest in nests:
            kernel.rows[buffer, sympy.expand(rest + nest.loops[0].symbol)] = f"{name}[{nest.loops[0].symbol}]"


def declare_floats(kernel: Kernel, name: str, memory: str, width: int, count: str) -> None:
    """A float array that holds a converted float16 row."""
    array = kernel.scopes.name(f"{name}_array")
    kernel.writer.line(f"alignas(64) float {array}[{width}];")
    kernel.writer.line(f"const float* {name} = halves_to_floats({array}, {memory}, {count});")


def _rest(s: Statement, loop: Axis) -> sympy.Expr:
    """The start of a contiguous load; for a strided one, the loop's variable is left in it."""
    assert s.index is not None
    return sympy.expand(s.index - loop.symbol)


def _store(nest: NestWriter, s: Statement, memory: str, floats: str, count: str, width: int) -> None:
    if s.buffer not in nest.kernel.nontemporal:
        nest.writer.line(f"floats_to_halves({memory}, {floats}, {count});")
        return
    halves = nest.scopes.name(f"{s.buffer}_halves")
    nest.writer.line(f"alignas(64) uint16 {halves}[{width}];")
    nest.writer.line(f"floats_to_halves({halves}, {floats}, {count});")
    nest.writer.line(f"past_cache({memory}, {halves}, {count});")


def _accesses(nest: NestWriter, loop: Axis) -> dict[tuple[object, ...], tuple[Part, Statement]]:
    """The contiguous float16 loads and stores, each address once, that are not bitwise copies."""
    kernel, extent = nest.kernel, static(loop.extent)
    if kernel.floats or kernel.tile is not None or nest.lane is not None or (extent is not None and extent < LEAST):
        return {}
    if nest.shares(0) and nest.outside:  # each thread would need a flag of its own
        return {}
    stored = {s.buffer: s.index for p in nest.nest.parts for s in p.stores}
    found: dict[tuple[object, ...], tuple[Part, Statement]] = {}
    for part, depths in zip(nest.nest.parts, nest.depths):
        for s in part.statements:
            if s.dtype is not torch.float16 or s.op not in ("load", "store") or s.mode or s.mask:
                continue
            changed = stored.get(s.buffer, s.index) != s.index
            if s.buffer in kernel.local or changed or not _along(s, loop, nest, depths):
                continue
            row = s.op == "load" and (s.buffer, sympy.expand(s.index)) in kernel.rows
            if not row and not nest.statements.moved(part, s):
                found.setdefault((s.op, s.buffer, s.index), (part, s))
    return found


def _along(s: Statement, loop: Axis, nest: NestWriter, depths: Mapping[str, int]) -> bool:
    """Whether an access is contiguous in the loop, from an address known before it."""
    rest = _rest(s, loop)
    return loop.symbol not in rest.free_symbols and all(
        depths.get(x.name, 0) < len(nest.loops) for x in rest.free_symbols)


def _fits(loop: Axis) -> bool:
    return bool(loop.extent.is_Integer and loop.extent <= BLOCK)


def _decided(nest: NestWriter, found: Mapping[tuple[object, ...], tuple[Part, Statement]]) -> bool:
    kernel, names = nest.kernel, dict.fromkeys(s.buffer for _, s in found.values())
    subject = f"{kernel.group.kernel}:{nest.nest.parts[0].body.name}"
    why = f"{', '.join(names)}, in float16, contiguous along {nest.loops[-1].symbol}: converted by vector instructions"
    return kernel.context.decide("half-conversion", subject, OPTIONS, OPTIONS[0], why) == OPTIONS[0]
