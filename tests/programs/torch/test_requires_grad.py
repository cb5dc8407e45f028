"""Parameters and inputs that begin to require gradients inside of a compiled function, or cease to."""
# mypy: ignore-errors

from __future__ import annotations

import pytest
import torch
from torch import nn

from ..checking import Programs, call, check, check_engine, check_whole

WHOLE, PROGRAMS = Programs(), Programs()


def _net(outputs=1):
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(2, 3), nn.Tanh(), nn.Linear(3, outputs))


def _flags(*tensors):
    return [(t.requires_grad, t.is_leaf, t.grad) for t in tensors]


@WHOLE
def frozen_before_use(compile):
    net, x = _net(), torch.ones(2, 2, requires_grad=True)

    def fn(x):
        for p in net.parameters():
            p.requires_grad_(False)
        out = net(x)
        return out, net[0].weight, [(p.requires_grad, p.is_leaf, p.grad_fn) for p in net.parameters()]

    fn = compile(fn)
    found = [fn(x), fn(x)]
    (found[0][0] + found[1][0]).sum().backward()
    return found, x.grad, _flags(*net.parameters()), fn(torch.ones(2, 2))[0].requires_grad


@WHOLE
def frozen_after_use(compile):
    """What was recorded before gives a gradient where the parameter wants one in the backward."""

    def fn(net, x):
        before = net(x)
        net.requires_grad_(False)
        return before + net(x) * 2

    found = []
    for again in (False, True):
        net, x = _net(), torch.ones(2, 2, requires_grad=True)
        out = compile(fn)(net, x)
        net.requires_grad_(again)
        out.sum().backward()
        found += x.grad, _flags(*net.parameters())
    return found


@WHOLE
def frozen_for_the_generator_alone(compile):
    makes, judges = _net(outputs=2), _net()

    def fn(x):
        for p in judges.parameters():
            p.requires_grad = False
        fools = judges(makes(x)).mean()
        for p in judges.parameters():
            p.requires_grad = True
        return fools, judges(makes(x).detach()).mean(), [p.requires_grad for p in judges.parameters()]

    fn = compile(fn)
    for _ in range(2):
        fools, judged, _ = found = fn(torch.ones(3, 2))
        fools.backward()
        judged.backward()
    return found, [_flags(*net.parameters()) for net in (makes, judges)]


@WHOLE
def thawed_at_the_end(compile):
    net = _net().requires_grad_(False)

    def fn(x):
        out = net(x)
        net.requires_grad_()
        with torch.no_grad():
            for layer in (net[0], net[2]):
                layer.bias.mul_(0.5)
        return out, net[0].bias

    fn = compile(fn)
    first, second = fn(torch.ones(2, 2)), fn(torch.ones(2, 2))
    second[0].sum().backward()
    return first, second, _flags(*net.parameters())


@WHOLE
def frozen_and_written(compile):
    net = _net()

    def fn(x):
        net.requires_grad_(False)
        net[0].weight.add_(x)
        net[0].bias[0] = 3.0
        net[2].weight.grad = x[:1, 0] * torch.ones(1, 3)
        return net(x[:, :2]), net[0].weight.detach() + 1, net[2].weight.grad

    return compile(fn)(torch.ones(3, 2)), _flags(*net.parameters())


@WHOLE
def views_of_what_is_frozen_that_stay_inside(compile):
    net = _net()

    def fn(x):
        net.requires_grad_(False)
        weight, part = net[0].weight, net[0].weight.t()
        with torch.no_grad():
            weight[0].mul_(2)
        return (x @ part + net[0].bias[:1]).tanh(), weight.view(-1)[1:] * x.sum(), part.detach() + 1

    x = torch.ones(3, 2, requires_grad=True)
    results = compile(fn)(x)
    (results[0].sum() + results[1].sum()).backward()
    return results, x.grad, _flags(*net.parameters())


@WHOLE
def flags_that_change_often(compile):
    w, v = nn.Parameter(torch.ones(3)), nn.Parameter(torch.ones(3), requires_grad=False)

    def fn(x):
        for flag in (False, True, False, True):
            w.requires_grad = flag
            v.requires_grad_(not flag)
            x = x + w * 2
        return x, w.requires_grad, v.requires_grad

    out = compile(fn)(torch.ones(3))
    out[0].sum().backward()
    return out, _flags(w, v)


@WHOLE
def flags_without_gradients(compile):
    w, v = nn.Parameter(torch.ones(3)), nn.Parameter(torch.ones(3), requires_grad=False)

    @torch.no_grad()
    def fn(x):
        w.requires_grad_(False)
        v.requires_grad_(True)
        y = w * x + v
        with torch.enable_grad():
            y = y * (w + x)
        return y, w.requires_grad, v.requires_grad, v * 2

    fn, x = compile(fn), torch.ones(3, requires_grad=True)
    return [fn(x), fn(x)], _flags(w, v)


@PROGRAMS
def thawed_before_use(compile):
    net, x = _net().requires_grad_(False), torch.ones(2, 2)

    def fn(x):
        for p in net[0].parameters():
            p.requires_grad_(True)
        x.requires_grad_()
        out = net(x * 2)
        return out, [p.requires_grad for p in net.parameters()]

    fn = compile(fn)
    found = [fn(x), fn(x)]
    found[1][0].sum().backward()
    return found, _flags(x, *net.parameters())


@PROGRAMS
def thawed_in_the_line_of_its_use(compile):
    def called(x, w):
        return (w.requires_grad_() * x).sum()

    def each(x, *ws):
        for w in ws:
            w.requires_grad = True
            x = x * w
        return x

    def inside(x, w):
        with torch.autocast("cpu", enabled=False):
            w.requires_grad_()
            y = w * x
        return y + w

    found = []
    for fn, count in ((called, 1), (each, 3), (inside, 1)):
        ws = [torch.full((3,), 2.0) for _ in range(count)]
        out = compile(fn)(torch.ones(3), *ws)
        out.sum().backward()
        found += out, _flags(*ws)
    return found


