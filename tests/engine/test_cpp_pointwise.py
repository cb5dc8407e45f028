"""Pointwise kernels against eager: every operation, dtype and layout."""
from __future__ import annotations

import math
import re

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings, strategies as st

from .cpp_checking import Built, built, check

FLOATS = torch.cat([
    torch.linspace(-4, 4, 173),
    torch.tensor([0.0, -0.0, 1e-30, -1e-30, 1e-40, 88.0, -88.0, 104.0, -104.0, 1e30, -1e30]),
    torch.tensor([math.inf, -math.inf, math.nan, 0.5, 1.5, 2.5, -0.5, -1.5]),
])
UNARY = [
    torch.neg, torch.abs, torch.sign, torch.reciprocal, torch.sqrt, torch.rsqrt, torch.exp, torch.exp2, torch.expm1,
    torch.log, torch.log2, torch.log10, torch.log1p, torch.sin, torch.cos, torch.tan, torch.asin, torch.acos,
    torch.atan, torch.sinh,
    torch.cosh, torch.tanh, torch.asinh, torch.acosh, torch.atanh, torch.erf, torch.erfc, torch.sigmoid,
    torch.floor, torch.ceil, torch.trunc, torch.round, torch.isnan, torch.isinf, F.gelu, F.silu, F.softplus, F.relu,
]
BINARY = [
    torch.add, torch.sub, torch.mul, torch.div, torch.floor_divide, torch.remainder, torch.fmod, torch.pow, torch.atan2,
    torch.hypot, torch.copysign, torch.minimum, torch.maximum, torch.fmin, torch.fmax, torch.lt, torch.eq,
]
INTEGER = [
    torch.add, torch.sub, torch.mul, torch.floor_divide, torch.remainder, torch.fmod, torch.bitwise_and,
    torch.bitwise_or, torch.bitwise_xor, torch.minimum, torch.maximum, torch.le,
]


def name_of(function: object) -> str:
    return getattr(function, "__name__", str(function))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_unary_operations_are_as_close_to_the_exact_value_as_eager(dtype):
    x = FLOATS.to(dtype)
    check(lambda x: tuple(f(x) for f in UNARY), x)


@pytest.mark.parametrize(("function", "units"), [
    (torch.exp, 1.1), (torch.log, 1.1), (torch.erf, 1.1), (torch.tanh, 1.1), (torch.sin, 1.15), (torch.cos, 1.15),
    (torch.log1p, 1.0), (torch.atan, 1.1), (torch.expm1, 1.45),
    (torch.log2, 1.1), (torch.log10, 1.1), (torch.asin, 1.1), (torch.acos, 1.1), (torch.tan, 1.15), (torch.sinh, 1.4),
    (torch.cosh, 1.4), (torch.exp2, 1.1),
], ids=name_of)
def test_functions_are_within_about_one_unit_of_the_last_place(function, units):
    bits = torch.randint(-(2**31), 2**31, (400_000,), generator=torch.Generator().manual_seed(1), dtype=torch.int64)
    x = torch.cat([bits.to(torch.int32).view(torch.float32), torch.linspace(-6, 6, 200_001)])
    exact = function(x.double())
    got, = built(function, x)(x)
    assert torch.equal(got.isnan(), exact.isnan())
    near = exact.float()
    assert torch.equal(got[near.isinf()], near[near.isinf()])
    finite = near.isfinite()
    unit = (torch.nextafter(near.abs(), torch.tensor(math.inf)) - near.abs()).double()
    off = ((got.double() - exact).abs() / unit)[finite & (near != 0)]
    assert off.max() < units, (off.max(), x[finite & (near != 0)][off.argmax()])
    assert torch.equal(got[near == 0].signbit(), near[near == 0].signbit())


