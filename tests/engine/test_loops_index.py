"""The simplifier of index expressions: equal to plain integer arithmetic, and as simple as views need."""
from __future__ import annotations

import itertools

import sympy
from hypothesis import given, settings, strategies as st
from ptdebug.engine.ir.affine import Linear, axis, axis_symbol, constant, recombine, size
from ptdebug.engine.ir.body_affine import coefficient, form_of
from ptdebug.engine.ir.interpreter import evaluate
from ptdebug.engine.ir.ir import Axis
from torch.utils._sympy.functions import FloorDiv, Mod

EXTENTS = {"i0": 4, "i1": 6, "i2": 5}


@st.composite
def forms(draw, depth=3):
    """A Linear over i0, i1, i2 and the Python function that it stands for."""
    kind = draw(st.sampled_from(("axis", "constant"))) if depth == 0 else draw(
        st.sampled_from(("axis", "sum", "scaled", "div", "mod")))
    if kind == "axis":
        name = draw(st.sampled_from(sorted(EXTENTS)))
        return axis(name, EXTENTS[name]), lambda env: env[name]
    if kind == "constant":
        value = draw(st.integers(0, 20))
        return constant(value), lambda env: value
    a, f = draw(forms(depth - 1))
    if kind == "sum":
        b, g = draw(forms(depth - 1))
        return a + b, lambda env: f(env) + g(env)
    n = draw(st.sampled_from((1, 2, 3, 4, 5, 6, 8, 12, 24)))
    if kind == "scaled":
        return a * n, lambda env: f(env) * n
    if kind == "div":
        return a // n, lambda env: f(env) // n
    return a % n, lambda env: f(env) % n


@settings(max_examples=300, deadline=None)
@given(forms())
def test_simplified_forms_have_the_same_values_and_lie_within_their_bounds(pair):
    form, function = pair
    low, high = form.bounds
    expression = form.expr
    for point in itertools.product(*map(range, EXTENTS.values())):
        env = dict(zip(EXTENTS, point))
        value = function(env)
        assert evaluate(expression, {axis_symbol(n): v for n, v in env.items()}) == value
        assert low <= value <= high


def test_what_views_of_views_make():
    i, r = axis("i0", 64), axis("r0", 1024)
    assert (i * 1024 + r) // 1024 == i
    assert (i * 1024 + r) % 1024 == r
    assert (i * 64 + axis("i2", 64)) // 128 == i // 2
    assert (i // 4) // 4 == i // 16
    assert (i % 16) % 4 == i % 4
    assert recombine((i // 32) * 32 + ((i // 8) % 4) * 8 + i % 8) == i
    assert axis("i3", 1) == constant(0)


def test_symbolic_extents():
    s, t = sympy.symbols("s0 s1", integer=True, positive=True)
    i, j, k = axis("i0", s), axis("i1", t), axis("i2", 64)
    assert (i * t + j) // t == i
    assert (i * t + j) % t == j
    assert (i * size(t * 64) + j * 64 + k) // 64 == i * t + j
    assert ((i * t + j) * 64 + k) % 64 == k
    assert isinstance(i // t, Linear)


def test_quotients_of_sizes_are_factors():
    s0, row = sympy.Symbol("s0", integer=True, positive=True), axis_symbol("r0")
    for apart in (FloorDiv(s0, 16), Mod(s0, 16)):
        form = form_of(1024 * row * apart + row + apart, (Axis(row, sympy.Integer(16)),))
        assert coefficient(form, row) == 1024 * apart + 1 and form.const == apart
