"""Our own rules and those for lists of tensors, each against the operator that it takes apart."""
from __future__ import annotations

import pytest
import torch
from ptdebug.engine.aot.decompositions import OWN, rule_for
from torch.testing import assert_close

aten = torch.ops.aten
X = torch.randn(3, 4)
TIES = torch.tensor([1.0, 2, 2, float("nan"), 0, -1]).repeat(2, 3, 4, 1)
PLACES = aten.adaptive_max_pool2d(TIES, [2, 3])[1]


def name_of(value: object) -> str:
    """The name of a test's operator; the random tensors of its arguments would differ between processes."""
    return str(value) if isinstance(value, torch._ops.OpOverload) else ""


FOREACH = (
    (aten._foreach_add.Scalar, (2.5,), {}),
    (aten._foreach_add.List, ("list",), {"alpha": 0.5}),
    (aten._foreach_mul.ScalarList, ([1.0, 2.0],), {}),
    (aten._foreach_mul.Tensor, (torch.tensor(3.0),), {}),
    (aten._foreach_addcmul.Scalar, ("list", "list", 0.3), {}),
    (aten._foreach_addcdiv.ScalarList, ("list", "list", [0.1, 0.2]), {}),
    (aten._foreach_lerp.Scalar, ("list", 0.3), {}),
    (aten._foreach_lerp.List, ("list", "list"), {}),
    (aten._foreach_norm.Scalar, (2,), {}),
    (aten._foreach_maximum.List, ("list",), {}),
    (aten._foreach_minimum.Scalar, (0.1,), {}),
    (aten._foreach_clamp_min.Scalar, (0.1,), {}),
    (aten._foreach_pow.Scalar, (2,), {}),
    (aten._foreach_sqrt.default, (), {}),
    (aten._foreach_zero.default, (), {}),
    (aten._foreach_copy.default, ("list",), {}),
    (aten._foreach_max.default, (), {}),
)


@pytest.mark.parametrize(("operator", "args", "kwargs"), FOREACH, ids=[str(o) for o, _, _ in FOREACH])
def test_lists_of_tensors_are_taken_apart(operator, args, kwargs):
    torch.manual_seed(0)
    lists = [[torch.rand(3), torch.rand(2, 2)] for _ in range(1 + args.count("list"))]
    rest = iter(lists[1:])
    filled = [next(rest) if isinstance(a, str) else a for a in args]
    made = rule_for(operator)(lists[0], *filled, **kwargs)
    expected = operator(lists[0], *filled, **kwargs)
    for one, other in zip(made, expected, strict=True):
        assert_close(one, other)


def test_numbers_in_a_tensor_and_operators_that_write_are_left_alone():
    assert rule_for(aten._foreach_addcmul.Tensor) is None
    assert rule_for(aten._foreach_add_.Scalar) is None


