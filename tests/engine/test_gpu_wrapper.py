"""The C++ wrapper of graphs on a GPU against eager. Here launches run in Triton's interpreter (`gpu_driver.py`)."""
from __future__ import annotations

import ctypes

import ptdebug
import pytest
import torch
from ptdebug.artifacts.context import CHANGED_INPUTS
from ptdebug.engine import stages
from ptdebug.engine.codegen.cpp_wrapper import writer as cpp_wrapper_writer
from ptdebug.engine.codegen.cpp_wrapper.gpu.writer import written
from ptdebug.engine.codegen.triton import kernels_for_plan
from ptdebug.engine.ir.ir import View
from ptdebug.engine.toolchain import cpp_build
from ptdebug.engine.unsupported import NoCppWrapper
from torch import nn
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode
from torch.nn import functional as F

from tests.devices import GPU

from .gpu_driver import gpu_driver, in_cpp, plan_for_gpu
from .programs import Captured, capture, clones, recording_context, same_storage


@pytest.fixture
def driver():
    with gpu_driver() as driver:
        yield driver


def captured(program, *inputs):
    """`program` as it is captured for inputs like these on a GPU."""
    mode, device = FakeTensorMode(), torch.device("cuda:0")
    fakes = tuple(FakeTensor(mode, torch.empty_strided(x.shape, x.stride(), dtype=x.dtype, device="meta"), device)
                  for x in inputs)
    return Captured(capture(program).module, fakes)


def compiled(program, *inputs, **settings):
    """(`program` with a C++ wrapper or None, why it has none)."""
    context, keeping = recording_context(**{"cpp_wrapper": True, **settings})
    with torch.no_grad():
        call = in_cpp(captured(program, *inputs), context)
    without = ("python-wrapper", "wrapper")
    why = [d.why for d in keeping.decisions if d.kind in without and d.chosen == "python"]
    assert (call is None) == bool(why)
    return call, "".join(why)


def agree(call, program, *inputs):
    """The call gives what `program` gives, and changes its inputs alike."""
    ours, theirs = clones(inputs), clones(inputs)
    got, expected = call(*ours), program(*theirs)
    expected = expected if isinstance(expected, tuple) else (expected,)
    assert len(got) == len(expected)
    for a, b in zip((*got, *ours), (*expected, *theirs)):
        assert (a.dtype, a.shape, a.stride(), a._version) == (b.dtype, b.shape, b.stride(), b._version)
        torch.testing.assert_close(a, b)


def layer(x, weight, bias, count):
    """A product, kernels, and a write to an input."""
    count.add_(1)
    y = F.gelu(F.layer_norm(torch.addmm(bias, x, weight), (6,)))
    return y, y.t().sum(1)


ROWS = (torch.randn(5, 4), torch.randn(4, 6), torch.randn(6), torch.zeros(3))


def test_kernels_are_launched_at_the_addresses_of_a_call(driver):
    call, _ = compiled(layer, *ROWS)
    for _ in range(2):
        before = driver.launched
        agree(call, layer, *ROWS)
        assert driver.launched - before >= 2


def test_unaligned_addresses_are_launched_by_python(driver):
    program = lambda x: (x * 2).sum()
    call, _ = compiled(program, torch.randn(6))
    assert call(torch.arange(7.0)[1:])[0] == 42
    assert driver.launched == 0
    assert call(torch.arange(6.0))[0] == 30
    assert driver.launched == 1


def test_a_thread_without_a_context_is_given_one_by_python(driver):
    no_context = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p)(lambda place: 0)
    driver.current = ctypes.cast(no_context, ctypes.c_void_p).value
    program = lambda x: x - 1
    call, _ = compiled(program, torch.randn(8))
    agree(call, program, torch.randn(8))
    assert driver.launched == 0


def test_graphs_of_one_text_have_kernels_of_their_own(driver):
    twice, thrice = (compiled(program, torch.randn(8))[0] for program in (lambda x: x * 2, lambda x: x * 3))
    assert twice(torch.ones(8))[0].sum() == 16 and thrice(torch.ones(8))[0].sum() == 24
    assert twice(torch.ones(8))[0].sum() == 16


def test_workspaces_and_several_launches(driver):
    program = lambda x: x.sum(1)
    call, _ = compiled(program, torch.randn(2, 3001), overrides={"split-reduction:*": "4"})
    agree(call, program, torch.randn(2, 3001))
    assert driver.launched == 2


def test_kernels_one_after_the_other_share_their_workspaces(driver):
    program = lambda x: (x * x.sum(1, keepdim=True)).sum(1)
    call, _ = compiled(program, torch.randn(2, 3001), overrides={"split-reduction:*": "4"})
    for _ in range(2):
        agree(call, program, torch.randn(2, 3001))


def perceptron(x, up, down):
    """Two products between kernels, of which none is returned."""
    hidden = torch.tanh(x) @ up
    return (F.gelu(hidden + 1) @ down).relu(), x.sum()


def test_products_between_kernels_are_in_the_arena(driver):
    inputs = torch.randn(5, 8), torch.randn(8, 12), torch.randn(12, 6)
    graph = captured(perceptron, *inputs)
    work = plan_for_gpu(graph, recording_context()[0])
    kernels = kernels_for_plan(work.plan, recording_context()[0])
    made, _ = written(work.aten, work.plan, kernels)
    assert len(made.memory.place) == 2 and made.pooled
    returned = {view.buffer for view in work.plan.program.outputs if isinstance(view, View)}
    assert returned and not returned & set(made.memory.place)
    call, _ = compiled(perceptron, *inputs)
    for _ in range(2):
        agree(call, perceptron, *inputs)


