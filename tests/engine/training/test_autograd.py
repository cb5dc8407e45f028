"""What autograd lets a program do with the results of a compiled graph, against eager."""
from __future__ import annotations

import copy
import gc
import threading
import weakref

import pytest
import torch
import torch.nn.functional as F
from torch.utils.checkpoint import checkpoint

from .checking import P, check, compile, leaves, same

R = torch.randn


def layer(x, w, b):
    return F.gelu(F.linear(x, w, b)).sin()


def both(surroundings, program, *inputs, graphs=1):
    """`surroundings(function, *inputs)` with the program, and with it compiled: what both return is compared."""
    compiled = compile(program)
    expected = surroundings(program, *leaves(*inputs))
    got = surroundings(compiled, *leaves(*inputs))
    same([(str(i), x) for i, x in enumerate(got)], [(str(i), x) for i, x in enumerate(expected)])
    assert compiled.fallbacks == []
    assert len(compiled.contexts) == graphs


def inputs(dtype=torch.float32):
    return P(5, 8, dtype=dtype), P(8, 8, dtype=dtype), P(8, dtype=dtype)


def test_results_that_are_not_differentiable():
    def program(x):
        y = x * 2
        with torch.no_grad():
            z = y + 1
        return y, y.argmax(1), y > 0, y.detach(), z, y.sum().detach()

    check(program, P(3, 4))


def test_an_input_that_is_detached_inside_may_come_from_a_graph_that_was_freed():
    """A recurrent net that cuts its history itself: without gradients for it, its last step is not asked for any."""
    def surroundings(function, x, state, w):
        asked = []
        for _ in range(3):
            state.register_hook(lambda gradient: asked.append(x.new_tensor(gradient is None)))
            state = function(x, state, w)
            state.sum().backward()
        assert not asked
        return [state, x.grad, w.grad]

    both(surroundings, lambda x, state, w: torch.tanh(x @ w + state.detach()), P(2, 3), P(2, 3), P(3, 3))


def test_no_result_is_differentiable():
    check(lambda x: (x * 2).detach(), P(3))


def test_some_inputs_have_no_gradient():
    check(lambda x, y, z: (x * y.detach()).sum() + z.detach().sum(), P(3), P(3), P(3))


def test_a_gradient_that_is_a_constant_zero_or_the_tangent_itself():
    check(lambda x, y: (x + y, x * 0), P(3), P(3))
    check(lambda x, y: x.view(-1) + y, P(3, 4), P(12))


def test_gradients_accumulate():
    def surroundings(function, x, w, b):
        for _ in range(3):
            function(x, w, b).sum().backward()
        return x.grad, w.grad, b.grad

    both(surroundings, layer, *inputs())


def test_gradients_do_not_share_memory():
    def surroundings(function, x, y):
        function(x, y).sum().backward()
        before = y.grad.clone()
        x.grad.mul_(3)
        return x.grad, y.grad, before

    both(surroundings, lambda x, y: x + y.t(), P(4, 4), P(4, 4))
    both(surroundings, lambda x, y: (x * 2).view(-1) + (y * 2).view(-1), P(4, 4), P(4, 4))


def test_backward_twice_with_retain_graph():
    def surroundings(function, x, w, b):
        y = function(x, w, b)
        y.sum().backward(retain_graph=True)
        first = w.grad.clone()
        y.pow(2).sum().backward()
        return first, x.grad, w.grad, b.grad

    both(surroundings, layer, *inputs())


def test_a_second_backward_without_it_is_eagers_error():
    def surroundings(function, x, w, b):
        y = function(x, w, b)
        y.sum().backward()
        with pytest.raises(RuntimeError, match="backward through the graph a second time"):
            y.sum().backward()
        return (x.grad,)

    both(surroundings, layer, *inputs())


def test_changing_what_was_saved_is_eagers_error():
    def surroundings(function, x, w, b):
        y = function(x, w, b)
        with torch.no_grad():
            w.mul_(2)
        with pytest.raises(RuntimeError, match="modified by an inplace operation"):
            y.sum().backward()
        return ()

    both(surroundings, layer, *inputs())


def test_changing_a_result_leaves_what_was_saved_of_another():
    """Both are the same numbers, which a program may change in one of them."""
    def surroundings(function, x, w):
        y, z = function(x, w)
        y.zero_()
        z.sum().backward()
        return (w.grad,)

    both(surroundings, lambda x, w: (x.exp(), x.exp() * w), R(5), P(5))