def test_an_error_function_in_a_sum_with_one_is_as_good_as_the_sum():
    bits = torch.randint(-(2**31), 2**31, (100_000,), generator=torch.Generator().manual_seed(1), dtype=torch.int64)
    x = torch.cat([bits.to(torch.int32).view(torch.float32), torch.linspace(-6, 6, 200_001)])
    made = built(lambda x: (torch.erf(x) + 1, 1 + torch.erf(x * 0.5)), x)
    for got, factor in zip(made(x), (1, 0.5)):
        torch.testing.assert_close(
            got, (torch.erf(x.double() * factor) + 1).float(), rtol=1.2e-7, atol=6e-8, equal_nan=True)
        assert got[x > 9].eq(2).all() and got[x < -9].eq(0).all()
    shared = built(lambda x: ((y := torch.erf(x)) + 1, y * 2), x)
    assert "erf_plus_one_float(" in made.source.text and "erf_plus_one_float(" not in shared.source.text
    torch.testing.assert_close(shared(x)[1], torch.erf(x) * 2, equal_nan=True)
    gradient = built(lambda x: torch.ops.aten.gelu_backward(x * 0 + 1, x), x[100_000:])
    torch.testing.assert_close(
        gradient(x[100_000:])[0], torch.ops.aten.gelu_backward(x[100_000:] * 0 + 1, x[100_000:]), rtol=1e-5, atol=2e-7)


@pytest.mark.parametrize("power", [4, 5.0, 6, 7, 8])
def test_small_powers_are_products_that_round_once(power):
    bits = torch.randint(-(2**31), 2**31, (100_000,), generator=torch.Generator().manual_seed(1), dtype=torch.int64)
    x = torch.cat([bits.to(torch.int32).view(torch.float32), torch.linspace(-6, 6, 20_001)])
    made = built(lambda x: x ** power, x)
    torch.testing.assert_close(made(x)[0], (x.double() ** power).float(), rtol=2e-7, atol=0, equal_nan=True)
    assert "pow" not in made.source.text.split("extern")[-1].split("fused_0_pow", 1)[-1].replace("pow_1", "")
    check(lambda x: (x ** power, x.double() ** power, x.bfloat16() ** power, x[0] ** power), torch.randn(37))


def test_ends_of_loops_have_the_values_of_whole_vectors():
    x = torch.cat([torch.linspace(-9, 9, 29), torch.tensor([math.nan, 1e6])])
    functions = [torch.tanh, torch.erf, torch.sin, torch.cos, torch.tan, lambda x: torch.fmod(x, 0.7)]
    whole = built(lambda x: tuple(f(x) for f in functions), x.repeat(16))(x.repeat(16))
    for size in (3, 5, 13, 31):
        part = x[-size:].clone()
        for got, expected in zip(built(lambda x: tuple(f(x) for f in functions), part)(part), whole):
            assert torch.equal(got.view(torch.int32), expected[-size:].view(torch.int32))


def test_remainders_of_floats_are_exact():
    generator = torch.Generator().manual_seed(2)
    bits = torch.randint(-(2**31), 2**31, (2, 40_003), generator=generator).to(torch.int32).view(torch.float32)
    near = torch.randn(2, 40_003, generator=generator) * torch.tensor([[3e7], [0.3]])
    whole = torch.randint(-9, 9, (2, 40_003), generator=generator) * torch.tensor([[0.1], [0.3]])
    special = torch.cartesian_prod(FLOATS[-20:], FLOATS[-20:]).T
    x, y = torch.cat([bits, near, whole, special], 1).unbind(0)
    got, = built(torch.fmod, x, y)(x, y)
    pairs = zip(x.tolist(), y.tolist())
    exact = torch.tensor([math.fmod(a, b) if math.isfinite(a) and b != 0 else math.nan for a, b in pairs])
    assert torch.equal(got.nan_to_num(7.0).view(torch.int32), exact.nan_to_num(7.0).view(torch.int32))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_binary_operations(dtype):
    grid = torch.meshgrid(*[torch.arange(0, len(FLOATS), 3)] * 2, indexing="ij")
    a, b = (FLOATS.to(dtype)[i].reshape(-1) for i in grid)
    check(lambda a, b: tuple(f(a, b) for f in BINARY), a, b)


