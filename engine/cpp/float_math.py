"""Own versions of libm's float functions, as C++ text that gcc vectorizes (see prelude.py).

libmvec's are 1.4 to 4 ulp off, where eager stays within one, and a call empties every vector register. The polynomials
of tanh, atan, asin and acos are minimax fits of their own, the others those that Norbert Juffa published. Over all
floats they are off by less than 1.1 ulp, but for expm1 (1.41); fmod is exact.

Only sin, cos and fmod are called, by the names that `omp simd` gives their vector forms: for an argument so large that
its quarter turn, or its quotient, needs more bits than there are, they leave the vector code.
"""
from __future__ import annotations


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


def _remainder() -> str:
    """fmod of floats: one at a time, and its vector forms, as those of `_circular`."""
    def form(letter: str, lanes: int, wide: bool) -> str:
        kind = f"fmod_{lanes}{letter}"
        one = f"for (int k = 0; k < {lanes}; k++) x[k] = fmodf(x[k], y[k]);\n  return x;"
        return f"""\
typedef float {kind} __attribute__((vector_size({4 * lanes})));
HIDDEN {kind} _ZGV{letter}N{lanes}vv_fmod_float({kind} x, {kind} y) {{
  {f"return fmod_lanes<{kind}, {lanes}>(x, y, fmodf);" if wide else one}
}}"""

    return f"""\
#ifdef __AVX2__
HIDDEN float fmod_float(float, float) SIMD;
HIDDEN float fmod_one(float, float) __asm__("fmod_float");
float fmod_one(float x, float y) {{ return fmodf(x, y); }}
{form("b", 4, False)}
{form("c", 8, False)}
#ifdef __AVX512F__
{form("d", 8, False)}
{form("e", 16, True)}
#else
{form("d", 8, True)}
#endif
#else
INLINE float fmod_float(float x, float y) {{ return fmodf(x, y); }}
#endif"""


