"""Attributes that a call deletes, asks for again, and stores again: in objects, modules and through `__dict__`."""

from __future__ import annotations

import pytest
import torch

from ..checking import Programs, call, check, check_whole

function = Programs()


class Base:
    factor = 7

    def scale(self):
        return 10


class Plain(Base):
    def __init__(self):
        self.own = 1
        self.factor = 3
        self.scale = lambda: 20


class Net(torch.nn.Module):
    factor = 7

    def __init__(self):
        super().__init__()
        self.own = 1
        self.linear = torch.nn.Linear(3, 3)
        self.register_buffer("running", torch.ones(3))


@function
def asked_for(x, o):
    del o.own
    return x + hasattr(o, "own") + getattr(o, "own", 5)


@function
def what_the_class_has(x, o):
    del o.factor, o.scale
    return x * o.factor + o.scale()


@function
def in_the_dict(x, o):
    del o.own
    return x + ("own" in o.__dict__) + vars(o).get("own", 9) + len(vars(o))


@function
def a_dict_that_was_asked_for_before(x, o):
    held = vars(o)
    o.new = 5
    del o.own
    return x + held["new"] + len(held), "own" in held, list(held), held is vars(o)


@function
def stored_again(x, o):
    o.first, o.second = 1, 2
    del o.own, o.first
    o.own, o.first = 8, 3
    return x + o.own, list(vars(o))


@function
def through_the_dict(x, o):
    held = vars(o)
    held["new"] = held.pop("own")
    return x + o.new + hasattr(o, "own"), list(held)


@pytest.mark.parametrize("name", function)
def test_of_an_object(name):
    def use(compile):
        f, made = compile(function[name]), [Plain() for _ in range(2)]
        return [(f(torch.ones(3), o), list(vars(o))) for o in made], made

    check_whole(use)


def test_of_a_module():
    def fn(x, net):
        x = net.linear(x)
        del net.own, net.linear, net.running
        missing = [hasattr(net, name) for name in ("own", "linear", "running")]
        return x.relu() * net.factor, missing, list(net.state_dict())

    def use(compile):
        torch.manual_seed(0)
        f = compile(fn)
        return [f(torch.ones(2, 3), Net()) for _ in range(2)]

    check_whole(use)


def test_of_a_dict_that_is_held_over_a_break():
    def fn(x, o):
        held = vars(o)
        print("here")
        o.new = 3
        held["last"] = x.sum()
        return x + len(held) + o.last, list(held)

    def use(compile):
        f, made = compile(fn), [Plain() for _ in range(2)]
        return [(f(torch.ones(3), o), list(vars(o))) for o in made]

    check(use)


def popped(x, o):
    name, value = o.__dict__.popitem()
    return x + len(name), value, list(o.__dict__)


def popped_with_a_default(x, o):
    held = vars(o)
    value = held.pop("nothing", 3)
    try:
        held.pop("nothing")
    except KeyError as e:
        return x + value, str(e)


def updated(x, o):
    held = o.__dict__
    held.update(new=5, own=6)
    del held["factor"]
    return x + o.new + o.own + o.factor, list(held)


def all_but_one(x, o):
    held = o.__dict__
    for name in list(held):
        if name != "own":
            held.pop(name)
    return x + o.own, held


def exchanged(x, o):
    o.new = 3
    vars(o).pop("new")
    held = vars(o)
    held["own"] = held.pop("factor") + held.pop("own")
    return x + o.own, list(held)


def merged(x, o):
    o.__dict__ |= {"new": 4}
    return x + o.new


def cleared(x, o):
    o.__dict__.clear()
    return x + hasattr(o, "own"), len(vars(o))


@pytest.mark.parametrize("fn", [popped, popped_with_a_default, updated, all_but_one, exchanged, merged, cleared])
def test_of_a_dict_with_methods(fn):
    def use(compile):
        f, made = compile(fn), [Plain() for _ in range(2)]
        return [(call(f, torch.ones(3), o), list(vars(o))) for o in made]

    check(use)