def test_only_some_results_are_used():
    def program(x, w):
        return x.sin() @ w, (x * w).exp(), x.sum()

    def surroundings(function, x, w):
        y, _, s = function(x, w)
        return torch.autograd.grad(y.sum() + s, [w, x])

    both(surroundings, program, P(4, 4), P(4, 4))


@pytest.mark.parametrize("tangent", ["expanded", "transposed", "sliced", "double strided", "offset"])
def test_tangents_in_other_layouts(tangent):
    def surroundings(function, x, w, b):
        y = function(x, w, b)
        generator = torch.Generator().manual_seed(3)
        make = {
            "expanded": lambda: torch.ones(()).expand(5, 8),
            "transposed": lambda: torch.randn(8, 5, generator=generator).t(),
            "sliced": lambda: torch.randn(5, 16, generator=generator)[:, ::2],
            "double strided": lambda: torch.randn(10, 8, generator=generator)[::2],
            "offset": lambda: torch.randn(41, generator=generator)[1:].view(5, 8),
        }[tangent]
        y.backward(make())
        return x.grad, w.grad, b.grad

    both(surroundings, layer, *inputs())


def test_double_backward():
    def surroundings(function, x, w, b):
        y = function(x * 2, w, b)
        (gradient,) = torch.autograd.grad(y.sum(), [x], create_graph=True)
        penalty = gradient.pow(2).sum() + y.mean()
        return (gradient, *torch.autograd.grad(penalty, [x, w, b]))

    both(surroundings, layer, *inputs(torch.float64))


def test_double_backward_after_an_input_that_nothing_saves_has_changed():
    """Eager needs only the exponential; the second derivative, for which the call would be repeated, is refused."""
    def surroundings(function, x):
        y = function(x)
        with torch.no_grad():
            x.mul_(2)
        (gradient,) = torch.autograd.grad(y.sum(), [x], create_graph=True)
        assert gradient.requires_grad
        return [gradient.detach()]

    program = lambda x: (x + 1).exp()
    both(surroundings, program, P(3))
    x = P(3)
    y = compile(program)(x)
    with torch.no_grad():
        x.mul_(2)
    (gradient,) = torch.autograd.grad(y.sum(), [x], create_graph=True)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        gradient.sum().backward()


def test_many_backwards_at_once():
    def surroundings(function, x, w):
        y, z = function(x, w)
        each = torch.eye(2)
        batched = torch.autograd.grad(y, [x, w], each, is_grads_batched=True, retain_graph=True)
        one = torch.func.vmap(lambda t: torch.autograd.grad(y, x, t, retain_graph=True)[0])(each)
        two = torch.autograd.grad([y, z], [x, w], [each, torch.ones(2, 3, 2)], is_grads_batched=True)
        with pytest.raises(RuntimeError, match="second time"):
            torch.autograd.grad(y.sum(), x)
        return [*batched, one, *two]

    both(surroundings, lambda x, w: ((x @ w).exp().sum(0), x.sin()), P(3, 2), P(2, 2))


def test_double_backward_with_inputs_that_depend_on_each_other():
    def surroundings(function, x):
        y = x.exp()
        z = function(x, y)
        first = torch.autograd.grad(z.sum(), [x, y], create_graph=True)
        return (*first, *torch.autograd.grad(first[0].sum() + first[1].sum(), [x]))

    both(surroundings, lambda x, y: (x * y).sin(), P(4))


def test_double_backward_with_changed_inputs_views_and_random_numbers():
    def program(x, w, stat):
        stat.mul_(0.5).add_(x.detach().mean())
        y = F.dropout(x.exp(), 0.5) * w
        z = (x + w).sin()
        x.mul_(w)
        return y, z.view(-1), z.t()

    def surroundings(function, x, w, stat):
        torch.manual_seed(3)
        h = x.cos()
        y, a, b = function(h, w, stat)
        loss = (y * y).sum() + a.sum() + (b * b).sum() + h.sum()
        first = torch.autograd.grad(loss, [x, w], create_graph=True)
        return (*first, *torch.autograd.grad(first[0].pow(2).sum() + first[1].sum(), [x, w]), stat, y)

    double = torch.float64
    both(surroundings, program, P(4, 4, dtype=double), P(4, 4, dtype=double), R(4, 4, dtype=double))


