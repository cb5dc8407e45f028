"""Kernels that write over what they replace: values, aliases and version counters as in eager."""
from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import ptdebug
import pytest
import torch
import torch.nn.functional as F
from ptdebug.engine.compile import compile_graph

from .cpp_checking import built, check
from .programs import capture, recording_context


def agree(function: Callable[..., Any], *inputs: Any) -> None:
    """Equal results and equal inputs afterwards, changed as often as autograd counts in eager."""
    mine = copy.deepcopy(inputs)
    before = [x._version for x in mine]
    torch.testing.assert_close(ptdebug.compile(function)(*mine), function(*inputs))
    torch.testing.assert_close(mine, inputs)
    assert [x._version - b for x, b in zip(mine, before)] == [x._version for x in inputs]


def clipped_momentum(p, g, m):
    scale = torch.clamp(1.0 / ((g * g).sum().sqrt() + 1e-6), max=1.0)
    m.mul_(0.9).add_(g * scale)
    p.sub_(m, alpha=0.01)
    return scale


def nesterov(p, g, m):
    p.add_(m, alpha=-0.9)  # the old momentum
    m.mul_(0.9).add_(g)
    p.sub_(m)
    return p.sum()


def lion(p, g, m):
    u = m * 0.9 + g * 0.1
    m.mul_(0.99).add_(g, alpha=0.01)  # from the old momentum, as the step is
    p.sub_(torch.sign(u), alpha=0.001)
    return u.sum()


def rotated(x):
    x.copy_(torch.roll(x, 1, 0))
    return x.sum()


def normalized(x):
    x.copy_(torch.softmax(x, -1))
    return x.mean()


def with_transpose(x):
    x.copy_(x.t().contiguous() + x)
    return x.mean()


def centered_columns(x):
    x.sub_(x.mean(0))
    return x.amax()


def swapped(x, y):
    old = x.clone()
    x.copy_(y)
    y.copy_(old)


def old_value_returned(x):
    old = x.clone()
    x.mul_(2)
    return old, x + old


def shifted_read_later(x):
    before = x[1:] * 2
    x.add_(1)
    return before, x[:-1] + before


ONE = (rotated, normalized, with_transpose, centered_columns, old_value_returned, shifted_read_later)


@pytest.mark.parametrize("function", ONE, ids=lambda f: f.__name__)
@pytest.mark.parametrize("size", [7, 48])
def test_one_mutated_input(function, size):
    torch.manual_seed(0)
    agree(function, torch.randn(size, size))


@pytest.mark.parametrize("function", [clipped_momentum, nesterov, lion], ids=lambda f: f.__name__)
def test_optimizers(function):
    torch.manual_seed(0)
    agree(function, *[torch.randn(33, 20) for _ in range(3)])
    agree(function, *[torch.randn(20, 33).t() for _ in range(3)])


def test_what_replaces_an_input_comes_after_all_that_reads_it():
    def step(p, g, m):
        u = m * 0.9 + g * 0.1
        return m.copy_(m * 0.99 + g * 0.01), p.copy_(p - torch.sign(u))

    context, keeping = recording_context()
    inputs = [torch.randn(300) for _ in range(3)]
    compile_graph(capture(step, *inputs), context)
    assert [d.chosen for d in keeping.decisions if d.kind == "in-place"] == ["in-place"] * 2


def test_two_inputs_that_become_each_other():
    torch.manual_seed(0)
    agree(swapped, torch.randn(6, 5), torch.randn(6, 5))


def test_an_index_out_of_bounds_leaves_the_inputs_as_eager_does():
    def function(x, table, at):
        x.mul_(2)
        return x + table[at]

    table, at = torch.ones(3), torch.tensor([0, 1, 2, 3])
    for run in (function, ptdebug.compile(function)):
        x = torch.ones(4)
        with pytest.raises(IndexError, match="out of bounds"):
            run(x, table, at)
        assert torch.equal(x, torch.full((4,), 2.0))


def test_a_chain_after_a_product_stays_in_its_memory():
    def program(x, w):
        return F.relu(x @ w) + 1

    inputs = torch.randn(40, 30), torch.randn(30, 20)
    made = built(program, *inputs)
    (group,) = made.groups
    body = group.bodies[-1]
    assert set(body.writes) & set(body.reads)
    check(program, *inputs, slack=4.0)
    apart = built(program, *inputs, overrides={"in-place:*": "new-buffer"})
    assert not set(apart.groups[0].bodies[-1].writes) & set(apart.groups[0].bodies[-1].reads)


def test_what_is_read_again_is_not_written_over():
    def program(x, w):
        y = x @ w
        z = F.relu(y) + 1
        return z.sum(-1), y @ z.t(), y.t() + z.t().contiguous()

    check(program, torch.randn(12, 12), torch.randn(12, 12), slack=4.0)


def test_memory_that_a_result_has_taken_over_is_not_taken_again():
    def program(x, w):
        y = x @ w + 1  # written over the product, and returned
        return y, y * 2 + (y @ w).sum()

    check(program, torch.randn(24, 24), torch.randn(24, 24), slack=8.0)


