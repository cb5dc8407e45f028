"""Programs that compute with many numbers that vary from call to call."""
# mypy: ignore-errors

from __future__ import annotations

import math
import random

import ptdebug
import pytest
import torch
from ptdebug.tracer.runtime.statistics import STATISTICS

from ..checking import Programs, call, check, check_engine, check_whole

program = Programs()


def called(fn, compile):
    """`fn` at lists of forty numbers, each of which has varied by the second call."""
    f = compile(fn)
    return [f(torch.arange(4.0), [n * k - 3 * k for k in range(40)]) for n in (1, 2, 5, 2)]


@program
def sums_that_are_divided(compile):
    return called(lambda x, ns: (x * (sum(ns) % 7) + sum(ns) // 3, sum(ns, 1) % 2, divmod(sum(ns), 4)), compile)


@program
def divisors_that_are_sums(compile):
    return called(lambda x, ns: (x + 1000 % (sum(ns) + 1), ns[2] // (sum(ns) + 1)), compile)


@program
def divisions_that_are_summed(compile):
    return called(lambda x, ns: x * sum(n % 5 for n in ns) - sum(n // 3 for n in ns), compile)


@program
def products_of_sizes_and_numbers(compile):
    def f(x, ns):
        sizes = {"rows": x.shape[0], "columns": x.shape[1]}
        known = math.prod(sizes[name] for name in ("rows", "columns", "depth") if name in sizes)
        plain = math.prod([]), math.prod((2, 1.5), start=3), math.fsum(k / 10 for k in range(4))
        return x.reshape(known, -1) * math.prod(x.shape[1:]), math.prod(ns, start=2), math.prod([x.sum(), 2]), plain

    f = compile(f)
    return [f(torch.ones(n, 3, 2), [n, 2, n + 1]) for n in (2, 4, 5, 2)]


@program
def tensors_of_numbers(compile):
    def f(x, n, v):
        size = x.shape[0]
        alone = torch.tensor(float(n)), torch.tensor(n), torch.tensor(v, dtype=torch.float64), torch.tensor(v * 2)
        lists = torch.tensor([n, v]), torch.as_tensor([[size, 2], [3, n]]), torch.tensor(x.shape), torch.asarray(size)
        return alone, lists, torch.tensor([random.random(), 1]), x * torch.tensor(x.sum().item())

    f, found = compile(f), []
    for n, v in ((2, 1.5), (3, -0.0), (2**53 + 1, 1e300), (5, math.inf), (6, 2.0)):
        random.seed(n)
        found.append(f(torch.ones(n % 5 + 2, 3), n, v))
    return found


@program
def signs_of_zero(compile):
    def f(x, v):
        return torch.full((2,), v), torch.tensor(v, dtype=torch.half), x.new_tensor(v), x * v, math.copysign(1, v)

    found = []
    for numbers in ((0.5, 0.0, -0.0, 2.0), (0.5, -0.0, 0.0), (0.0, -0.0, 0.0, 1.0, -0.0)):
        compiled = compile(lambda x, v: f(x, v))
        found.append([compiled(torch.ones(2), v) for v in numbers])
    return found


def test_a_tensor_of_a_number_that_varies_is_not_compiled_for_each():
    STATISTICS.clear()
    f = ptdebug.compile(lambda x, i: x + torch.tensor(float(i)))
    assert [f(torch.ones(2), i).tolist() for i in range(2, 7)] == [[i + 1.0] * 2 for i in range(2, 7)]
    assert [reason.partition(":")[0] for reason in STATISTICS.reasons] == ["recompile"]


def products_that_raise(compile):
    def f(x, items):
        try:
            return math.prod(items) * x
        except TypeError as error:
            return str(error)

    return [compile(f)(torch.ones(2), items) for items in ([2, None], 7, ["a", 2], [2.5, 2])]


def the_larger_of_numbers_of_two_types(compile):
    """Python gives one of the two as it is: 3, not 3.0."""

    def f(x):
        number = x.max().item()
        return max(number, 3), min(3, number), max(number, 2.5), x * max(number, 1)

    return [compile(f)(torch.tensor([n, 1.0])) for n in (2.0, 4.0)]


def functions_of_numbers_that_tensors_have_not(compile):
    """`round` and `divmod` raise TypeError."""
    functions = (round, lambda x: round(x, 1), lambda x: divmod(x, 2), lambda x: divmod(7, x))
    return [call(compile(lambda x, g=g: (x + 1, g(x))), torch.tensor(2.5))[:3] for g in functions]


@program
def class_methods_of_numbers_and_texts(compile):
    def f(x):
        made = int.from_bytes(b"\1\2", "big"), int.from_bytes([1, 2], "little", signed=True), float.fromhex("0x1p3")
        return x * 2, made, bytes.fromhex("ff01"), str.maketrans("a", "b"), (5).to_bytes(2, "big")

    return compile(f)(torch.ones(2))


@pytest.mark.parametrize("name", program)
def test_arithmetic_on_many_numbers(name: str) -> None:
    check_whole(program[name])


@pytest.mark.parametrize(
    "case", (products_that_raise, the_larger_of_numbers_of_two_types, functions_of_numbers_that_tensors_have_not)
)
def test_arithmetic_that_breaks_the_graph(case) -> None:
    check(case)


def _of_tensors(x, y):
    first, total = x[0], x.sum()
    plain = torch.tensor([total, first]), torch.tensor((first, 1.0)), torch.as_tensor([[total, 2], [first, 0.5]])
    whole = torch.tensor([y[0], y[1]]), torch.tensor([y[0], 2]), torch.tensor([y[0], 0.5])
    asked = torch.tensor([first], dtype=torch.float64), torch.asarray([y[0], total], dtype=torch.float32)
    return *plain, *whole, *asked, torch.tensor([total.double(), 1]), torch.tensor([total > 0, total]), x * 2


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("grad", [False, True])
def test_tensors_of_tensors(dtype, grad):
    def program(compile):
        compiled = compile(_of_tensors)
        numbers = [(torch.arange(1, 4, dtype=dtype) * n / 3).requires_grad_(grad) for n in (1, 2, 3)]
        return [compiled(x, torch.tensor([2**53 + 1, n])) for n, x in enumerate(numbers)]

    check_whole(program)
    check_engine(program)


def test_powers_of_negative_numbers():
    """In the code of a graph, `-2 ** n` would be `-(2 ** n)`. A size that varies is fixed, unless it may not be."""

    def powers(x, n):
        return (-2) ** x, pow(-2.5, x), x * (-2) ** n, x * (-3) ** x.shape[0], (-2) ** n > 5, x[: 2 ** x.shape[0] - 3]

    def program(compile):
        f = compile(powers)
        return [f(torch.arange(n), n) for n in (2, 3, 4, 5)]

    def marked(compile):
        f = compile(lambda x: x * (-3) ** x.shape[0])
        inputs = [torch.arange(n) for n in (2, 3, 4, 5)]
        torch._dynamo.mark_dynamic(inputs[0], 0)
        return [f(x) for x in inputs]

    for checked in (program, marked):
        check_whole(checked)
        check_engine(checked)


def test_powers_of_a_number_that_varies_are_computed_before_the_graph():
    def steps(compile):
        def fn(x, n):
            return x * math.pow(0.9, n), 1 - math.pow(0.5, n), x + math.hypot(n, 2)

        f = compile(fn)
        return [f(torch.ones(2), n) for n in range(1, 6)]

    STATISTICS.clear()
    check(steps)
    assert STATISTICS.graphs == 2 and not any(reason.startswith("graph break") for reason in STATISTICS.reasons)


def test_functions_of_several_numbers_that_vary_give_ints_and_raise_as_in_eager():
    def use(compile):
        def fn(x, n, k):
            small = call(math.pow, n, -k)
            large = call(math.pow, 10.0, n * 100)
            return x + 1, small, large, math.gcd(n, 4), math.atan2(n, k), math.log(n + 2, 2), math.copysign(0.0, -n)

        f = compile(fn)
        return [f(torch.ones(2), n, k) for n, k in ((1, 2), (2, 2), (3, 1), (4, 3), (0, 1), (5, 0), (6, 6))]

    check(use)


def test_conditions_are_added_to_numbers_that_vary():
    def use(compile):
        f = compile(lambda x, k: x * (k + (k > 4) - (k < 9) * (k != 6) + sum([k, k == 2, x.shape[0] > 3])))
        return [f(torch.ones(n), k) for n, k in ((2, 5), (3, 6), (4, 2), (5, 7), (4, 3), (5, 10))]

    check(use)


def test_products_that_need_more_than_64_bits():
    def use(compile):
        def function(x, n, k):
            hashed = (n * 6364136223846793005 + 1442695040888963407) % 1000
            return x * hashed, x[n * k % 3 :], x + n * k, x * (n * k // 1000), x * (x.shape[0] ** 9 % 7)

        f = compile(function)
        numbers = (3, 4), (5, 7), (2**33 + 1, 2**20), (2**40, 2**20), (2**40, 2**30)
        return [call(f, torch.ones(size), *pair) for size in (4, 5, 200) for pair in numbers]

    check_engine(use)


def test_ranges_are_asked_for_numbers_that_vary():
    def use(compile):
        def function(x, n):
            found = n in range(2, 6), n in range(0, 9, 3), n in range(9, 0, -2), n in range(0), n not in range(-5, 5)
            return x * 2 if x.shape[0] in range(3, 5) else x - 1, found

        f = compile(function)
        return [f(torch.ones(size), n) for size, n in ((2, 1), (3, 2), (4, 3), (5, 9), (3, -5), (4, True), (4, 3.0))]

    check_whole(use)


def test_a_number_that_has_to_be_known_has_its_name():
    compiled = ptdebug.compile(lambda x, count: x * len("ab".center(count)))
    STATISTICS.clear()
    for count in (5, 6):
        compiled(torch.ones(2), count)
    assert any("`count` has to be known" in reason for reason in STATISTICS.reasons), dict(STATISTICS.reasons)


def test_inverted_numbers_are_not_compiled_for_each_value():
    def use(compile):
        f = compile(lambda x, n: (x * ~n + ~x.shape[0], ~n, ~(n > 3), x[~n % 2]))
        return [f(torch.ones(size), n) for size, n in ((2, 1), (3, 5), (4, 6), (5, 9), (6, 2**40), (7, -4))]

    check(use)
    STATISTICS.clear()
    use(ptdebug.compile)
    assert STATISTICS.recompiles <= 3, dict(STATISTICS.reasons)


def test_complex_numbers_that_differ_in_the_sign_of_a_zero_are_two():
    def use(compile):
        f = compile(lambda x, z: torch.sqrt(x * z))
        x = torch.ones(2, dtype=torch.complex64)
        return [f(x, z) for z in (complex(-4, -0.0), complex(-4, 0.0), complex(-4, -0.0), complex(0.0, 1), -1j)]

    check_engine(use)
