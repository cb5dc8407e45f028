"""Results of one compiled graph that are differentiated one after the other, or of which some never are."""
from __future__ import annotations

import itertools
import math
import threading

import pytest
import torch
import torch.nn.functional as F

from .checking import P, compile, same
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


def views(x, v):
    h = x + 1
    return h.view(-1), h.t(), (v * v).exp()


def rows(x, v):
    h = torch.where(x > 0, x, -x)
    return h, h[:, [0, 1]], h.cos() * v


def quotient(x, v):
    return x.cumsum(0), x / v


@pytest.mark.parametrize("program", [views, rows, quotient, lambda x, v: (x + v).sum()])
@pytest.mark.parametrize("leaves", [True, False])
def test_backwards_in_any_order_raise_where_eagers_do(program, leaves):
    """Each two of: one result's backward, that of all, with `retain_graph` or without."""
    def surroundings(function, x, v):
        found, count = [], len(results_of(function(x, v)))
        steps = [(which, kept) for which in (*range(count), slice(None)) for kept in (True, False)]
        for twice in itertools.product(steps, steps):
            made = results_of(function(x, v) if leaves else function(x + 0, v + 0))
            x.grad = v.grad = None
            for which, kept in twice:
                try:
                    torch.autograd.backward([value.sum() for value in results_of(made[which])], retain_graph=kept)
                except RuntimeError as error:
                    assert "backward through the graph a second time" in str(error)
                    break
                found += grads(x, v)
            found.append(torch.tensor(float(len(found))))
        return found

    both(surroundings, program, P(3, 3), P(3, 3))


def results_of(value):
    return [value] if isinstance(value, torch.Tensor) else value


def test_memory_is_freed_though_a_result_can_be_differentiated_again():
    compiled = compile(lambda x, h, w: (x + 1, (h @ w).exp()))
    x, w = P(4), P(4, 4)
    first, second = compiled(x, torch.ones(4, 4), w)
    (first.sum() + second.sum()).backward()
    saved = first.grad_fn.rest.tensors
    assert saved and not any(isinstance(value, torch.Tensor) for value in saved)
    x.grad = None
    first.sum().backward()
    same([("x", x.grad)], [("x", torch.ones(4))])


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


@pytest.mark.parametrize("other", [lambda x: math.nan * x, lambda x: x.sum() * -math.inf, lambda x: x / 0])
def test_nor_do_numbers_that_make_nan_of_its_zeros(other):
    """`Uniform.mode` is NaN times a bound."""
    def surroundings(function, x):
        function(x)[0].sum().backward()
        return grads(x)

    both(surroundings, lambda x: (x * 2, other(x)), P(6))


def test_a_weight_may_change_before_any_backward_that_does_not_need_it():
    def surroundings(function, x, v, w):
        x = x.detach()
        first, second = function(x, v, w)
        with torch.no_grad():
            w.mul_(2)
        first.backward()
        with pytest.raises(RuntimeError, match="modified by an inplace operation"):
            second.backward()
        return grads(v, w)

    def squares(x, v, w):
        return (v * v).sum(), (w * w).sum()

    both(surroundings, squares, P(4, 3), P(3, 3), P(3, 2))


@pytest.mark.parametrize("order", [(0, 1), (1, 0), (0,), (1,)])
def test_what_is_behind_an_input_runs_for_the_results_that_depend_on_it(order):
    """Two encoders whose graphs each loss frees, and hooks that are called where a gradient arrives."""

    def surroundings(function, x, v, w):
        seen = []
        for number, tensor in enumerate((v, w)):
            tensor.register_hook(lambda g, n=number: seen.append(torch.full_like(g, n) + g))
            tensor.register_post_accumulate_grad_hook(lambda p, n=number: seen.append(p.grad.clone() + n))
        found = function(x.exp().detach(), v.exp(), w.sin())
        for i in order:
            found[i].backward()
        return [*seen, *grads(v, w)]

    both(surroundings, losses, P(4, 3), P(3, 3), P(3, 2))


def trunk(a, b, c):
    """Results of which each depends on more than the one before."""
    hidden = a.exp()
    return hidden.sum(), (hidden * b).sum(), (hidden * b * c).sum(), c.sin().sum()


