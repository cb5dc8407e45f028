"""Vector functions that `omp simd` loops call, under the names of the vector function ABI.

There are two reasons to call instead of inlining. With AVX-512 one instruction looks up 16 of 32 numbers, which C
cannot express: tanh and erf are one polynomial whose coefficients are selected by the interval of |x|, sin and cos one
polynomial of the angle from the nearest of 32 points of the circle (the tables, and how they were made, are in
float_tables.py). And arguments so large that their range reduction, or their quotient, needs more bits than a float has
leave the vector code: sin, cos, tan, fmod. Over all floats they are off by less than 1.1 ulp; fmod is exact.
"""
from __future__ import annotations

from .float_tables import TABLES

_NARROW = (("b", 4), ("d", 8))  # of AVX2 machines: gcc takes "d" before AVX's "c"


def _forms(name: str, lanes: int, body: str, operands: tuple[str, ...] = ("x",)) -> str:
    """`name`_float and its vector forms: `body` computes 16 lanes, or the 8 of AVX2; those that are narrower, which
    serve the ends of loops, are a part of it."""
    wide, signature = f"{name}_{lanes}", "v" * len(operands)
    whole = f"_ZGV{'e' if lanes == 16 else 'd'}N{lanes}{signature}_{name}_float"
    arguments = ", ".join(f"{wide} {x}" for x in operands)
    filled = " ".join(f"{wide} {x}_all = ({wide}){{}} + 1.0f;" for x in operands)
    given = ", ".join(f"{x}_all" for x in operands)

    def narrow(letter: str, count: int) -> str:
        kind = f"{name}_{count}{letter}"
        if count == 8 and len(operands) == 1:  # the lower half of the same register, whose upper half may hold anything
            return f"""\
typedef float {kind} __attribute__((vector_size(32)));
HIDDEN {kind} _ZGVdN8v_{name}_float({kind}) __attribute__((alias("{whole}")));"""
        copied = " ".join(f"__builtin_memcpy(&{x}_all, &{x}, sizeof {x});" for x in operands)
        return f"""\
typedef float {kind} __attribute__((vector_size({4 * count})));
HIDDEN {kind} _ZGV{letter}N{count}{signature}_{name}_float({', '.join(f'{kind} {x}' for x in operands)}) {{
  {filled}
  {copied}
  {operands[0]}_all = {whole}({given});
  __builtin_memcpy(&{operands[0]}, &{operands[0]}_all, sizeof {operands[0]});
  return {operands[0]};
}}"""

    floats = ", ".join(f"float {x}" for x in operands)
    one = " ".join(f"{x}_all[0] = {x};" for x in operands)
    rest = "\n".join(narrow(letter, count) for letter, count in _NARROW if count < lanes)
    return f"""\
typedef float {wide} __attribute__((vector_size({4 * lanes})));
HIDDEN float {name}_float({floats}) SIMD;
HIDDEN {wide} {whole}({arguments}) {{
  {body}
}}
HIDDEN float {name}_one({floats}) __asm__("{name}_float");
float {name}_one({floats}) {{
  {filled} {one}
  return {whole}({given})[0];
}}
{rest}"""


def _by_machine(avx512: str, avx2: str, otherwise: str) -> str:
    return (f"#ifdef __AVX512F__\n{avx512}\n"
            f"#elif defined(__AVX2__) && defined(__FMA__)\n{avx2}\n#else\n{otherwise}\n#endif")


def _circular(name: str, quarter: int) -> str:
    """sin or cos of a float. Without fused multiplication, in double."""
    return _by_machine(
        _forms(name, 16, f"return turned_lanes(x, {8 * quarter}, {name});"),
        _forms(name, 8, f"return near_lanes<{name}_8, 8>(x, {name}, turned_float<{quarter}>);"),
        f"INLINE float {name}_float(float x) {{ return (float){name}((double)x); }}",
    )


def _tangent() -> str:
    def forms(lanes: int) -> str:
        return _forms("tan", lanes, f"return near_lanes<tan_{lanes}, {lanes}>(x, tan, tan_near);")
    return _by_machine(forms(16), forms(8), "INLINE float tan_float(float x) { return (float)tan((double)x); }")


def _remainder() -> str:
    def forms(lanes: int) -> str:
        return _forms("fmod", lanes, f"return fmod_lanes<fmod_{lanes}, {lanes}>(x, y, fmodf);", ("x", "y"))
    return _by_machine(forms(16), forms(8), "INLINE float fmod_float(float x, float y) { return fmodf(x, y); }")


