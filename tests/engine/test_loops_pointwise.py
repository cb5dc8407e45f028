"""Element-wise lowerings against eager, at ordinary and special values, in every dtype they take."""
from __future__ import annotations

import math

import pytest
import torch
import torch.nn.functional as F

from .loops_checking import bodies, check, operations, special

FLOATS = (torch.float32, torch.float64, torch.bfloat16, torch.float16)
DTYPES = (torch.float32, torch.float64, torch.int64, torch.int8, torch.uint8, torch.bool)
INTS = (torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8)
aten = torch.ops.aten

UNARY = {
    name: getattr(torch, name)
    for name in (
        "neg", "abs", "sign", "reciprocal", "sqrt", "rsqrt", "exp", "exp2", "expm1", "log", "log2", "log10", "log1p",
        "sin", "cos", "tan", "asin", "acos", "atan", "sinh", "cosh", "tanh", "asinh", "acosh", "atanh", "erf", "erfc",
        "lgamma", "sigmoid", "floor", "ceil", "trunc", "round", "isnan", "isinf", "logical_not", "square",
        "frac", "signbit", "nan_to_num", "relu",
    )
} | {
    "gelu": lambda x: F.gelu(x), "gelu_tanh": lambda x: F.gelu(x, approximate="tanh"), "silu": lambda x: F.silu(x),
    "elu": lambda x: F.elu(x), "leaky_relu": lambda x: F.leaky_relu(x, 0.2), "hardtanh": lambda x: F.hardtanh(x),
    "hardsigmoid": lambda x: F.hardsigmoid(x), "hardswish": lambda x: F.hardswish(x),
    "softplus": lambda x: F.softplus(x), "threshold": lambda x: F.threshold(x, 0.1, 20.0),
    "pow2": lambda x: x ** 2, "pow3": lambda x: x ** 3, "pow_half": lambda x: x ** 0.5, "pow_-2": lambda x: x ** -2,
    "pow_2.5": lambda x: x ** 2.5, "pow0": lambda x: x ** 0, "rpow": lambda x: 2.0 ** x, "rsub": lambda x: 1.0 - x,
    "clamp": lambda x: x.clamp(-1.5, 2.0), "clamp_min": lambda x: x.clamp_min(0.5), "add": lambda x: x + 0.1,
    "masked_fill": lambda x: x.masked_fill(x > 1, float("-inf")),
}


@pytest.mark.parametrize("name", UNARY)
@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_unary_floats(name, dtype):
    x = special(dtype)
    if name == "gelu":  # ATen's vectorized kernel gives nan at inf, its scalar one does not
        x = x[x.abs() < 1e4]
    try:
        UNARY[name](x)
    except RuntimeError as refused:
        pytest.skip(str(refused))
    low = dtype in (torch.bfloat16, torch.float16)
    loops = {"lowering:lgamma": "loops"}  # which is the library's by default
    check(UNARY[name], x, overrides=loops, **({"rtol": 2e-2, "atol": 1e-3} if low else {}))


def test_lgamma_is_the_librarys_on_a_cpu():
    check(torch.lgamma, special(torch.float32), externs=1)


@pytest.mark.parametrize("name", [n for n in UNARY if n not in ("frac",)])
@pytest.mark.parametrize("dtype", (torch.int64, torch.int8, torch.uint8, torch.bool), ids=str)
def test_unary_integers(name, dtype):
    x = special(dtype)
    try:
        UNARY[name](x)
    except (RuntimeError, TypeError) as refused:
        pytest.skip(str(refused))
    check(UNARY[name], x, externs=None)


BINARY = {
    name: getattr(torch, name)
    for name in ("add", "sub", "mul", "div", "pow", "atan2", "hypot", "copysign", "nextafter", "minimum", "maximum",
                 "fmin", "fmax", "fmod", "remainder", "eq", "ne", "lt", "le", "gt", "ge", "logical_and", "logical_or",
                 "logical_xor", "bitwise_and", "bitwise_or", "bitwise_xor", "bitwise_left_shift", "bitwise_right_shift")
} | {
    "add_alpha": lambda x, y: torch.add(x, y, alpha=3),
    "floor_divide": lambda x, y: torch.div(x, y, rounding_mode="floor"),
    "trunc_divide": lambda x, y: torch.div(x, y, rounding_mode="trunc"), "where": lambda x, y: torch.where(x > 0, x, y),
    "lerp": lambda x, y: torch.lerp(x, y, 0.3),
}


