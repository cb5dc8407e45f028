"""Products by our own kernel: eager's results, as near to the exact value, on each kind of machine."""
from __future__ import annotations

import math

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings, strategies as st
from ptdebug.engine.compile import compile_graph
from ptdebug.engine.kernels import sgemm

from .machines import on_each_machine
from .programs import Keeping, capture, recording_context
from .training.checking import compile

EPSILON = torch.finfo(torch.float32).eps
machine = on_each_machine(sgemm)


def matrix(draw, rows, columns):
    """Random numbers that lie by rows or by columns, dense or with more between them."""
    more = draw(st.sampled_from([0, 0, 3]))
    if draw(st.booleans()):
        return torch.randn(rows, columns + more)[:, :columns]
    return torch.randn(columns, rows + more)[:, :rows].t()


@st.composite
def arguments(draw):
    torch.manual_seed(draw(st.integers(0, 1 << 30)))
    count = st.integers(1, 70) | st.sampled_from([96, 127, 128, 131, 200])
    rows, columns, depth = draw(count), draw(count), draw(count | st.sampled_from([512, 520, 1100]))
    return matrix(draw, rows, depth), matrix(draw, depth, columns), draw(st.none() | st.just(torch.randn(columns)))


def eager(left, right, bias):
    return left @ right if bias is None else torch.addmm(bias, left, right)


@settings(max_examples=150, deadline=None)
@given(arguments())
def test_the_kernel(machine, given):
    left, right, bias = given
    ours, known = sgemm.OPERATOR(left, right, bias), eager(left, right, bias)
    exact = eager(*[None if t is None else t.double() for t in given])
    assert (ours.dtype, ours.shape, ours.stride()) == (known.dtype, known.shape, known.stride())
    error, eagers = [(t - exact).abs().max() for t in (ours, known)]
    assert error <= 2 * eagers + 4 * EPSILON * (left.abs() @ right.abs()).max()


