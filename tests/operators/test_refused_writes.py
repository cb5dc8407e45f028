"""Writes that eager may refuse because of memory that is shared: found, and only where it is."""
from __future__ import annotations

import operator

import ptdebug
import pytest
import torch
from hypothesis import given, settings, strategies as st
from ptdebug.operators.refused_writes import _share_some, may_be_refused

MEMORY = torch.arange(96)


@st.composite
def views(draw: st.DrawFn) -> torch.Tensor:
    dims = draw(st.lists(st.tuples(st.integers(0, 4), st.integers(0, 7)), max_size=3))
    reach = sum((size - 1) * stride for size, stride in dims if size)
    return MEMORY.as_strided([d[0] for d in dims], [d[1] for d in dims], draw(st.integers(0, 95 - reach)))


@settings(max_examples=1500, deadline=None)
@given(views(), views(), st.booleans())
def test_shared_elements_are_those_of_both(a: torch.Tensor, b: torch.Tensor, elementwise: bool) -> None:
    same = a.shape == b.shape and a.stride() == b.stride() and a.storage_offset() == b.storage_offset()
    meet = bool(set(a.flatten().tolist()) & set(b.flatten().tolist()))
    assert _share_some(a, b, elementwise) == (not elementwise if same else meet)


def test_bytes_of_other_types() -> None:
    memory = torch.zeros(4)
    words = memory.view(torch.int16)
    assert _share_some(memory[1:2], words[2:3], True) and not _share_some(memory[1:2], words[4:], True)
    assert not _share_some(torch.zeros(3), torch.zeros(3), False)


def at(rows: slice, columns: slice = slice(None)) -> torch.Tensor:
    return MEMORY[:48].view(8, 6)[rows, columns]


LOW, HIGH, ALL = slice(0, 4), slice(4, 8), slice(None)
EVEN, ODD = slice(0, 6, 2), slice(1, 6, 2)


@pytest.mark.parametrize("target, args, kwargs, refused", [
    ("add_", (at(LOW), at(HIGH)), {}, False),
    ("add_", (at(LOW), at(slice(1, 5))), {}, True),
    ("add_", (at(ALL, EVEN), at(ALL, ODD)), {}, False),
    ("mul_", (at(LOW), at(LOW)), {}, False),
    ("index_copy_", (at(LOW), 0, torch.arange(4), at(LOW)), {}, True),
    ("clamp_", (at(LOW),), {"max": at(slice(0, 1))}, True),
    ("add", (at(LOW), at(HIGH)), {"out": at(LOW)}, False),
    ("take", (at(LOW), torch.arange(6)), {"out": at(slice(0, 1))}, True),
    ("__isub__", (at(LOW), at(slice(0, 1))), {}, True),
    ("fill_", (at(slice(0, 1)).expand(3, 6), 1), {}, False),
    ("add_", (at(slice(0, 1)).expand(3, 6), 1), {}, True),
    ("add", (at(LOW), at(slice(1, 5))), {}, False),
])  # fmt: skip
def test_methods(target, args, kwargs, refused) -> None:
    assert bool(may_be_refused("call_method", target, args, kwargs)) == refused


@pytest.mark.parametrize("function", [operator.or_, operator.and_, operator.add, torch.add, torch.bitwise_or])
def test_functions_that_write_nothing(function) -> None:
    assert not may_be_refused("call_function", function, (at(LOW)[:, None], at(LOW)[None]), {})
    assert not may_be_refused("call_function", function, (at(LOW)[:1].expand(4, 6), at(LOW)), {})


@pytest.mark.parametrize("index, value, refused", [
    (0, at(slice(1, 2))[0], False),
    (slice(0, 2), at(slice(1, 3)), True),
    ((slice(None), EVEN), at(ALL, ODD), False),
    (slice(None), at(ALL), False),
    ([0, 1], at(slice(6, 8)), True),
])  # fmt: skip
def test_assignments(index, value, refused) -> None:
    assert bool(may_be_refused("call_function", operator.setitem, (at(ALL), index, value), {})) == refused


def _last_of_first(x, k):
    x[:, x.shape[1] - k :].copy_(x[:, :k])
    return x * 2


def _moved(x, k):
    x[:, 1:] = x[:, :-1]
    return x * k


def _edges(x, k):
    x[:, 0] = x[:, 1]
    x[k] = x[k - 1]
    return x * 2


@pytest.mark.parametrize("dynamic", [None, True])
@pytest.mark.parametrize("function", [_last_of_first, _moved, _edges])
def test_kernels_write_what_eager_writes(function, dynamic) -> None:
    """By the engine, which reads all before it writes; where that is not so in eager, the order in memory counts."""
    compiled = ptdebug.compile(function, dynamic=dynamic)
    for columns, k in ((6, 2), (7, 2), (8, 3), (6, 3), (5, 3), (4, 3), (12, 3)):
        x, y = (torch.arange(4.0 * columns).view(4, columns) for _ in range(2))
        assert torch.equal(compiled(x, k), function(y, k)) and torch.equal(x, y)
