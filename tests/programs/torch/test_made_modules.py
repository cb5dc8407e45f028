"""Programs that make modules inside of the compiled function."""
from __future__ import annotations

import collections
import copy
import weakref

import ptdebug
import pytest
import torch
import torch.nn as nn
from ptdebug.tracer.frames import dispatch
from torch._dynamo.mutation_guard import install_generation_tagging_init

from ..checking import Programs, call, check

program = Programs()


class Scaled(nn.Module):
    """A helper with a number, a function and a child."""

    kind = "scaled"

    def __init__(self, factor, act=None):
        super().__init__()
        self.factor, self.function = factor, torch.sin
        self.act = nn.ReLU() if act is None else act

    def forward(self, x):
        return self.act(self.function(x)) * self.factor


@program
def helpers(compile):
    def function(x, kept):
        helper = Scaled(3)
        kept.append(helper)
        return helper(x), Scaled(x.sum())(x), nn.Sequential(Scaled(2), nn.Tanh())(x), Scaled(1, Scaled(2))(x)

    f, kept = compile(function), []
    return [f(torch.ones(2, 3) * i, kept) for i in range(3)], kept, [list(vars(helper)) for helper in kept]


@program
def what_leaves(compile):
    def returned(x):
        helper = Scaled(x.sum())
        return helper, helper.act, [helper, helper.function], helper.eval().training, helper.act.training

    def told(x):
        helper = Scaled(2, nn.Sequential(nn.ReLU(), Scaled(3)))
        names = [name for name, _ in helper.named_modules()]
        kinds = [type(module).__name__ for module in helper.children()]
        return names, kinds, len(list(helper.parameters())), helper.kind, hasattr(helper, "weight"), x + len(names)

    def closed_over(x):
        helper = Scaled(2)
        return lambda y: helper(y) + x

    def printed(x):
        return repr(Scaled(2, nn.Sequential(nn.ReLU(), nn.Softmax(dim=-1)))), x + 1

    out = []
    for function in (returned, told, closed_over, printed):
        f = compile(function)
        out += [f(torch.ones(2, 3) * i) for i in range(3)]
    return out, out[6](torch.ones(3))


@program
def over_breaks(compile):
    def before(x):
        helper = Scaled(2)
        print("here")
        return helper(x), helper

    def between(x):
        helper = nn.ModuleList([Scaled(i) for i in range(3)])
        for layer in helper:
            x = layer(x)
            print(layer.factor)
        return x, helper, [a is b for a, b in zip(helper, helper.children())]

    def within(x):
        class Loud(nn.Module):
            def __init__(self):
                super().__init__()
                print("made")
                self.act = nn.Tanh()

            def forward(self, x):
                print("called")
                return self.act(x)

        return Loud()(x) + 1

    return [f(torch.ones(2) * i) for f in map(compile, (before, between, within)) for i in range(3)]


@program
def registered(compile):
    class Buffered(nn.Module):
        def __init__(self, x, weight):
            super().__init__()
            self.register_buffer("mean", x.mean(0))
            self.register_buffer("hidden", None, persistent=False)
            self.weight, self.count = weight, 0

        def forward(self, x):
            self.count += 1
            self.mean = self.mean * 0.5
            self.mean += 1
            self.hidden = x
            return (x - self.mean) * self.weight

    def function(x, weight):
        made = Buffered(x, weight)
        out = made(x) + made(x + 1)
        names = [name for name, _ in made.named_buffers()], list(made.state_dict())
        return out, made, names, [p is weight for p in made.parameters()], made.weight is weight, made.mean

    f, weight = compile(function), nn.Parameter(torch.ones(3))
    out = [f(torch.ones(2, 3) * i, weight) for i in range(3)]
    sum(o[0].sum() for o in out).backward()
    return out, weight.grad


@program
def assigned(compile):
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.child, self.list = nn.Identity(), nn.ModuleList([nn.ReLU()])
            self.lin = nn.Linear(3, 3)

        def forward(self, x):
            self.child = Scaled(2, self.lin)
            self.list[0] = nn.Tanh()
            self.list.append(nn.Sigmoid())
            x = self.child(x)
            for layer in self.list:
                x = layer(x)
            return x

    net = Net()
    f = compile(net)
    return [f(torch.ones(2, 3) * i) for i in range(3)], net, net.child.act is net.lin, len(net.list)


