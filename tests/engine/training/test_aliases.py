"""Inputs changed in place, results that share memory: gradients and later changes flow as in eager."""
from __future__ import annotations

import ptdebug
import pytest
import torch

from .checking import P, check, compile, observe, same

R = torch.randn


def doubled(*inputs):
    """Non-leaf inputs, which may be changed in place under autograd."""
    return tuple(x * 2 if x.requires_grad else x for x in inputs)


def test_data_that_autograd_does_not_track_is_changed_in_place():
    def program(x, w):
        x.add_(1)
        return (x * w).sum()

    check(program, R(3, 4), P(3, 4))


def test_the_backward_sees_the_value_before_the_change():
    def program(x, w):
        y = x.sin() * w
        x.add_(1)
        return y

    check(program, R(3, 4), P(3, 4))


def test_a_leaf_is_changed_under_no_grad():
    def program(w):
        with torch.no_grad():
            w.mul_(0.5)
        return (w * w).sum()

    check(program, P(3, 4))


def test_a_tensor_with_history_is_changed_under_autograd():
    def program(x, w):
        x.mul_(w)
        x[0].add_(1)
        return x.exp(), x.t()

    check(program, P(3, 4), P(3, 4), prepare=doubled)


def test_a_plain_tensor_gets_a_history():
    def program(x, w):
        x.add_(w)
        return x * 2

    check(program, R(3), P(3))


def test_only_inputs_change_and_nothing_is_returned():
    def program(x, w):
        x.add_(w)
        return 3

    check(program, R(3), P(3))


def test_history_and_data_changes_in_one_graph():
    def program(x, stat, w):
        stat.mul_(0.9).add_(x.detach().mean(0), alpha=0.1)
        x.mul_(w)
        return x - stat

    check(program, P(5, 3), R(3), P(3), prepare=doubled)


def test_results_that_are_views_of_inputs():
    def program(x, y):
        return x.t(), x[1:], y.view(-1), x * 2, x.detach()

    check(program, P(3, 4), R(3, 4), prepare=doubled)


def test_results_that_are_inputs():
    def program(x, y):
        return x, y, x, x + y

    check(program, P(3, 4), R(3, 4), prepare=doubled)


def test_views_of_one_intermediate():
    def program(x):
        y = x.sin()
        return y.view(-1), y.t(), y[1]

    check(program, P(3, 4))


def test_an_intermediate_and_its_views():
    def program(x):
        y = x.sin()
        return y, y.view(-1), y.detach(), y.detach()[0]

    check(program, P(3, 4))


def test_a_result_twice():
    def program(x):
        y = x.sin()
        return y, y

    check(program, P(3))


def test_views_that_autograd_does_not_track_share_memory():
    def program(x):
        with torch.no_grad():
            y = x.sin()
            a, b = y[0], y[1:]
        return x * 2, a, b

    check(program, P(3, 4))


def test_a_single_view_of_an_intermediate():
    check(lambda x: x.sin().t(), P(3, 4))
    check(lambda x: x.sin()[1], P(3, 4))


def test_expanded_results():
    check(lambda x: (x.sum().expand(3, 4), x.exp()), P(3))
    check(lambda x: x.sin().unsqueeze(0).expand(3, 4), P(4))


def test_in_place_on_views_of_intermediates():
    def program(x, w):
        y = x * 2
        y[0].mul_(w[0])
        y.t()[1:].add_(1)
        z = y.view(-1)
        z[2:5].sigmoid_()
        return y, z

    check(program, P(3, 4), P(3, 4))


def test_later_changes_of_results_reach_gradients():
    def program(x):
        y = x.sin()
        return y, y.view(-1)

    def surroundings(function):
        def run(x):
            y, flat = function(x)
            flat[0:2].mul_(3)
            return y * 2, flat

        return run

    from .checking import compile, observe, same

    x = P(3, 4)
    same(observe(surroundings(compile(program)), [x]), observe(surroundings(program), [x]))