@pytest.mark.parametrize("bias", [None, torch.ones(83)])
def test_no_rows(machine, bias):
    assert sgemm.OPERATOR(torch.empty(0, 50), torch.randn(50, 83), bias).shape == (0, 83)


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize("which", [0, 1])
@pytest.mark.parametrize("turned", [False, True])
def test_numbers_that_are_not_finite(machine, value, which, turned):
    factors = [torch.randn(37, 50), torch.randn(50, 83)]
    factors[which][20, 7] = value
    given = [t.t().contiguous().t() if turned else t for t in factors]
    torch.testing.assert_close(sgemm.OPERATOR(*given), factors[0] @ factors[1], equal_nan=True, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("depth", [256, 1024, 5000])
def test_it_is_as_near_to_the_exact_value_as_a_librarys(machine, depth):
    torch.manual_seed(0)
    left, right = torch.randn(100, depth), torch.randn(depth, 70)
    exact = left.double() @ right.double()
    error, eagers = [(t - exact).square().mean() for t in (sgemm.OPERATOR(left, right), left @ right)]
    assert error <= 1.5 * eagers


@pytest.mark.parametrize("rows, columns", [(700, 50), (50, 700), (200, 192), (7, 2000)])
@pytest.mark.parametrize("turned", [False, True])
def test_results_do_not_depend_on_threads(rows, columns, turned):
    left, right = torch.randn(rows, 300), torch.randn(300, columns)
    left = left.t().contiguous().t() if turned else left
    found = []
    threads = torch.get_num_threads()
    try:
        for count in (1, 2, 3):
            torch.set_num_threads(count)
            found.append(sgemm.OPERATOR(left, right))
    finally:
        torch.set_num_threads(threads)
    assert torch.equal(found[0], found[1]) and torch.equal(found[0], found[2])
    assert torch.equal(found[0][:3], sgemm.OPERATOR(left[:3].contiguous(), right))  # nor on other rows


@pytest.fixture
def slow_libraries(monkeypatch):
    """A machine on which the libraries are slower."""
    for module in ("matmul", "convolution"):
        monkeypatch.setattr(f"ptdebug.engine.passes.extern_kernels.{module}.costs",
                            lambda _, calls: {way: 1e-3 if "ptdebug" in way else 3e-3 for way in calls()})


def network(x, weight, bias):
    y = F.linear(x, weight, bias)
    return y, (y.relu() @ weight).view(5, 30, 96)[1:] * 2


NETWORK = (torch.randn(150, 96), torch.randn(80, 96) / 10, torch.randn(80))


@pytest.mark.parametrize("wrapper", ["python", "cpp"])
@pytest.mark.parametrize("way", ["ptdebug", "mkl"])
def test_a_graph_takes_the_kernel_that_is_chosen(slow_libraries, way, wrapper):
    context, keeping = recording_context(
        overrides={"wrapper:graph": wrapper} | ({} if way == "ptdebug" else {"matmul:*": way}))
    call = compile_graph(capture(network, *NETWORK), context)
    assert not context.fallback, context.fallback
    for _ in range(2):
        for ours, eagers in zip(call(*NETWORK), network(*NETWORK), strict=True):
            torch.testing.assert_close(ours, eagers, rtol=2e-5, atol=2e-5)
            assert ours.stride() == eagers.stride()
    decided = [d for d in keeping.decisions if d.kind == "matmul"]
    assert [(d.kind, d.chosen) for d in decided] == [("matmul", way)] * 2
    assert not [d for d in keeping.decisions if d.kind == "python-wrapper"]
    lines = keeping.records["wrapper", wrapper if wrapper == "cpp" else ""].lines
    assert any("ptdebug_product" in line.text for line in lines) == (way == "ptdebug")
    assert (("kernels", "product") in keeping.records) == (way == "ptdebug")


def test_a_product_of_pixels(slow_libraries):
    image, weight, bias = torch.randn(2, 96, 32, 32), torch.randn(80, 96, 1, 1), torch.randn(80)
    context, keeping = recording_context()
    call = compile_graph(capture(lambda x, w, b: F.conv2d(x, w, b), image, weight, bias), context)
    (ours,), eagers = call(image, weight, bias), F.conv2d(image, weight, bias)
    torch.testing.assert_close(ours, eagers, rtol=2e-5, atol=2e-5)
    assert ours.stride() == eagers.stride()
    chosen = {d.subject: d.chosen for d in keeping.decisions if d.kind in ("conv-layout", "matmul")}
    assert chosen["convolution"] == "matmul" and "ptdebug" in chosen.values()


@pytest.mark.parametrize("native", [False, True])
def test_a_step_of_training(slow_libraries, native):
    keeping = Keeping()
    program = compile(network, recorder=keeping, recording=True, cpp_wrapper=native)
    found = []
    for function in (network, program):
        inputs = [t.detach().clone().requires_grad_() for t in NETWORK]
        results = function(*inputs)
        sum(r.square().sum() for r in results).backward()
        found.append([*results, *[t.grad for t in inputs]])
    for eagers, ours in zip(*found, strict=True):
        torch.testing.assert_close(ours, eagers, rtol=1e-4, atol=1e-3)
        assert ours.stride() == eagers.stride()
    assert not program.fallbacks
    chosen = [d.chosen for d in keeping.decisions if d.kind == "matmul"]
    assert chosen == ["ptdebug"] * 6  # two of the forward, and two gradients of each
    assert not [d for d in keeping.decisions if d.kind == "python-wrapper"]


@pytest.mark.parametrize("native", [False, True])
def test_rows_whose_number_varies(slow_libraries, native):
    keeping = Keeping()
    layers = torch.nn.Sequential(torch.nn.Linear(64, 192), torch.nn.ReLU(), torch.nn.Linear(192, 64))
    program = compile(lambda x: layers(x), dynamic=True, recorder=keeping, recording=True, cpp_wrapper=native)
    for batch, rows in ((4, 40), (3, 33), (5, 7), (2, 130)):
        x = torch.randn(batch, rows, 64)
        with torch.no_grad():
            torch.testing.assert_close(program(x), layers(x), rtol=2e-5, atol=2e-5)
    assert not program.fallbacks and len(program.contexts) == 1
    assert [d.chosen for d in keeping.decisions if d.kind == "matmul"] == ["ptdebug"] * 2


@pytest.mark.parametrize("times, chosen", [((1.0, 1.0, 1.04), "ptdebug"), ((1.0, 0.9, 1.0), "onednn"),
                                           ((0.9, 1.0, 1.0), "mkl")])
def test_where_it_is_as_fast_it_is_taken(monkeypatch, times, chosen):
    monkeypatch.setattr("ptdebug.engine.passes.extern_kernels.matmul.costs",
                        lambda *_: dict(zip(("mkl", "onednn", "ptdebug"), times, strict=True)))
    context, keeping = recording_context()
    compile_graph(capture(network, *NETWORK), context)
    assert [d.chosen for d in keeping.decisions if d.kind == "matmul"] == [chosen] * 2
