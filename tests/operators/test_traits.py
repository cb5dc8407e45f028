"""The table of what is known of operators: what a row names exists, and who asks gets the facts of the right rows."""
from __future__ import annotations

import ptdebug
import pytest
import torch
from ptdebug.operators import effects, meta
from ptdebug.operators.traits import _TABLE, Traits, operators_with, traits_named, traits_of

aten = torch.ops.aten

PYTHON = frozenset(
    ("getitem", "setitem", "cross_entropy", "floordiv", "mod", "ifloordiv", "imod", "rename_", "type", "float")
)
"""Rows of functions that are no operators of ATen."""


def test_every_row_names_what_torch_has():
    for name in _TABLE.keys() - PYTHON:
        packet, _, overload = name.partition(".")
        found = getattr(aten, packet)
        assert not overload or overload in found.overloads(), name


def test_an_overload_has_the_facts_of_its_packet_too():
    assert traits_of(aten.max.dim).check is not None and traits_of(aten.max.dim).needs_elements
    assert traits_of(aten.max.default).check is not traits_of(aten.max.dim).check
    assert traits_of(aten.bernoulli.p).fills == "bernoulli_.float" and traits_of(aten.bernoulli.p).raises
    assert traits_named("max").check is None


def test_of_other_operators_nothing_is_known():
    with torch.library._scoped_library("ptdebug_traits", "DEF") as library:
        library.define("index_select(Tensor x) -> Tensor")
        assert traits_of(torch.ops.ptdebug_traits.index_select.default) == Traits()
    assert traits_of(torch.relu) == traits_of(aten.index_select) == Traits()


def test_random_fills_are_filled_in_place():
    for functional, name in operators_with("fills"):
        packet, _, overload = name.partition(".")
        assert getattr(getattr(aten, packet), overload)._schema.is_mutable and not functional._schema.is_mutable


@pytest.mark.parametrize("name", [
    "index_add_", "masked_scatter_", "histc", "cholesky_inverse", "floordiv", "getitem", "_assert_async",
])
def test_functions_that_raise_for_some_data_under_the_names_of_capture(name):
    assert effects.raises_by_name(name)


@pytest.mark.parametrize("name", ["add_", "div", "true_divide", "index", "__setstate__", "relu"])
def test_functions_that_raise_for_no_data(name):
    assert not effects.raises_by_name(name)


def test_a_view_that_no_schema_mentions():
    x = torch.zeros(4, 3)
    for operator, _ in operators_with("view"):
        arguments = {"_unsafe_view": ([12],), "unsafe_split": (2,), "unsafe_split_with_sizes": ([1, 3],)}
        made = operator(x, *arguments[operator.overloadpacket.__name__])
        first = made[0] if isinstance(made, (list, tuple)) else made
        assert meta.returns_view(operator) and first.untyped_storage()._cdata == x.untyped_storage()._cdata


def test_a_data_dependent_error_inside_try_is_the_programs_to_handle():
    def program(x, mask, values):
        try:
            return x.masked_scatter(mask, values)
        except RuntimeError:
            return x - 1

    x, mask = torch.zeros(4), torch.tensor([True, True, True, False])
    compiled = ptdebug.compile(program)
    for values in (torch.arange(3.0), torch.arange(2.0)):
        assert torch.equal(compiled(x, mask, values), program(x, mask, values))
