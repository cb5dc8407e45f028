"""Transforms of torch.func around the backward of a compiled graph, which ran before they began."""
# mypy: ignore-errors

from __future__ import annotations

import ptdebug
import pytest
import torch
import torch.autograd.forward_ad as forward_ad
from torch.func import grad, jacrev, jvp, vjp, vmap

ones = torch.ones(3)


def called(compile):
    """(the result of a call, the inputs that require grad)."""
    torch.manual_seed(0)
    x, weight = torch.rand(3, requires_grad=True), torch.rand(3, 3, requires_grad=True)
    return compile(lambda x, weight: torch.tanh(weight @ x))(x, weight), x, weight


def backward(compile, **options):
    """The backward as a function of what arrives."""
    out, x, _ = called(compile)
    return lambda tangent: torch.autograd.grad(out, x, tangent, **(options or {"retain_graph": True}))[0]


def under_a_level(compile):
    pull = backward(compile)
    return grad(lambda z: (pull(ones) * z).sum())(ones), vmap(lambda z: pull(ones) * z)(torch.ones(2, 3))


def forward_mode(compile):
    pull = backward(compile, create_graph=True)
    with forward_ad.dual_level():
        return tuple(forward_ad.unpack_dual(pull(forward_ad.make_dual(ones, 2 * ones))))


TRANSFORMS = {
    "vmap": lambda compile: vmap(backward(compile))(torch.eye(3)),
    "vmap of vmap": lambda compile: vmap(vmap(backward(compile)))(torch.ones(2, 2, 3)),
    "grad": lambda compile: grad(lambda v: backward(compile)(v).sum())(ones),
    "grad with history": lambda compile: grad(lambda v: backward(compile, create_graph=True)(v).sum())(ones),
    "vjp": lambda compile: list(vjp(backward(compile, create_graph=True), ones))[1](ones),
    "jacrev": lambda compile: jacrev(backward(compile, create_graph=True))(ones),
    "jvp": lambda compile: jvp(backward(compile, create_graph=True), (ones,), (2 * ones,)),
    "under a level": under_a_level,
    "forward mode": forward_mode,
}


@pytest.mark.parametrize("name", TRANSFORMS)
def test_a_transform_of_a_compiled_backward_is_that_of_eager(name: str) -> None:
    torch.testing.assert_close(TRANSFORMS[name](ptdebug.compile), TRANSFORMS[name](lambda function: function))
