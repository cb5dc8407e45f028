"""The functions that kernels may call, as C++ text. A file contains only those that it uses.

There are two kinds. `LIBRARY`: functions of libm, declared with the SIMD attribute, so that gcc calls glibc's vector
math (libmvec) in `omp simd` loops. `FUNCTIONS`: inlined, branch-free code that gcc vectorizes. float_math.py,
vector_math.py and double_math.py have exp, log, sin and the like; operators.py says which float functions are computed
in double instead, since libmvec's float versions are up to 4 ulp off.
"""
from __future__ import annotations

import re

from .blocked_scans import SCAN_BLOCKS
from .double_math import DOUBLE_MATH
from .float_math import FLOAT_MATH
from .half_precision import HALF_CONVERSIONS
from .nontemporal_stores import PAST_CACHE
from .vector_math import CALLED_MATH

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
#define INLINE static inline __attribute__((always_inline))
#define NARROW __attribute__((target("prefer-vector-width=256")))"""

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

FUNCTIONS: dict[str, str] = {
    "lanes_each": """\
INLINE int64 lanes_each(int64 lanes, int64 row, int64 least, int64 most) {  // lanes of a block: each thread gets one
  const int64 threads = omp_get_max_threads(), each = ((lanes + threads - 1) / threads + 15) / 16 * 16;
  const int64 fit = each < least ? least : each > most ? most : each;
  const int64 some = row > 0 ? row : 1;  // a size that data says may be 0, which is no step of a loop
  return some < fit ? some : fit;  // a block's lanes are all set up, also those that a short row has not
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
typedef uint16 line8 __attribute__((vector_size(16), aligned(2), may_alias));
typedef short order8 __attribute__((vector_size(16)));
INLINE void transposed_block(const uint16* from, int64 stride, uint16* to, int64 wide) {  // the same of 16 bits
  line8 a[8], b[8];
  #pragma GCC unroll 8
  for (int k = 0; k < 8; k++) a[k] = *(const line8*)(from + k * stride);
  #pragma GCC unroll 8
  for (int k = 0; k < 8; k += 2) {
    b[k] = __builtin_shuffle(a[k], a[k + 1], (order8){0, 8, 1, 9, 2, 10, 3, 11});
    b[k + 1] = __builtin_shuffle(a[k], a[k + 1], (order8){4, 12, 5, 13, 6, 14, 7, 15});
  }
  #pragma GCC unroll 8
  for (int k = 0; k < 8; k += 4) {
    #pragma GCC unroll 2
    for (int m = 0; m < 2; m++) {
      a[k + 2 * m] = __builtin_shuffle(b[k + m], b[k + m + 2], (order8){0, 1, 8, 9, 2, 3, 10, 11});
      a[k + 2 * m + 1] = __builtin_shuffle(b[k + m], b[k + m + 2], (order8){4, 5, 12, 13, 6, 7, 14, 15});
    }
  }
  #pragma GCC unroll 8
  for (int k = 0; k < 4; k++) {
    *(line8*)(to + 2 * k * wide) = __builtin_shuffle(a[k], a[k + 4], (order8){0, 1, 2, 3, 8, 9, 10, 11});
    *(line8*)(to + (2 * k + 1) * wide) = __builtin_shuffle(a[k], a[k + 4], (order8){4, 5, 6, 7, 12, 13, 14, 15});
  }
}
typedef uint8 bytes16 __attribute__((vector_size(16), aligned(1), may_alias));
typedef signed char order16 __attribute__((vector_size(16)));
INLINE void riffled(const bytes16* a, bytes16* b) {  // four times: what was at row i, column j is at row j, column i
  #pragma GCC unroll 8
  for (int k = 0; k < 8; k++) {
    b[2 * k] = __builtin_shuffle(a[k], a[k + 8], (order16){0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23});
    b[2 * k + 1] = __builtin_shuffle(
        a[k], a[k + 8], (order16){8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31});
  }
}
INLINE void transposed_block(const uint8* from, int64 stride, uint8* to, int64 wide) {  // 16 x 16 bytes
  bytes16 a[16], b[16];
  #pragma GCC unroll 16
  for (int k = 0; k < 16; k++) a[k] = *(const bytes16*)(from + k * stride);
  riffled(a, b), riffled(b, a), riffled(a, b), riffled(b, a);
  #pragma GCC unroll 16
  for (int k = 0; k < 16; k++) *(bytes16*)(to + k * wide) = a[k];
}
typedef double row4 __attribute__((vector_size(32), aligned(8), may_alias));
typedef long pick4 __attribute__((vector_size(32)));
INLINE void transposed_block(const double* from, int64 stride, double* to, int64 wide) {  // 4 x 4
  row4 a[4], b[4];
  #pragma GCC unroll 4
  for (int k = 0; k < 4; k++) a[k] = *(const row4*)(from + k * stride);
  #pragma GCC unroll 2
  for (int k = 0; k < 4; k += 2) {
    b[k] = __builtin_shuffle(a[k], a[k + 1], (pick4){0, 4, 2, 6});
    b[k + 1] = __builtin_shuffle(a[k], a[k + 1], (pick4){1, 5, 3, 7});
  }
  #pragma GCC unroll 2
  for (int k = 0; k < 2; k++) {
    *(row4*)(to + k * wide) = __builtin_shuffle(b[k], b[k + 2], (pick4){0, 1, 4, 5});
    *(row4*)(to + (k + 2) * wide) = __builtin_shuffle(b[k], b[k + 2], (pick4){2, 3, 6, 7});
  }
}
template <int BYTES> struct Lines { typedef float type; };
template <> struct Lines<8> { typedef double type; };
template <> struct Lines<2> { typedef uint16 type; };
template <> struct Lines<1> { typedef uint8 type; };
template <typename T>  // to[wide * i + j] = from[stride * j + i]
static __attribute__((noinline)) void transposed(
    const T* from, int64 stride, T* to, int64 wide, int64 rows, int64 columns) {
  typedef typename Lines<sizeof(T)>::type line;
  const bool down = rows > columns;  // the shorter way first: whole lines
  const int64 block = sizeof(T) == 1 ? 16 : sizeof(T) == 8 ? 4 : 8;
  const int64 last_row = rows / block * block, last_column = columns / block * block;
  for (int64 a = 0; a < (down ? last_row : last_column); a += block) {
    for (int64 b = 0; b < (down ? last_column : last_row); b += block) {
      const int64 i = down ? a : b, j = down ? b : a;
      transposed_block((const line*)(from + stride * j + i), stride, (line*)(to + wide * i + j), wide);
    }
  }
  for (int64 j = 0; j < columns; j++) {
    for (int64 i = j < last_column ? last_row : 0; i < rows; i++) to[wide * i + j] = from[stride * j + i];
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
    "unsigned_bits": """\
template <typename S, typename T> INLINE S unsigned_bits(T x) {  // below zero they wrap
  const S top = S(1) << (8 * sizeof(S) - 1);
  const T half = -T(top);
  return x >= half ? S(x - half) ^ top : S(x);
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
    "minimum": """\
template <typename T> INLINE T minimum(T a, T b) { return (a != a) | (a < b) ? a : b; }  // a NaN before all""",
    "maximum": """\
template <typename T> INLINE T maximum(T a, T b) { return (a != a) | (a > b) ? a : b; }""",
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
  T less = T(-T((r != 0) & ((r < 0) != (d < 0))));  // a mask: gcc would make a branch of a choice, taken half the time
  return b == 0 ? T(0) : T(r + (d & less));
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
INLINE float remainder_of(float a, float b) { return fmod_float(a, b); }
INLINE double remainder_of(double a, double b) { return fmod_double(a, b); }""",
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
    **FLOAT_MATH,
    **CALLED_MATH,
    **DOUBLE_MATH,
    **PAST_CACHE,
    **HALF_CONVERSIONS,
    **SCAN_BLOCKS,
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
