"""Fits the tables of engine/codegen/cpp/float_tables.py: `python tests/engine/fit_pieces.py` prints them as they stand
there.

|x| falls into one of 32 pieces, four to each power of two from 1/16 to 16, by its exponent and the two bits below; the
first piece goes down to 0. Each has a centre near its middle where the function is, to a few thousandths of a unit, a
float itself (Gal's accurate tables, ACM TOMS 17, 1991), and the polynomial that interpolates (f(x) - f(centre)) /
(x - centre) at Chebyshev's points. In the first, the polynomial is that of f(x) - x, odd. All in double. The pieces of
erf_steps have one length, and their polynomials are as good as a sum with 1 needs.
"""
from __future__ import annotations

import math
import struct
from collections.abc import Callable, Sequence

PIECES = 32
STEP = 17 / 128  # a float, and from 30.5 of it on erf rounds to 1
Function = Callable[[float], float]


def as_float(x: float) -> float:
    """`x` rounded to 24 bits."""
    rounded: float = struct.unpack("f", struct.pack("f", x))[0]
    return rounded


def edge(k: int) -> float:
    """Where piece `k` starts."""
    return 0.0 if k == 0 else math.ldexp(1 + k % 4 / 4, k // 4 - 4)


def interpolated(points: Sequence[float], values: Sequence[float]) -> list[float]:
    """The coefficients of the polynomial through (points, values), of the power 0 first (Newton's differences)."""
    n, differences = len(points), list(values)
    for k in range(1, n):
        for i in range(n - 1, k - 1, -1):
            differences[i] = (differences[i] - differences[i - 1]) / (points[i] - points[i - k])
    found = [0.0] * n
    for k in range(n - 1, -1, -1):
        found = [(found[i - 1] if i else 0.0) - points[k] * found[i] for i in range(n)]
        found[0] += differences[k]
    return found


def chebyshev(low: float, high: float, n: int) -> list[float]:
    """The zeros of Chebyshev's polynomial of degree `n` between `low` and `high`."""
    return [(low + high) / 2 + (high - low) / 2 * math.cos(math.pi * (k + 0.5) / n) for k in range(n)]


def first_piece(f: Function, terms: int) -> list[float]:
    """Centre 0, value 0, and the odd powers of f(x) - x."""
    n = terms // 2
    squares = chebyshev(0.0, edge(1) ** 2, n)
    odd = interpolated(squares, [f(math.sqrt(s)) / math.sqrt(s) - 1 for s in squares])
    return [0.0, 0.0, *[odd[k // 2] if k % 2 == 0 else 0.0 for k in range(terms - 1)]]


def piece(f: Function, k: int, terms: int) -> list[float]:
    """The centre of piece `k`, and `terms` coefficients."""
    low, high = edge(k), edge(k + 1)
    tries = [as_float((low + high) / 2 + (high - low) * (i - 128) / 1024) for i in range(257)]
    centre = min(tries, key=lambda c: abs(f(c) - as_float(f(c))))
    points = chebyshev(low, high, terms - 1)
    beyond = [x - centre for x in points]
    return [centre, f(centre), *interpolated(beyond, [(f(x) - f(centre)) / y for x, y in zip(points, beyond)])]


def pieces(f: Function, terms: int) -> list[list[float]]:
    """Rows of the table: the centres, then each coefficient. Piece 0 stands where the bits of its floats point to."""
    columns = [first_piece(f, terms), *[piece(f, k, terms) for k in range(1, PIECES)]]
    at = (127 - 4) * 4 % PIECES
    return [[as_float(columns[(k - at) % PIECES][row]) for k in range(PIECES)] for row in range(terms + 1)]


def steps(f: Function, degree: int) -> list[list[float]]:
    """The coefficients of `degree` and less of polynomials around the multiples of STEP from 0 on; the last is 1."""
    beyond = chebyshev(-STEP / 2, STEP / 2, degree + 1)
    found = [interpolated(beyond, [f(k * STEP + y) for y in beyond]) for k in range(PIECES - 1)]
    found.append([1.0] + [0.0] * degree)
    return [[as_float(found[k][row]) for k in range(PIECES)] for row in range(degree + 1)]


def circle() -> list[list[float]]:
    """Sines of 32 angles around the circle, what rounding took from them, and cosines."""
    # The sine of pi/16, pi/8, 3 pi/16 by their roots: differences to a float are good to some 30 bits.
    exact = [math.sin(k * math.pi / 16) for k in range(9)]
    sines = [*exact, *exact[7::-1]]
    around = [*sines[:16], *[-s if s else 0.0 for s in sines[:16]]]
    rounded = [as_float(s) for s in around]
    lost = [as_float(s - r) for s, r in zip(around, rounded)]
    return [rounded, lost, [rounded[(k + 8) % PIECES] for k in range(PIECES)]]


def written(name: str, rows: Sequence[Sequence[float]]) -> str:
    """A table as C++, lines of at most 120 columns."""
    lines = [f"static const float {name}[{len(rows)}][{PIECES}] __attribute__((aligned(64))) = {{"]
    for row in rows:
        text = "{"
        for number in row:
            word = f"{number:.9g}, "
            if len(text) + len(word) > 118:
                lines.append(text.rstrip())
                text = " "
            text += word
        lines.append(f"{text.rstrip(', ')}}},")
    return "\n".join([*lines, "};"])


def tables() -> dict[str, str]:
    """All tables by name."""
    return {
        "tanh_pieces": written("tanh_pieces", pieces(math.tanh, 6)),
        "erf_pieces": written("erf_pieces", pieces(math.erf, 7)),
        "erf_steps": written("erf_steps", steps(math.erf, 4)),
        "circle": written("circle", circle()),
    }


if __name__ == "__main__":
    for name, text in tables().items():
        print(f'    "{name}": """\\\n{text}""",')
