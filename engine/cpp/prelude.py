"""The functions that kernels may call, as C++ text. Only what a file uses is written into it.

Two kinds. `LIBRARY`: functions of libm, declared with the SIMD attribute, so that gcc calls glibc's vector math
(libmvec) in `omp simd` loops. `FUNCTIONS`: own code, inlined: branch-free, so that gcc turns it into vector code.
exp, expm1, log, log1p, erf, tanh, atan, sin and cos are own code because libmvec's are 1.4 to 4 ulp off, where eager
stays within one (the polynomials of tanh and atan are minimax fits of their own, the others those that Norbert Juffa
published; below 1 ulp over all floats but for expm1, 1.41), and because a call empties
every vector register. Only sin and cos are called, by the name that `omp simd` gives their vector forms: for an
argument so large that its quarter turn needs more bits they leave the vector code.
operators.py says which float functions are computed in double for the same reason.
"""
from __future__ import annotations

import re

TYPES = """\
typedef signed char int8;
typedef unsigned char uint8;
typedef short int16;
typedef unsigned short uint16;
typedef int int32;
typedef unsigned int uint32;
typedef long int64;
typedef unsigned long uint64;
#define SIMD __attribute__((simd("notinbranch"), const, nothrow, leaf))
#define LEAF __attribute__((const, nothrow, leaf))
#define INLINE static inline __attribute__((always_inline))"""

_VECTOR = ("sin cos tan asin acos atan sinh cosh tanh asinh acosh atanh exp2 expm1 log2 log10 log1p erfc cbrt").split()
_VECTOR64 = ("exp", "log", "erf")
_VECTOR2 = ("pow", "atan2", "hypot")
_SCALAR = ("lgamma",)
_SCALAR2 = ("fmod", "nextafter")
_THREADS = ("omp_get_num_threads", "omp_get_thread_num", "omp_get_max_threads")


def _declarations() -> dict[str, str]:
    table: dict[str, str] = {}
    for names, arity, attribute in (
        (_VECTOR, 1, "SIMD"), (_VECTOR2, 2, "SIMD"), (_SCALAR, 1, "LEAF"), (_SCALAR2, 2, "LEAF"),
    ):
        for name in names:
            for suffix, kind in (("f", "float"), ("", "double")):
                table[name + suffix] = f"extern \"C\" {kind} {name}{suffix}({', '.join([kind] * arity)}) {attribute};"
    for name in _THREADS:
        table[name] = f'extern "C" int {name}();'
    for name in _VECTOR64:
        table[name] = f'extern "C" double {name}(double) SIMD;'
    return table


LIBRARY = _declarations()

def _circular(name: str, quarter: int) -> str:
    """sin or cos of a float: one at a time, and its vector forms under the names that gcc calls them by.

    Those narrower than the machine's vectors serve the ends of loops. Without fused multiplication, in double.
    """
    def form(letter: str, lanes: int, wide: bool) -> str:
        kind = f"{name}_{lanes}{letter}"
        one = f"for (int k = 0; k < {lanes}; k++) x[k] = {name}_one(x[k]);\n  return x;"
        body = f"return turned_lanes<{kind}, {lanes}, {quarter}>(x, {name});" if wide else one
        return f"""\
typedef float {kind} __attribute__((vector_size({4 * lanes})));
HIDDEN {kind} _ZGV{letter}N{lanes}v_{name}_float({kind} x) {{
  {body}
}}"""

    return f"""\
#ifdef __FMA__
HIDDEN float {name}_float(float) SIMD;
HIDDEN float {name}_one(float) __asm__("{name}_float");
float {name}_one(float x) {{
  return __builtin_fabsf(x) > FAR_TURNED ? (float){name}((double)x) : turned_float(x, {quarter});
}}
{form("b", 4, False)}
{form("c", 8, False)}
#ifdef __AVX512F__
{form("d", 8, False)}
{form("e", 16, True)}
#else
{form("d", 8, True)}
#endif
#else
INLINE float {name}_float(float x) {{ return (float){name}((double)x); }}
#endif"""