@pytest.mark.parametrize("dtype", [torch.int8, torch.uint8, torch.int16, torch.int32, torch.int64])
def test_integer_operations_wrap_and_round_as_eager_does(dtype):
    ends = torch.iinfo(dtype)
    a = torch.tensor([ends.min, ends.max, 0, 1, 7, 100, ends.max - 1, ends.min + 1]).to(dtype).repeat(9)
    b = torch.tensor([1, 2, 3, 7, 5, 11, ends.max, 100, 13]).to(dtype).repeat_interleave(8)
    check(lambda a, b: tuple(f(a, b) for f in INTEGER), a, b)
    if dtype.is_signed:
        check(lambda a, b: tuple(f(a, -b) for f in INTEGER), a, b)


def cancelled(a, b):
    """What is left of sums whose terms are nearly each other's opposites."""
    gone = torch.addcmul(a * b, a, b, value=-1), torch.lerp(a, a * -1.7, 0.37037), torch.lerp(a * -1.7, a, 0.62963)
    return *gone, torch.add(a * 0.3, a, alpha=-0.3)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_products_that_are_added_are_not_rounded_where_eager_does_not_either(dtype):
    a, b = torch.randn(67, dtype=dtype), torch.randn(67, dtype=dtype)
    kernel = built(cancelled, a, b)
    assert all(map(torch.equal, kernel(a, b), cancelled(a, b)))


@pytest.mark.parametrize("dtype", [torch.float16, torch.float32, torch.float64])
@pytest.mark.parametrize("target", [torch.uint8, torch.uint16, torch.uint32, torch.uint64], ids=str)
def test_floats_below_zero_wrap_as_unsigned_numbers(dtype, target):
    x = torch.tensor([-1.0, -128.9, -0.3, 7.6, 200.0, -2.0]).to(dtype).repeat(7)
    assert torch.equal(built(lambda x: x.to(target), x)(x)[0], x.to(target))
    if torch.iinfo(target).bits >= 32 and dtype is not torch.float16:
        x = torch.tensor([3e9, 2.0**31, -(2.0**31), 4e9]).to(dtype).repeat(9)
        assert torch.equal(built(lambda x: x.to(target), x)(x)[0], x.to(target))


def test_booleans_and_conversions():
    x = torch.tensor([0.0, 1.0, -2.5, 3.7, math.inf, math.nan])
    def program(x):
        b = x > 0
        whole = x.nan_to_num(0, 5, -5).to(torch.int32)
        return b, ~b, b & (x < 3), b | (x < 3), b ^ (x < 3), b.float() + 1, b.long() * 3, whole
    check(program, x)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_sixteen_bit_floats_convert_exactly(dtype):
    every = torch.arange(65536, dtype=torch.int32).to(torch.int16).view(dtype)
    widened, = built(lambda x: x.float() * 1.0, every)(every)
    assert torch.equal(widened.nan_to_num(7.0), every.float().nan_to_num(7.0))
    random = torch.randint(-(2**31), 2**31, (100_000,), dtype=torch.int64).to(torch.int32).view(torch.float32)
    values = torch.cat([random, every.float(), every.float() * (1 + 2**-11), every.float() * (1 + 2**-8), FLOATS])
    narrowed, = built(lambda x: (x * 1.0).to(dtype), values)(values)
    expected = values.to(dtype)
    assert torch.equal(narrowed.nan_to_num(7.0), expected.nan_to_num(7.0))
    assert torch.equal(narrowed.isnan(), expected.isnan())


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_sixteen_bit_arithmetic_rounds_as_eager(dtype):
    x, y = torch.randn(33, 65).to(dtype), torch.randn(33, 65).to(dtype)
    check(lambda x, y: F.gelu(x + y) * y - 1, x, y)


