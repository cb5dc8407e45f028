"""Dtypes that eager's kernels refuse and fake tensors promise: the graph runs in eager, which raises."""
from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from ptdebug.operators import probing
from torch._subclasses.fake_tensor import FakeTensorMode

from ..engine.training.checking import compile

aten = torch.ops.aten


@pytest.mark.parametrize(("function", "dtype"), (
    (F.silu, torch.int64), (F.softplus, torch.int32), (lambda x: F.softmax(x, 0), torch.int64),
    (lambda x: torch.lerp(x, x, 0.5), torch.int64), (torch.floor, torch.bool), (lambda x: x - 1, torch.bool),
    (torch.argmax, torch.bool), (lambda x: F.interpolate(x[None, None], scale_factor=2), torch.int64),
    (torch.special.log_ndtr, torch.bfloat16), (lambda x: F.relu(x.clone()), torch.bool),
), ids=("silu", "softplus", "softmax", "lerp", "floor", "sub", "argmax", "interpolate", "log_ndtr", "relu"))
def test_what_eager_refuses_for_its_dtype_is_raised(function, dtype):
    x = torch.ones(3, 3).to(dtype)
    with pytest.raises(Exception) as eager:
        function(x)
    with pytest.raises(type(eager.value), match=r"not implemented for|[Bb]ool"):
        compile(function)(x)


@pytest.mark.parametrize(("function", "dtype"), (
    (lambda x: x.masked_fill(x > 0, -1e9), torch.float16), (lambda x: torch.full_like(x, 300), torch.uint8),
    (lambda x: x.masked_fill(x > 0, -1e300), torch.float32), (lambda x: x.clone().fill_(2**40), torch.int32),
    (lambda x: x.clamp(max=300), torch.int8), (lambda x: x.index_fill(0, x[0].long(), 1e10), torch.float16),
), ids=("masked_fill", "full_like", "masked_fill float32", "fill_", "clamp", "index_fill"))
def test_numbers_that_a_dtype_does_not_hold_are_raised_where_eager_raises(function, dtype):
    x = torch.ones(3, 3).to(dtype)
    with pytest.raises(RuntimeError, match="cannot be converted to type"):
        compile(function)(x)


def test_numbers_that_wrap_around_in_eager_are_compiled():
    def program(x):
        return x + 300, x.masked_fill(x > 2, -1), x.eq(257), x * 2.5

    x = torch.arange(5, dtype=torch.uint8)
    compiled = compile(program)
    for one, other in zip(compiled(x), program(x), strict=True):
        assert torch.equal(one, other)
    assert not compiled.fallbacks


def test_what_eager_takes_is_compiled_and_asked_once():
    def program(x, mask):
        return (x * 2 + mask).sum(), x // 3, x[mask.long()], torch.where(mask, x, -1), x.bfloat16().exp()

    inputs = torch.arange(12).reshape(3, 4), torch.tensor([True, False, True, True])
    compiled = compile(program)
    for one, other in zip(compiled(*inputs), program(*inputs), strict=True):
        assert torch.equal(one, other)
    assert not compiled.fallbacks
    asked = dict(probing._refusals)
    compile(lambda *given: program(*given))(*inputs)
    assert probing._refusals == asked


def test_asking_draws_no_random_numbers_and_makes_nothing_large():
    state = torch.get_rng_state()
    with FakeTensorMode():
        large, whole = torch.ones(1 << 20, 1 << 20, dtype=torch.bfloat16), torch.ones(3, dtype=torch.int64)
        assert not probing.refused(aten.bernoulli.default, (whole,), {})
        assert not probing.refused(aten.exp.default, (large,), {})
        assert not probing.refused(aten.full.default, ([1 << 20, 1 << 20], 1), {"dtype": torch.int64})
        assert probing.refused(aten.silu.default, (whole,), {}).startswith("aten.silu.default raises in eager")
    assert torch.equal(torch.get_rng_state(), state)