def _odd(name: str) -> str:
    """A function that in_pieces knows, and its inlined form of other machines."""
    inlined = f"INLINE float {name}_float(float x) {{ return {name}_inlined(x); }}"
    forms = _forms(name, 16, f"return in_pieces(x, {name}_pieces);")
    return f"#ifdef __AVX512F__\n{forms}\n#else\n{inlined}\n#endif"


def _erf_plus_one() -> str:
    """Errors of erf far below 1 are lost in the sum: fewer coefficients, and pieces of one length."""
    forms = _forms("erf_plus_one", 16, "return erf_plus_one_lanes(x);")
    rest = "INLINE float erf_plus_one_float(float x) { return erf_float(x) + 1.0f; }"
    return f"#ifdef __AVX512F__\n{forms}\n#else\n{rest}\n#endif"


CALLED_MATH: dict[str, str] = {
    **TABLES,
    "HIDDEN": '#define HIDDEN extern "C" __attribute__((visibility("hidden")))',
    "FAR_TURNED": "#define FAR_TURNED 71476.0f",
    "floats16": """\
#ifdef __AVX512F__
typedef float floats16 __attribute__((vector_size(64), may_alias));
typedef int32 whole16 __attribute__((vector_size(64)));
INLINE floats16 fused16(floats16 a, floats16 b, floats16 c) { return __builtin_ia32_vfmaddps512_mask(a, b, c, -1, 4); }
INLINE floats16 all16(float x) { return (floats16){} + x; }
INLINE floats16 size16(floats16 x) { return (floats16)((whole16)x & 0x7fffffff); }
INLINE floats16 at_most16(floats16 x, float y) {  // NaN stays
  return __builtin_ia32_minps512_mask(all16(y), x, (floats16){}, -1, 4);
}
INLINE floats16 looked_up(const float* row, whole16 k) {  // row[k % 32]
  return __builtin_shuffle(*(const floats16*)row, *(const floats16*)(row + 16), k);
}
#endif""",
    "in_pieces": """\
#ifdef __AVX512F__
template <int ROWS> INLINE floats16 in_pieces(floats16 x, const float (&rows)[ROWS][32]) {
  floats16 t = at_most16(size16(x), 15.0f);
  whole16 k = (whole16)t >> 21, least = (whole16){} + 492;  // four pieces to each power of two, from 1/16 on
  k = k > least ? k : least;
  floats16 y = t - looked_up(rows[0], k), p = looked_up(rows[ROWS - 1], k);
  #pragma GCC unroll 8
  for (int n = ROWS - 2; n > 1; n--) p = fused16(p, y, looked_up(rows[n], k));
  p = fused16(p, y, t < 0x1.4p-4f ? t : looked_up(rows[1], k));  // the first piece is about 0, and has t itself apart
  return (floats16)((whole16)p | ((whole16)x & (int32)0x80000000));
}
#endif""",
    "tanh_float": _odd("tanh"),
    "erf_float": _odd("erf"),
    "erf_plus_one_lanes": """\
#ifdef __AVX512F__
INLINE floats16 erf_plus_one_lanes(floats16 x) {
  floats16 t = at_most16(size16(x), 4.1f);
  floats16 j = fused16(t, all16(7.52941179f), all16(12582912.0f)), y = fused16(j - 12582912.0f, all16(-0.1328125f), t);
  whole16 k = (whole16)j;
  floats16 p = looked_up(erf_steps[4], k);
  #pragma GCC unroll 8
  for (int n = 3; n >= 0; n--) p = fused16(p, y, looked_up(erf_steps[n], k));
  return (floats16)((whole16)p | ((whole16)x & (int32)0x80000000)) + 1.0f;
}
#endif""",
    "erf_plus_one_float": _erf_plus_one(),
    "turned_lanes": """\
#ifdef __AVX512F__
INLINE floats16 turned_lanes(floats16 x, int32 shift, double (*exact)(double)) {  // the sine, so many angles on
  floats16 j = fused16(x, all16(5.09295818f), all16(12582912.0f)), n = j - 12582912.0f;
  whole16 k = (whole16)j + shift;
  floats16 near = fused16(n, all16(-0.196349502f), x), less = n * 3.92395592e-8f, r = near - less;
  floats16 rest = near - r - less - fused16(n, all16(3.92395592e-8f), -less);  // what r lost
  rest = fused16(n, all16(-6.73787816e-16f), rest);
  floats16 s = r * r, sine = looked_up(circle[0], k), cosine = looked_up(circle[2], k);
  floats16 q = fused16(r * s, fused16(s, all16(0.00833142083f), all16(-0.166666672f)), rest);  // the sine of r, less r
  floats16 c = s * fused16(s, all16(0.0416532829f), all16(-0.49999997f));
  floats16 y = sine + fused16(cosine, r, fused16(cosine, q, fused16(sine, c, looked_up(circle[1], k))));
  if (shift == 0) y = r == 0.0f ? x : y;
  return any_far(x) ? far_lanes<floats16, 16>(x, y, exact) : y;
}
#endif""",
    "quarter_turns": """\
INLINE int32 quarter_turns(float x, float* angle, float* lost) {  // x less so many quarter turns, and what that lost
  float j = fused(x, 0.636619747f, 12582912.0f);
  int32 turns = float_bits(j);
  j = j - 12582912.0f;
  float exact = fused(j, -1.57079601f, x), less = j * 3.13916473e-7f, r = exact - less;
  *angle = r;
  *lost = exact - r - less - fused(j, 3.13916473e-7f, -less) - j * 5.39030253e-15f;
  return turns;
}""",
    "turned_float": """\
template <int QUARTER> INLINE float turned_float(float x) {  // the sine so many quarter turns on, up to FAR_TURNED
  float r, rest;
  int32 q = quarter_turns(x, &r, &rest) + QUARTER;
  float s = r * r;
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
    "tan_near": """\
INLINE float tan_near(float x) {  // the tangent of x, up to FAR_TURNED; beyond an eighth turn the reciprocal of t
  float r, rest;
  int32 q = quarter_turns(x, &r, &rest);
  float s = r * r;
  float p = 0.00384355593f;
  p = fused(p, s, 0.0011846202f);
  p = fused(p, s, 0.00996258575f);
  p = fused(p, s, 0.0216210019f);
  p = fused(p, s, 0.0539944805f);
  p = fused(p, s, 0.133332312f);
  p = fused(p, s, 0.333333343f);
  p = fused(p * s, r, rest * fused(s, 1.6f, 1.0f));
  float t = r + p, low = r - t + p, y = -1.0f / t;
  float cotangent = fused(y, fused(low, y, fused(t, y, 1.0f)), y);
  return q & 1 ? cotangent : r == 0.0f ? x : t;
}""",
    "any_far": """\
#ifdef __AVX512F__
INLINE bool any_far(floats16 x) {
  return __builtin_expect(__builtin_ia32_cmpps512_mask(size16(x), all16(FAR_TURNED), 30, -1, 4) != 0, 0);
}
#elif defined(__AVX2__)
typedef float floats8 __attribute__((vector_size(32), may_alias));
typedef int32 whole8 __attribute__((vector_size(32)));
INLINE bool any_far(floats8 x) {
  floats8 size = (floats8)((whole8)x & 0x7fffffff);
  return __builtin_expect(__builtin_ia32_movmskps256((floats8)(size > FAR_TURNED)) != 0, 0);
}
#endif""",
    "far_lanes": """\
template <typename V, int N> static __attribute__((noinline, cold)) V far_lanes(V x, V y, double (*exact)(double)) {
  for (int k = 0; k < N; k++) if (__builtin_fabsf(x[k]) > FAR_TURNED) y[k] = (float)exact((double)x[k]);
  return y;
}""",
    "near_lanes": """\
template <typename V, int N> INLINE V near_lanes(V x, double (*exact)(double), float (*near)(float)) {
  float in[N], out[N];
  __builtin_memcpy(in, &x, sizeof x);
  #pragma omp simd
  for (int k = 0; k < N; k++) out[k] = near(in[k]);
  V y;
  __builtin_memcpy(&y, out, sizeof y);
  return any_far(x) ? far_lanes<V, N>(x, y, exact) : y;
}""",
    "fmod_lanes": """\
template <typename V, int N> INLINE V fmod_lanes(V x, V y, float (*exact)(float, float)) {
  float a[N], b[N], out[N];  // up to 2^29 the quotient in double is never rounded to a whole number above it
  int32 far[N];
  __builtin_memcpy(a, &x, sizeof x);
  __builtin_memcpy(b, &y, sizeof y);
  #pragma omp simd
  for (int k = 0; k < N; k++) {
    double q = (double)a[k] / (double)b[k];
    out[k] = __builtin_copysignf((float)((double)a[k] - __builtin_trunc(q) * (double)b[k]), a[k]);
    far[k] = !(__builtin_fabs(q) < 0x1p29) | (__builtin_fabsf(b[k]) == __builtin_inff());
  }
  by_halves<N>([&](int64 k, int64 other) { far[k] |= far[other]; });
  if (__builtin_expect(far[0], 0)) for (int k = 0; k < N; k++) out[k] = exact(a[k], b[k]);
  __builtin_memcpy(&x, out, sizeof x);
  return x;
}""",
    "fmod_float": _remainder(),
    "sin_float": _circular("sin", 0),
    "cos_float": _circular("cos", 1),
    "tan_float": _tangent(),
}