def test_what_python_is_given_is_not_in_the_arena(driver, monkeypatch):
    without = lambda call, device: real(call, device) if device != "cpu" or "mm" not in str(call.target) else refuse()
    real = cpp_wrapper_writer.function_of

    def refuse():
        raise NoCppWrapper("for a test")

    monkeypatch.setattr(cpp_wrapper_writer, "function_of", without)
    inputs = torch.randn(5, 8), torch.randn(8, 12), torch.randn(12, 6)
    call, _ = compiled(perceptron, *inputs)
    agree(call, perceptron, *inputs)


def unsolvable(x, count):
    count.add_(1)
    return torch.linalg.cholesky(x) + 1


def test_operators_without_a_function_are_called_by_python(driver):
    x, count = torch.eye(3) * 4, torch.zeros(2)
    call, _ = compiled(unsolvable, x, count)
    agree(call, unsolvable, x, count)
    with pytest.raises(torch.linalg.LinAlgError) as raised:
        call(-x, count)
    assert getattr(raised.value, CHANGED_INPUTS, False) == bool(count.any())


def test_a_launch_that_fails_is_repeated_by_python_while_nothing_is_written(driver):
    program = lambda x: x + 1
    call, _ = compiled(program, torch.randn(8))
    driver.broken = True
    agree(call, program, torch.randn(8))
    call, _ = compiled(lambda x, y: (x.add_(1), y * x), torch.randn(8), torch.randn(8))
    with pytest.raises(RuntimeError, match="cannot run again"):
        call(torch.randn(8), torch.randn(8))


def test_why_a_graph_has_none(driver):
    program = lambda x: x + 1
    assert compiled(program, torch.randn(2), cpp_wrapper=False)[1] == "the option cpp_wrapper is off"
    assert compiled(program, torch.randn(2), cpp_wrapper=None)[1] == ""


def test_without_a_compiler_python_launches(driver, monkeypatch):
    def missing():
        raise cpp_build.CompilerMissing("no C++ compiler was found")

    monkeypatch.setattr(cpp_build, "find_compiler", missing)
    program = lambda x: x * 3 - 1
    context, keeping = recording_context()
    with torch.no_grad():
        call = in_cpp(captured(program, torch.randn(7)), context)
    agree(call, program, torch.randn(7))
    assert driver.launched == 0
    assert [d.why for d in keeping.decisions if d.kind == "python-wrapper"] == ["no C++ compiler was found"]


@pytest.fixture
def on_cpu(driver, monkeypatch):
    """All kernels are Triton's, as on a GPU."""
    monkeypatch.setattr(stages, "_device_kinds", lambda plan: {"cuda"})
    monkeypatch.setenv("PTDEBUG_GRAPH_CACHE", "0")
    return driver


def trained(network, call, x):
    network.zero_grad()
    call(x).square().sum().backward()
    return [x.grad.clone(), *[p.grad.clone() for p in network.parameters()]]


def test_training(on_cpu):
    network = nn.Sequential(nn.Linear(4, 6), nn.LayerNorm(6), nn.GELU(), nn.Linear(6, 2))
    fast = ptdebug.compile(network, options={"cpp_wrapper": True})
    for _ in range(2):
        x, y = (torch.ones(3, 4, requires_grad=True) for _ in range(2))
        for a, b in zip(trained(network, fast, x), trained(network, network, y)):
            torch.testing.assert_close(a, b)
    before = on_cpu.launched
    trained(network, fast, torch.ones(3, 4, requires_grad=True))
    assert on_cpu.launched - before >= 3


def test_views_of_inputs_are_results(on_cpu):
    program = lambda x, y: (x[1:], y + 1, x.t(), y.add_(1).view(2, 2))
    fast = ptdebug.compile(program, options={"cpp_wrapper": True})
    for _ in range(2):
        x, y = torch.randn(3, 2), torch.randn(4)
        expected, (a, b, c, d) = program(x, y.clone()), fast(x, y)
        for one, other in zip((a, b, c, d), expected):
            assert one.stride() == other.stride()
            torch.testing.assert_close(one, other)
        assert a._base is x and same_storage(d, y) and on_cpu.launched


def test_sizes_that_vary(on_cpu):
    program = lambda x, w: F.softmax(x @ w, -1).sum(0)
    fast = ptdebug.compile(program, dynamic=True, options={"cpp_wrapper": True})
    w = torch.randn(8, 6)
    for rows in (4, 7, 3):
        x = torch.randn(rows, 8)
        torch.testing.assert_close(fast(x, w), program(x, w))
    assert on_cpu.launched >= 3


@pytest.mark.parametrize("options", [{"cpp_wrapper": True}, {"cpp_wrapper": False}])
@pytest.mark.gpu
@GPU[1]
def test_a_step_on_a_gpu(options):
    network = nn.Sequential(nn.Linear(64, 64), nn.LayerNorm(64), nn.GELU(), nn.Linear(64, 8)).cuda()
    fast = ptdebug.compile(network, options=options)
    for stream in (torch.cuda.current_stream(), torch.cuda.Stream()):
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            x, y = (torch.ones(16, 64, device="cuda", requires_grad=True) for _ in range(2))
            for a, b in zip(trained(network, fast, x), trained(network, network, y)):
                torch.testing.assert_close(a, b)
        torch.cuda.synchronize()
