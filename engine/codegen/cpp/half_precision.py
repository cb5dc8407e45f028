"""Prints float16 that is converted a block of a row at a time."""
from __future__ import annotations

import sympy

from ...ir.loop_nest import Widened, WidenRow
from .emission import Emission
from .indices import c_expression
from .scope import buffer_name
from .statements import StatementWriter

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
    "half_to_float_alone": """\
#ifdef __F16C__  // of a loop that runs in order: one instruction, which gcc has no vectors of
typedef short alone_bits __attribute__((vector_size(16)));
typedef float alone_floats __attribute__((vector_size(16)));
INLINE float half_to_float_alone(uint16 x) { return __builtin_ia32_vcvtph2ps((alone_bits){(short)x})[0]; }
#else
INLINE float half_to_float_alone(uint16 x) { return half_to_float(x); }
#endif""",
    "float_to_half_alone": """\
#ifdef __F16C__  // half_to_float_alone
INLINE uint16 float_to_half_alone(float x) { return (uint16)__builtin_ia32_vcvtps2ph((alone_floats){x}, 0)[0]; }
#else
INLINE uint16 float_to_half_alone(float x) { return float_to_half(x); }
#endif""",
    "as_half_alone": """\
INLINE float as_half_alone(float x) { return half_to_float_alone(float_to_half_alone(x)); }""",
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
  if (k < n && n >= lanes) {  // the last ones, some of them again
    *(half_floats*)(to + n - lanes) = wide_lanes(*(const half_bits*)(from + n - lanes));
    k = n;
  }
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
  if (k < n && n >= lanes) {
    *(half_bits*)(to + n - lanes) = half_lanes(*(const half_floats*)(from + n - lanes));
    k = n;
  }
#endif
  #pragma omp simd
  for (int64 i = k; i < n; i++) to[i] = float_to_half(from[i]);
}""",
}


def widened(p: StatementWriter, node: Widened) -> None:
    """A block whose loads are converted before it, and its stores after it."""
    start, stop = p.span(node.axis)
    here, count = {node.axis.symbol: sympy.Symbol(start, integer=True)}, f"{stop} - {start}"
    names = {}
    for part, s in node.accesses:
        key = s.op, s.buffer, s.index
        names[key] = p.scopes.name(f"{s.buffer}_floats")
        if s.op == "load":
            _declare(p, names[key], p.place(part, s, here), node.size, count)
        else:
            p.writer.line(f"alignas(64) float {names[key]}[{node.size}];")
    p.floats = {key: f"{name}[{node.axis.symbol} - {start}]" for key, name in names.items()}
    p.nodes(node.body)
    p.floats = {}
    for part, s in node.accesses:
        if s.op == "store":
            memory, floats = p.place(part, s, here), names[s.op, s.buffer, s.index]
            if s.buffer in node.streamed:
                halves = p.scopes.name(f"{s.buffer}_halves")
                p.writer.line(f"alignas(64) uint16 {halves}[{node.size}];")
                p.writer.line(f"floats_to_halves({halves}, {floats}, {count});")
                p.writer.line(f"past_cache({memory}, {halves}, {count});")
            else:
                p.writer.line(f"floats_to_halves({memory}, {floats}, {count});")


def widen_row(p: Emission, node: WidenRow) -> None:
    """A row that is converted once."""
    name = p.scopes.name(f"{node.buffer}_floats")
    memory = f"{buffer_name(node.buffer)} + {c_expression(node.start)}"
    _declare(p, name, memory, int(node.extent), c_expression(node.extent))
    for a in node.axes:
        p.rows[node.buffer, sympy.expand(node.start + a.symbol)] = f"{name}[{a.symbol}]"


def _declare(p: Emission, name: str, memory: str, width: int, count: str) -> None:
    """A float array that holds converted float16."""
    array = p.scopes.name(f"{name}_array")
    p.writer.line(f"alignas(64) float {array}[{width}];")
    p.writer.line(f"const float* {name} = halves_to_floats({array}, {memory}, {count});")