def test_hooks_on_inputs_results_and_parameters():
    def surroundings(function, x, w, b):
        seen, accumulated = [], []
        h = x * 2
        h.register_hook(lambda g: g * 3)
        h.retain_grad()
        w.register_hook(lambda g: seen.append(g.clone()))
        b.register_post_accumulate_grad_hook(lambda p: accumulated.append(p.grad.clone()))
        y = function(h, w, b)
        y.register_hook(lambda g: g + 1)
        y.retain_grad()
        y.sum().backward()
        return x.grad, h.grad, y.grad, w.grad, b.grad, *seen, *accumulated

    both(surroundings, layer, *inputs())


@pytest.mark.parametrize("unpack", (
    lambda t: t.clone(memory_format=torch.contiguous_format), lambda t: t.t().contiguous().t() if t.dim() == 2 else t,
    lambda t: torch.zeros(1).expand(t.shape),
), ids=("row-major", "column-major", "expanded"))
def test_hooks_may_lay_saved_tensors_out_in_another_way(unpack):
    def surroundings(function, x, w):
        with torch.autograd.graph.saved_tensors_hooks(lambda t: t, unpack):
            y = function(x, w)
        return torch.autograd.grad(y.sum(), [x, w])

    both(surroundings, lambda x, w: (x.t() * w) @ w.t(), P(3, 4), leaves(P(3, 4).t().detach())[0].requires_grad_())


def test_saved_tensor_hooks_see_what_is_saved():
    def surroundings(function, x, w, b):
        with torch.autograd.graph.saved_tensors_hooks(lambda t: t.numpy(force=True).copy(), torch.from_numpy):
            y = function(x, w, b)
        y.sum().backward()
        return x.grad, w.grad, b.grad

    both(surroundings, layer, *inputs())


@pytest.mark.parametrize("reentrant", [False, True])
def test_a_checkpoint_around_the_compiled_function(reentrant):
    def surroundings(function, x, w, b):
        y = checkpoint(function, x, w, b, use_reentrant=reentrant)
        y.sum().backward()
        return y, x.grad, w.grad, b.grad

    both(surroundings, layer, *inputs(), graphs=2 if reentrant else 1)  # one of them for no_grad


def test_backward_in_another_thread():
    def surroundings(function, x, w, b):
        y = function(x, w, b)
        thread = threading.Thread(target=lambda: y.sum().backward())
        thread.start()
        thread.join()
        return x.grad, w.grad, b.grad

    both(surroundings, layer, *inputs())


def test_dropout_is_the_same_under_one_seed():
    def surroundings(function, x, w):
        found = []
        for seed in (1, 1, 2):
            torch.manual_seed(seed)
            y = function(x, w)
            y.sum().backward()
            found += [y, x.grad, torch.rand(2)]
            x.grad = None
        return found

    both(surroundings, lambda x, w: F.dropout(F.dropout(x @ w, 0.3).relu(), 0.6) * 2, P(8, 8), P(8, 8))


@pytest.mark.parametrize("where", ["outside", "inside", "inside, and off again", "backward too"])
def test_autocast(where):
    def program(x, w, b):
        if where.startswith("inside"):
            with torch.autocast("cpu", torch.bfloat16):
                y = F.linear(x, w, b)
                if "off" in where:
                    with torch.autocast("cpu", enabled=False):
                        y = y.float() @ w
        else:
            y = F.linear(x, w, b)
        return y.float().sin().sum() if "off" in where else y

    def surroundings(function, x, w, b):
        with torch.autocast("cpu", torch.bfloat16, enabled=not where.startswith("inside")):
            y = function(x, w, b)
            if where == "backward too":
                y.float().sum().backward()
        if where != "backward too":
            y.float().sum().backward()
        return y, x.grad, w.grad, b.grad

    both(surroundings, program, *inputs())


def test_casts_of_the_graph_are_not_cast_again():
    def program(x, w):
        with torch.autocast("cpu", enabled=False):
            return x @ w

    def surroundings(function, x, w):
        with torch.autocast("cpu", torch.bfloat16):
            y = function(x, w)
        y.sum().backward()
        return y, x.grad, w.grad

    both(surroundings, program, P(8, 8), P(8, 8))


def test_under_no_grad_and_with_inputs_that_do_not_require_grad():
    def surroundings(function, x, w, b):
        y = function(x, w, b)
        with torch.no_grad():
            plain = function(x, w, b)
        other = function(x.detach(), w, b)
        (y.sum() + other.sum()).backward()
        assert (y.requires_grad, plain.requires_grad, other.requires_grad) == (True, False, True)
        return y, plain, other, x.grad, w.grad

    both(surroundings, layer, *inputs(), graphs=3)