sizes = st.integers(1, 9)


@settings(max_examples=12, deadline=None)
@given(st.data())
def test_any_shape_broadcast_and_permutation(data):
    shape = data.draw(st.lists(sizes, min_size=1, max_size=4))
    order = data.draw(st.permutations(range(len(shape))))
    other = [n if data.draw(st.booleans()) else 1 for n in shape]
    x = torch.randn([shape[i] for i in order]).permute([order.index(i) for i in range(len(shape))])
    y = torch.randn(other)
    check(lambda x, y: ((x + y) * 2, x.flip(0) - y), x, y)


def test_transposed_read_of_a_large_matrix():
    x, y = torch.randn(129, 257), torch.randn(257, 129)
    check(lambda x, y: x + y.t(), x, y, kernels=1)


def test_a_small_matrix_of_doubles_is_made_symmetric():
    """As in the gradient of a Cholesky factor. gcc 12 took an element of another column."""
    given = torch.arange(16.0, dtype=torch.float64).view(4, 4)
    check(lambda x: x.tril() + x.tril(-1).mT, given)


def test_pieces_of_one_result_are_written_by_one_kernel():
    x, y = torch.randn(8, 32), torch.randn(8, 16)
    check(lambda x, y: torch.cat([x * 2, y + 1, x], 1), x, y, kernels=1)
    check(lambda x, y: F.pad(x, (1, 2, 3, 0)) * 2, x, y)


def test_index_arithmetic_on_positions_that_were_computed():
    check(lambda t, i: torch.take(t, i), torch.randn(8, 1).expand(8, 3), torch.tensor([[-1, 2], [0, 23]]))
    check(lambda x: F.pad(F.pixel_shuffle(x, 2), (0, 1, 2, 1), mode="reflect"), torch.randn(1, 8, 7, 9))


def test_symbolic_sizes():
    torch.manual_seed(0)
    program = lambda x, y: (torch.softmax(x + y, -1), (x * y).sum(0), x.sum())
    check(program, torch.randn(5, 37), torch.randn(5, 37), again=(torch.randn(64, 300), torch.randn(64, 300)))


def test_scalars_and_empty_tensors():
    check(lambda x: (x * 2, x.sum() + 1), torch.tensor(3.0))
    check(lambda x: (x * 2, x.sum(0), x.sum()), torch.randn(0, 5))


def test_an_index_out_of_bounds_raises_and_names_the_node():
    table, index = torch.randn(10, 4), torch.tensor([[1, 2], [3, 9]])
    made = check(lambda i, t: t[i] * 2, index, table)
    for wrong in (10, -11):
        with pytest.raises(IndexError, match="index"):
            made(torch.tensor([[1, 2], [3, wrong]]), table)
    assert torch.equal(made(torch.tensor([[1, -1], [3, -10]]), table)[0], table[torch.tensor([[1, -1], [3, -10]])] * 2)