FLOAT_MATH: dict[str, str] = {
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
INLINE float exp_float(float x) {  // the power of two in two factors: together they may be subnormal, infinite, or 0
  float low = x < -105.0f ? -105.0f : x, clipped = x > 89.0f ? 89.0f : low;  // low's own bound would cost twice as much
  float j, p = exp_reduced(clipped, &j);
  int32 n = float_bits(j) + 152, half = n >> 1;  // half's factor is 0 for results below 2^-150: no slow underflow
  return p * bits_float((n - half + 102) << 23) * bits_float(half << 23);
}""",
    "exp_within": """\
INLINE float exp_within(float x) {  // exp where neither x nor the result is beyond the normal numbers
  float j, p = exp_reduced(x, &j);
  return bits_float(float_bits(p) + (float_bits(j) << 23));
}""",
    "log_terms": """\
INLINE float log_terms(float f) {  // log(1 + f) is f + r f^2
  float s = f * f;
  float r = fused(-0.130187988f, f, 0.140889585f);
  float t = fused(-0.121489584f, f, 0.139809534f);
  r = fused(r, s, t);
  r = fused(r, f, -0.166845024f);
  r = fused(r, f, 0.200121149f);
  r = fused(r, f, -0.249996364f);
  r = fused(r, f, 0.333331943f);
  r = fused(r, f, -0.5f);
  return r;
}""",
    "log_reduced": """\
INLINE float log_reduced(float a, float* power, float* rest) {  // log(a) is *power log(2) + f + r f^2: *rest is f
  bool tiny = a < 1.175494351e-38f;
  float x = tiny ? a * 8388608.0f : a;
  int32 e = (float_bits(x) - 0x3f2aaaab) & (int32)0xff800000;
  float f = bits_float(float_bits(x) - e) - 1.0f;
  *power = fused((float)e, 1.19209290e-7f, tiny ? -23.0f : 0.0f);
  *rest = f;
  return log_terms(f);
}""",
    "log_edges": """\
INLINE float log_edges(float a, float r) {  // `r`, the logarithm of a positive number `a`; of others, what they have
  float edge = a < 0.0f ? __builtin_nanf("") : a == 0.0f ? -__builtin_inff() : a + a;
  return (uint32)float_bits(a) - 1 < 0x7f7fffffu ? r : edge;
}""",
    "log_float": """\
INLINE float log_float(float a) {
  float i, f, r = log_reduced(a, &i, &f);
  return log_edges(a, fused(i, 0.693147182f, fused(r, f * f, f)));
}""",
    "log2_float": """\
INLINE float log2_float(float a) {
  float i, f, r = log_reduced(a, &i, &f);
  float y = fused(f, 1.44269502f, i), less = fused(f, 1.44269502f, i - y);  // what y lost
  return log_edges(a, y + fused(r * (f * f), 1.44269502f, fused(f, 1.92596303e-8f, less)));
}""",
    "log10_float": """\
INLINE float log10_float(float a) {
  float i, f, r = log_reduced(a, &i, &f), whole_powers = i * 0.301025391f;  // exact
  float y = fused(f, 0.434294492f, whole_powers), less = fused(f, 0.434294492f, whole_powers - y);  // what y lost
  return log_edges(a, y + fused(i, 4.60503907e-6f, fused(r * (f * f), 0.434294492f, fused(f, -1.01030506e-8f, less))));
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
  float low = x < -89.0f ? -89.0f : x, y = x > 25.0f ? 25.0f : low;
  float j, p = exp_reduced(-y, &j);
  return 1.0f / (1.0f + p * bits_float((float_bits(j) + 126) << 23) * 2.0f);
}""",
    "log1p_float": """\
INLINE float log1p_float(float a) {  // log(1 + a) = e log(2) + log(1 + f), f taken with what its rounding leaves
  int32 e = (float_bits(a + 1.0f) - 0x3f2aaaab) & (int32)0xff800000;
  float scaled = bits_float(float_bits(a) - e), shift = fused(0.25f, bits_float(0x40800000 - e), -1.0f);
  float f = scaled + shift, rest = scaled - (f - shift), s = f * f;
  float r = log_terms(f);
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
    "arc_rest": """\
INLINE float arc_rest(float s) {  // asin(z) = z + z * this, for s = z * z up to 1/4
  float p = 0.0375652350f;
  p = fused(p, s, 0.0144025845f);
  p = fused(p, s, 0.0318176188f);
  p = fused(p, s, 0.0445157215f);
  p = fused(p, s, 0.0750051066f);
  return fused(p, s, 0.166666597f) * s;
}""",
    "asin_float": """\
INLINE float asin_float(float a) {  // beyond one half, by the half angle: pi/2 - 2 asin(sqrt((1 - a) / 2))
  float t = __builtin_fabsf(a), half = fused(t, -0.5f, 0.5f);
  bool far = t > 0.5f;
  float s = far ? half : t * t, z = 2.0f * __builtin_sqrtf(half), p = arc_rest(s);
  float y = 1.57079637f - z, beyond = y + (1.57079637f - y - z - p * z - 4.37113883e-8f);
  return __builtin_copysignf(far ? beyond : t == t ? fused(p, t, t) : a, a);
}""",
    "acos_float": """\
INLINE float acos_float(float a) {
  float t = __builtin_fabsf(a), half = fused(t, -0.5f, 0.5f);
  bool far = t > 0.5f;
  float s = far ? half : t * t, z = far ? 2.0f * __builtin_sqrtf(half) : a, p = arc_rest(s) * z;
  float high = far ? 3.14159274f : 1.57079637f, low = far ? -8.74227766e-8f : -4.37113883e-8f;
  float y = high - z, from = y + (high - y - z - p + low);
  return far & (a > 0.0f) ? z + p : from;
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
    "hypot_float": """\
INLINE float hypot_float(float a, float b) {  // no square of a float overflows in double
  double x = a, y = b;
  float root = (float)__builtin_sqrt(x * x + y * y), inf = __builtin_inff();
  return (__builtin_fabsf(a) == inf) | (__builtin_fabsf(b) == inf) ? inf : root;
}""",
}
