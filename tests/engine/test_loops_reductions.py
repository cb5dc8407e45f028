"""Reductions, normalizations and softmax against eager; variance by both of its methods."""
from __future__ import annotations

import math

import pytest
import torch
import torch.nn.functional as F

from .loops_checking import bodies, check, operations

DTYPES = (torch.int64, torch.int8, torch.uint8, torch.bool, torch.bfloat16, torch.float16, torch.float64)
SHAPES = [(2, 3, 4), (1, 5), (4, 1, 3), (7,), ()]
REDUCTIONS = {
    "sum": torch.sum, "mean": torch.mean, "amax": torch.amax, "amin": torch.amin, "any": torch.any, "all": torch.all,
    "prod": torch.prod, "argmax": torch.argmax, "argmin": torch.argmin, "max": torch.max, "min": torch.min,
    "var": torch.var, "std": torch.std, "var_mean": torch.var_mean, "logsumexp": torch.logsumexp,
    "softmax": lambda x, d, keepdim=False: torch.softmax(x, d),
    "log_softmax": lambda x, d, keepdim=False: torch.log_softmax(x, d),
}


@pytest.mark.filterwarnings("ignore:.*degrees of freedom")
@pytest.mark.parametrize("keepdim", (False, True))
@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("name", REDUCTIONS)
def test_over_one_dimension(name, shape, keepdim):
    x = torch.randn(shape)
    for dim in range(len(shape)) or (0,):
        check(_over(name, dim, keepdim), x, externs=None)


def _over(name, dim, keepdim):
    return lambda x: REDUCTIONS[name](x, dim, keepdim=keepdim)


@pytest.mark.parametrize("name", ("sum", "mean", "amax", "amin", "var", "any", "all"))
@pytest.mark.parametrize("dims", ((0, 2), (1, 2), (-1, 0), (0, 1, 2)), ids=str)
def test_over_several_dimensions(name, dims):
    check(lambda x: REDUCTIONS[name](x, dims), torch.randn(3, 4, 5))
    check(lambda x: REDUCTIONS[name](x.exp(), dims, keepdim=True), torch.randn(3, 4, 5))


@pytest.mark.parametrize("name", ("sum", "mean", "amax", "var", "any", "prod", "norm"))
def test_what_lies_across_is_gone_through_along_memory(name):
    function = {**REDUCTIONS, "norm": torch.norm}[name]
    for x in (torch.randn(4, 3).t(), torch.randn(3, 5, 4).permute(2, 0, 1)[:, 1:]):
        for body in bodies(check(lambda x: function(x), x)):
            loads = [s.index for s in body.statements if s.op == "load" and body.reduction_axes and s.index.args]
            assert all(load.coeff(body.reduction_axes[-1].symbol) == 1 for load in loads)
        check(lambda x: function(x), x, dynamic=True)


@pytest.mark.parametrize("name", ("sum", "mean", "max", "min", "argmax", "argmin", "any", "all", "prod", "var", "std"))
def test_over_everything(name):
    check(REDUCTIONS[name], torch.randn(3, 4), externs=None)
    check(lambda x: REDUCTIONS[name](x.t() * 2), torch.randn(3, 4), externs=None)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("name", ("sum", "amax", "argmax", "max", "min", "any", "all", "prod"))
def test_dtypes(name, dtype):
    if name == "argmax" and dtype is torch.bool:
        pytest.skip("eager refuses it")
    x = torch.tensor([[0, 1, 3, 2, 3], [1, 1, 0, 5, 1]]).to(dtype)
    check(lambda x: REDUCTIONS[name](x, 1), x)


@pytest.mark.parametrize("name", ("amax", "amin", "max", "min", "argmax", "argmin", "sum"))
def test_nan_and_ties(name):
    nan = float("nan")
    x = torch.tensor([[1.0, nan, 3.0, nan], [2.0, 5.0, 5.0, -1.0], [-1.0, -1.0, 0.0, -0.0]])
    check(lambda x: REDUCTIONS[name](x, 1), x)


@pytest.mark.parametrize("name", ("sum", "mean", "prod", "any", "all", "var"))
@pytest.mark.filterwarnings("ignore:.*degrees of freedom")
def test_over_nothing(name):
    check(lambda x: REDUCTIONS[name](x, 1), torch.randn(3, 0))
    check(lambda x: REDUCTIONS[name](x, 0), torch.randn(0, 3))
    check(lambda x: REDUCTIONS[name](x, 1), torch.randn(0, 3))


@pytest.mark.parametrize("method", ("two-pass", "welford"))
@pytest.mark.parametrize("correction", (0, 1, 2))
def test_variance_by_each_method(method, correction):
    x = torch.randn(6, 50) * 3 + 1000
    program = check(lambda x: torch.var_mean(x, 1, correction=correction), x,
                    overrides={"variance:*": method}, rtol=1e-4, atol=1e-6)
    assert any(s.mode == "welford" for b in bodies(program) for s in b.statements) == (method == "welford")


@pytest.mark.parametrize("dtype", (torch.float32, torch.bfloat16, torch.float64), ids=str)
@pytest.mark.parametrize("method", ("two-pass", "welford"))
def test_layer_norm(dtype, method):
    x, w, b = torch.randn(2, 5, 16, dtype=dtype), torch.randn(16, dtype=dtype), torch.randn(16, dtype=dtype)
    tolerance = {"rtol": 2e-2, "atol": 2e-2} if dtype is torch.bfloat16 else {}
    overrides = {"variance:*": method}
    check(lambda x, w, b: F.layer_norm(x, (16,), w, b), x, w, b, overrides=overrides, **tolerance)
    check(lambda x: F.layer_norm(x * 2 + 1, (5, 16)), x, overrides=overrides, **tolerance)
    check(lambda x, w: torch.ops.aten.native_layer_norm(x, [16], w, None, 1e-5), x, w, overrides=overrides, **tolerance)


