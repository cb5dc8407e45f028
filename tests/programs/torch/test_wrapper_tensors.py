"""Tensors that are made of others (`__tensor_flatten__`, `__torch_dispatch__`): inputs, parameters, results of graphs
that are captured and compiled whole, values and gradients as in eager."""
# mypy: ignore-errors
from __future__ import annotations

import contextlib

import ptdebug
import pytest
import torch
import torch.nn.functional as F
from ptdebug.engine import compile as engine
from ptdebug.tracer.runtime.statistics import STATISTICS
from torch.testing._internal.two_tensor import TwoTensor
from torch.utils._python_dispatch import is_traceable_wrapper_subclass

from ..checking import Programs
from .wrapper_classes import Int8, Int8Linear, Scaled

ON_PAIRS = Programs()
WHOLE = Programs()
IN_EAGER = Programs()


def pair(*sizes):
    return TwoTensor(torch.randn(*sizes), torch.randn(*sizes))


def quantized(kind):
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.ReLU(), torch.nn.Linear(16, 4))
    for layer in (model[0], model[2]):
        layer.weight = torch.nn.Parameter(kind.of(layer.weight.detach()), requires_grad=False)
    return model


# ---- functions of two pairs, without gradients and with them ---------------------------------------------------------
@ON_PAIRS
def pointwise(x, y):
    return (x * 2).sin() + y


@ON_PAIRS
def a_product(x, y):
    return x @ y.t()


@ON_PAIRS
def with_a_plain_tensor(x, y):
    return x + torch.ones(4)


@ON_PAIRS
def made_inside(x, y):
    return TwoTensor(x.detach().a, y.detach().b) * 2


@ON_PAIRS
def inner_tensors(x, y):
    return x.a * 2 + y.b, x.get_elem_a() + 1


@ON_PAIRS
def results_that_are_inputs_or_one_another(x, y):
    z = x * y
    return x, z, z, y, z + 1


@ON_PAIRS
def views(x, y):
    return x.view(-1) * 2, (x * 2).t(), x.chunk(2, 1)[0] + 1, y[1:, 0] * 3


@ON_PAIRS
def losses(x, y):
    return F.mse_loss(x, y), F.softmax(x, -1) * y.sum()


@ON_PAIRS
def what_they_are(x, y):
    factor = (2 if isinstance(x, TwoTensor) else 3) * (5 if type(x) is TwoTensor else 7)
    return x.reshape(x.shape[1], x.size(0)) * factor * x.dim() * (11 if isinstance(x, torch.nn.Parameter) else 13)


@ON_PAIRS
def lists(x, y):
    return torch.cat([x, y])


@ON_PAIRS
def some_detached(x, y):
    return x.detach() * 2, y.sum()


@ON_PAIRS
def in_place_of_what_is_made(x, y):
    return (x * 2).add_(1).mul_(y)


@ON_PAIRS
def under_no_grad(x, y):
    with torch.no_grad():
        z = x * 2
    return z, z + y


@ON_PAIRS
def under_autocast(x, y):
    with torch.autocast("cpu", torch.bfloat16):
        return x @ y.t()


# ---- whole programs --------------------------------------------------------------------------------------------------
@WHOLE
def quantized_weights(compile):
    found = []
    for kind in (Int8, Int8Linear):
        model = quantized(kind)
        f = compile(model)
        with torch.no_grad():
            found += [f(torch.randn(n, 8)) for n in (3, 5, 7, 7)]
        x = torch.randn(3, 8, requires_grad=True)
        f(x).sum().backward()
        found += [x.grad, *[p.grad for p in model.parameters()]]
    return found


@WHOLE
def quantized_inside(compile):
    w, x = torch.randn(4, 4), torch.randn(4, 2)
    made = compile(lambda w: Int8.of(w))(w)
    read = compile(lambda w: (w.data8 * w.axis, w.scale + 1, w.shape[0]))(made)
    return made, read, [compile(lambda w, x, kind=kind: kind.of(w).values() @ x)(w, x) for kind in (Int8, Int8Linear)]


@WHOLE
def other_kinds_of_tensors_later(compile):
    f, a = compile(lambda x: x * 2), torch.randn(3, 3)
    given = [
        TwoTensor(a, a + 1), a, TwoTensor(a.double(), a.double()), TwoTensor(a.t(), a.t()), TwoTensor(a, a * 2),
        TwoTensor(a[1:], a[1:]), TwoTensor(TwoTensor(a, a), TwoTensor(a, a * 3)),
    ]  # fmt: skip
    return list(map(f, given))


@WHOLE
def another_context_later(compile):
    f, a = compile(lambda x: (x * 2, x.k)), torch.randn(3, 3)
    return [f(Scaled(a, a, k)) for k in (1, 2, 2, 3)]


