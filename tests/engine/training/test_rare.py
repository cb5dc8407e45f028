"""Rare constructs of training programs, against eager: some compile, some are left to eager, none goes wrong."""
from __future__ import annotations

import math

import ptdebug
import pytest
import torch
import torch.nn.functional as F
from ptdebug.tracer.frames import dispatch
from torch.utils.checkpoint import checkpoint

from .checking import P, check, compile, leaves, observe, same


def agrees(program, *inputs, prepare=None):
    """Equal results and gradients, compiled or not."""
    compiled = compile(program)
    for number in range(2):
        torch.manual_seed(number)
        expected = observe(program, inputs, prepare)
        torch.manual_seed(number)
        same(observe(compiled, inputs, prepare), expected)
    return compiled


def test_views_of_inputs_made_without_gradients():
    def program(x):
        with torch.no_grad():
            y = x.view(-1)
            z = x.detach()[0]
        return x * 2, y, z

    agrees(program, P(3, 4), prepare=lambda x: (x * 2,))


def test_a_change_under_no_grad_of_a_tensor_with_history():
    def program(x, w):
        y = x * w
        with torch.no_grad():
            x.add_(1)
        return y

    # Eager's backward raises: x was saved, and has changed. Ours must not give other gradients without an error.
    compiled = compile(program)
    for function in (program, compiled):
        x, w = leaves(P(3), P(3))
        y = function(x * 2, w)
        with pytest.raises(RuntimeError, match="modified by an inplace operation"):
            y.sum().backward()


def test_a_change_of_the_storage_behind_a_view():
    def program(x):
        x.t()[0].zero_()
        x[1:].mul_(2)
        return x.sum(), x.t()

    check(program, P(3, 4), prepare=lambda x: (x * 2,))


def test_a_mask_that_is_no_float():
    def program(x):
        mask = x > 0
        return torch.where(mask, x, -x), mask, mask.sum()

    check(program, P(3, 4))


def test_integers_and_gradients_in_one_graph():
    def program(i, x):
        i.add_(1)
        return x[i.clamp(max=2)] * i, i * 2

    check(program, torch.tensor([0, 1, 1]), P(4))


def test_a_stack_of_in_place_operators():
    def program(x, w):
        y = torch.zeros(3, 4)
        y.add_(x).mul_(w)
        y[:, 1].copy_(w[:, 0])
        y[y > 1] = 0.5
        return y.clamp_(max=1).sum(0)

    check(program, P(3, 4), P(3, 4))


def test_out_of_order_use_of_chunks_and_splits():
    def program(x):
        a, b, c = x.chunk(3, -1)
        d, e = torch.split(b, [1, 3], dim=0)
        return c * a, torch.cat([e, d]), torch.stack([a, c]).unbind(1)[0]

    check(program, P(4, 6))


def test_gradients_of_gradients_inside_the_program():
    def program(x):
        with torch.enable_grad():
            y = x.sin().sum()
            (g,) = torch.autograd.grad(y, x, create_graph=True)
        return g.pow(2).sum()

    for f in (program, ptdebug.compile(program)):
        x = torch.linspace(0, 1, 5, requires_grad=True)
        f(x).backward()
        torch.testing.assert_close(x.grad, 2 * x.cos() * -x.sin())


@pytest.mark.parametrize("dynamic", [None, True])
@pytest.mark.parametrize("reentrant", [False, True])
def test_a_checkpoint_that_draws_random_numbers(dynamic, reentrant):
    def program(x, w):
        return checkpoint(lambda a: F.dropout((a @ w).sin(), 0.5) * a, x, use_reentrant=reentrant).sin().sum()

    check(program, P(4, 4), P(4, 4), dynamic=dynamic)


def test_a_custom_function_inside():
    class Clipped(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            return x.exp()

        @staticmethod
        def backward(ctx, gradient):
            (x,) = ctx.saved_tensors
            return (gradient * x.exp()).clamp(-1, 1)

    def program(x):
        return Clipped.apply(x * 2).sin() * 3

    x, y = leaves(*[P(3, 4)] * 2)
    with torch.no_grad():
        y.copy_(x)
    program(x).sum().backward()
    ptdebug.compile(program)(y).sum().backward()
    same([("x", y.grad)], [("x", x.grad)])


def test_a_parameter_made_inside_has_no_way_out():
    def program(x):
        w = torch.ones(3, requires_grad=True)
        return (x * w).sum(), w * 2

    agrees(program, P(3))


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float64])
def test_other_precisions(dtype):
    def program(x, w):
        return F.gelu(x) * 2, (x + w).relu(), w.double().exp()

    check(program, P(4, 4, dtype=dtype), P(4, 4, dtype=dtype))


def test_empty_and_scalar_tensors():
    check(lambda x, s: ((x * s).sum(), s.exp(), torch.cat([x, x * s])), P(0, 3), torch.tensor(2.0, requires_grad=True))