@pytest.mark.parametrize(("operator", "args", "kwargs"), (
    (aten.take.default, (X, torch.tensor([[3, -1], [0, 11]])), {}),
    (aten.take.default, (X, torch.tensor(5)), {}),
    (aten.scatter_reduce.two, (X, 1, torch.tensor([[0, 0, 3]]), torch.ones(1, 3), "sum"), {}),
    (aten.logical_and.default, (X, torch.tensor([True, False, True, True])), {}),
    (aten.logical_or.default, (X * 0, X), {}),
    (aten.logical_xor.default, (torch.tensor([0, 2, 0, 1]), X), {}),
    (aten.pow.Tensor_Scalar, (X > 0, True), {}),
    (aten.pow.Tensor_Scalar, (X > 0, False), {}),
    (aten.round.decimals, (X * 100,), {"decimals": 1}),
    (aten.round.decimals, (X * 100,), {"decimals": -1}),
    (aten.angle.default, (torch.tensor([1.0, -2.0, float("nan"), -0.0]),), {}),
    (aten._adaptive_avg_pool2d.default, (torch.randn(2, 3, 4, 6), [2, 3]), {}),
    (aten._adaptive_avg_pool3d.default, (torch.randn(2, 4, 4, 6), [2, 1, 3]), {}),
    (aten._adaptive_avg_pool2d.default, (torch.randn(2, 12, 14), [1, 2]), {}),
    (aten._adaptive_avg_pool2d.default, (torch.randn(2, 3, 4, 6), [4, 6]), {}),
    (aten.adaptive_max_pool2d.default, (TIES, [2, 3]), {}),
    (aten.adaptive_max_pool3d.default, (TIES, [3, 2, 3]), {}),
    (aten.adaptive_max_pool2d_backward.default, (torch.randn(2, 3, 2, 3), TIES, PLACES), {}),
    (aten._adaptive_avg_pool2d_backward.default, (torch.randn(2, 3, 2, 3), torch.randn(2, 3, 4, 6)), {}),
    (aten._adaptive_avg_pool3d_backward.default, (torch.randn(2, 2, 1, 3), torch.randn(2, 4, 4, 6)), {}),
    (aten.upsample_nearest2d_backward.default, (torch.randn(1, 2, 6, 8), [6, 8], [1, 2, 3, 4], 2.0, 2.0), {}),
    (aten.upsample_nearest1d_backward.default, (torch.randn(1, 2, 6), [6], [1, 2, 2], None), {}),
    (aten.upsample_nearest2d.default, (torch.randn(2, 3, 5, 7), [10, 28], None, 4.0), {}),
    (aten.upsample_nearest2d.default, (torch.randn(2, 3, 5, 7), [5, 14], None, None), {}),
    (aten.upsample_nearest2d.default, (torch.randn(2, 1, 2, 3), [2, 24], None, 8.0), {}),
    (aten.upsample_nearest2d.default, (torch.randn(1, 2, 4, 5), [8, 10], 2.1, 2.0), {}),
    (aten.upsample_nearest2d.default, (torch.randn(1, 2, 4, 5), [12, 10], None, None), {}),
    (aten.upsample_nearest2d.default, (torch.randn(2, 4, 5, 6).to(memory_format=torch.channels_last), [10, 12]), {}),
    (aten.upsample_nearest3d.default, (torch.randn(2, 2, 3, 2, 5), [6, 8, 5], None, None, None), {}),
), ids=name_of)
def test_our_own_rules_say_what_the_operator_does(operator, args, kwargs):
    made, expected = OWN[operator](*args, **kwargs), operator(*args, **kwargs)
    assert_close(made, expected, equal_nan=True)
    for one, other in zip(*[x if isinstance(x, tuple) else (x,) for x in (made, expected)]):
        assert one.stride() == other.stride()


@pytest.mark.parametrize(("operator", "args", "kwargs"), (
    (aten.pow.Tensor_Scalar, (X, 2), {}),
    (aten.scatter_reduce.two, (X, 1, torch.tensor([[0]]), torch.ones(1, 1), "prod"), {}),
    (aten.round.decimals, (X.half(),), {"decimals": 1}),
    (aten.angle.default, (X.to(torch.complex64),), {}),
    (aten._adaptive_avg_pool2d.default, (torch.randn(2, 3, 5, 6), [2, 3]), {}),
    (aten.adaptive_max_pool2d.default, (torch.randn(2, 3, 5, 6), [2, 3]), {}),
    (aten.adaptive_max_pool2d.default, (torch.randn(2, 3, 12, 12), [2, 1]), {}),
    (aten.upsample_bicubic2d.default, (torch.randn(2, 3, 5, 6), [10, 7], False, None, None), {}),
    (aten.upsample_nearest2d_backward.default, (torch.randn(1, 2, 7, 8), [7, 8], [1, 2, 3, 4], None, None), {}),
), ids=name_of)
def test_what_a_rule_does_not_cover_is_left(operator, args, kwargs):
    assert OWN[operator](*args, **kwargs) is NotImplemented