@WHOLE
def wrappers_in_wrappers(compile):
    a = [torch.randn(3, 3) for _ in range(4)]
    x = TwoTensor(TwoTensor(a[0], a[1]), TwoTensor(a[2], a[3])).requires_grad_()
    out = compile(lambda x: (x * x).sin())(x)
    out.sum().backward()
    return out, x.grad


@WHOLE
def derivatives_of_derivatives(compile):
    x = pair(3, 3).requires_grad_()
    out = compile(lambda x: x * x * x)(x)
    (grad,) = torch.autograd.grad(out.sum(), x, create_graph=True)
    (grad * grad).sum().backward()
    return out, grad, x.grad


@WHOLE
def several_backwards(compile):
    x = pair(3, 3).requires_grad_()
    out = compile(lambda x: x * x * x)(x)
    out.sum().backward(retain_graph=True)
    out.sum().backward()
    with pytest.raises(RuntimeError, match="second time"):
        out.sum().backward()
    return out, x.grad


@WHOLE
def a_backward_of_one_result(compile):
    x, y = pair(3, 3).requires_grad_(), pair(3, 3).requires_grad_()
    a, b, c = compile(lambda x, y: (x * y, y.sin(), x.detach()))(x, y)
    b.sum().backward()
    return a, b, c, x.grad, y.grad


@WHOLE
def a_gradient_with_other_strides(compile):
    x = pair(3, 3).requires_grad_()
    compile(lambda x: x.sin())(x).backward(TwoTensor(torch.randn(3, 3).t(), torch.randn(3, 3).t()))
    return x.grad


@WHOLE
def an_input_that_is_written_before_the_backward(compile):
    x = pair(3, 3).requires_grad_()
    out = compile(lambda x: (x * x).sin())(x)
    with torch.no_grad():
        x.mul_(2)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        out.sum().backward()


@WHOLE
def an_input_that_the_graph_writes(compile):
    x = pair(3, 3)
    out = compile(lambda x: (x.add_(1), x * 2)[1])(x)
    return out, x, x._version


@WHOLE
def inner_tensors_that_are_one(compile):
    a = torch.randn(3, 3)
    read = compile(lambda x, a: x * 2 + a)(TwoTensor(a, a), a)
    return read, compile(lambda x: (x.add_(1), x * 2)[1])(TwoTensor(a, a)), a


@WHOLE
def training(compile):
    p = torch.nn.Parameter(pair(3, 3))
    opt = torch.optim.SGD([p], lr=0.1, momentum=0.9)
    f, losses = compile(lambda x: (p * x).sin().sum()), []
    for _ in range(3):
        opt.zero_grad()
        losses.append(f(torch.randn(3, 3)))
        losses[-1].backward()
        opt.step()
    return losses, p


@WHOLE
def inputs_with_a_history(compile):
    x = pair(3, 3).requires_grad_()
    out = compile(lambda x: x.sin())(x * 2)
    out.sum().backward()
    return out, x.grad


@WHOLE
def beside_sizes_that_vary(compile):
    f = compile(lambda x, y: (x * 2, y.view(-1, 2) + y.shape[0]))
    return [f(pair(n, 2), torch.randn(n, 2)) for n in (2, 3, 4, 5)]


@WHOLE
def views_of_inputs_that_need_gradients(compile):
    x, y = pair(3, 3).requires_grad_(), pair(3, 3).requires_grad_()
    view, part, product = compile(lambda x, y: (x.view(-1), y[1:].t(), x * y))(x, y)
    (view.sum() + part.sum() + product.sum()).backward()
    written = x * 2
    compile(lambda z: z.view(-1))(written).mul_(3)
    return view, part, product, x.grad, y.grad, view._base is x, part._base is y, written


@WHOLE
def numbers_that_vary(compile):
    f = compile(lambda x, n, share: x * n + share + torch.arange(x.shape[1]) * x.shape[0])
    return [f(pair(k, k + 1), k, k / 4) for k in (2, 3, 5)], compile(lambda x: x.a.sum().item() * x)(pair(2, 3))


@WHOLE
def gradients_at_sizes_that_vary(compile):
    f, found = compile(lambda x, y: ((x @ y).view(-1).sin(), x.shape[0])), []
    for n in (2, 3, 4, 5):
        x, y = pair(n, 3).requires_grad_(), pair(3, n).requires_grad_()
        out, size = f(x, y)
        out.sum().backward()
        found += [out, size, x.grad, y.grad]
    return found


@WHOLE
def the_inference_mode(compile):
    x = pair(2, 2)
    with torch.inference_mode():
        out = compile(lambda x: x * 2)(x)
        return out.a.clone(), out.is_inference()


