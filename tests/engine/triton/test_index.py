"""Index expressions as Triton source."""
from __future__ import annotations

from types import SimpleNamespace

import pytest
import sympy
from ptdebug.engine.codegen.triton.index import index_text
from torch.utils._sympy.functions import FloatTrueDiv, FloorDiv, IntTrueDiv, PythonMod, ToFloat, TruncToInt

n, size = sympy.Symbol("n", integer=True), sympy.Symbol("size", integer=True, positive=True)


class _OfC(int):
    """A number whose quotients are rounded towards zero, as Triton's are."""

    def __add__(self, other: int) -> _OfC:
        return _OfC(int(self) + int(other))

    def __sub__(self, other: int) -> _OfC:
        return _OfC(int(self) - int(other))

    def __floordiv__(self, other: int) -> _OfC:
        return _OfC(abs(int(self)) // abs(int(other)) * (1 if (self < 0) == (other < 0) else -1))

    def __mod__(self, other: int) -> _OfC:
        return self - int(self // other) * int(other)


@pytest.mark.parametrize("number", range(-7, 8))
@pytest.mark.parametrize("divisor", (-3, 2, 3))
def test_quotients_and_remainders_of_any_sign_are_pythons(number, divisor):
    d = sympy.Integer(divisor)
    for expression, expected in ((FloorDiv(n, d), number // divisor), (PythonMod(n, d), number % divisor)):
        assert eval(index_text(expression), {"n": _OfC(number)}) == expected


def test_positions_take_one_division():
    assert index_text(FloorDiv(size, 4)) == "(size // 4)"


def test_quotients_that_a_program_rounds_itself_are_those_of_doubles():
    halves = FloatTrueDiv(IntTrueDiv(size, sympy.Integer(4)), sympy.Float(0.5))
    expression = TruncToInt(FloatTrueDiv(ToFloat(size * 3), halves))
    assert eval(index_text(expression, python=True), {"size": 5}) == int(15 / (5 / 4 / 0.5)) == 6
    tl = SimpleNamespace(cast=lambda value, dtype: dtype(value), float64=float, int64=int)
    assert eval(index_text(expression), {"size": 5, "tl": tl}) == 6
