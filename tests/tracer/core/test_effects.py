"""Side effects: made once, in program order, with identities kept."""
from __future__ import annotations

import torch

X = torch.arange(4.0)
COUNTER = 0
REGISTRY: list[object] = []


class Box:
    def __init__(self, value=None):
        self.value = value


def attributes(box, x):
    box.value, box.other = x + 1, box.value
    box.value = box.value * 2
    return box.other


def deletes(box, x):
    box.temporary = x
    del box.temporary
    del box.value
    fresh = Box(x)
    del fresh.value
    return x + 1, fresh, hasattr(box, "value")


def swap(box, x):
    box.a, box.b = box.b, box.a
    return x + 1


def containers(items, mapping, x):
    items.append(x + 1)
    items[0] = "first"
    mapping["new"] = items
    mapping.pop("old")
    return x * 2, items


def bump(x):
    global COUNTER
    COUNTER += 1
    REGISTRY.append(COUNTER)
    return x + COUNTER


def new_objects(x):
    box = Box(x + 1)
    box.me = [box.value, box.value]
    other = Box(box)
    return other, box


def returned_closure(x):
    count = 0

    def step(n):
        nonlocal count
        count += n
        return count

    step(2)
    return step, x + 1


def shared(x):
    a = [x + 1]
    return a, a, (a, [a])


def inplace(x):
    x.add_(1)
    y = x.view(2, 2)
    y.mul_(2)
    return y


def test_attributes(differential):
    differential(attributes, Box(3), X)


def test_deleted_attributes(differential):
    differential(deletes, Box(3), X)


def test_swap_reads_before_it_writes(differential):
    box = Box()
    box.a, box.b = 1, 2
    differential(swap, box, X)


def test_containers(differential):
    differential(containers, [1, 2], {"old": 1, "kept": 2}, X)


def test_argument_identity_is_kept(convert):
    items: list[object] = [1]
    traced = convert(containers, ([1], {"old": 2}, X), {})
    mapping = {"old": 1}
    result, returned = traced.function(items, mapping, X)
    assert returned is items and mapping["new"] is items
    assert torch.equal(result, X * 2)


def test_globals_are_written_once(convert):
    global COUNTER
    COUNTER = 0
    REGISTRY.clear()
    traced = convert(bump, (X,), {})
    assert COUNTER == 0 and not REGISTRY
    assert torch.equal(traced.function(X), X + 1)
    assert COUNTER == 1 and REGISTRY == [1]


def test_new_objects(convert):
    other, box = convert(new_objects, (X,), {}).function(X)
    assert type(other) is Box and other.value is box
    assert box.me[0] is box.me[1] is box.value
    assert torch.equal(box.value, X + 1)


def test_returned_closure_keeps_its_state(convert):
    step, y = convert(returned_closure, (X,), {}).function(X)
    assert step(1) == 3 and step(1) == 4
    assert torch.equal(y, X + 1)


def test_identity_inside_the_result(convert):
    a, b, (c, (d,)) = convert(shared, (X,), {}).function(X)
    assert a is b is c is d


def test_inplace_operations_stay_in_the_graph(differential):
    differential(inplace, X)
