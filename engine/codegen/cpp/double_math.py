"""Vectorizable versions of libm's double functions, as C++ text that gcc inlines (see prelude.py).

Calls of libmvec spill every vector register, and are up to 2.7 ulp off; these are within 0.9. The logarithm is fdlibm's
(e_log.c), and so is the quotient that is exp in a sigmoid (e_exp.c); exp's own polynomial interpolates (exp(f) - 1) / f
at Chebyshev nodes. fmod, which libmvec lacks, is exact and a call: it works lane by lane, so that the loop around it
stays vectorized.
"""
from __future__ import annotations

DOUBLE_MATH: dict[str, str] = {
    "double_bits": """\
INLINE int64 double_bits(double x) { int64 bits; __builtin_memcpy(&bits, &x, 8); return bits; }""",
    "bits_double": """\
INLINE double bits_double(int64 bits) { double x; __builtin_memcpy(&x, &bits, 8); return x; }""",
    "fused_double": """\
#ifdef __FMA__
INLINE double fused_double(double a, double b, double c) { return __builtin_fma(a, b, c); }
#else
INLINE double fused_double(double a, double b, double c) { return a * b + c; }
#endif""",
    "exp_near": """\
INLINE double exp_near(double f) {  // up to half of a logarithm of 2 from 0
  double p = 2.0918137737642736e-09;
  p = fused_double(p, f, 2.5110049204818658e-08);
  p = fused_double(p, f, 2.75572632790885e-07);
  p = fused_double(p, f, 2.755724088722987e-06);
  p = fused_double(p, f, 2.4801587336442236e-05);
  p = fused_double(p, f, 0.00019841269890076403);
  p = fused_double(p, f, 0.0013888888888879073);
  p = fused_double(p, f, 0.008333333333319589);
  p = fused_double(p, f, 0.04166666666666668);
  p = fused_double(p, f, 0.1666666666666668);
  p = fused_double(p, f, 0.5);
  p = fused_double(p, f, 1.0);
  return fused_double(p, f, 1.0);
}""",
    "exp_double": """\
INLINE double exp_double(double x) {  // the power of two in two factors; the second is 0 where nothing is left
  bool none = x < -745.14;
  double low = none ? -708.0 : x, clipped = low > 710.0 ? 710.0 : low, magic = 6755399441055744.0;
  double j = fused_double(clipped, 1.4426950408889634, magic), n = j - magic, half = fused_double(n, 0.5, magic);
  double f = fused_double(n, -0.6931471803691238, clipped);
  f = fused_double(n, -1.9082149292705877e-10, f);
  int64 first = double_bits(half), second = double_bits(j) - first;
  double scale = bits_double((second + 1023) << 52);
  return exp_near(f) * bits_double((first + 1023) << 52) * (none ? 0.0 : scale);
}""",
    "sigmoid_double": """\
INLINE double sigmoid_double(double x) {  // 1 / (1 + exp(-x)), where exp(2 f) is above / below: one division for both
  double h = -0.5 * x;
  h = h < -354.0 ? -354.0 : h;
  h = h > 355.0 ? 355.0 : h;
  double j = fused_double(h, 2.8853900817779268, 6755399441055744.0), n = j - 6755399441055744.0;
  double f = fused_double(n, -0.3465735901845619, h);
  f = fused_double(n, -9.541074646352939e-11, f);
  double z = f * f, p = 2.118726040093306e-05;
  p = fused_double(p, z, -0.00021163394822995522);
  p = fused_double(p, z, 0.002116402022860139);
  p = fused_double(p, z, -0.022222222221612475);
  p = fused_double(p, z, 0.33333333333333204);
  double s = fused_double(p, z, 1.0), above = s + f, below = s - f;
  return below / fused_double(above * 2.0, bits_double((double_bits(j) + 1022) << 52), below);
}""",
    "log_double": """\
INLINE double log_double(double a) {
  bool tiny = a < 2.2250738585072014e-308;
  int64 bits = double_bits(tiny ? a * 0x1p54 : a), shifted = bits + 0x00095f6199000000;  // 1 + f: 0.71 to 1.41
  double k = bits_double((int64)((uint64)shifted >> 52) | 0x4330000000000000) - (tiny ? 0x1p52 + 1077 : 0x1p52 + 1023);
  double f = bits_double(bits - (shifted & 0x7ff0000000000000) + 0x3ff0000000000000) - 1.0;
  double s = f / (2.0 + f), z = s * s, half = 0.5 * f * f;
  double r = fused_double(1.479819860511658591e-01, z, 1.531383769920937332e-01);
  r = fused_double(r, z, 1.818357216161805012e-01);
  r = fused_double(r, z, 2.222219843214978396e-01);
  r = fused_double(r, z, 2.857142874366239149e-01);
  r = fused_double(r, z, 3.999999999940941908e-01);
  r = fused_double(r, z, 6.666666666666735130e-01) * z;
  double low = fused_double(s, half + r, k * 1.90821492927058770002e-10);
  double y = fused_double(k, 6.93147180369123816490e-01, f - (half - low));
  double edge = a < 0.0 ? __builtin_nan("") : a == 0.0 ? -__builtin_inf() : a + a;
  return (a > 0.0) & (a < __builtin_inf()) ? y : edge;
}""",
    "fmod_double": """\
static SIMD __attribute__((noinline)) double fmod_double(double a, double b) {
#ifdef __FMA__  // the quotient is never rounded below a whole number that it reaches: it is right, or one too large
  double x = __builtin_fabs(a), y = __builtin_fabs(b), q = x / y;
  if (__builtin_expect((q < 0x1p53) & (y < __builtin_inf()), 1)) {
    double r = __builtin_fma(-__builtin_trunc(q), y, x);
    return __builtin_copysign(r < 0.0 ? r + y : r, a);
  }
#endif
  return fmod(a, b);
}""",
}