def test_stages_of_long_rows_share_one_row():
    def program(x):
        y = torch.where(x < 0.5, x, x * 2) / 0.8
        return torch.softmax(y, -1)

    made = check(program, torch.randn(3, 20000), slack=4.0)
    assert len(made.groups) == 1
    written = {n for b in made.groups[0].bodies for n in b.writes if made.plan.program.buffers[n].size[-1] == 20000}
    assert len(written) == 1

    def two_results(x):
        y = torch.where(x < 0.5, x, x * 2) / 0.8
        e = torch.exp(y - y.amax(-1, keepdim=True))
        return e, e / e.sum(-1, keepdim=True), y.flip(-1).sum(0)

    check(two_results, torch.randn(3, 20000), slack=4.0)


def rows_and_all(x):
    x[0] = 1
    x[1].mul_(2)
    x.relu_()


def in_a_loop(x):
    for _ in range(4):
        x.sub_(1)
    return x.sum()


def drawn(x):
    x.normal_()
    x.mul_(0).add_(1)


def indexed(x):
    x.index_add_(0, torch.tensor([0]), torch.ones(1, 3))
    x.cumsum_(0)
    torch.mul(x, 2, out=x)
    return x


def lists(x):
    torch._foreach_add_([x[0], x[2]], 1.0)
    torch._foreach_mul_([x[0], x[1]], 2.0)


@pytest.mark.parametrize("options", [{}, {"cpp_wrapper": True}], ids=["python", "c++"])
@pytest.mark.parametrize("function", [rows_and_all, in_a_loop, drawn, indexed, lists])
def test_each_write_to_an_input_counts(function: Callable[..., Any], options: dict[str, Any]) -> None:
    mine, theirs = torch.ones(3, 3), torch.ones(3, 3)
    function(theirs)
    for _ in range(2):
        mine = torch.ones(3, 3)
        ptdebug.compile(function, options=options)(mine)
        assert torch.equal(mine, theirs) and mine._version == theirs._version


@pytest.mark.parametrize("lists", [
    lambda x: [x, x.view(-1)], lambda x: [x, x], lambda x: [x[:2], x[1:]], lambda x: [x[0], x[:, 0]],
])
def test_lists_that_are_written_and_share_elements(lists: Callable[[torch.Tensor], Any]) -> None:
    def function(x: torch.Tensor) -> None:
        torch._foreach_add_(lists(x), 1.0)
        torch._foreach_mul_(lists(x), 3.0)

    mine, theirs = torch.ones(3, 3), torch.ones(3, 3)
    function(theirs)
    ptdebug.compile(function)(mine)
    assert torch.equal(mine, theirs)


def test_new_results_have_the_count_of_their_writes():
    """What `_version` says, and what autograd compares where such a tensor is saved and written later."""

    def f(x):
        doubled = x * 2
        written = x + 1
        written.add_(1)
        filled = torch.zeros(4)
        filled[0] = 1
        filled[1:].add_(2)
        seen = written.view(2, 2)
        seen.mul_(3)
        detached = doubled.detach()
        detached.sub_(1)
        drawn = torch.empty(4).uniform_()
        return doubled, written, filled, seen, detached, drawn, torch.nn.functional.relu(x * 3, inplace=True)

    def counts(function):
        return [[tensor._version for tensor in function(torch.ones(4))] for _ in range(2)]

    assert counts(ptdebug.compile(f)) == counts(f) == [[1, 2, 2, 2, 1, 1, 1]] * 2


def _batch_norm(compile):
    layer = torch.nn.Sequential(torch.nn.Conv2d(3, 4, 3), torch.nn.BatchNorm2d(4), torch.nn.ReLU(inplace=True))
    function = compile(layer)
    for _ in range(2):
        function(torch.ones(2, 3, 6, 6)).sum().backward()
    return [*layer[1].buffers()]


def _running_statistics(compile):
    mean, count = torch.zeros(3), torch.tensor(0)

    def f(x):
        mean.mul_(0.9).add_(x.detach(), alpha=0.1)
        count.add_(1)
        mean.clamp_(max=1)
        return (x * 2).sum()

    compile(f)(torch.ones(3, requires_grad=True)).backward()
    return mean, count


def _trained_results(compile):
    def f(x):
        y = x.clone()
        y.add_(1)
        y[0].mul_(2)
        return y, y[1:], torch.nn.functional.relu(x * 3, inplace=True), x * 2

    return compile(f)(torch.ones(3, requires_grad=True))


def _an_input_with_history(compile):
    x = torch.ones(3, requires_grad=True).clone()

    def f(x):
        x.add_(1)
        x.mul_(2)
        return x.sin()

    return x, compile(f)(x), x.view(-1)


def _a_saved_tensor(compile):
    seen = []

    class Doubled(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            return x * 2

        @staticmethod
        def backward(ctx, gradient):
            seen.append(ctx.saved_tensors[0]._version)
            return gradient

    def f(x):
        y = x.clone()
        y.add_(1)
        y.mul_(2)
        return Doubled.apply(y).sum()

    compile(f)(torch.ones(3, requires_grad=True)).backward()
    return [torch.empty(0)] * seen[0]


@pytest.mark.parametrize(
    "program", [_batch_norm, _running_statistics, _trained_results, _an_input_with_history, _a_saved_tensor]
)
def test_training_counts_writes_as_eager_does(program):
    def counts(compile):
        return [tensor._version for tensor in program(compile)]

    assert counts(ptdebug.compile) == counts(lambda f: f)