@pytest.mark.parametrize("affine", (True, False))
def test_group_norm(affine):
    x, w = torch.randn(2, 6, 3, 4), torch.randn(6)
    check(lambda x, w: F.group_norm(x, 3, w if affine else None, w if affine else None), x, w)
    check(lambda x, w: F.group_norm(x.relu(), 2).sigmoid(), x, w)


@pytest.mark.parametrize("layout", (torch.contiguous_format, torch.channels_last), ids=str)
def test_batch_norm_in_evaluation(layout):
    x, m, v, w, b = (torch.randn(2, 6, 3, 4).to(memory_format=layout), torch.randn(6), torch.rand(6), torch.randn(6),
                     torch.randn(6))
    check(lambda x, m, v, w, b: F.batch_norm(x, m, v, w, b).relu(), x, m, v, w, b)
    check(lambda x, m, v: F.batch_norm(x, m, v), x, m, v)


@pytest.mark.parametrize("dim", (0, 1, 2, -1))
@pytest.mark.parametrize("dtype", (torch.float32, torch.bfloat16), ids=str)
def test_softmax(dim, dtype):
    x = torch.randn(3, 4, 5, dtype=dtype)
    tolerance = {"rtol": 2e-2, "atol": 1e-2} if dtype is torch.bfloat16 else {}
    check(lambda x: torch.softmax(x * 0.3, dim), x, **tolerance)
    check(lambda x: torch.log_softmax(x.permute(1, 0, 2), dim), x, **tolerance)


@pytest.mark.parametrize("order", (0, 1, 2, float("inf"), float("-inf"), 3, -0.5))
@pytest.mark.parametrize("dtype", (torch.float32, torch.bfloat16), ids=str)
def test_vector_norm(order, dtype):
    x = torch.randn(3, 4, 5, dtype=dtype)
    check(lambda x: torch.linalg.vector_norm(x, order, dim=(0, 2), keepdim=True), x)


def test_softmax_of_masked_rows_is_nan_as_in_eager():
    x = torch.randn(3, 4)
    x[1] = float("-inf")
    check(lambda x: torch.softmax(x, -1), x)
    check(lambda x: torch.log_softmax(x, -1), x)


@pytest.mark.parametrize("name", ("max", "min"))
@pytest.mark.parametrize("dtype", (torch.float32, torch.uint8, torch.bool))
def test_an_extreme_whose_place_nobody_asks_for_looks_for_none(name, dtype):
    x = (torch.randn(5, 33) * 2).to(dtype)
    value = check(lambda x: getattr(x, name)(-1).values, x, externs=None)
    place = check(lambda x: getattr(x, name)(-1)[1], x, externs=None)
    assert operations(value).count("reduce") == 1 and operations(place).count("reduce") == 2


def test_a_pointwise_producer_is_computed_inside_its_only_reduction():
    program = check(lambda x: (x.exp() * 2).sum(1), torch.randn(4, 5))
    assert len(bodies(program)) == 1
    assert operations(program).count("exp") == 1


def test_a_costly_value_read_by_two_reductions_is_stored():
    program = check(lambda x: (x.exp().sum(1), x.exp().amax(1)), torch.randn(4, 5))
    assert operations(program).count("exp") == 2  # two nodes: common subexpressions are a pass's business

    def shared(x):
        y = (x.exp() + x).tanh()
        return y.sum(1), y.amax(1)

    program = check(shared, torch.randn(4, 5))
    assert operations(program).count("tanh") == 1
    inlined = check(shared, torch.randn(4, 5), overrides={"realize:*": "inline"})
    assert operations(inlined).count("tanh") == 2


def test_a_value_whose_uses_meet_in_one_body_is_not_stored():
    program = check(lambda x: (lambda y: y * y.sigmoid() + y.tanh())(x.exp()), torch.randn(4, 5))
    assert len(bodies(program)) == 1
    assert operations(program).count("exp") == 1


@pytest.mark.parametrize("stored, parts", [
    (0, lambda y: (y[..., 0], y[..., 1:3].sum(-1), y[..., -1].amax(0))),
    (0, lambda y: y.split([1, 2, 1], -1)),
    (0, lambda y: y.unbind(-1)[::3]),
    (1, lambda y: (y[..., :2], y[..., 1:3].sum(-1))),
    (1, lambda y: (y[..., 0], y[0])),
    (1, lambda y: (y[..., 0].sum(), y[..., 0].amax(0), y[..., 1])),
])  # fmt: skip
def test_a_value_of_which_each_reader_has_a_part_of_its_own_is_not_stored(stored, parts):
    def function(x):
        return tuple(part * 2 for part in parts((x.exp() + x).tanh().sin()))

    program = check(function, torch.randn(5, 6, 4))
    whole = [b for b in bodies(program) if any(s.op == "sin" for s in b.statements) and not b.reduction_axes
             and math.prod(a.extent for a in b.axes) == 120]  # fmt: skip
    assert len(whole) == stored


@pytest.mark.parametrize("reduce", (torch.any, torch.all), ids=("any", "all"))
def test_no_dimensions_are_none_for_truth(reduce):
    check(lambda x: (reduce(x, dim=()), reduce(x, dim=(), keepdim=True), x.sum(dim=())), torch.eye(2))