def test_sizes_that_vary():
    def program(x, w):
        y = (x @ w).relu()
        return y / y.shape[0], (y.view(-1) * x.shape[0]).sum()

    compiled = compile(program, dynamic=True)
    for n in (3, 7, 4):
        torch.manual_seed(n)
        x, w = P(n, 8), P(8, 8)
        found = []
        for function in (program, compiled):
            a, b = leaves(x, w)
            y, s = function(a, b)
            (y.sin().sum() + s).backward()
            found.append([("y", y), ("s", s), ("x", a.grad), ("w", b.grad)])
        same(found[1], found[0])
    assert len(compiled.contexts) == 1
    assert compiled.fallbacks == []


def test_sizes_that_only_the_backward_needs():
    def program(x):
        return x.sum() * 2, x.mean(0).sum()

    compiled = compile(program, dynamic=True)
    for n in (3, 5):
        x = P(n, 4)
        a, b = program(x)
        (a + b).backward()
        expected, x.grad = x.grad, None
        a, b = compiled(x)
        (a + b).backward()
        same([("x", x.grad)], [("x", expected)])
    assert compiled.fallbacks == []


def test_complex_numbers():
    def program(x, w):
        z = x * w
        return z.abs(), torch.view_as_real(z).sum(-1), (z.conj() * x).real

    check(program, P(3, 4, dtype=torch.complex64), P(3, 4, dtype=torch.complex64))


def test_embedding():
    def program(i, w):
        return F.embedding(i, w, padding_idx=1).sum(1)

    check(program, torch.tensor([[0, 1, 2], [2, 2, 5]]), P(6, 4))


def test_sparse_gradients():
    def surroundings(function, i, w):
        function(i, w).sum().backward()
        assert w.grad.is_sparse
        return (w.grad.to_dense(),)

    both(surroundings, lambda i, w: F.embedding(i, w, sparse=True) * 2, torch.tensor([0, 2, 2]), P(4, 3))


def test_a_sparse_tangent():
    def surroundings(function, i, w):
        F.embedding(i, function(w), sparse=True).sum().backward()
        assert w.grad.is_sparse
        return (w.grad.to_dense(),)

    both(surroundings, lambda w: w.sin() * 2, torch.tensor([0, 2, 2]), P(4, 3))
    both(surroundings, lambda w: w * 2, torch.tensor([0, 2, 2]), P(4, 3))


def test_shared_parameters():
    class Tied(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.a = torch.nn.Linear(4, 4)
            self.b = torch.nn.Linear(4, 4, bias=False)
            self.b.weight = self.a.weight

        def forward(self, x):
            return self.b(self.a(x).tanh())

    model = Tied()
    other = copy.deepcopy(model)
    x = R(3, 4)
    compiled = compile(model)
    compiled(x).sum().backward()
    other(x).sum().backward()
    same([(n, p.grad) for n, p in model.named_parameters()], [(n, p.grad) for n, p in other.named_parameters()])
    assert compiled.fallbacks == []


def test_what_was_saved_is_freed():
    compiled = compile(lambda x, w: (x @ w).sin().cos())
    x, w = P(4, 4), P(4, 4)
    compiled(x * 2, w)  # compiles; what is left of that is garbage
    gc.collect()
    h = x * 2
    y = compiled(h, w)
    node, kept = y.grad_fn, weakref.ref(h)
    del h
    y.sum().backward()
    assert kept() is None
    del y, node
    y = compiled(x * 2, w)
    node = weakref.ref(y.grad_fn)
    del y
    gc.collect()
    assert node() is None


def test_gradients_are_handed_over_not_copied():
    program = compile(lambda x, w: (x @ w).sin())
    x, w = P(4, 4), P(4, 4)
    seen = []
    w.register_hook(lambda g: seen.append(g.data_ptr()))
    program(x, w).sum().backward()
    assert w.grad.data_ptr() == seen[0]


def test_an_error_of_the_program_in_the_forward():
    def program(x, i):
        return x[i] * 2

    compiled = compile(program)
    x = P(4)
    compiled(x, torch.tensor([1, 2])).sum().backward()
    with pytest.raises(IndexError):
        compiled(x, torch.tensor([1, 7]))