FUNCTIONS: dict[str, str] = {
    "lanes_each": """\
INLINE int64 lanes_each(int64 lanes, int64 least, int64 most) {  // lanes of a block: each thread gets one
  const int64 threads = omp_get_max_threads(), each = ((lanes + threads - 1) / threads + 15) / 16 * 16;
  return each < least ? least : each > most ? most : each;
}""",
    "by_halves": """\
template <int N, typename F> INLINE void by_halves(F join) {  // N lanes become one: half of them onto the other half
  if constexpr (N > 1) {
    #pragma omp simd
    for (int64 k = 0; k < N / 2; k++) join(k, k + N - N / 2);
    by_halves<N - N / 2>(join);
  }
}""",
    "transposed": """\
typedef float row8 __attribute__((vector_size(32), aligned(4), may_alias));
typedef int32 pick8 __attribute__((vector_size(32)));
INLINE void transposed_block(const float* from, int64 stride, float* to, int64 wide) {  // 8 x 8, as AVX has its lanes
  row8 a[8], b[8];
  #pragma GCC unroll 8
  for (int k = 0; k < 8; k++) a[k] = *(const row8*)(from + k * stride);
  #pragma GCC unroll 8
  for (int k = 0; k < 8; k += 2) {
    b[k] = __builtin_shuffle(a[k], a[k + 1], (pick8){0, 8, 1, 9, 4, 12, 5, 13});
    b[k + 1] = __builtin_shuffle(a[k], a[k + 1], (pick8){2, 10, 3, 11, 6, 14, 7, 15});
  }
  #pragma GCC unroll 8
  for (int k = 0; k < 8; k += 4) {
    #pragma GCC unroll 2
    for (int m = 0; m < 2; m++) {
      a[k + 2 * m] = __builtin_shuffle(b[k + m], b[k + m + 2], (pick8){0, 1, 8, 9, 4, 5, 12, 13});
      a[k + 2 * m + 1] = __builtin_shuffle(b[k + m], b[k + m + 2], (pick8){2, 3, 10, 11, 6, 7, 14, 15});
    }
  }
  #pragma GCC unroll 8
  for (int k = 0; k < 4; k++) {
    *(row8*)(to + k * wide) = __builtin_shuffle(a[k], a[k + 4], (pick8){0, 1, 2, 3, 8, 9, 10, 11});
    *(row8*)(to + (k + 4) * wide) = __builtin_shuffle(a[k], a[k + 4], (pick8){4, 5, 6, 7, 12, 13, 14, 15});
  }
}
template <typename T, int64 WIDE>  // to[WIDE * i + j] = from[stride * j + i]
static __attribute__((noinline)) void transposed(const T* from, int64 stride, T* to, int64 rows, int64 columns) {
  int64 done = 0;
  if (sizeof(T) == 4 && rows % 8 == 0) {
    for (; done + 8 <= columns; done += 8) {
      for (int64 i = 0; i < rows; i += 8) {
        transposed_block((const float*)(from + stride * done + i), stride, (float*)(to + WIDE * i + done), WIDE);
      }
    }
  }
  for (int64 j = done; j < columns; j++) {
    for (int64 i = 0; i < rows; i++) to[WIDE * i + j] = from[stride * j + i];
  }
}""",
    "float_bits": """\
INLINE int32 float_bits(float x) { int32 bits; __builtin_memcpy(&bits, &x, 4); return bits; }""",
    "bits_float": """\
INLINE float bits_float(int32 bits) { float x; __builtin_memcpy(&x, &bits, 4); return x; }""",
    "log_add_exp": """\
INLINE double log_add_exp(double x, double y) {
  const double low = y != y || y < x ? y : x, high = y != y || x < y ? y : x;
  return low != high || low - low == 0.0 ? log1p(exp(low - high)) + high : x;
}""",
    "whole": """\
HIDDEN int64 nothing;
int64 nothing = 0;
// A whole number that was a float and becomes one again: gcc must not make `trunc` of it, which has a negative zero.
template <typename T> INLINE T whole(T x) { return x + (T)nothing; }""",
    "bits_as": """\
template <typename To, typename From> INLINE To bits_as(From x) {
  To y; __builtin_memcpy(&y, &x, sizeof(To)); return y;
}""",
    "fused": """\
#ifdef __FMA__
INLINE float fused(float a, float b, float c) { return __builtin_fmaf(a, b, c); }
#else
INLINE float fused(float a, float b, float c) { return a * b + c; }
#endif""",
    "bfloat16_to_float": """\
INLINE float bfloat16_to_float(uint16 x) { return bits_float((int32)((uint32)x << 16)); }""",
    "float_to_bfloat16": """\
INLINE uint16 float_to_bfloat16(float x) {  // to nearest, ties to even
  uint32 bits = (uint32)float_bits(x);
  uint32 rounded = (bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16;
  return (uint16)(x != x ? 0x7fc0u : rounded);
}""",
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
    "exp_reduced": """\
INLINE float exp_reduced(float x, float* power) {  // exp(x) over 2^n; n in the low bits of *power
  float j = fused(x, 1.442695041f, 12582912.0f), n = j - 12582912.0f;
  float f = fused(n, -0.693145752f, x);
  f = fused(n, -1.42860677e-6f, f);
  float p = 1.37805939e-3f;
  p = fused(p, f, 8.37312452e-3f);
  p = fused(p, f, 4.16695364e-2f);
  p = fused(p, f, 1.66664720e-1f);
  p = fused(p, f, 4.99999851e-1f);
  p = fused(p, f, 1.0f);
  *power = j;
  return fused(p, f, 1.0f);
}""",
    "exp_float": """\
INLINE float exp_float(float x) {  // the power of two in two factors: together they may be subnormal, or infinite
  float low = x < -104.0f ? -104.0f : x, clipped = low > 89.0f ? 89.0f : low;
  float j, p = exp_reduced(clipped, &j);
  bool small = x < 0.0f;
  float scale = small ? 0x1p-64f : 2.0f;
  p = p * bits_float((float_bits(j) + (small ? 191 : 126)) << 23);
  return p * (x < -104.0f ? 0.0f : scale);  // not by underflow, which takes a processor a hundred times as long
}""",
    "exp_within": """\
INLINE float exp_within(float x) {  // exp where neither x nor the result is beyond the normal numbers
  float j, p = exp_reduced(x, &j);
  return bits_float(float_bits(p) + (float_bits(j) << 23));
}""",
    "log_float": """\
INLINE float log_float(float a) {
  bool tiny = a < 1.175494351e-38f;
  float x = tiny ? a * 8388608.0f : a;
  int32 e = (float_bits(x) - 0x3f2aaaab) & (int32)0xff800000;
  float f = bits_float(float_bits(x) - e) - 1.0f;
  float i = fused((float)e, 1.19209290e-7f, tiny ? -23.0f : 0.0f);
  float s = f * f;
  float r = fused(-0.130187988f, f, 0.140889585f);
  float t = fused(-0.121489584f, f, 0.139809534f);
  r = fused(r, s, t);
  r = fused(r, f, -0.166845024f);
  r = fused(r, f, 0.200121149f);
  r = fused(r, f, -0.249996364f);
  r = fused(r, f, 0.333331943f);
  r = fused(r, f, -0.5f);
  r = fused(r, s, f);
  r = fused(i, 0.693147182f, r);
  float edge = a < 0.0f ? __builtin_nanf("") : a == 0.0f ? -__builtin_inff() : a + a;
  return a > 0.0f && a < __builtin_inff() ? r : edge;
}""",
    "erf_float": """\
INLINE float erf_float(float a) {
  float t = __builtin_fabsf(a), s = a * a;
  float r = fused(-1.72853470e-5f, t, 3.83197126e-4f);
  float u = fused(-3.88396438e-3f, t, 2.42546219e-2f);
  r = fused(r, s, u);
  r = fused(r, t, -1.06777877e-1f);
  r = fused(r, t, -6.34846687e-1f);
  r = fused(r, t, -1.28717512e-1f);
  r = fused(r, t, -t);
  uint32 bits = (uint32)float_bits(r), least = 0xc1c80000u;  // -25; integers compare faster
  float large = __builtin_copysignf(1.0f - exp_within(bits_float((int32)(bits < least ? bits : least))), a);
  float q = -5.96761703e-4f;
  q = fused(q, s, 4.99119423e-3f);
  q = fused(q, s, -2.67681349e-2f);
  q = fused(q, s, 1.12819925e-1f);
  q = fused(q, s, -3.76125336e-1f);
  q = fused(q, s, 1.28379166e-1f);
  q = fused(q, a, a);
  return t > 0.927734375f ? large : q;
}""",
    "tanh_float": """\
INLINE float tanh_float(float a) {  // 0.98 ulp at most, over all floats
  float t = __builtin_fabsf(a), s = a * a;
  int32 bits = float_bits(t + t), most = 0x42000000;  // 32
  float large = __builtin_copysignf(1.0f - 2.0f / (exp_within(bits_float(bits < most ? bits : most)) + 1.0f), a);
  float p = 1.21468947e-4f;
  p = fused(p, s, -8.41130095e-4f);
  p = fused(p, s, 3.0785827e-3f);
  p = fused(p, s, -8.59510526e-3f);
  p = fused(p, s, 2.17847265e-2f);
  p = fused(p, s, -5.39530963e-2f);
  p = fused(p, s, 1.33331999e-1f);
  p = fused(p, s, -3.33333284e-1f);
  return t > 1.0f ? large : __builtin_copysignf(fused(p * s, t, t), a);
}""",
    "sigmoid_float": """\
INLINE float sigmoid_float(float x) {  // 1 / (1 + exp(-x)), where what exp(-x) has below 2^-25 is lost
  float low = x < -89.0f ? -89.0f : x, y = low > 25.0f ? 25.0f : low;
  float j, p = exp_reduced(-y, &j);
  return 1.0f / (1.0f + p * bits_float((float_bits(j) + 126) << 23) * 2.0f);
}""",
    "log1p_float": """\
INLINE float log1p_float(float a) {  // log(1 + a) = e log(2) + log(1 + f), f taken with what its rounding leaves
  int32 e = (float_bits(a + 1.0f) - 0x3f2aaaab) & (int32)0xff800000;
  float scaled = bits_float(float_bits(a) - e), shift = fused(0.25f, bits_float(0x40800000 - e), -1.0f);
  float f = scaled + shift, rest = scaled - (f - shift), s = f * f;
  float r = fused(-0.130187988f, f, 0.140889585f);
  float t = fused(-0.121489584f, f, 0.139809534f);
  r = fused(r, s, t);
  r = fused(r, f, -0.166845024f);
  r = fused(r, f, 0.200121149f);
  r = fused(r, f, -0.249996364f);
  r = fused(r, f, 0.333331943f);
  r = fused(r, f, -0.5f);
  r = fused(r, s, fused(-f, rest, rest)) + f;
  r = fused((float)e * 1.19209290e-7f, 0.693147182f, r);
  float edge = a < -1.0f ? __builtin_nanf("") : a == -1.0f ? -__builtin_inff() : a + a;
  return a == 0.0f ? a : a > -1.0f && a < __builtin_inff() ? r : edge;
}""",
    "expm1_float": """\
INLINE float expm1_float(float x) {
  float clipped = x > 105.0f ? 105.0f : x < -105.0f ? -105.0f : x;
  float n = __builtin_rintf(clipped * 1.442695041f);
  float f = fused(n, -0.693145752f, clipped);
  f = fused(n, -1.42860677e-6f, f);
  float p = 1.37805939e-3f;
  p = fused(p, f, 8.37312452e-3f);
  p = fused(p, f, 4.16695364e-2f);
  p = fused(p, f, 1.66664720e-1f);
  p = fused(p, f, 4.99999851e-1f);
  p = fused(p, f * f, f);
  float half = bits_float(((int32)n + 126) << 23);  // of 2^n
  float y = fused(p, half, half - 0.5f);
  y = x < -26.0f ? -1.0f : x > 89.0f ? __builtin_inff() : y + y;
  return x == 0.0f || x != x ? x : y;
}""",
    "atan_float": """\
INLINE float atan_float(float a) {
  float t = __builtin_fabsf(a);
  bool far = t > 1.0f;
  float x = far ? 1.0f / t : t, s = x * x, rest = far ? fused(-t, x, 1.0f) * x : 0.0f;  // what x lost
  float p = -0.00182720611f;
  p = fused(p, s, 0.0110644102f);
  p = fused(p, s, -0.0314556435f);
  p = fused(p, s, 0.0582344942f);
  p = fused(p, s, -0.0841945633f);
  p = fused(p, s, 0.109575756f);
  p = fused(p, s, -0.142652452f);
  p = fused(p, s, 0.199986383f);
  p = fused(p, s, -0.333333015f);
  p = fused(p * s, x, fused(-s, rest, rest));
  float y = 1.57079637f - x, beyond = y + (1.57079637f - y - x - p - 4.37113883e-8f);
  return __builtin_copysignf(t < __builtin_inff() ? far ? beyond : x + p : t == t ? 1.57079637f : a, a);
}""",
    "turned_float": """\
INLINE float turned_float(float x, int32 quarter) {  // the sine of x and so many quarter turns, for x up to FAR_TURNED
  float j = fused(x, 0.636619747f, 12582912.0f);
  int32 q = float_bits(j) + quarter;
  j = j - 12582912.0f;
  float exact = fused(j, -1.57079601f, x), less = j * 3.13916473e-7f, r = exact - less, s = r * r;
  float rest = exact - r - less - fused(j, 3.13916473e-7f, -less) - j * 5.39030253e-15f;  // what r lost
  float c = fused(2.44677067e-5f, s, -1.38877297e-3f);
  c = fused(c, s, 4.16666567e-2f);
  c = fused(c, s, -0.5f);
  c = fused(c, s, -r * rest) + 1.0f;
  float n = fused(2.86567956e-6f, s, -1.98559923e-4f);
  n = fused(n, s, 8.33338592e-3f);
  n = fused(n, s, -1.66666672e-1f);
  n = fused(n, r * s, rest) + r;
  float y = q & 1 ? c : r == 0.0f ? r : n;
  return bits_float(float_bits(y) ^ ((q & 2) << 30));
}""",
    "FAR_TURNED": "#define FAR_TURNED 71476.0f",
    "HIDDEN": '#define HIDDEN extern "C" __attribute__((visibility("hidden")))',
    "turned_lanes": """\
template <typename V, int N, int QUARTER> INLINE V turned_lanes(V x, double (*exact)(double)) {
  float in[N], out[N];
  int32 far[N];
  __builtin_memcpy(in, &x, sizeof x);
  #pragma omp simd
  for (int k = 0; k < N; k++) {
    out[k] = turned_float(in[k], QUARTER);
    far[k] = __builtin_fabsf(in[k]) > FAR_TURNED;
  }
  by_halves<N>([&](int64 k, int64 other) { far[k] |= far[other]; });
  if (__builtin_expect(far[0], 0))
    for (int k = 0; k < N; k++) if (__builtin_fabsf(in[k]) > FAR_TURNED) out[k] = (float)exact((double)in[k]);
  __builtin_memcpy(&x, out, sizeof x);
  return x;
}""",
    "sin_float": _circular("sin", 0),
    "cos_float": _circular("cos", 1),
    "hypot_float": """\
INLINE float hypot_float(float a, float b) {  // no square of a float overflows in double
  double x = a, y = b;
  float root = (float)__builtin_sqrt(x * x + y * y), inf = __builtin_inff();
  return (__builtin_fabsf(a) == inf) | (__builtin_fabsf(b) == inf) ? inf : root;
}""",
    "minimum": """\
template <typename T> INLINE T minimum(T a, T b) { return a != a ? a : b != b ? b : a < b ? a : b; }""",
    "maximum": """\
template <typename T> INLINE T maximum(T a, T b) { return a != a ? a : b != b ? b : a > b ? a : b; }""",
    "sign": """\
template <typename T> INLINE T sign(T x) { return (T)((x > T(0)) - (x < T(0))); }""",
    "floor_divide": """\
template <typename T> INLINE T floor_divide(T a, T b) {  // rounds down; 0 for a zero divisor (status says so)
  bool turns = b < 0 && b == T(-1);  // not so 255 of bytes
  T d = b == 0 ? T(1) : b, q = turns ? T(-a) : T(a / d), r = turns ? T(0) : T(a % d);
  return b == 0 ? T(0) : T(q - ((r != 0) & ((r < 0) != (d < 0))));
}""",
    "floor_remainder": """\
template <typename T> INLINE T floor_remainder(T a, T b) {  // has the sign of the divisor
  T d = b == 0 ? T(1) : b, r = b < 0 && b == T(-1) ? T(0) : T(a % d);
  return b == 0 ? T(0) : T(r + (((r != 0) & ((r < 0) != (d < 0))) ? d : T(0)));
}""",
    "truncated_divide": """\
template <typename T> INLINE T truncated_divide(T a, T b) {
  return b == 0 ? T(0) : b < 0 && b == T(-1) ? T(-a) : T(a / b);
}""",
    "truncated_remainder": """\
template <typename T> INLINE T truncated_remainder(T a, T b) {
  return b == 0 || (b < 0 && b == T(-1)) ? T(0) : T(a % b);
}""",
    "floor_divide_float": """\
template <typename T> INLINE T floor_divide_float(T a, T b) {  // as Python's //: exact, through the remainder
  T r = remainder_of(a, b), q = (a - r) / b;
  q = (r != T(0)) & ((b < T(0)) != (r < T(0))) ? q - T(1) : q;
  T f = floor_of(q);
  f = q - f > T(0.5) ? f + T(1) : f;
  f = q == T(0) ? copysign_of(T(0), a / b) : f;
  return b == T(0) ? a / b : f;
}""",
    "floor_remainder_float": """\
template <typename T> INLINE T floor_remainder_float(T a, T b) {
  T r = remainder_of(a, b);
  return (r != T(0)) & ((b < T(0)) != (r < T(0))) ? r + b : r;
}""",
    "remainder_of": """\
INLINE float remainder_of(float a, float b) { return fmodf(a, b); }
INLINE double remainder_of(double a, double b) { return fmod(a, b); }""",
    "floor_of": """\
INLINE float floor_of(float a) { return __builtin_floorf(a); }
INLINE double floor_of(double a) { return __builtin_floor(a); }""",
    "copysign_of": """\
INLINE float copysign_of(float a, float b) { return __builtin_copysignf(a, b); }
INLINE double copysign_of(double a, double b) { return __builtin_copysign(a, b); }""",
    "integer_power": """\
template <typename T> INLINE T integer_power(T base, T exponent) {  // wraps; of a negative exponent as torch
  if (exponent < 0) return base == 1 ? T(1) : base == T(-1) ? (exponent & 1 ? T(-1) : T(1)) : T(0);
  T result = 1;
  for (; exponent; exponent >>= 1, base *= base) if (exponent & 1) result *= base;
  return result;
}""",
    "shift_left": """\
template <typename T> INLINE T shift_left(T a, T b) {
  return b < 0 || b >= T(8 * sizeof(T)) ? T(0) : T(a << b);
}""",
    "shift_right": """\
template <typename T> INLINE T shift_right(T a, T b) {
  return b < 0 || b >= T(8 * sizeof(T)) ? (a < 0 ? T(-1) : T(0)) : T(a >> b);
}""",
}

_WORD = re.compile(r"[A-Za-z_]\w*")


def prelude(body: str) -> list[str]:
    """The types, declarations and functions that `body` (C++ text) uses, in an order that compiles."""
    wanted: dict[str, None] = {}

    def visit(text: str) -> None:
        for word in dict.fromkeys(_WORD.findall(text)):
            if word in wanted:
                continue
            if word in FUNCTIONS:
                wanted[word] = None
                visit(FUNCTIONS[word])
            elif word in LIBRARY:
                wanted[word] = None

    visit(body)
    order: dict[str, None] = {}

    def place(name: str) -> None:
        if name in order or name not in wanted:
            return
        if name in FUNCTIONS:
            for word in _WORD.findall(FUNCTIONS[name]):
                if word != name and word in wanted:
                    place(word)
        order[name] = None

    for name in wanted:
        place(name)
    chunks = [TYPES]
    chunks += [LIBRARY[n] for n in order if n in LIBRARY]
    chunks += [FUNCTIONS[n] for n in order if n in FUNCTIONS]
    return "\n".join(chunks).split("\n")
