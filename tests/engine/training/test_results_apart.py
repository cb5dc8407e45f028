"""Results of one compiled graph that are differentiated one after the other, or of which some never are."""
from __future__ import annotations

import pytest
import torch

from .checking import P
from .test_autograd import both


def losses(x, v, w):
    """Two losses with nothing in common, each of a weight of its own, and what both could have been made of."""
    return (x @ v).tanh().sum(), (x @ w).exp().mean()


def grads(*tensors):
    """Copies of gradients; a number that none is, where there is none."""
    return [torch.tensor(-7.0) if t.grad is None else t.grad.clone() for t in tensors]


@pytest.mark.parametrize("order", [(0, 1), (1, 0)])
def test_losses_with_nothing_in_common_are_differentiated_one_after_the_other(order):
    def surroundings(function, x, v, w):
        x = x.detach()
        found = function(x, v, w)
        after = []
        for i in order:
            found[i].backward()
            after += grads(v, w)
        for loss in found:
            with pytest.raises(RuntimeError, match="backward through the graph a second time"):
                loss.backward()
        return after

    both(surroundings, losses, P(4, 3), P(3, 3), P(3, 2))


def test_a_weight_may_change_that_the_other_loss_does_not_need():
    def surroundings(function, x, v, w):
        x = x.detach()
        first, second = function(x, v, w)
        first.backward()
        with torch.no_grad():
            v.sub_(v.grad)
        second.backward()
        return grads(v, w)

    both(surroundings, losses, P(4, 3), P(3, 3), P(3, 2))


def test_a_weight_must_not_change_that_the_other_loss_needs():
    def surroundings(function, x, v, w):
        first, second = function(x, v, w)
        first.backward()
        with torch.no_grad():
            w.mul_(2)
        with pytest.raises(RuntimeError, match="modified by an inplace operation"):
            second.backward()
        return grads(v, w)

    both(surroundings, losses, P(4, 3), P(3, 3), P(3, 2))


def test_losses_of_one_trunk_need_its_graph_retained():
    def program(x, v, w):
        hidden = (x @ v).tanh()
        return hidden.sum(), (hidden @ w).exp().sum()

    def surroundings(function, x, v, w):
        first, second = function(x, v, w)
        first.backward(retain_graph=True)
        once = grads(x, v, w)
        second.backward()
        twice = grads(x, v, w)
        with pytest.raises(RuntimeError, match="backward through the graph a second time"):
            first.backward()
        return *once, *twice, *grads(x, v, w)

    both(surroundings, program, P(4, 3), P(3, 3), P(3, 2))


def test_what_saves_nothing_is_differentiated_as_often_as_one_likes():
    def surroundings(function, x, w):
        first, second = function(x, w)
        for _ in range(3):
            first.backward(torch.ones_like(first))
        second.backward(torch.ones_like(second))
        first.backward(torch.ones_like(first))
        with pytest.raises(RuntimeError, match="backward through the graph a second time"):
            second.backward(torch.ones_like(second))
        return grads(x, w)

    both(surroundings, lambda x, w: (x + 1, (w * w).exp()), P(3), P(3))


def test_the_rest_is_differentiated_twice_more():
    def surroundings(function, x, v, w):
        first, second = function(x, v, w)
        first.backward()
        (slope,) = torch.autograd.grad(second, w, create_graph=True)
        slope.pow(2).sum().backward()
        return grads(v, w)

    both(surroundings, losses, P(4, 3).detach(), P(3, 3), P(3, 2))


def test_infinities_of_a_result_that_is_not_differentiated_stay_out_of_gradients():
    def program(x):
        return x.sin().sum(), (x * 1000).exp(), x.log()

    def surroundings(function, x):
        x = x.detach().abs().sub_(x.detach().abs().min()).requires_grad_()  # with a zero
        first, _, third = function(x)
        first.backward(retain_graph=True)
        once = grads(x)
        third[0].backward()
        return *once, *grads(x)

    both(surroundings, program, P(6))