@WHOLE
def functions_with_a_backward_of_their_own(compile):
    class Scale(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            return x * 2

        @staticmethod
        def backward(ctx, grad):
            return grad * 3 * ctx.saved_tensors[0]

    x = pair(3, 3).requires_grad_()
    out = compile(lambda x: Scale.apply(x).sin())(x)
    out.sum().backward()
    return out, x.grad


@WHOLE
def hooks_for_what_is_saved(compile):
    x, packed = pair(3, 3).requires_grad_(), []
    with torch.autograd.graph.saved_tensors_hooks(lambda t: (packed.append(1), t.clone())[1], lambda t: t):
        out = compile(lambda x: (x * x).sin())(x)
    out.sum().backward()
    return out, x.grad, bool(packed)


@WHOLE
def subclasses_of_parameters(compile):
    class Tagged(torch.nn.Parameter):
        @staticmethod
        def __new__(cls, data, tag):
            made = torch.Tensor._make_subclass(cls, data, True)
            made.tag = tag
            return made

    layer = torch.nn.Linear(3, 3)
    layer.weight = Tagged(torch.randn(3, 3), 4)
    out = compile(lambda x: layer(x) * layer.weight.tag)(torch.randn(2, 3))
    out.sum().backward()
    return out, layer.weight.grad


@IN_EAGER
def a_write_that_autograd_records(compile):
    x = pair(2, 2).requires_grad_()
    y = x * 1
    out = compile(lambda y: y.mul_(2))(y)
    out.sum().backward()
    return out is y, y, x.grad


@IN_EAGER
def views_of_results(compile):
    x = pair(3, 3).requires_grad_()
    out = compile(lambda x: (lambda y: (y, y.view(-1)))(x * 2))(x)
    out[1].sum().backward()
    return out, x.grad


@IN_EAGER
def random_numbers_in_training(compile):
    x = pair(3, 3).requires_grad_()
    out = compile(lambda x: F.dropout(x, 0.5) * 2)(x)
    out.sum().backward()
    return out, x.grad


# ---- the comparison --------------------------------------------------------------------------------------------------
def parts(value):
    """A value as plain tensors, and what autograd knows of it."""
    if isinstance(value, (list, tuple)):
        return [parts(item) for item in value]
    if not isinstance(value, torch.Tensor):
        return value
    about = [type(value), value.dtype, tuple(value.shape), value.stride(), value.requires_grad, value.is_leaf]
    if not is_traceable_wrapper_subclass(value):
        return [*about, value.detach()]
    names, context = value.__tensor_flatten__()
    return [*about, context, *[parts(getattr(value, name)) for name in names]]


def check_same(a, b):
    assert type(a) is type(b)
    if isinstance(a, list):
        assert len(a) == len(b)
        list(map(check_same, a, b))
    elif isinstance(a, torch.Tensor):
        torch.testing.assert_close(b, a)
    else:
        assert a == b


def check(program, fullgraph=True):
    found = []
    for compile in (lambda f: f, lambda f: ptdebug.compile(f, fullgraph=fullgraph)):
        torch.manual_seed(1)
        found.append(parts(program(compile)))
    check_same(*found)


@pytest.fixture
def in_eager(monkeypatch):
    """Why graphs ran in eager."""
    reasons, eager = [], engine._eager

    def noting(captured, context, why, *detail):
        reasons.append(why)
        return eager(captured, context, why, *detail)

    monkeypatch.setattr(engine, "_eager", noting)
    STATISTICS.reasons.clear()
    yield reasons
    assert not [reason for reason in STATISTICS.reasons if reason.startswith("internal error")]


@pytest.mark.parametrize("tracked", (False, True))
@pytest.mark.parametrize("name", ON_PAIRS)
def test_a_function_of_wrappers_is_compiled_whole(name, tracked, in_eager):
    def program(compile):
        x, y = pair(3, 4).requires_grad_(tracked), pair(3, 4).requires_grad_(tracked)
        found = compile(ON_PAIRS[name])(x, y)
        results = found if isinstance(found, tuple) else (found,)
        if roots := [result.sum() for result in results if result.requires_grad]:
            torch.autograd.backward(roots)
        return found, x.grad, y.grad

    check(program)
    assert not in_eager


@pytest.mark.parametrize("name", WHOLE)
def test_a_program_with_wrappers_is_compiled_whole(name, in_eager):
    check(WHOLE[name])
    assert not in_eager


@pytest.mark.parametrize("name", IN_EAGER)
def test_what_plain_graphs_cannot_express_runs_in_eager(name, in_eager):
    check(IN_EAGER[name])
    assert in_eager


def test_the_parts_of_a_frame_around_a_break_pass_wrappers_on(in_eager):
    def program(compile):
        def fn(x):
            y = x * 2
            print("between")
            return y + x

        x = pair(3, 3).requires_grad_()
        out = compile(fn)(x)
        out.sum().backward()
        return out, x.grad

    with contextlib.redirect_stdout(None):
        check(program, fullgraph=False)
    assert not in_eager
