"""Memory of results: parts that share it with others, zeros that have none."""
from __future__ import annotations

import ptdebug
import pytest
import torch
import torch.nn.functional as F


def test_a_part_of_a_padded_image_of_rows_shares_memory_with_it():
    """The convolution has its channels innermost, its results have not: both are one copy."""

    def parts(x, weight):
        padded = F.pad(F.conv1d(x, weight, None, 1, 0, 1, 3), (-1, 2))
        return torch.chunk(padded, 3, 2)[0], padded, padded.split([1, 4], 2)[1][:, 1:]

    x, weight = torch.randn(2, 3, 4), torch.randn(6, 1, 1)
    compiled = ptdebug.compile(parts)
    for function in (parts, compiled):
        first, whole, last = function(x, weight)
        assert whole.stride() == (30, 5, 1) and last.stride() == (30, 5, 1)
        whole.zero_()
        assert not first.any() and not last.any()


@pytest.mark.parametrize("multiply, shapes", [
    (torch.bmm, [(8, 5, 4), (8, 4, 4)]),
    (torch.mm, [(4000, 3), (3, 4)]),
    (lambda a, b: torch.bmm(a, b.expand(8, -1, -1)), [(8, 32, 64), (1, 64, 64)]),
])  # fmt: skip
def test_bits_of_a_product_share_memory_with_it(multiply, shapes):
    """Of small matrices, which loops multiply, and of one matrix for a batch."""

    def bits(a, b):
        y = multiply(a, b)
        return y.view(torch.int32), y

    compiled = ptdebug.compile(bits)
    one, two = torch.randn(shapes[0]), torch.randn(shapes[1])
    for function in (bits, compiled):
        whole, product = function(one, two)
        assert whole.stride() == product.stride()
        product.zero_()
        assert not whole.any()


def test_zeros_without_memory():
    """Derivatives may be such tensors: inputs of that kind are left to eager, those that a graph makes have memory."""
    zeros = torch._efficientzerotensor((3,))
    double = ptdebug.compile(lambda t: t * 2 + 1)
    assert [double(t).tolist() for t in (torch.ones(3), zeros, torch.zeros(3))] == [[3.0] * 3, [1.0] * 3, [1.0] * 3]
    made = ptdebug.compile(lambda x: torch._efficientzerotensor((3,)) + x)
    assert made(torch.ones(3)).tolist() == [1.0] * 3
    turned = torch.func.jacfwd(lambda a: a.sum(1) * 3)
    assert torch.equal(ptdebug.compile(turned)(torch.ones(2, 3)), turned(torch.ones(2, 3)))


@pytest.mark.parametrize("options", [{}, {"cpp_wrapper": True}])
def test_a_gradient_of_zeros_without_memory(options):
    def program(x, w):
        return (x @ w).sin() * 2

    x, w = torch.ones(2, 3), torch.ones(3, 3, requires_grad=True)
    y = ptdebug.compile(program, options=options)(x, w)
    for gradient in (torch._efficientzerotensor((2, 3)), torch.ones(2, 3)):
        (found,) = torch.autograd.grad(y, w, gradient, retain_graph=True)
        (expected,) = torch.autograd.grad(program(x, w), w, gradient)
        torch.testing.assert_close(found, expected)