def test_strides_of_gradients_follow_eager():
    def program(x, w):
        return torch.einsum("bij,jk->bki", x, w).permute(1, 0, 2), x.mean((0, 2), keepdim=True)

    check(program, torch.randn(4, 3, 2).permute(2, 0, 1).requires_grad_(), P(3, 5))
    image = torch.randn(2, 3, 4, 4).to(memory_format=torch.channels_last).requires_grad_()
    check(lambda x, w: F.conv2d(x, w).relu(), image, P(4, 3, 2, 2))


def test_results_changed_in_place_outside():
    def program(x):
        y = x.sin()
        return y, y * 2

    def surroundings(function):
        def run(x):
            y, z = function(x)
            z.mul_(x)
            z[0] += 1
            return y, z

        return run

    x = P(3, 4)
    same(observe(surroundings(compile(program)), [x]), observe(surroundings(program), [x]))


@pytest.mark.parametrize("dynamic", [False, True])
def test_a_number_of_the_data_before_what_needs_gradients_is_read(dynamic):
    dispatch.reset()
    weight = P(2, 3)

    def masked(y):
        number = y.sum().item()
        return weight.sin().masked_fill(y > number, 0.0)

    def scaled(y):
        number = y.sum().item()
        return weight * number

    y = torch.randn(2, 3)
    for program in (masked, scaled):
        compiled = compile(program, dynamic=dynamic)
        for _ in range(2):
            results = [function(y) for function in (program, compiled)]
            torch.testing.assert_close(*results)
            torch.testing.assert_close(*[torch.autograd.grad(result.sum(), weight)[0] for result in results])
        assert not any("rerun" in reason for reason in dispatch.stats()["reasons"])


def test_what_is_drawn_after_a_dropout_of_everything_at_sizes_that_vary():
    check(lambda x: (F.dropout(x, 1.0), F.dropout(x, 0.3), torch.dropout(x, 1, True)), P(3, 4), dynamic=True)


@pytest.mark.parametrize("drop", [lambda x: F.dropout(x, 0.0), lambda x: torch.dropout(x, 0.5, train=False),
                                  torch.nn.Dropout().eval()])
def test_a_dropout_of_nothing_gives_the_tensor_itself_at_sizes_that_vary(drop):
    def f(x):
        y = drop(x)
        y.add_(1)
        return y * x, y

    compiled, expected, x = ptdebug.compile(f, dynamic=True), torch.zeros(3, 4), torch.zeros(3, 4)
    torch.testing.assert_close(compiled(x)[0], f(expected)[0])
    torch.testing.assert_close(x, expected)
    assert compiled(x)[1] is x


@pytest.mark.parametrize("shrink", [F.hardshrink, F.softshrink, torch.Tensor.hardshrink])
def test_what_shrinks_a_nan_at_sizes_that_vary(shrink):
    results = []
    for function in (shrink, ptdebug.compile(lambda x: shrink(x), dynamic=True)):
        x = torch.tensor([[0.2, -0.7, math.nan, math.inf]] * 4, requires_grad=True)
        function(x).backward(torch.arange(16.0).view(4, 4))
        results.append(x.grad)
    torch.testing.assert_close(*results)


@pytest.mark.parametrize("dynamic", [None, True])
def test_the_gradient_of_the_logit_of_a_nan(dynamic):
    x = torch.tensor([[0.0, -0.0, 0.3, 1.0, 1.5, -1.0, math.nan, math.inf]] * 3, requires_grad=True)
    check(lambda x: (torch.logit(x, 1e-6), torch.logit(x)), x, dynamic=dynamic)


@pytest.mark.parametrize("refused", [
    lambda x: F.interpolate(x[None, None], size=(5, 6), mode="bicubic"), lambda x: F.multi_margin_loss(x, x[:, 0]),
    lambda x: F.multi_margin_loss(x, torch.tensor([0, 1, 2]))])
def test_what_kernels_refuse_raises_at_sizes_that_vary(refused):
    for function in (refused, ptdebug.compile(refused, dynamic=True)):
        with pytest.raises(NotImplementedError, match="not implemented for 'Long'"):
            function(torch.ones(3, 4, dtype=torch.int64))


def test_a_margin_of_several_labels_at_sizes_that_vary():
    labels = torch.tensor([[0, 1, -1, 0]] * 3)
    check(lambda x: F.multilabel_margin_loss(x, labels), torch.randn(3, 4), dynamic=True)


def test_a_scale_that_leaves_a_size_as_it_is_at_sizes_that_vary():
    check(lambda x: F.interpolate(x, scale_factor=1.05, mode="bilinear") + F.interpolate(x, scale_factor=1.05),
          P(1, 2, 7, 10), dynamic=True)


@pytest.mark.parametrize("mode, dims", [
    ("nearest", 1), ("nearest-exact", 1), ("linear", 1), ("bilinear", 2), ("bicubic", 2), ("nearest", 3),
    ("nearest-exact", 3), ("trilinear", 3)])
