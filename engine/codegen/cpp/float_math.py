"""Vectorizable versions of libm's float functions, as C++ text that gcc inlines (see prelude.py).

libmvec's are 1.4 to 4 ulp off, where eager stays within one, and a call spills every vector register. The polynomials
of tanh, atan, asin and acos are minimax fits made for this file, the others those that Norbert Juffa published. Over
all floats they are off by less than 1.1 ulp, but for expm1 (1.41). vector_math.py has those that are not inlined.
"""
from __future__ import annotations

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
    "exp2_float": """\
INLINE float exp2_float(float x) {  // as exp
  float low = x < -151.0f ? -151.0f : x, clipped = x > 129.0f ? 129.0f : low;
  float j = clipped + 12582912.0f, f = clipped - (j - 12582912.0f);
  float p = 1.53720379e-4f;
  p = fused(p, f, 1.33903872e-3f);
  p = fused(p, f, 9.61817801e-3f);
  p = fused(p, f, 5.55036031e-2f);
  p = fused(p, f, 2.40226522e-1f);
  p = fused(p, f, 6.93147182e-1f);
  p = fused(p, f, 1.0f);
  int32 n = float_bits(j) + 152, half = n >> 1;
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
    "erf_inlined": """\
#ifndef __AVX512F__
INLINE float erf_inlined(float a) {
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
}
#endif""",
    "tanh_inlined": """\
#ifndef __AVX512F__
INLINE float tanh_inlined(float a) {  // 0.98 ulp at most, over all floats
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
}
#endif""",
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
    "sinh_float": """\
INLINE float sinh_float(float x) {  // of n log(2) + f: sinh(n log(2)) cosh(f) + cosh(n log(2)) sinh(f)
  float t = __builtin_fabsf(x), sine, cosine;
  float up, down = hyperbolic(t > 89.6f ? 89.6f : t, &up, &sine, &cosine), s = up - down;
  float y = s + fused(s, cosine, (up + down) * sine);
  return t < 0.000244140625f ? x : __builtin_copysignf(y + y, x);
}""",
    "cosh_float": """\
INLINE float cosh_float(float x) {
  float t = __builtin_fabsf(x), sine, cosine;
  float up, down = hyperbolic(t > 89.6f ? 89.6f : t, &up, &sine, &cosine);
  float y = up + fused(up + down, cosine, fused(up - down, sine, down));
  return y + y;
}""",
    "hyperbolic": """\
INLINE float hyperbolic(float x, float* up, float* sine, float* cosine) {  // a quarter of 2^n (up) and of 2^-n (down)
  float j = fused(x, 1.442695041f, -0.3f) + 12582912.0f, n = j - 12582912.0f;  // f is -0.14 to 0.56: little cancels
  float f = fused(n, -0.693145752f, x);
  f = fused(n, -1.42860677e-6f, f);
  float s = f * f;
  float p = fused(0.000199694594f, s, 0.00833318476f);
  p = fused(p, s, 0.166666672f);
  *sine = fused(p, f * s, f);
  float c = fused(0.00140043406f, s, 0.0416653268f);
  *cosine = fused(c, s, 0.5f) * s;  // less one
  int32 power = float_bits(j) << 23, below = (125 << 23) - power;
  *up = bits_float(power + (125 << 23));
  return bits_float(below > 0 ? below : 0);
}""",
    "hypot_float": """\
INLINE float hypot_float(float a, float b) {  // no square of a float overflows in double
  double x = a, y = b;
  float root = (float)__builtin_sqrt(x * x + y * y), inf = __builtin_inff();
  return (__builtin_fabsf(a) == inf) | (__builtin_fabsf(b) == inf) ? inf : root;
}""",
}
