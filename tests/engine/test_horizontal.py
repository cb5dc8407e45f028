"""Horizontal fusion: independent loop nests of one form are one kernel, and leave what they leave alone."""
from __future__ import annotations

import copy
import itertools
import random
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import ptdebug
import pytest
import torch
from ptdebug.artifacts.context import CompileContext
from ptdebug.engine.ir import interpreter
from ptdebug.engine.ir.ir import Foreach
from ptdebug.engine.ir.verifier import VerifyError, verify
from ptdebug.engine.lowering import lower
from ptdebug.engine.scheduler import ScheduledPlan, schedule
from ptdebug.engine.scheduler.in_place import renamed
from torch.fx.experimental.proxy_tensor import make_fx

from .cpp_checking import Built, check

SIZES = ((300, 401), (7,), (64, 5), (3, 4, 5), (9,), (130_000,))


def tensors(sizes=SIZES, dtype=torch.float32):
    generator = torch.Generator().manual_seed(0)
    return [torch.randn(size, generator=generator).to(dtype) for size in sizes]


def decay(*xs):
    return [torch.sqrt(x * x + 1) * 0.5 - x for x in xs]


def kernels(made: Built) -> list[int]:
    """The members of each kernel, 1 for an ordinary one."""
    return [len(g.members) if isinstance(g, Foreach) else 1 for g in made.groups]


def planned(function: Callable[..., Any], *inputs: Any, dynamic: bool = False, **settings: Any) -> ScheduledPlan:
    context = CompileContext(**settings)
    module = make_fx(function, tracing_mode="symbolic" if dynamic else "fake")(*inputs)
    return schedule(lower(module, context), context)


def test_one_text_for_all_sizes():
    made = check(decay, *tensors())
    assert kernels(made) == [len(SIZES)]
    assert sum("_sqrtf" in line.text and line.origins != () for line in made.source.lines) == 1


def test_the_plan_is_well_formed_and_is_run_by_the_interpreter():
    inputs = tensors()
    plan = planned(decay, *inputs)
    verify(plan)
    torch.testing.assert_close(list(interpreter.run_plan(plan, inputs)), decay(*inputs))


def test_members_that_meet_are_no_plan():
    plan = planned(decay, *tensors())
    foreach = plan.items[0]
    first, second = foreach.members[:2]
    meeting = renamed(second.group, {second.group.bodies[0].writes[0]: first.group.bodies[0].writes[0]})
    members = (first, replace(second, group=meeting), *foreach.members[2:])
    bodies = tuple(b for m in members for b in m.group.bodies)
    with pytest.raises(VerifyError, match="conflicts with another member"):
        verify(replace(plan, items=(replace(foreach, members=members, bodies=bodies),)))


def test_numbers_and_empty_tensors_stay_apart():
    made = check(decay, *tensors(((), (0, 3), *SIZES[:5], (1,), (), (1, 1), (2, 0))))
    assert sorted(kernels(made)) == [4, 5]


def test_strides_are_data_too():
    def strided(*xs):
        return [x[:, ::2] * 2 + 1 for x in xs]

    made = check(strided, *tensors(((40, 31), (6, 9), (5, 51), (300, 701), (11, 13))))
    assert kernels(made) == [5]


def test_transposed_and_contiguous_ones_are_different_forms():
    def add(*pairs):
        turned = [x + y.t() for x, y in zip(pairs[:8:2], pairs[1:8:2])]
        return turned + [x + y for x, y in itertools.pairwise(pairs[8:])]

    sizes = [s for n in (3, 9, 20, 33) for s in ((n, 2 * n), (2 * n, n))]
    made = check(add, *tensors([*sizes, *[(4, 5)] * 8]), overrides={"fuse:*": "separate"})
    assert sorted(kernels(made)) == [4, 7]


def test_each_dtype_has_its_kernel():
    xs = [x for dtype in (torch.float32, torch.float64, torch.bfloat16) for x in tensors(SIZES[1:], dtype)]
    made = check(decay, *xs)
    assert kernels(made) == [len(SIZES) - 1] * 3


def test_each_constant_has_its_kernel():
    def scaled(*xs):
        return [x + s for s, part in zip((-0.0, 0.0, 2.0), (xs[:4], xs[4:8], xs[8:])) for x in part]

    xs = [-x.abs() * 0.0 for x in tensors([(n,) for n in range(2, 14)])]
    made = check(scaled, *xs)
    assert kernels(made) == [4, 4, 4]
    for got, expected in zip(made(*xs), scaled(*xs)):
        assert torch.equal(got.signbit(), expected.signbit())


