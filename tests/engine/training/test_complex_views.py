"""Views between complex numbers and reals, and lazily conjugated results: gradients flow as in eager."""
from __future__ import annotations

import pytest
import torch

from .checking import check

X = torch.randn(3, 4, 2, requires_grad=True)
Z = torch.randn(3, 4, dtype=torch.complex64, requires_grad=True)


def with_its_base(view):
    def program(x):
        y = x * 2
        return y, view(y)

    return program


@pytest.mark.parametrize("view", (
    lambda x: (torch.view_as_complex(x)[1:, ::2], x * 2),
    lambda x: (torch.view_as_complex(x.transpose(0, 1)), x * 2),
    with_its_base(torch.view_as_complex),
), ids=("slice", "transposed", "of_an_intermediate"))
def test_reals_seen_as_complex_numbers(view):
    check(view, X)


@pytest.mark.parametrize("view", (
    lambda z: (z.imag.t(), z * 2),
    lambda z: (torch.view_as_real(z.t())[1:], z * 2),
    with_its_base(lambda z: z.real),
), ids=("imag", "as_real", "of_an_intermediate"))
def test_complex_numbers_seen_as_reals(view):
    check(view, Z)


@pytest.mark.parametrize("program", (
    lambda z: (z * 2).conj(),
    lambda z: (z.mH[1:], z * 2),
    lambda z: (z.conj().imag, z * 2),
    lambda z: torch.fft.ihfft(z.real),
    lambda z: torch.fft.ifft(z.real),
), ids=("intermediate", "input", "negated", "ihfft", "ifft"))
def test_results_and_gradients_that_are_conjugated_lazily(program):
    check(program, Z)


def test_a_conjugated_view_of_another_result_runs_in_eager():
    check(with_its_base(torch.conj), Z, fallback="lazily conjugated")


@pytest.mark.parametrize("dtype", [torch.complex64, torch.complex128, torch.float32])
@pytest.mark.parametrize("shape", [(), (2, 3)])
def test_gradients_conjugate_complex_factors_that_are_numbers(shape, dtype):
    x = torch.randn(shape, dtype=dtype, requires_grad=True)
    check(lambda x: (x * 2j, (x / (1 - 0.1j)).abs(), 0.3j * x - 1j), x)


@pytest.mark.parametrize("shape", [(0, 4), (3, 0)])
def test_views_of_no_elements(shape):
    check(lambda z: (z.imag.t(), torch.view_as_real(z)), torch.randn(shape, dtype=torch.complex64, requires_grad=True))
    check(lambda x: torch.view_as_complex(x), torch.randn(*shape, 2, requires_grad=True))
