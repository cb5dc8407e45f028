"""torch.compiler.wrap_numpy: eager refuses tensors that require gradients; compiled, gradients pass through NumPy."""
# mypy: ignore-errors

from __future__ import annotations

import numpy as np
import ptdebug
import pytest
import torch
from torch.utils import _pytree as pytree


def written_in_place(a):
    b = a * 2
    b += 1
    b[0] = 0
    return b


def written_anew(a):
    b = a * 2 + 1
    return torch.cat([torch.zeros(1, 4), b[1:]])


PAIRS = {
    "a sum": (lambda a: np.sum(np.sin(a) * a), lambda a: (a.sin() * a).sum()),
    "parts": (lambda a: {"k": [a[1:] * 2, np.exp(a)]}, lambda a: {"k": [a[1:] * 2, a.exp()]}),
    "where": (lambda a: np.where(a > 0, a, 0).mean(axis=1), lambda a: torch.where(a > 0, a, torch.zeros(())).mean(1)),
    "an item": (lambda a: a.reshape(-1)[2] * 3, lambda a: a.reshape(-1)[2] * 3),
    "transposed": (lambda a: a.T, lambda a: a.T),
    "multiplied": (lambda a: a @ a.T, lambda a: a @ a.T),
    "written": (written_in_place, written_anew),
    "copied": (lambda a: (np.linalg.norm(a), a.copy(), a.astype(np.float64)), lambda a: (a.norm(), a, a.double())),
}


def _with_gradients(function, x):
    x = x.clone().requires_grad_()
    results = pytree.tree_leaves(function(x))
    sum(result.sum() for result in results).backward()
    return [*[result.detach() for result in results], x.grad]


@pytest.mark.parametrize("name", PAIRS)
def test_gradients_pass_through_numpy(name):
    ours, theirs = PAIRS[name]
    x = torch.linspace(-1, 1, 12).view(3, 4)
    wrapped = torch.compiler.wrap_numpy(ours)
    torch.testing.assert_close(_with_gradients(ptdebug.compile(wrapped), x), _with_gradients(theirs, x))
    torch.testing.assert_close(_with_gradients(ptdebug.compile(lambda x: wrapped(x)), x), _with_gradients(theirs, x))
    plain = [pytree.tree_map(torch.as_tensor, function(x)) for function in (ptdebug.compile(wrapped), wrapped)]
    torch.testing.assert_close(*plain)


def test_what_no_graph_takes_is_refused_as_in_eager():
    def function(a):
        print("here")
        return a * 2

    with pytest.raises(RuntimeError, match="requires grad"):
        ptdebug.compile(torch.compiler.wrap_numpy(function))(torch.ones(2, requires_grad=True))