def test_a_shared_operand():
    def scaled(scale, *xs):
        return [x * scale for x in xs]

    assert kernels(check(scaled, torch.tensor(3.0), *tensors())) == [len(SIZES)]


def test_positions_count_from_the_start_of_each():
    def positions(*xs):
        return [x + torch.arange(x.numel()).reshape(x.shape) for x in xs]

    assert kernels(check(positions, *tensors())) == [len(SIZES)]


def test_what_is_computed_from_another_comes_after_it():
    def chain(*xs):
        total, results = xs[0].mean(), []
        for x in xs:
            results.append(x * total)
            total = results[-1].mean()
        return results

    made = check(chain, *tensors(SIZES[1:5]), slack=4.0)
    assert kernels(made) == [1] * len(made.groups)


def test_few_are_not_worth_a_table():
    assert kernels(check(decay, *tensors(SIZES[:3]))) == [1, 1, 1]


def test_sizes_that_vary_are_refused_with_a_reason():
    plan = planned(decay, *tensors(SIZES[:6]), dynamic=True, recording=True)
    assert not any(isinstance(item, Foreach) for item in plan.items)
    refused = [c for c in plan.candidates if c.kind == "horizontal"]
    assert refused and all("sizes vary" in c.why and c.enabled_by == "fixed sizes" for c in refused)


def test_an_override_keeps_them_apart():
    made = check(decay, *tensors(), overrides={"horizontal-fusion:*": "separate"})
    assert kernels(made) == [1] * len(SIZES)


def test_lines_lead_to_all_members():
    made = check(decay, *tensors())
    line = next(line for line in made.source.lines if "sqrt" in line.text)
    bodies = {origin.split("#")[0] for origin in line.origins if origin.startswith("loop_ir:")}
    assert bodies == {f"loop_ir:{b.name}" for b in made.groups[0].bodies}


def test_little_memory_is_filled_before_its_turn():
    def function(*xs):
        return [torch.mm(decay(x)[0], x.t()) for x in xs]

    small, large = (check(function, *tensors([(n + k, n) for k in range(6)]), slack=4.0) for n in (8, 300))
    assert kernels(small) == [6]
    assert kernels(large) == [1] * 6


# ---- in place
def agree(function: Callable[..., Any], *inputs: Any) -> None:
    mine = copy.deepcopy(inputs)
    torch.testing.assert_close(ptdebug.compile(function)(*mine), function(*inputs))
    torch.testing.assert_close(mine, inputs)


def test_buffers_that_are_used_by_several():
    def function(*xs):
        for x, y in itertools.pairwise(xs):
            x.add_(y)  # before y changes
        return [x * 2 for x in xs]

    agree(function, *tensors([(50,)] * 8))


def test_views_of_one_tensor():
    def function(x):
        for part in (*x[:40].split(8), x[36:]):
            part.mul_(2).add_(1)
        return x.sum()

    agree(function, torch.arange(64.0))


@pytest.mark.parametrize("seed", range(8))
def test_random_updates_in_order(seed):
    """Updates of buffers from buffers, dependent and not, leave what they leave one after the other."""
    choose = random.Random(seed)
    updates = [(choose.randrange(12), choose.randrange(12), choose.random() < 0.7) for _ in range(30)]

    def function(*xs):
        made = []
        for target, source, in_place in updates:
            if in_place:
                xs[target].mul_(0.5).add_(xs[source])
            else:
                made.append(xs[target] - xs[source] * 3)
        return made

    agree(function, *tensors([(20,)] * 12))


def test_an_index_error_leaves_the_inputs_alone():
    def function(table, index, *xs):
        for x in xs[:4]:
            x.add_(1)
        found = table[index]
        for x in xs[4:]:
            x.add_(1)
        return found

    xs = tensors([(5,)] * 8)
    before = copy.deepcopy(xs)
    with pytest.raises(IndexError):
        ptdebug.compile(function)(torch.zeros(3), torch.tensor([1, 5]), *xs)
    expected = copy.deepcopy(before)
    with pytest.raises(IndexError):
        function(torch.zeros(3), torch.tensor([1, 5]), *expected)
    torch.testing.assert_close(xs, expected)