@pytest.mark.parametrize("shift", [0, 4])
def test_inputs_that_share_memory_and_change(shift):
    base = R(12)

    def prepare(w):
        memory = base.clone()
        return memory[:8], memory[shift:], w

    def program(a, b, w):
        a.mul_(2)
        return b.sum() * w

    check(program, P(3), prepare=prepare)


def test_inputs_that_share_memory_and_stay():
    def prepare(w):
        y = w * 2
        return y, y.t(), y[0]

    def program(a, b, c):
        return a.sin().sum(1) + b.cos().sum() + c.sum()

    check(program, P(3, 4), prepare=prepare)


VIEWS = {
    "one of several": lambda x: (x.unbind(0)[1], x + 1),
    "all of several": lambda x: (*x.chunk(2), x + 1),
    "under no_grad": lambda x: (torch.no_grad()(lambda: x.view(-1))(), x + 1),
    "with gradients": lambda x: (torch.enable_grad()(lambda: x.view(-1))(), x + 1),
    "usual": lambda x: (x[0], x.T, x.unbind(0)[0].detach(), x + 1),
}
GIVEN = {
    "plain": lambda: torch.ones(2, 3),
    "recorded": lambda: P(2, 3) * 2,
    "one of several": lambda: torch.ones(2, 2, 3).unbind(0)[1],
}


def _may_be_written(result):
    try:
        result.add_(torch.ones((), requires_grad=True))
    except RuntimeError as error:
        return str(error).partition("view")[2]  # what comes before names the node of autograd
    return ""


@pytest.mark.parametrize("name", VIEWS)
@pytest.mark.parametrize("recording", [True, False])
def test_views_are_written_in_place_where_eager_lets_them(name, recording):
    function = VIEWS[name]
    compiled = ptdebug.compile(function)
    for make in GIVEN.values():
        with torch.set_grad_enabled(recording):
            expected, got = function(make()), compiled(make())
        assert list(map(_may_be_written, got)) == list(map(_may_be_written, expected))


def _of_a_parameter(x, w):
    part = list((x @ w).chunk(3, 1))
    part[0].add_(1)
    return x


def _of_a_sum(x, w):
    whole = x + w
    first, *_ = whole.view(9).split(3)
    first.mul_(2)
    return whole


def _made_without_gradients(x, w):
    whole = x + w
    with torch.no_grad():
        part = whole[0]
    part.add_(w[0])
    return part


@pytest.mark.parametrize("function", [_of_a_parameter, _of_a_sum, _made_without_gradients])
def test_a_write_that_autograd_refuses_of_a_view_that_the_call_made(function):
    """The view breaks off the graph, not the write: what a graph returns does not know how it was made."""
    raised = []
    for each in (function, ptdebug.compile(function)):
        with pytest.raises(RuntimeError, match="modified inplace") as error:
            each(torch.ones(3, 3), P(3, 3))
        raised.append(str(error.value))
    assert raised[0] == raised[1]


class Reversed(torch.autograd.Function):
    """A gradient reversal layer: its result is the tensor that it gets."""

    @staticmethod
    def forward(ctx, x):
        return x.view_as(x)

    @staticmethod
    def backward(ctx, gradient):
        return -2 * gradient


def _reversed(x, w):
    return Reversed.apply(x), (x * w).exp()


def _rows_of_the_reversed(x, w):
    return Reversed.apply(x.t())[0], x * w


def _beside_what_is_reversed(x, w):
    product = x * w
    return product, Reversed.apply(product)


def _written_where_it_is_detached(x, w):
    alias = x.detach()
    alias.mul_(w)
    return alias, alias[1:], x * 2


@pytest.mark.parametrize(
    "program", [_reversed, _rows_of_the_reversed, _beside_what_is_reversed, _written_where_it_is_detached]
)
@pytest.mark.parametrize("grad", [True, False])
def test_results_that_share_memory_but_not_a_history(program, grad):
    """Views of the input would have its gradients."""
    inputs = torch.randn(3, 3, requires_grad=grad), P(3, 3)
    compiled = compile(program)
    for prepare in (None, doubled):
        same(observe(compiled, inputs, prepare), observe(program, inputs, prepare))
    assert all("its history of gradients" in why for why in compiled.fallbacks)
