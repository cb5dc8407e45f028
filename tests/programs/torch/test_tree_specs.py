"""TreeSpecs in compiled functions: what they hold, and the arguments of an exported module by one, as in eager."""
# mypy: ignore-errors
from __future__ import annotations

from collections import OrderedDict

import ptdebug
import pytest
import torch
import torch.fx._pytree as fx_pytree
import torch.utils._pytree as pytree

X = torch.arange(4.0)
NESTED = pytree.tree_structure({"a": 1, "b": (2, [3])})
ORDERED = pytree.tree_structure(OrderedDict(a=1, b=[2]))


@pytest.mark.parametrize("spec, tree", [
    (NESTED, {"b": (X, [X * 2]), "a": X * 3}),
    (NESTED, {"b": [X, (X * 2,)], "a": X * 3}),
    (NESTED, {"b": (X,), "a": X * 3}),
    (NESTED, {"b": (X, [X, X]), "a": X * 3, "c": X}),
    (NESTED, {"b": X, "a": X}),
    (ORDERED, OrderedDict(a=X, b=[X * 2])),
    (ORDERED, OrderedDict(b=X, a=[X * 2])),
    (ORDERED, OrderedDict(a=X, b=(X * 2,))),
])
def test_arguments_are_flattened_by_a_spec_or_raise_as_in_eager(spec, tree):
    def flattened(tree):
        return [leaf + 1 for leaf in fx_pytree.tree_flatten_spec(tree, spec)]

    results = []
    for call in (flattened, ptdebug.compile(flattened)):
        try:
            results.append([leaf.tolist() for leaf in call(tree)])
        except Exception as error:
            results.append((type(error), str(error)))
    assert results[0] == results[1]


@pytest.mark.filterwarnings("ignore:.*children_specs:FutureWarning")
def test_what_a_spec_holds():
    def held(x):
        leaves, spec = pytree.tree_flatten({"k": x, "l": [x + 1, (x,)]})
        below = spec.children_specs
        return x * len(below), spec.context, [each.num_leaves for each in below], spec == NESTED, leaves[1] + 1

    expected, found = held(X), ptdebug.compile(held, fullgraph=True)(X)
    assert found[1:4] == expected[1:4]
    assert torch.equal(found[0], expected[0]) and torch.equal(found[4], expected[4])