def test_a_recurrence_walks_along_few_places_in_memory_at_a_time():
    def scan(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        h, steps = torch.zeros_like(b[:, 0]), []
        for t in range(b.shape[1]):
            h = torch.sigmoid(a[:, t]) * h + b[:, t]
            steps.append(h)
        return torch.stack(steps, 1)

    a, b = torch.randn(6, 40, 33), torch.randn(6, 40, 33)
    kernels = check(scan, a, b)
    loops = kernels.source.text.split("#pragma omp simd")[1:]
    assert len(loops) > 3
    assert all(len(set(re.findall(r"(?:arg|buf)\d\[\w*i0[^]]*\]", loop))) <= 32 for loop in loops)


def test_an_expensive_value_that_is_broadcast_is_computed_once_for_each_of_its_elements():
    a, b = torch.randn(16, 9), torch.randn(7, 16, 9)
    kernels = check(lambda a, b: torch.exp(a) * b, a, b)
    assert _evaluations(kernels, "exp") == a.numel()
    rows = torch.randn(6, 48)  # beside a short inner loop, in vectors of its own
    kernels = check(lambda rows, b: torch.sigmoid(F.softplus(rows)[:, :, None] * b), rows, torch.randn(6, 48, 8))
    assert _evaluations(kernels, "log1p") == rows.numel()
    assert len([line for line in kernels.source.text.split("\n") if "#pragma omp simd" in line]) == 2


def _evaluations(kernels: Built, op: str) -> int:
    """How often an operation is computed."""
    bodies = [b for g in kernels.groups for b in g.bodies if any(s.op == op for s in b.statements)]
    return sum(math.prod(int(a.extent) for a in b.axes) for b in bodies)


@pytest.mark.parametrize("layout", [torch.contiguous_format, torch.channels_last])
def test_padding_of_rows_that_a_whole_vector_shares(layout):
    def program(x):
        y = F.pad(x, (1, 2, 2, 1))
        return y * 2 + F.pad(x, (2, 1, 1, 2), value=0.5), F.pad(x, (-1, 4, -2, 5), value=-1.0).relu()

    torch.manual_seed(0)
    check(program, torch.randn(2, 18, 4, 5).to(memory_format=layout))
    check(lambda x: F.pad(x, (0, 0, 3, -2)) + 1, torch.randn(2, 40))  # padding after padding, no element left


@pytest.mark.parametrize("function", [
    lambda m, x: m.to(torch.float16), lambda m, x: m.float() * 3, lambda m, x: (m & (x > 0)).double() * 3,
    lambda m, x: m.bfloat16() + x, lambda m, x: m * x, lambda m, x: m.roll(7, -1), lambda m, x: F.pad(m, (1, 2)),
    lambda m, x: torch.where(x > 0, m, m.flip(0)) ^ m, lambda m, x: torch.cat([m, x > 0], -1).float(),
    lambda m, x: torch.where(x > 0, m, ~m).sum(-1), lambda m, x: torch.where(x > 0, m, True).any(0),
    lambda m, x: m.tril(3) & ~m.triu(-3),
])
def test_masks_fill_vectors(function):
    """g++ has no vectors for a `bool` that becomes a float, nor for a choice between two."""
    m, x = torch.rand(5, 67) > 0.5, torch.randn(5, 67)
    _, _, kernel = check(function, m, x).source.text.partition("static int64")
    assert not re.search(r"\((float|double)\)|= \w+ \? \w+ : (\w+_t\d+|false|true);", kernel)


def test_remainders_of_doubles_are_exact():
    bits = np.random.default_rng(0).integers(0, 2**64, 4000, dtype=np.uint64)
    rare = np.array([0.0, -0.0, math.inf, -math.inf, math.nan, 5e-324, -3.0, 1e308])
    a, by_rare = np.concatenate([bits.view(np.float64), np.tile(rare, 8)]), np.tile(rare.repeat(8), 64)[:4064]
    with np.errstate(all="ignore"):
        for b in (a[::-1].copy(), a * 0.37, a / 3**20, np.nextafter(a, 0), a * 2.0**-54, by_rare):
            x, y, expected = torch.from_numpy(a), torch.from_numpy(b), torch.from_numpy(np.fmod(a, b))
            made = built(lambda x, y: (torch.fmod(x, y), torch.remainder(x, y)), x, y)
            got, rest = made(x, y)
            torch.testing.assert_close(got, expected, rtol=0, atol=0, equal_nan=True)
            assert torch.equal(got.signbit() | got.isnan(), expected.signbit() | got.isnan())
            turned = torch.where((expected != 0) & ((expected < 0) != (y < 0)), expected + y, expected)
            torch.testing.assert_close(rest, turned, rtol=0, atol=0, equal_nan=True)
    assert "fmod_double" in made.source.text
