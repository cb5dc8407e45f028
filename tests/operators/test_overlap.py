"""Whether elements of a tensor share memory, against counting where they lie."""
from __future__ import annotations

import itertools

import pytest
import sympy
import torch
from ptdebug.engine.ir.affine import contiguous_strides, stored_strides
from ptdebug.operators.overlap import overlapping, repeats


def _places(sizes, strides):
    return [sum(i * s for i, s in zip(at, strides)) for at in itertools.product(*map(range, sizes))]


def test_what_is_said_to_be_apart_is_apart():
    said = 0
    for sizes in itertools.product((0, 1, 2, 3), repeat=3):
        for strides in itertools.product((0, 1, 2, 3, 6), repeat=3):
            apart = not overlapping(sizes, strides)
            places = _places(sizes, strides)
            assert not apart or len(set(places)) == len(places), (sizes, strides)
            assert repeats(torch.empty(100).as_strided(sizes, strides)) is not apart
            said += apart
    assert said > 1000


def test_every_dense_layout_is_apart():
    for order in itertools.permutations(range(4)):
        tensor = torch.empty(2, 1, 3, 4).permute(order)
        assert not repeats(tensor) and not repeats(tensor[..., ::2])


@pytest.mark.parametrize("sizes, strides, expected", (
    ((sympy.Symbol("n"), 4), (0, 1), True),
    ((sympy.Symbol("n"), 4), (sympy.Symbol("s"), 1), False),
    ((sympy.Symbol("n"), 4, 2), (4, 1, 1), True),
    ((sympy.Symbol("n"), 0), (0, 1), False),
), ids=str)
def test_of_symbols_what_is_known(sizes, strides, expected):
    assert overlapping(sizes, strides) is expected
    assert stored_strides(sizes, strides) == (contiguous_strides(sizes) if expected else strides)