@pytest.mark.parametrize("name", BINARY)
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_binary_on_every_pair_of_special_values(name, dtype):
    x = special(dtype)
    if dtype.is_floating_point:  # where a product or quotient overflows, ATen's vector and scalar code differ
        x = x[((x.abs() < 1e30) & (x.abs() != torch.finfo(dtype).tiny)) | x.isinf() | x.isnan()]
    integral = not dtype.is_floating_point
    y = x.clone()
    if integral and name in ("fmod", "remainder", "floor_divide", "trunc_divide"):
        y = y[y != 0]
    try:
        BINARY[name](x[:, None], y)
    except (RuntimeError, NotImplementedError) as refused:
        pytest.skip(str(refused))
    check(BINARY[name], x[:, None], y, externs=None)


@pytest.mark.parametrize("divisor", (3, -3, 7, 1, -1))
@pytest.mark.parametrize("operator", ("remainder", "fmod", "floor_divide"))
def test_division_by_an_integer_constant_becomes_loops(operator, divisor):
    function = getattr(torch, operator)
    check(lambda x: function(x, divisor), special(torch.int32)[:-5])


def test_division_by_an_integer_tensor_stays_with_eager_which_raises():
    x = torch.tensor([1, 2, 3])
    check(lambda a, b: a // b, x, x, externs=1)


PAIRS = [(torch.float32, torch.int64), (torch.bool, torch.int8), (torch.int8, torch.uint8),
         (torch.bfloat16, torch.float32), (torch.float16, torch.bfloat16), (torch.int32, torch.float64),
         (torch.bool, torch.float32)]


@pytest.mark.parametrize("left, right", PAIRS, ids=str)
@pytest.mark.parametrize("operation", (torch.add, torch.mul, torch.div, torch.lt, torch.maximum))
def test_mixed_dtypes_promote_as_in_eager(left, right, operation):
    x, y = torch.tensor([0, 1, 3, 2]).to(left), torch.tensor([1, 1, 2, 5]).to(right)
    check(operation, x, y, rtol=1e-2, atol=1e-2)
    check(operation, x, y[1], rtol=1e-2, atol=1e-2)  # a 0-d tensor promotes by category only


@pytest.mark.parametrize("scalar", (2, 0.5, True))
@pytest.mark.parametrize("dtype", (torch.int32, torch.float32, torch.bool, torch.bfloat16), ids=str)
def test_python_numbers_promote_as_in_eager(dtype, scalar):
    x = torch.tensor([0, 1, 3, 2]).to(dtype)
    check(lambda x: x + scalar, x)
    check(lambda x: x > scalar, x)
    check(lambda x: torch.where(x > 1, x, scalar), x)


@pytest.mark.parametrize("source", (*FLOATS, *INTS, torch.bool), ids=str)
@pytest.mark.parametrize("target", (*FLOATS, *INTS, torch.bool), ids=str)
def test_conversions(source, target):
    x = torch.tensor([0.0, 1.0, 2.6, 77.7]).to(source)
    check(lambda x: x.to(target) + x.to(target), x)


@pytest.mark.parametrize("source, target", [(torch.float32, torch.int32), (torch.bfloat16, torch.int16),
                                            (torch.int64, torch.float64)], ids=str)
def test_bits_seen_as_another_dtype(source, target):
    check(lambda x: x.view(target) + 0, special(source))


def test_low_precision_chains_stay_in_float32_unless_overridden():
    x = torch.full((4,), 1.0 + 2 ** -7, dtype=torch.bfloat16)

    def program(x):
        return (x * x) - (x * 1.0)

    kept = check(program, x, rtol=1, atol=1)
    assert operations(kept).count("cast") == 2  # of the load and before the store
    rounded = check(program, x, overrides={"intermediate-precision:*": "eager"}, rtol=0, atol=0)
    assert operations(rounded).count("cast") > 2


def test_a_conversion_that_the_program_asks_for_always_rounds():
    x = torch.tensor([1.0 + 2 ** -12, 3.14159])
    check(lambda x: x.to(torch.bfloat16).to(torch.float32) - x, x, rtol=0, atol=0)


def test_equal_subexpressions_are_computed_once():
    x = torch.randn(8)
    program = check(lambda x: torch.exp(x + 1) * torch.exp(x + 1), x)
    assert operations(program).count("exp") == 1


def test_statements_know_the_nodes_they_come_from():
    program = check(lambda x: (x * 2).relu(), torch.randn(4))
    origins = {s.op: s.origins for s in bodies(program)[0].statements}
    assert origins["mul"] == ("mul",) and origins["where"] == ("relu",)


@pytest.mark.parametrize("rows, length, stored", [(5000, 64, 1), (100, 16, 1), (5000, 200, 0), (100, 64, 0)])
def test_an_expensive_value_for_each_row_has_a_loop_of_its_own_where_rows_are_short(rows, length, stored):
    x, w = torch.randn(rows, length), torch.randn(rows)
    program = check(lambda x, w: x * torch.sigmoid(w)[:, None], x, w)
    assert len(bodies(program)) == 1 + stored


def test_broadcasting_and_ranks():
    check(lambda a, b, c: a * b + c, torch.randn(3, 1, 5), torch.randn(4, 1), torch.randn(()))
    check(lambda a, b: a + b, torch.randn(0, 3), torch.randn(1, 3))
    check(lambda a: a + 1, torch.randn(()))


def test_what_is_asked_of_a_16_bit_value_is_asked_of_what_eager_has():
    def program(x):
        y = x * x  # overflows
        found = torch.isinf(y), torch.nan_to_num(y), y == math.inf, y > 65504
        return *found, torch.logical_not(x * 1e-9), x + 0.001 == x

    check(program, torch.tensor([300.0, -2.0, 400.0], dtype=torch.float16), rtol=0, atol=0)


JUMPS = {
    "floor": torch.floor, "ceil": torch.ceil, "trunc": torch.trunc, "round": torch.round, "frac": torch.frac,
    "remainder": lambda z: torch.remainder(z, 0.5), "fmod": lambda z: torch.fmod(z, 0.1), "whole": lambda z: z.int(),
    "byte": lambda z: z.to(torch.int8), "truth": lambda z: (z * 1e-10).bool(), "sign": lambda z: torch.sign(z * 1e-10),
    "threshold": lambda z: F.threshold(z, 3.3, 7.0), "any": lambda z: torch.any(z * 1e-10, 0),
    "all": lambda z: torch.all(z * 1e-10, 0),
}


@pytest.mark.parametrize("name", JUMPS)
@pytest.mark.parametrize("dtype", (torch.bfloat16, torch.float16), ids=str)
def test_what_jumps_is_given_16_bit_values_as_eager_has_them(name, dtype):
    x, y = (torch.randn(500, generator=torch.Generator().manual_seed(seed)).mul(4).to(dtype) for seed in (0, 1))
    check(lambda x, y: JUMPS[name](x * y), x, y, rtol=0, atol=0)


NUMBERS = {
    "eq": torch.eq, "lt": torch.lt, "ge": torch.ge, "add": torch.add, "sub": torch.sub, "mul": torch.mul,
    "div": torch.div, "pow": torch.pow, "to the power": lambda x, n: torch.pow(n, x),
    "remainder": torch.remainder, "fmod": torch.fmod, "rsub": lambda x, n: n - x, "clamp": lambda x, n: x.clamp(-n, n),
    "filled": lambda x, n: torch.full_like(x, n) * x, "new": lambda x, n: torch.fmod(x.new_full((512,), n), x),
    "times": lambda x, n: torch.add(x, x, alpha=n), "where": lambda x, n: torch.where(x > n, x, n),
}


@pytest.mark.parametrize("name", NUMBERS)
@pytest.mark.parametrize("number", (0.1, 0.3))
@pytest.mark.parametrize("dtype", (torch.bfloat16, torch.float16), ids=str)
def test_numbers_are_rounded_to_16_bits_where_eagers_kernels_do(name, number, dtype):
    x = torch.cat([torch.randn(510, generator=torch.Generator().manual_seed(0)).mul(4), torch.tensor([0.1, 0.3])])
    tolerance = 0.0 if name not in ("pow", "to the power") else torch.finfo(dtype).eps
    check(lambda x: NUMBERS[name](x, number), x.to(dtype), rtol=tolerance, atol=0)


@pytest.mark.parametrize("dtype", (torch.bfloat16, torch.float16), ids=str)
def test_wider_operands_are_rounded_to_16_bits(dtype):
    """A number in a tensor, and whole numbers, of which 16-bit floats do not have all."""
    x, n, number = torch.linspace(0, 3000, 777).to(dtype), torch.arange(777) * 4 + 1, torch.tensor(0.1)

    def program(x, n, number):
        return x == n, n > x, x + n, torch.remainder(n, x + 1), x - number, x * n, torch.where(x > 9, n, x) == n

    check(program, x, n, number, rtol=0, atol=0)