def test_gradients_of_upsampled_images_at_sizes_that_vary(mode, dims):
    image = P(2, 4, *(5, 7, 6)[:dims])
    check(lambda x: F.interpolate(x, scale_factor=1.5, mode=mode).sin(), image, dynamic=True)


def test_a_backward_of_some_results_at_sizes_that_vary():
    def program(x, y):
        return x * 2, torch.sin(y).prod(-2)

    compiled = compile(program, dynamic=True)
    for which in ([0], [1], [0, 1]):
        both = []
        for function in (program, compiled):
            x, y = torch.linspace(0, 1, 3).requires_grad_(), torch.linspace(0, 1, 20).reshape(4, 5).requires_grad_()
            results = function(x, y)
            torch.autograd.backward([results[i].sum() for i in which])
            both.append([(f"gradient {i}", t.grad) for i, t in enumerate((x, y))])
        same(both[1], both[0])
    assert not compiled.fallbacks


@pytest.mark.parametrize("view", (lambda x: x.unsqueeze(0), lambda x: x[1:], lambda x: x.t()))
def test_gradients_through_views_of_an_expanded_input_stay_with_eager(view):
    def program(x, w):
        return view(x), x * w

    compiled = compile(program)
    gradients = []
    for function in (program, compiled):
        x, w = torch.ones(4, 1).expand(4, 3).requires_grad_(), torch.arange(3.0).requires_grad_()
        seen, product = function(x, w)
        tangents = [torch.arange(float(t.numel())).view(t.shape) for t in (seen, product)]
        torch.autograd.backward([seen, product], tangents)
        gradients.append([("x", x.grad), ("w", w.grad)])
    same(gradients[1], gradients[0])
    assert all("elements that share memory" in why for why in compiled.fallbacks) and compiled.fallbacks


def test_views_whose_size_only_data_tells_beside_what_needs_gradients():
    def program(x, m):
        with torch.no_grad():
            rows, columns = torch.where(m)
            chosen = x[m]
        return x * 2, rows, columns, chosen[1:], chosen.view(-1, 1)

    dispatch.reset()
    compiled = agrees(program, P(2, 2), torch.tensor([[True, False], [True, True]]))
    assert compiled.fallbacks == []
    assert not any("rerun" in reason for reason in dispatch.stats()["reasons"])


def test_numbers_of_the_data_that_are_results_beside_what_needs_gradients():
    def program(x, m):
        with torch.no_grad():
            found, number = m.nonzero(), m.sum().item()
        return x * 2, found[:, 0], found.shape[0] + 1, number

    dispatch.reset()
    agrees(program, P(2, 2), torch.tensor([[True, False], [True, True]]))
    assert not any("rerun" in reason for reason in dispatch.stats()["reasons"])


@pytest.mark.parametrize("size", [
    lambda i: i.unique().numel(), lambda i: i.unique(return_counts=True)[1].shape[0] + 1,
    lambda i: i.unique_consecutive().shape[0], lambda i: torch.nonzero(i, as_tuple=True)[0].numel(),
])
def test_a_size_that_one_of_several_results_has(size):
    """The part that has it is not left out of the forward, though nothing reads its values."""
    dispatch.reset()
    agrees(lambda x, i: (x * 2, size(i)), P(2, 2), torch.tensor([2, 0, 2, 1]))
    assert not any("rerun" in reason for reason in dispatch.stats()["reasons"])


def test_a_size_of_the_only_result_which_the_forward_checks():
    def program(x):
        n = (x[:, 0] > 0).sum().item()
        return torch.zeros(n, 3) + x[:n]

    dispatch.reset()
    agrees(program, P(5, 3))
    assert not any("rerun" in reason for reason in dispatch.stats()["reasons"])


@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize("number", [
    lambda y: y.abs().max().item(), lambda y: (y > 0).sum().item(), lambda y: y.isfinite().all().item(),
    lambda y: y.nonzero().shape[0],
])
def test_a_number_read_after_what_needs_gradients_is_a_result_and_the_backward_has_it(number, dynamic):
    def program(x, w):
        y = x @ w
        with torch.no_grad():
            found = number(y)
        z = (y * found).tanh() + found
        return z, z[0], found

    compiled = check(program, P(2, 3), P(3, 4), dynamic=dynamic)
    x, w = P(2, 3), P(3, 4)
    for function in (program, compiled):  # differentiated twice, and again after that
        x.grad = None
        loss = function(x, w)[0].sum()
        first, = torch.autograd.grad(loss, x, create_graph=True)
        first.square().sum().backward(retain_graph=True)
        loss.backward()
        assert x.grad is not None
        if function is program:
            expected = x.grad
    torch.testing.assert_close(x.grad, expected)


def test_a_number_read_in_a_checkpointed_region():
    def program(x, w):
        def block(x):
            y = (x @ w).tanh()
            with torch.no_grad():
                largest = y.abs().max().item()
            return y / largest

        return checkpoint(block, x, use_reentrant=False) * 2

    check(program, P(2, 3), P(3, 4))