@pytest.mark.parametrize("order", [(0, 1, 2, 3), (3, 2, 1, 0), (1, 3), (0,)])
@pytest.mark.parametrize("together", [True, False])
def test_results_that_depend_on_more_and_more(order, together):
    def surroundings(function, *inputs):
        seen = [torch.zeros(3)]
        for tensor in inputs:
            tensor.register_hook(lambda g: seen.append(g + 1))
        found = function(*(tensor.tanh() for tensor in inputs))
        if together:
            torch.autograd.backward([found[i] for i in order])
        else:
            for i in order:
                found[i].backward(retain_graph=True)
        return [torch.stack(seen).sum(0), torch.tensor(float(len(seen))), *grads(*inputs)]

    both(surroundings, trunk, P(3), P(3), P(3))


def test_results_used_in_another_thread_are_differentiated_together_and_twice():
    """There, autograd numbers its nodes anew: a gradient may be asked for before all tangents are there."""

    def surroundings(function, *inputs):
        found = function(*(tensor.tanh() for tensor in inputs))
        used = []
        thread = threading.Thread(target=lambda: used.extend(value * 2 for value in found))
        thread.start()
        thread.join()
        for kept in (True, False):
            torch.autograd.backward(used[1:], retain_graph=kept)
        return grads(*inputs)

    both(surroundings, trunk, P(3), P(3), P(3))


def test_gradients_of_gradients_of_results_with_inputs_of_their_own():
    def surroundings(function, a, b, c):
        inputs = [tensor.tanh() for tensor in (a, b, c)]
        found = function(*inputs)
        first = torch.autograd.grad(found[2], (a, b), create_graph=True)
        return torch.autograd.grad(first[0].sum() * found[3], (a, b, c))

    both(surroundings, trunk, P(3), P(3), P(3))


def test_gradients_of_results_with_inputs_of_their_own_are_handed_over():
    """A copy would have other memory."""
    seen = []

    def keep(gradient):
        seen.append(gradient.data_ptr())

    inputs = P(3, 4), P(3, 4)
    compiled = compile(lambda a, b: ((a * b).exp(), b.sin()))
    for tensor in inputs:
        tensor.register_hook(keep)
    first, second = compiled(*inputs)
    (first.sum() + second.sum()).backward()
    assert sorted(seen) == sorted(tensor.grad.data_ptr() for tensor in inputs)


@pytest.mark.parametrize("place", [0, 1, "x"])
def test_what_eager_keeps_is_watched_whatever_is_saved_in_its_place(place):
    """A mask is saved for ReLU and clamp, an intermediate where a result is a view of it."""
    def program(x):
        hidden = x.clamp(0, 1).exp()
        return hidden.t(), (hidden * 2 - 3).relu()

    def surroundings(function, leaf):
        x = leaf * 1
        results = function(x)
        written = x if place == "x" else results[place]
        with torch.no_grad():
            written.detach()[0].fill_(3)
        with pytest.raises(RuntimeError, match="modified by an inplace operation"):
            sum(y.sum() for y in results).backward()
        return ()

    both(surroundings, program, P(4, 3))


def test_a_copy_of_what_eager_keeps_may_be_written():
    def surroundings(function, x):
        y, z = function(x)
        with torch.no_grad():
            y.zero_()
            z.zero_()
        (y.sum() + z.sum()).backward()
        return grads(x)

    both(surroundings, lambda x: (x.relu() * 1, x.amax(1).clone()), P(4, 3))


def test_what_eager_keeps_for_other_inputs_may_be_written():
    """Of a gradient of some inputs (`inputs=`), eager runs no other nodes."""
    def surroundings(function, w, v, x):
        hidden, result = function(w, v, x)
        with torch.no_grad():
            hidden.fill_(3)
        with pytest.raises(RuntimeError, match="modified by an inplace operation"):
            torch.autograd.grad(result.sum(), (w, v), retain_graph=True)
        return torch.autograd.grad(result.sum(), w)

    both(surroundings, lambda w, v, x: ((h := v.relu()), w * x + h), P(4), P(4), torch.randn(4))


def test_statistics_of_a_batch_norm_are_kept_and_its_own_writes_are_not_counted():
    def surroundings(function, x, w, b):
        mean, spread = torch.zeros(3), torch.ones(3)
        first, second = (function(x * k, w, b, mean, spread) for k in (1, 2))
        first.sum().backward()
        after = grads(x, w, b)
        mean.add_(1)
        with pytest.raises(RuntimeError, match="modified by an inplace operation"):
            second.sum().backward()
        return after

    both(surroundings, lambda x, w, b, m, v: F.batch_norm(x, m, v, w, b, True).exp(), P(5, 3), P(3), P(3))
