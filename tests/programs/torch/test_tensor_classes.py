"""Programs about classes of tensors: which are parameters, and methods that they get between two calls."""

# mypy: ignore-errors

from __future__ import annotations

import pytest
import torch

from ..checking import Programs, call, check
from .wrapper_classes import Wrapped

program = Programs()
X = torch.ones(2)


@program
def parameters_of_a_wrapper_class(compile):
    P = torch.nn.Parameter

    class F(torch.Tensor):
        pass

    w = P(Wrapped(torch.ones(2)))
    f = P(torch.ones(2).as_subclass(F))
    q = P(torch.ones(2))
    n = torch.ones(2)
    b = torch.nn.Buffer(torch.ones(2))
    wn = Wrapped(torch.ones(2))
    wb = torch.nn.Buffer(Wrapped(torch.ones(2)))
    L = (w, f, q, n, b, wn, wb)

    def h(x):
        return (
            x * 2,
            [isinstance(t, P) for t in L],
            [isinstance(t, torch.nn.Buffer) for t in L],
            [isinstance(t, torch.Tensor) for t in L],
            [isinstance(t, (F, Wrapped)) for t in L],
            [type(t).__name__ for t in L],
            [issubclass(type(t), P) for t in L],
            [t.__class__.__name__ for t in L],
        )

    return call(compile(h), X)


@program
def is_it_a_parameter(compile):
    w = torch.nn.Parameter(Wrapped(torch.ones(2)))

    def h(x):
        return x * 2 if isinstance(w, torch.nn.Parameter) else x * 3

    def g(x, w):
        return x * 2 if isinstance(w, torch.nn.Parameter) else x * 3

    m = torch.nn.Linear(2, 2, bias=False)
    m.weight = w

    def k(x):
        return x * len([p for p in m.parameters() if isinstance(p, torch.nn.Parameter)])

    return call(compile(h), X), call(compile(g), X, w), call(compile(g), X, Wrapped(torch.ones(2))), call(compile(k), X)


@program
def methods_given_to_a_tensor_class(compile):
    class S(torch.Tensor):
        def twice(self):
            return self * 2

    def h(x):
        return (x.twice(), x.thrice() if hasattr(x, "thrice") else None, x.k if hasattr(x, "k") else None)

    h = compile(h)
    x = torch.ones(2).as_subclass(S)
    o = [h(x)]
    S.thrice = lambda self: self * 3
    o.append(h(x))
    S.twice = lambda self: self * 20
    o.append(h(x))
    S.k = 5
    o.append(h(x))
    S.k = 6
    o.append(h(x))
    S.__add__ = lambda self, o: self * 7
    g = compile(lambda x: x + 1)
    o.append(g(x))
    S.__add__ = lambda self, o: self * 8
    o.append(g(x))
    del S.__add__
    o.append(g(x))
    del S.thrice
    o.append(h(x))
    return o


@program
def special_methods_given_to_a_tensor_class(compile):
    class S(torch.Tensor):
        pass

    g = compile(lambda x: (x + 1, x.relu(), x.sum(), x[0], len(x), x.shape, -x, x.sin().cos(), torch.add(x, 1)))
    x = (torch.ones(2) * -1).as_subclass(S)
    o = [g(x)]
    S.__add__ = lambda self, o: self * 7
    o.append(g(x))
    S.relu = lambda self: self * 9
    o.append(g(x))
    S.__getitem__ = lambda self, i: i
    o.append(g(x))
    S.__len__ = lambda self: 77
    o.append(g(x))
    S.shape = property(lambda self: (1, 2, 3))
    o.append(g(x))
    S.__neg__ = lambda self: self * 3
    o.append(g(x))
    S.__torch_function__ = classmethod(
        lambda cls, f, t, a=(), k=None: (
            super(S, cls).__torch_function__(f, t, a, k or {}) if f is not torch.Tensor.sum else 99
        )
    )
    o.append(g(x))
    return o


@program
def methods_given_to_a_parameter_class(compile):
    "a plain subclass found through a module's parameter"

    class S(torch.nn.Parameter):
        pass

    m = torch.nn.Module()
    m.w = S(torch.ones(2))
    g = compile(lambda x: x * m.w.scale() if hasattr(m.w, "scale") else x + m.w)
    o = [g(X)]
    S.scale = lambda self: self * 4
    o.append(g(X))
    S.scale = lambda self: self * 5
    o.append(g(X))
    return o


@program
def a_gradient_of_a_result_of_a_class(compile):
    class Tagged(torch.Tensor):
        pass

    def hidden_and_loss(x, write):
        hidden = (x * 2).as_subclass(Tagged)
        if write:
            hidden.add_(1)
        return hidden, (hidden * x.as_subclass(Tagged)).cos().sum()

    fast, found = compile(hidden_and_loss), []
    for write in (False, True):
        hidden, loss = fast(torch.ones(2, requires_grad=True), write)
        (gradient,) = torch.autograd.grad(loss, hidden)
        found += [type(hidden).__name__, type(gradient).__name__, hidden.detach().clone(), gradient, hidden._version]
    return found


@program
def a_gradient_of_a_result_whose_class_has_slots(compile):
    class Slotted(torch.Tensor):
        __slots__ = ("note",)

    def hidden_and_loss(x):
        hidden = (x * 2).as_subclass(Slotted)
        return hidden, (hidden * 3).sum()

    hidden, loss = compile(hidden_and_loss)(torch.ones(2, requires_grad=True))
    return type(hidden).__name__, hidden.detach(), torch.autograd.grad(loss, hidden)


@program
def results_of_a_class_beside_the_plain_ones(compile):
    class Tagged(torch.Tensor):
        pass

    def views(x):
        plain, given = x * 2, x.as_subclass(Tagged)
        tagged, again = plain.as_subclass(Tagged), plain.as_subclass(Tagged)
        loss = (tagged * 3).sum() + (again * given).sum()
        return plain, tagged, again, given, tagged.as_subclass(torch.Tensor), loss

    x = torch.ones(2, requires_grad=True)
    results = compile(views)(x)
    same = [a is b for a in (*results, x) for b in (*results, x)]
    return [type(result).__name__ for result in (*results, x)], same, torch.autograd.grad(results[-1], results[1:4])


@pytest.mark.parametrize("name", program)
def test_a_program(name):
    check(program[name])