@PROGRAMS
def views_of_what_is_frozen(compile):
    """The base of a view is the parameter, which may begin to need gradients by a write."""

    def base(x, w):
        w.requires_grad_(False)
        part = w[1:]
        return part, part._base is w, x * 2

    def written(x, w):
        w.requires_grad_(False)
        w[0] = x[0]
        return w * 2

    def before(x, w):
        with torch.no_grad():
            part = w.view(1, 3)
        w.requires_grad_(False)
        part.add_(x)
        return w * 2

    def recorded(x, w):
        w.requires_grad_(False)
        w[1:].mul_(x[0])
        return w * 2

    def thawed_after_a_view(x, w):
        w.requires_grad_(False)
        part = w[1:]
        w.requires_grad_(True)
        return part * x[0], w * x

    def thawed(x, w):
        part = w.detach().view(1, 3)
        w.requires_grad_()
        part.add_(x)
        return w.view(3) * 2

    found = []
    for fn in (base, written, before, recorded, thawed_after_a_view, thawed):
        for needs in (True, False):
            x, w = torch.ones(3, requires_grad=True), torch.arange(3.0, requires_grad=needs)
            out = call(compile(fn), x, w)
            found += fn.__name__, needs, out, w.requires_grad, w.is_leaf
    return found


@PROGRAMS
def views_taken_without_gradients(compile):
    """They require gradients while their base does."""

    def made(x, w, other):
        with torch.no_grad():
            part = w.view(1, 3)
        w.requires_grad_(not w.requires_grad)
        return part.requires_grad, (part * x).requires_grad

    def given(x, w, part):
        w.requires_grad_(not w.requires_grad)
        return part.requires_grad, (part * x).requires_grad

    def given_before(x, w, part):
        y = part * x
        w.requires_grad_(not w.requires_grad)
        return y, part.requires_grad, (part * x).requires_grad

    found = []
    for fn in (made, given, given_before):
        for needs in (True, False):
            w = torch.arange(3.0, requires_grad=needs)
            with torch.no_grad():
                part = w.view(1, 3)
            found += call(compile(fn), torch.ones(3), w, part), w.requires_grad, part.requires_grad
    return found


@PROGRAMS
def what_torch_refuses(compile):
    """Of what is no leaf, no float, or of inference mode; and hooks of what is frozen."""

    def off(x):
        x.requires_grad = False
        return x * 2

    def on(x):
        x.requires_grad_(True)
        return x.detach() * 2

    def hooked(x):
        x.requires_grad_(False)
        x.register_hook(lambda gradient: gradient * 2)
        return x * 2

    def differentiated(x):
        y = (x * x).sum()
        x.requires_grad_(False)
        return torch.autograd.grad(y, x)

    leaf = torch.ones(2, requires_grad=True)
    with torch.inference_mode():
        inference = torch.ones(2)
    made = leaf, leaf * 2, leaf[:1], leaf.detach()[:1], torch.ones(2, dtype=torch.int32), inference, leaf.cfloat()
    found = []
    for fn in (off, on, hooked, differentiated):
        for x in made:
            leaf.requires_grad_()
            found += call(compile(fn), x)[:3], x.requires_grad
    return found


@PROGRAMS
def other_data_and_other_flags(compile):
    def data_first(x, w):
        w.data = x * 2
        w.requires_grad_(False)
        return w * x

    def flag_first(x, w):
        w.requires_grad_(False)
        w.data = x * 2
        return w * x

    def hooked_first(x, w):
        w.register_hook(lambda gradient: gradient * 2)
        y = w * x
        w.requires_grad_(False)
        return y + w

    found = []
    for fn in (data_first, flag_first, hooked_first):
        w = nn.Parameter(torch.ones(3))
        out = compile(fn)(torch.ones(3), w)
        w.requires_grad_()
        found += out.requires_grad and out.sum().backward(), out, _flags(w)
    return found


@PROGRAMS
def in_inference_mode(compile):
    net = _net()

    @torch.inference_mode()
    def fn(x):
        net.requires_grad_(False)
        return net(x), net[0].weight.detach(), [p.is_inference() for p in net.parameters()]

    return compile(fn)(torch.ones(2, 2)), _flags(*net.parameters())


@PROGRAMS
def leaves_or_not(compile):
    """Whether an input is a leaf, no other guard asks."""
    leaf = torch.ones(3, requires_grad=True)

    def fn(x):
        x.requires_grad_(False)
        return x * 2

    fn = compile(fn)
    return [call(fn, x)[:3] for x in (leaf.clone().detach().requires_grad_(), leaf * 1, leaf)]


def test_gradients_that_end_in_what_the_graph_made():
    """Its results require gradients, though these reach no input."""
    net = _net()

    def use(compile):
        def fn(x):
            w = x.detach().clone().requires_grad_()
            net(x)  # unused, of parameters that require gradients
            (w * x).sum().backward()
            return x * 2

        fn = compile(fn)
        return [call(fn, torch.ones(2, 2)) for _ in range(2)]

    check_engine(use)


@pytest.mark.parametrize("name", WHOLE)
def test_whole(name):
    check_whole(WHOLE[name])


@pytest.mark.parametrize("name", PROGRAMS)
def test_breaks(name):
    check(PROGRAMS[name])


@pytest.mark.parametrize("name", [*WHOLE])
def test_engine(name):
    check_engine(WHOLE[name])