@program
def containers(compile):
    def function(x):
        acts = nn.ModuleDict({"relu": nn.ReLU(), "tanh": nn.Tanh()})
        acts["twice"] = nn.Sequential(acts["relu"], acts["relu"])
        del acts["tanh"]
        ordered = nn.Sequential(collections.OrderedDict(first=nn.ELU(0.5), second=nn.Identity(1, unused=2)))
        ordered.append(nn.Hardtanh(-1, 1))
        both = ordered + nn.Sequential(nn.SiLU())
        parts = ordered[:2](x), ordered.second, both[-1]
        return [act(x) for act in acts.values()], list(acts), both(x), len(both), parts

    f = compile(function)
    return [f(torch.ones(2) * i) for i in range(3)]


@program
def modes_and_hooks(compile):
    def function(x, log):
        drop = nn.Sequential(nn.Dropout(0.5), Scaled(2))
        first = drop(x)
        drop.eval()
        handle = drop[1].register_forward_hook(lambda module, args, out: out + 1)
        drop[0].register_forward_pre_hook(lambda module, args: log.append(module.p))
        second = drop(x)
        handle.remove()
        drop.train(True)
        drop.apply(lambda module: log.append(type(module).__name__))
        return first, second, drop(x), drop.training, drop[0].training, drop

    f, log = compile(function), []
    return [f(torch.ones(2, 3), log) for _ in range(3)], log


@program
def errors(compile):
    class Early(nn.Module):
        def __init__(self):
            self.act = nn.ReLU()

    class Failing(nn.Module):
        def __init__(self, x):
            super().__init__()
            self.act = nn.ReLU()
            self.act = x

    class Abstract(nn.Module):
        pass

    def function(x, which):
        if which == 0:
            return Early()
        if which == 1:
            return Failing(x)
        if which == 2:
            return Scaled(1).missing
        if which == 3:
            return Scaled(1).add_module("a.b", nn.ReLU())
        if which == 4:
            return Abstract()(x)
        try:
            Failing(x * 2)
        except TypeError as error:
            return str(error), x + 1

    f = compile(function)
    return [call(f, torch.ones(2), which) for which in range(6)]


@program
def copies_and_references(compile):
    def function(x):
        helper = Scaled(2)
        helper.tag = [1]
        other, same = copy.copy(helper), weakref.ref(helper)
        other.factor = 5
        del other.act
        other.act = nn.Tanh()
        return helper(x), other(x), same() is helper, helper.tag is other.tag, helper._modules is other._modules, other

    f = compile(function)
    return [f(torch.ones(2) * i) for i in range(3)]


@program
def lazily_and_by_classes(compile):
    class Meta(type):
        def __call__(cls, *args, **kwargs):
            made = super().__call__(*args, **kwargs)
            made.by_meta = cls.__name__
            return made

    class Made(Scaled, metaclass=Meta):
        def __new__(cls, *args):
            made = super().__new__(cls)
            object.__setattr__(made, "early", len(args))
            return made

        def __call__(self, x):
            return super().__call__(x) + self.early

        def __getattr__(self, name):
            return 7 if name == "lucky" else super().__getattr__(name)

    def function(x):
        made = Made(3)
        return made(x), made.by_meta, made.lucky, made, isinstance(made, nn.Module), made == made, made in {made}

    f = compile(function)
    return [f(torch.ones(2) * i) for i in range(3)]


@program
def in_gradients(compile):
    class Loss(nn.Module):
        def __init__(self, net, scale):
            super().__init__()
            self.net, self.scale = net, scale

        def forward(self, x):
            return (self.net(x) * self.scale).sum() + nn.MSELoss()(x, x * self.scale)

    def function(net, x, scale):
        return Loss(net, scale)(x), len(list(Loss(net, scale).parameters()))

    f, net, scale = compile(function), nn.Linear(3, 2), torch.ones((), requires_grad=True)
    for i in range(3):
        f(net, torch.ones(2, 3) * i, scale)[0].backward()
    return scale.grad, [p.grad for p in net.parameters()]


@pytest.mark.parametrize("name", program)
def test_a_program_that_makes_modules_is_the_program(name):
    check(program[name])


@pytest.mark.parametrize("name", ["helpers", "registered", "assigned", "containers", "in_gradients"])
def test_modules_without_parameters_do_not_break_the_graph(name):
    dispatch.reset()
    program[name](lambda function: ptdebug.compile(function, backend=lambda module, inputs: module.forward))
    assert dispatch.stats()["graph_breaks"] == 0, dispatch.stats()["reasons"]


def test_modules_are_made_after_torch_dynamo_has_run(monkeypatch):
    for name in ("__init__", "__setstate__"):
        monkeypatch.setattr(nn.Module, name, getattr(nn.Module, name))
    for _ in range(2):
        monkeypatch.setattr(nn.Module, "___needs_generation_tag_patch", True, raising=False)
        install_generation_tagging_init()
    dispatch.reset()
    check(program["helpers"])
    assert dispatch.stats()["graph_breaks"] == 0, dispatch.stats()["reasons"]
