"""Scans: running sums, products, extremes and logarithms of sums, in the loop IR and as C++, against eager."""
from __future__ import annotations

import math

import pytest
import torch
from ptdebug.engine.ir.parser import parse_body
from ptdebug.engine.ir.printer import format_body
from ptdebug.engine.ir.verifier import VerifyError, verify_body

from .cpp_checking import built, check as check_kernels
from .loops_checking import bodies, check

SCANS = {
    "cumsum": torch.cumsum, "cumprod": torch.cumprod, "logcumsumexp": torch.logcumsumexp,
    "cummax": lambda x, dim: tuple(torch.cummax(x, dim)), "cummin": lambda x, dim: tuple(torch.cummin(x, dim)),
}
SHAPES = (((), 0), ((5,), 0), ((4, 70), 0), ((4, 70), 1), ((3, 1, 5), -2), ((2, 3, 4), 1), ((3, 0), 1))
ODD = [math.nan, math.inf, -math.inf, 0.0, -0.0, 1.0, 1.0, -3.5]


def along(function, dim):
    return lambda x: function(x, dim)


def same_everywhere(function, x, **tolerance):
    """The interpreter's and the kernels' results are eager's."""
    check(function, x, **tolerance)
    expected = function(x)
    for one, other in zip(built(function, x)(x), expected if isinstance(expected, tuple) else (expected,)):
        torch.testing.assert_close(one, other, equal_nan=True, **tolerance)


@pytest.mark.parametrize("name", SCANS)
def test_scans_along_any_dimension(name):
    for shape, dim in SHAPES:
        same_everywhere(along(SCANS[name], dim), torch.randn(shape))


@pytest.mark.parametrize("name", ("cumsum", "cummax"))
@pytest.mark.parametrize("dtype", (torch.float64, torch.bfloat16, torch.int32, torch.uint8, torch.bool), ids=str)
def test_scans_of_other_dtypes(name, dtype):
    same_everywhere(lambda x: SCANS[name](x, 1), (torch.randn(3, 40) * 3).to(dtype), rtol=0, atol=0)


@pytest.mark.parametrize("name", SCANS)
def test_nan_infinities_and_equal_values(name):
    order = torch.stack([torch.randperm(len(ODD)) for _ in range(40)])
    same_everywhere(lambda x: SCANS[name](x, 1), torch.tensor(ODD)[order])
    same_everywhere(lambda x: SCANS[name](x, 0), torch.tensor(ODD)[order])  # several of a kind


def test_a_running_sum_is_eagers_to_the_last_bit_and_keeps_a_double():
    x = torch.randn(8, 5000)
    for dim in (0, 1):
        kernel = built(along(torch.cumsum, dim), x)
        assert torch.equal(kernel(x)[0], x.cumsum(dim))


def test_a_scan_shares_a_kernel_with_what_makes_and_what_takes_its_values():
    check_kernels(lambda x: torch.cumsum(x.exp() + 1, 1) * 2, torch.randn(16, 100), kernels=1)
    made = check_kernels(lambda x: torch.softmax(x, -1).cumsum(-1), torch.randn(16, 100), kernels=1, slack=3.0)
    assert made.groups[0].internal
    normed = lambda y: y * torch.rsqrt(y.pow(2).mean(-1, keepdim=True))
    rows = lambda x: normed(torch.cumprod(x, -1).expand(1, -1, -1, -1))
    check_kernels(rows, torch.randn(17, 3, 4), slack=3.0)  # rows in a loop of their own


def test_sizes_that_vary():
    check(lambda x: x.cumsum(0), torch.randn(5, 6), dynamic=True, again=(torch.randn(3, 9),))
    check(lambda x: x.cumsum(1, dtype=torch.float64), torch.randn(5, 6), dynamic=True, again=(torch.randn(3, 9),))


def test_the_text_of_a_scan_and_what_the_verifier_refuses():
    program = check(lambda x: x.cumsum(1), torch.randn(4, 6))
    (body,) = bodies(program)
    text = format_body(body)
    assert body.scans and "= scan sum t1 : float64" in text and parse_body(text) == body
    for wrong, message in (
        (text.replace("scan sum", "scan mean"), "unknown scan"),
        (text.replace(" reduce [r0: 6]", "").replace("r0", "0"), "no reduction axes"),
        (text.replace("scan sum t1 : float64", "reduce sum t1 : float64"), "inside the reduction"),
        (text.replace("cast t0 : float64", "cast t0 : float32"), "t1 is torch.float32"),
    ):
        with pytest.raises(VerifyError, match=message):
            verify_body(parse_body(wrong), program.buffers)


@pytest.mark.parametrize("columns", [15, 16, 63, 64, 65, 200, 1031])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16, torch.int32], ids=str)
def test_rows_in_blocks(columns, dtype):
    x = torch.randn(5, columns, generator=torch.Generator().manual_seed(0))
    x = (x * 9).to(dtype) if dtype is torch.int32 else (x * 0.1 + 1).to(dtype)
    source = check_kernels(lambda x: (x.cumsum(-1), x.cumprod(1) * 2, (x + 1).cumsum(0)), x).source.text
    assert ("= scan_block<" in source) == (dtype is torch.float32 and columns >= 16)
    made = check_kernels(lambda x: x.cumsum(-1), x, overrides={"scan-algorithm:*": "sequential"})
    assert "= scan_block<" not in made.source.text


def test_products_of_zeros_infinities_and_the_least_numbers():
    least, inf = 1e-45, torch.inf
    rows = [[inf, *[least] * 12], [1e38] * 9 + [least] * 4, [0.0, *[3e38] * 12], [1.0] * 7 + [0.0, inf] + [2.0] * 4,
            [-1.0, 0.0] + [-2.0] * 11, [torch.nan] + [0.0] * 12, [-0.0] * 13]
    x = torch.tensor(rows).repeat(1, 3)
    made = built(lambda x: (x.cumprod(1), x.cumsum(1)), x)
    assert made.source.text.count("= scan_block<") == 2
    for ours, eager in zip(made(x), (x.cumprod(1), x.cumsum(1))):
        torch.testing.assert_close(ours, eager, rtol=1e-6, atol=0, equal_nan=True)
        assert torch.equal(ours.signbit() | ours.isnan(), eager.signbit() | eager.isnan())
