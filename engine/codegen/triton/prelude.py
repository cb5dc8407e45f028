"""Helper functions that generated kernels call, as source: each kernel carries the ones it uses and is self-contained.

They are text, since one process may run them both compiled and interpreted, and since a recorded kernel should be
readable, and runnable, without this package.
"""
from __future__ import annotations

import re

HELPERS: dict[str, str] = {
    "nan_max": '''
@triton.jit
def nan_max(a, b):
    """The larger; NaN if either is."""
    return tl.maximum(a, b, propagate_nan=tl.PropagateNan.ALL)
''',
    "nan_min": '''
@triton.jit
def nan_min(a, b):
    """The smaller; NaN if either is."""
    return tl.minimum(a, b, propagate_nan=tl.PropagateNan.ALL)
''',
    "product": '''
@triton.jit
def product(a, b):
    return a * b
''',
    "arg_max": '''
@triton.jit
def arg_max(a, a_index, b, b_index):
    """The larger value and its index: NaN is largest, of equals the first."""
    better = (a > b) | ((a != a) & (b == b))
    equal = (a == b) | ((a != a) & (b != b))
    take_a = better | (equal & (a_index < b_index))
    return tl.where(take_a, a, b), tl.where(take_a, a_index, b_index)
''',
    "arg_min": '''
@triton.jit
def arg_min(a, a_index, b, b_index):
    """The smaller value and its index: NaN is smallest, of equals the first."""
    better = (a < b) | ((a != a) & (b == b))
    equal = (a == b) | ((a != a) & (b != b))
    take_a = better | (equal & (a_index < b_index))
    return tl.where(take_a, a, b), tl.where(take_a, a_index, b_index)
''',
    "welford": '''
@triton.jit
def welford(a_mean, a_m2, a_count, b_mean, b_m2, b_count):
    """Mean, sum of squared deviations and count of two samples together (Chan, Golub and LeVeque 1979)."""
    delta = b_mean - a_mean
    count = a_count + b_count
    share = tl.where(count == 0.0, 0.0, b_count / count)
    return a_mean + delta * share, a_m2 + b_m2 + delta * delta * a_count * share, count
''',
    "welford_next": '''
@triton.jit
def welford_next(mean, m2, count, value, weight):
    """Mean, sum of squared deviations, and the number of tiles, with one more value of each lane: of weight 1, or 0
    where there is none, which is so in a last tile alone."""
    before = count
    count = count + 1.0
    share = 1.0 / count
    delta = value - mean
    step = delta * (share * weight)
    return mean + step, m2 + delta * step * before, count
''',
    "integer_floordiv": '''
@triton.jit
def integer_floordiv(a, b):
    """Quotient rounded down; `//` of Triton rounds towards zero."""
    quotient = a // b
    return tl.where(((a % b) != 0) & ((a < 0) != (b < 0)), quotient - 1, quotient)
''',
    "integer_mod": '''
@triton.jit
def integer_mod(a, b):
    """Remainder with the sign of the divisor; `%` of Triton has the dividend's."""
    remainder = a % b
    return tl.where((remainder != 0) & ((remainder < 0) != (b < 0)), remainder + b, remainder)
''',
    "integer_pow": '''
@triton.jit
def integer_pow(base, exponent):
    """`base` to an integer power, wrapping; a negative exponent gives 0, but for bases 1 and -1."""
    result = base * 0 + 1
    square = base
    left = tl.where(exponent < 0, 0, exponent)
    for _ in range(64):
        result = tl.where((left & 1) != 0, result * square, result)
        square = square * square
        left = left >> 1
    inverse = tl.where(base == 1, 1, tl.where(base == -1, 1 - 2 * (exponent & 1), 0)).to(result.dtype)
    return tl.where(exponent < 0, inverse, result)
''',
    "inverse_of_shared": '''
@triton.jit
def inverse_of_shared(b):
    """(scale, inverse of b * scale): b scaled, exactly, where its inverse is no normal number."""
    scale = tl.where(tl.abs(b) > 1.2676506002282294e30, 5.421010862427522e-20,
                     tl.where(tl.abs(b) < 7.888609052210118e-31, 1.8446744073709552e19, 1.0))
    return scale, tl.div_rn(1.0, b * scale)
''',
    "narrow_quotient": '''
@triton.jit
def narrow_quotient(a, b):
    """a / b for a result that is rounded to 16 bits or fewer, where many elements share b: off by two roundings."""
    scale, inverse = inverse_of_shared(b)
    return (a * scale) * inverse
''',
    "divided_by_shared": '''
@triton.jit
def divided_by_shared(a, b):
    """a / b, rounded once, where many elements share b: without the branch that a division takes for zeros.

    The quotient by the inverse is corrected by what it leaves (Markstein, 1990); of infinities, NaN and zeros nothing
    finite is left, and the quotient is right. What is left of an `a` below 1e-30 may be no normal number: the
    quotient's last bit may be wrong then.
    """
    scale, inverse = inverse_of_shared(b)
    scaled = a * scale
    quotient = scaled * inverse
    left = tl.fma(-1.0 * quotient, b * scale, scaled)
    some = (tl.abs(left) > 0.0) & (tl.abs(left) < float("inf"))
    return tl.where(some, tl.fma(left, inverse, quotient), quotient)
''',
    "to_float8_e4m3fn": '''
@triton.jit
def to_float8_e4m3fn(x):
    """float32 rounded to nearest; what is too large becomes NaN, as in torch, and not the largest number."""
    bits = x.to(tl.float8e4nv).to(tl.uint8, bitcast=True)
    return tl.where(tl.abs(x) <= 464.0, bits, 127).to(tl.float8e4nv, bitcast=True)
''',
    "to_float8_e5m2": '''
@triton.jit
def to_float8_e5m2(x):
    """float32 rounded to nearest; what is too large becomes infinite, as in torch, and not the largest number."""
    bits = x.to(tl.float8e5).to(tl.uint8, bitcast=True)
    bits = tl.where(x >= 61440.0, 124, bits)
    return tl.where(x <= -61440.0, 252, bits).to(tl.float8e5, bitcast=True)
''',
    "float_mod": '''
@triton.jit
def float_mod(a, b):
    """Remainder with the sign of the divisor."""
    remainder = libdevice.fmod(a, b)
    return tl.where((remainder != 0) & ((remainder < 0) != (b < 0)), remainder + b, remainder)
''',
    "float_floordiv": '''
@triton.jit
def float_floordiv(a, b):
    """Quotient rounded down, as torch: exact where a / b would round up to an integer."""
    remainder = libdevice.fmod(a, b)
    quotient = (a - remainder) / b
    quotient = tl.where((remainder != 0) & ((b < 0) != (remainder < 0)), quotient - 1.0, quotient)
    whole = libdevice.floor(quotient)
    whole = tl.where(quotient - whole > 0.5, whole + 1.0, whole)
    whole = tl.where(quotient == 0, libdevice.copysign(quotient * 0, a / b), whole)
    return tl.where(b == 0, a / b, whole)
''',
    "shift_left": '''
@triton.jit
def shift_left(a, b):
    """0 for a shift by the width or more, or by a negative number."""
    bits: tl.constexpr = a.dtype.primitive_bitwidth
    valid = (b >= 0) & (b < bits)
    return tl.where(valid, a << tl.where(valid, b, 0), 0)
''',
    "shift_right": '''
@triton.jit
def shift_right(a, b):
    """All sign bits for a shift by the width or more, or by a negative number."""
    bits: tl.constexpr = a.dtype.primitive_bitwidth
    valid = (b >= 0) & (b < bits)
    return a >> tl.where(valid, b, bits - 1)
''',
}

HEADER = """import triton
import triton.language as tl
from triton.language.extra import libdevice
"""


def helpers_used(text: str) -> list[str]:
    """Source of the helpers that `text` calls, and of those that they call: these come before them in the table."""
    found: list[str] = []
    for name, source in reversed(HELPERS.items()):
        if name in text and re.search(rf"\b{name}\b", text):
            found.append(source)
            text += source
    return found[::-1]
