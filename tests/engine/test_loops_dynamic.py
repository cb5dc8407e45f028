"""Sizes that are symbols: one program for every size."""
from __future__ import annotations

import ptdebug
import pytest
import sympy
import torch
import torch.nn.functional as F
from ptdebug.engine.lowering.lazy_tensors import loop_index
from torch.utils._sympy.functions import FloorDiv

from .cpp_checking import check as compiled
from .loops_checking import bodies, check

PROGRAMS = {
    "pointwise": (lambda x: x.relu() * 2 + 1, (4, 6), (7, 6)),
    "all_dims": (lambda x: x.t() + 1, (4, 6), (5, 9)),
    "flatten": (lambda x: x.reshape(-1).sin(), (4, 6), (3, 8)),
    "merge": (lambda x: (x * 2).view(x.shape[0] * x.shape[1], x.shape[2]).relu(), (4, 6, 5), (3, 8, 2)),
    "heads": (lambda x: (x + 1).view(*x.shape[:2], 2, 4).transpose(1, 2).contiguous() * 2, (3, 5, 8), (2, 7, 8)),
    "unmerge": (lambda x: (x + 1).view(x.shape[0], 2, x.shape[1] // 2).sum(1), (4, 6), (3, 8)),
    "repeated_sums": (lambda x: x.repeat(2, 3).sum(1), (4, 6), (3, 9)),
    "softmax": (lambda x: F.softmax(x * 0.5, -1), (4, 6), (3, 9)),
    "layer_norm": (lambda x: F.layer_norm(x, (x.shape[-1],)), (4, 6), (3, 9)),
    "mean": (lambda x: x.mean(1), (4, 6), (3, 9)),
    "var": (lambda x: x.var(1), (4, 6), (3, 9)),
    "slice": (lambda x: x[:, 1:] + x[:, :-1], (4, 6), (3, 9)),
    "last": (lambda x: x[-1] * x.shape[0], (4, 6), (3, 6)),
    "cat": (lambda x: torch.cat([x, x * 2, x[:, :2]], 1), (4, 6), (3, 9)),
    "pad": (lambda x: F.pad(x, (1, 2)), (4, 6), (3, 9)),
    "arange": (lambda x: torch.arange(x.shape[1]) + x, (4, 6), (3, 9)),
    "mask": (lambda x: x.masked_fill(torch.ones(x.shape[0], x.shape[0]).triu(1).bool(), 0.0), (4, 4), (7, 7)),
    "flip": (lambda x: x.flip(1), (4, 6), (3, 9)),
    "roll": (lambda x: (x.roll(-2, 1), x.roll(13, 1), x.roll(5), x.roll((2, 3), (0, 1))), (4, 6), (3, 9)),
    "half": (lambda x: (x.roll(x.shape[1] // 2, 1), x.roll(x.shape[0] - x.shape[1])), (4, 6), (3, 9)),
    "repeat": (lambda x: x.repeat(2, 3), (4, 6), (3, 9)),
    "expand": (lambda x: x[:, None].expand(-1, 3, -1) * 2, (4, 6), (3, 9)),
    "split": (lambda x: x.split(3, 1)[0] + x.shape[0], (4, 6), (5, 6)),
    "argmax": (lambda x: x.argmax(1), (4, 6), (3, 9)),
    "quotients": (lambda x: x * (x.shape[1] // -3) + x.shape[0] % -3 - (1 - x.shape[0]) // x.shape[1], (4, 6), (3, 8)),
    "float_quotients": (lambda x: (x * 2).view(torch.sym_int(x.shape[0] / (x.shape[1] / 2)), -1) + 1, (6, 4), (9, 6)),
    "rows": (lambda x: x[torch.arange(x.shape[0])], (4, 6), (3, 9)),
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_program_for_every_size(name):
    program, first, second = PROGRAMS[name]
    externs = None if name == "split" else 0
    check(program, torch.randn(first), dynamic=True, again=(torch.randn(second),), externs=externs)


def test_strides_that_divide_by_quotients_sort():
    s = sympy.Symbol("s", integer=True, positive=True)
    stride = FloorDiv(64, s) * FloorDiv(64, FloorDiv(64, s))
    axes, _ = loop_index((3, 5), (1, stride))
    assert axes == [("i0", 5), ("i1", 3)]


def test_symbols_are_found_in_the_inputs():
    program = check(lambda x, y: x @ y.t(), torch.randn(4, 6), torch.randn(5, 6), dynamic=True, externs=1,
                    again=(torch.randn(3, 7), torch.randn(8, 7)))
    assert {(kind, dim) for _, kind, dim in program.symbols.values()} <= {("size", 0), ("size", 1), ("stride", 0)}


def test_heads_need_no_division_when_sizes_are_symbols():
    def program(x):
        y = (x * 2).view(x.shape[0], x.shape[1], 2, 4).transpose(1, 2)
        return y.transpose(1, 2).reshape(x.shape[0], x.shape[1], 8) + 1

    for body in bodies(check(program, torch.randn(3, 5, 8), dynamic=True, again=(torch.randn(2, 9, 8),))):
        assert "//" not in str(body) and "Mod" not in str(body)


def test_repeats_need_no_remainder_when_sizes_are_symbols():
    made = check(lambda x: x.repeat(2, 3), torch.randn(4, 6), dynamic=True, again=(torch.randn(3, 9),))
    assert "Mod" not in str(bodies(made)[0]) and len(bodies(made)[0].axes) == 4


def test_remainders_of_rolls_are_computed_once_a_row():
    x, more = torch.randn(6, 4), torch.randn(3, 9)
    made = compiled(lambda x: x.roll((5, -7), (0, 1)), x, again=(more,))
    code = made.source.text.partition("// buf")[2]
    before, inside = code.split("#pragma omp simd")
    assert "floor_remainder" in before and "floor_remainder" not in inside.partition("return")[0]


def test_numbers_of_views_that_vary_fit_whatever_they_are_products_of():
    def program(x, heads, width):
        return x.view(x.shape[0], -1, heads, width).transpose(1, 2) * 2

    compiled, x = ptdebug.compile(program), torch.arange(72.0).view(3, 24)
    before = len(ptdebug.stats()["reasons"])
    for heads, width in ((2, 6), (3, 4), (4, 3), (6, 2)):
        assert torch.equal(compiled(x, heads, width), program(x, heads, width))
    assert len(ptdebug.stats()["reasons"]) == before + 1  # the recompilation, and nothing that runs in eager
