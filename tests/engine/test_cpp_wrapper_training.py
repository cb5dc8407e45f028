"""The C++ wrappers of a training graph's halves against eager: gradients, what they share, what is freed."""
from __future__ import annotations

import ctypes
import gc
import weakref

import ptdebug
import pytest
import torch
from torch import nn


@pytest.fixture
def fast(monkeypatch):
    """`ptdebug.compile`, each graph of which must have C++ wrappers."""
    from ptdebug.engine.codegen.cpp_wrapper import adding

    made = []
    write = adding.NativeWriter.write

    def noted(writer):
        source = write(writer)
        made.append(writer.backward)
        return source

    monkeypatch.setattr(adding.NativeWriter, "write", noted)
    monkeypatch.setenv("PTDEBUG_GRAPH_CACHE", "0")

    def wrap(program):
        return ptdebug.compile(program, options={"cpp_wrapper": True})

    yield wrap
    assert set(made) == {False, True}


def gradients(program, inputs, tangent=None):
    own = [x.detach().clone().requires_grad_(x.requires_grad) for x in inputs]
    result = program(*own)
    result.backward(tangent if tangent is not None else torch.ones_like(result))
    return [result.detach(), *[x.grad for x in own if x.requires_grad]]


def agree(fast, program, inputs, tangent=None):
    compiled = fast(program)
    for _ in range(2):
        for a, b in zip(gradients(compiled, inputs, tangent), gradients(program, inputs, tangent)):
            assert a.stride() == b.stride()
            torch.testing.assert_close(a, b)
    return compiled


def needing(*shapes):
    return [torch.randn(shape, requires_grad=True) for shape in shapes]


def test_gradients_of_a_small_network(fast):
    program = lambda x, w, b, v: torch.relu(torch.addmm(b, x, w)).matmul(v).softmax(-1)
    agree(fast, program, needing((5, 4), (4, 6), (6,), (6, 3)), torch.randn(5, 3))


def test_gradients_of_a_convolution(fast):
    program = lambda x, w, b: torch.conv2d(x, w, b, padding=1).sigmoid().mean((2, 3))
    agree(fast, program, needing((2, 3, 6, 6), (4, 3, 3, 3), (4,)))


@pytest.mark.parametrize("tangent", [
    torch.ones(()).expand(4, 3), torch.randn(3, 4).t(), torch.imag(torch.randn(4, 3).cfloat().conj()),
    torch._neg_view(torch.randn(4, 3)),
])
def test_tangents_of_other_layouts(fast, tangent):
    agree(fast, lambda x, y: (x * y).cumsum(0).sin(), needing((4, 3), (4, 3)), tangent)


def test_a_tangent_that_is_missing(fast):
    def program(x):
        return x.sin(), (x * 2).cumsum(0)

    compiled = fast(program)
    x, y = needing((4,)) * 2
    x, y = x.detach().requires_grad_(), y.detach().requires_grad_()
    compiled(x)[1].sum().backward()
    program(y)[1].sum().backward()
    assert torch.equal(x.grad, y.grad)


def test_gradients_that_are_one_value_are_not_one_memory(fast):
    def program(x, y, z):
        return x + y + z.cumsum(0)

    inputs = needing((4,), (4,), (4,))
    fast(program)(*inputs).backward(torch.randn(4))
    inputs[2].grad.zero_()
    assert torch.equal(inputs[0].grad, inputs[1].grad) and bool(inputs[0].grad.any())


def test_what_was_saved_may_be_used_again_or_is_freed(fast):
    compiled = fast(lambda x: (x.exp() * x).cumsum(0))
    (x,) = needing((50,))
    y = compiled(x)
    y.backward(torch.ones(50), retain_graph=True)
    first = x.grad.clone()
    y.backward(torch.ones(50))
    torch.testing.assert_close(x.grad, 2 * first)
    with pytest.raises(RuntimeError, match="second time"):
        y.backward(torch.ones(50))
    gone = weakref.ref(y)
    del y
    gc.collect()
    assert gone() is None


def test_a_training_loop(fast):
    torch.manual_seed(0)
    ours = nn.Sequential(nn.Linear(6, 8), nn.LayerNorm(8), nn.GELU(), nn.Linear(8, 2))
    theirs = nn.Sequential(nn.Linear(6, 8), nn.LayerNorm(8), nn.GELU(), nn.Linear(8, 2))
    theirs.load_state_dict(ours.state_dict())
    data = torch.randn(5, 16, 6)
    for model, call in ((ours, fast(ours)), (theirs, theirs)):
        step = torch.optim.SGD(model.parameters(), lr=0.1)
        for batch in data:
            step.zero_grad()
            call(batch).square().mean().backward()
            step.step()
    for a, b in zip(ours.parameters(), theirs.parameters()):
        torch.testing.assert_close(a, b)


def test_sizes_that_vary(fast):
    compiled = ptdebug.compile(lambda x, y: torch.softmax(x * y, 1).cumsum(0) @ y.t(), dynamic=True,
                               options={"cpp_wrapper": True})
    for n, m in ((4, 5), (7, 3), (2, 9)):
        agree(lambda program: compiled, lambda x, y: torch.softmax(x * y, 1).cumsum(0) @ y.t(),
              needing((n, m), (n, m)), torch.randn(n, n))


def test_a_call_that_cannot_run_again_raises_what_torch_says():
    from ptdebug.artifacts.context import CHANGED_INPUTS
    from ptdebug.engine.codegen.cpp_wrapper import load, shim

    with pytest.raises(RuntimeError) as eager:
        torch.empty(2, 3) @ torch.empty(2, 3)
    call = shim.parameters_of("aoti_torch_cpu_mm_out") and shim._library("torch_cpu").aoti_torch_cpu_mm_out
    tensors = [torch.empty(2, 2), torch.empty(2, 3), torch.empty(2, 3)]
    assert call(*[ctypes.c_void_p(id(t) + 16) for t in tensors])
    with pytest.raises(RuntimeError) as ours:
        load._raiser(())(load.FAILED)
    assert getattr(ours.value, CHANGED_INPUTS) and (shim.last_error() == "" or str(ours.value) == str(eager.value))
