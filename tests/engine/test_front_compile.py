"""Whole graphs through the engine against eager: values, strides, dtypes, aliasing, mutation, errors."""
from __future__ import annotations

from pathlib import Path
from typing import Any

import ptdebug
import pytest
import torch
import torch.nn.functional as F
from ptdebug.engine.compile import compile_graph
from torch.fx.passes.fake_tensor_prop import FakeTensorProp

from .programs import Captured, capture, clones, recording_context, same_storage


def check(program: Any, *inputs: Any, exact: bool = False, **settings: Any) -> Any:
    """Compile and compare with eager; the recording must say that nothing fell back."""
    context, keeping = recording_context(**settings)
    compiled = compile_graph(capture(program, *inputs), context)
    assert context.fallback == ""
    for _ in range(2):  # the second call finds memory that the first left behind
        eager_inputs, our_inputs = clones(inputs), clones(inputs)
        expected, got = program(*eager_inputs), compiled(*our_inputs)
        expected = expected if isinstance(expected, (tuple, list)) else (expected,)
        assert len(expected) == len(got)
        for e, g in zip((*expected, *eager_inputs), (*got, *our_inputs)):
            equal(g, e, exact)
        aliases = [[same_storage(a, b) for b in (*expected, *eager_inputs)] for a in expected]
        ours = [[same_storage(a, b) for b in (*got, *our_inputs)] for a in got]
        assert ours == aliases
    return keeping


def equal(got: Any, expected: Any, exact: bool) -> None:
    if not isinstance(expected, torch.Tensor):
        assert got == expected
        return
    assert got.dtype == expected.dtype
    assert got.shape == expected.shape
    assert got.stride() == expected.stride()
    tolerance = {"rtol": 0, "atol": 0} if exact else {}
    torch.testing.assert_close(got, expected, equal_nan=True, **tolerance)


R = torch.randn


def test_a_linear_layer_with_activation_norm_and_softmax():
    def program(x, w, b, g):
        y = F.gelu(F.linear(x, w, b))
        return F.layer_norm(y, (16,), g, b), torch.softmax(y, -1), y.sum(0)

    keeping = check(program, R(8, 16), R(16, 16), R(16), R(16))
    assert ("kernels", "cpp") in keeping.records
    assert keeping.records["wrapper", ""].lines


def test_mutations_and_views_of_inputs():
    def program(x, y):
        x.mul_(2)
        y[0].add_(x[1])
        return x.t(), y[1:], x + y

    check(program, R(4, 4), R(4, 4), exact=True)


def test_swapped_inputs_are_both_read_before_either_is_written():
    def program(x, y):
        t = x.clone()
        x.copy_(y)
        y.copy_(t)
        return x + 1

    check(program, R(5), R(5), exact=True)


def test_views_of_one_intermediate_share_memory():
    def program(x):
        y = x.sin()
        return y, y.view(-1), y.t(), y[0]

    check(program, R(3, 3))


@pytest.mark.parametrize("needs_gradients", (False, True))
def test_what_detach_gives_of_an_input_is_no_view(needs_gradients):
    def f(x):
        return x.detach(), x.view(-1).detach(), x.detach().view(-1), x * 2

    x = torch.ones(2, 3, requires_grad=needs_gradients)
    got, expected = ptdebug.compile(f)(x), f(x)
    assert [y._is_view() for y in got] == [y._is_view() for y in expected]
    assert [y.data_ptr() == x.data_ptr() for y in got] == [True, True, True, False]
    got[0].detach_()


def test_equal_results_do_not_share_memory():
    check(lambda x: (x.clone(), x.clone(), x + 0), R(3), exact=True)


@pytest.mark.parametrize("layout", ["channels_last", "transposed", "expanded", "offset", "overlapping"])
def test_input_layouts(layout):
    x = {
        "channels_last": R(2, 3, 4, 5).to(memory_format=torch.channels_last),
        "transposed": R(4, 5, 2, 3).permute(2, 3, 0, 1),
        "expanded": R(2, 1, 4, 1).expand(2, 3, 4, 5),
        "offset": R(500)[7:127].view(2, 3, 4, 5),
        "overlapping": R(100).as_strided((2, 3, 4, 5), (20, 5, 3, 1)),
    }[layout]

    def program(x):
        return x * 2 + 1, x.relu().sum(1), x.amax((2, 3))

    context, _ = recording_context()
    compiled = compile_graph(capture(program, x), context)
    assert context.fallback == ""
    for got, expected in zip(compiled(x), program(x)):
        equal(got, expected, exact=False)


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16, torch.float16, torch.int32, torch.uint8, torch.bool])
def test_dtypes(dtype):
    x = (R(6, 7) * 4).to(dtype)

    double = torch.bitwise_or if dtype == torch.bool else torch.add

    def program(x):
        return double(x, x), x.sum(), x > 0, x.to(torch.float32) * 0.5

    check(program, x)


def test_empty_and_scalar_tensors():
    def program(x, s):
        return x * 2 + s, x.sum(), s.exp(), torch.cat([x, x], 0)

    check(program, torch.empty(0, 3), torch.tensor(2.0))


def test_special_values():
    x = torch.tensor([float("nan"), float("inf"), -float("inf"), -0.0, 0.0, 1e-30, 3.0])

    def program(x):
        return torch.relu(x), x.max(), torch.minimum(x, x.flip(0)), x.sign(), torch.expm1(x), torch.erf(x), x.exp()

    check(program, x)


def test_random_numbers_equal_eagers():
    def program(x):
        return F.dropout(x, 0.5, True) + torch.rand_like(x)

    x = R(64)
    compiled = compile_graph(capture(program, x), recording_context()[0])
    torch.manual_seed(3)
    expected = program(x)
    after = torch.rand(1)
    torch.manual_seed(3)
    equal(compiled(x)[0], expected, exact=False)
    assert torch.equal(torch.rand(1), after), "the generator must advance as in eager"


def test_random_numbers_for_a_transposed_tensor_equal_eagers():
    def program(x):
        return F.dropout(x, 0.5, True)

    x = torch.ones(3, 4).t()
    compiled = compile_graph(capture(program, x), recording_context()[0])
    torch.manual_seed(3)
    expected = program(x)
    torch.manual_seed(3)
    equal(compiled(x)[0], expected, exact=True)


def test_an_index_out_of_bounds_raises_index_error_as_eager_does():
    def program(x, i):
        return x[i] + 1

    x, i = R(4, 2), torch.tensor([0, 9])
    compiled = compile_graph(capture(program, x, i), recording_context()[0])
    with pytest.raises(IndexError):
        program(x, i)
    with pytest.raises(IndexError):
        compiled(x, i)
    equal(compiled(x, torch.tensor([3, -1]))[0], program(x, torch.tensor([3, -1])), exact=True)


def test_forcing_every_fusion_off_gives_the_same_values_with_more_kernels():
    def program(x, w):
        return torch.softmax(F.layer_norm(x * w, (32,)) + x, -1), (x * w).sum(0)

    fused = check(program, R(16, 32), R(32))
    separate = check(program, R(16, 32), R(32), overrides={"fuse:*": "separate"})
    assert len(separate.records["kernels", "cpp"].kernels) > len(fused.records["kernels", "cpp"].kernels)
    assert all(d.forced for d in separate.decisions if d.kind == "fuse")


def test_what_the_engine_refuses_runs_in_eager_with_a_reason():
    def program(x):
        x.t_()
        return x + 1

    context, keeping = recording_context()
    x = R(2, 3)
    compiled = compile_graph(capture(program, x), context)
    assert "shape or strides" in context.fallback
    assert keeping.absents["kernels"] == context.fallback
    assert torch.equal(compiled(x.clone())[0], program(x.clone()))


def test_an_internal_error_of_a_stage_falls_back_to_eager(monkeypatch):
    from ptdebug.engine import scheduler

    def broken(program, context):
        raise RuntimeError("bug")

    monkeypatch.setattr(scheduler, "schedule", broken)
    context, keeping = recording_context()
    compiled = compile_graph(capture(lambda x: x.sin() + 1, R(3)), context)
    assert "internal error in the engine: RuntimeError: bug" in context.fallback
    x = R(3)
    assert torch.equal(compiled(x)[0], x.sin() + 1)
    (decision,) = [d for d in keeping.decisions if d.kind == "engine"]
    assert "Traceback" in decision.why


def test_results_that_share_nothing_are_not_reused_between_calls():
    captured = capture(lambda x: (x + 1,), R(4))
    compiled = compile_graph(Captured(captured.module, captured.inputs), recording_context()[0])
    first = compiled(torch.zeros(4))[0]
    compiled(torch.full((4,), 9.0))
    assert first.tolist() == [1.0] * 4


def test_an_operator_without_results_is_called():
    def program(x, condition):
        torch.ops.aten._assert_async.msg(condition, "must hold")
        return x + 1

    check(program, R(3), torch.tensor(True))


def test_constants_of_the_program_are_new_in_each_call():
    def program(x):
        constant = torch.tensor([1.0, 2.0])
        return constant, constant[0], x * constant

    compiled = compile_graph(capture(program, R(2)), recording_context()[0])
    compiled(R(2))[0].add_(1)
    assert compiled(R(2))[0].tolist() == [1.0, 2.0]


def test_an_input_that_shares_memory_with_a_written_one():
    def program(x, y):
        x.add_(1)
        return x * y

    compiled = compile_graph(capture(program, R(4), R(4)), recording_context()[0])
    ours, eager = torch.arange(6.0), torch.arange(6.0)
    equal(compiled(ours[:4], ours[2:])[0], program(eager[:4], eager[2:]), exact=True)
    equal(ours, eager, exact=True)


def test_views_of_a_written_input_that_is_a_slice():
    def program(x):
        x.mul_(2)
        return x[1:], x.t(), x.diagonal()

    rows = torch.arange(48.0).view(6, 8)
    captured = capture(program, rows.clone()[2:, ::2])
    FakeTensorProp(captured.module, captured.inputs[0].fake_mode).propagate_dont_convert_inputs(*captured.inputs)
    compiled = compile_graph(captured, recording_context()[0])
    ours, eager = rows.clone()[2:, ::2], rows.clone()[2:, ::2]
    for got, expected in zip(compiled(ours), program(eager)):
        equal(got, expected, exact=True)
        assert got.storage_offset() == expected.storage_offset()
        assert same_storage(got, ours)


def test_a_detached_view_needs_no_gradient():
    weight = R(3, requires_grad=True)
    compiled = compile_graph(capture(lambda x: x.detach(), weight), recording_context()[0])
    assert not compiled(weight)[0].requires_grad


def test_views_of_complex_intermediates_share_memory():
    def program(x):
        y = x * 2
        return y, y.t(), y[0], y.unsqueeze(0)

    check(program, torch.randn(3, 4, dtype=torch.complex64))


def test_arrays_of_numpy_that_overlap_are_seen_to_share_memory():
    import numpy

    def program(x, y):
        x.add_(1)
        return y * 2

    def inputs():
        memory = numpy.zeros(6, dtype=numpy.float32)
        return torch.from_numpy(memory[:4]), torch.from_numpy(memory[2:])

    compiled = compile_graph(capture(program, R(4), R(4)), recording_context()[0])
    assert compiled(*inputs())[0].tolist() == program(*inputs()).tolist() == [2.0, 2.0, 0.0, 0.0]
    assert compiled(torch.zeros(4), torch.zeros(4))[0].tolist() == [0.0] * 4


@pytest.mark.parametrize("inside", (False, True), ids=("of an input", "of a copy"))
def test_windows_whose_number_varies_are_written_one_after_the_other(inside):
    def program(memory, windows):
        if inside:
            windows = (memory * 1).as_strided((memory.shape[0] - 2, 3), (1, 1))
        return windows.mul_(2.5), memory * 1

    def inputs(length):
        memory = torch.arange(float(length))
        return memory.clone(), memory.unfold(0, 3, 1)

    compiled = ptdebug.compile(program)
    for length in (6, 7, 9):
        for got, expected in zip(compiled(*inputs(length)), program(*inputs(length))):
            equal(got, expected, exact=True)


def test_rows_that_begin_to_share_memory_at_another_size_are_not_written_by_the_same_kernels():
    def program(x):
        return x.add_(1).sum()

    compiled = ptdebug.compile(program, dynamic=True)
    for width in (3, 8, 5, 11):
        got, expected = (function(torch.zeros(40).as_strided((4, width), (8, 1))) for function in (compiled, program))
        assert got.item() == expected.item()


def test_new_memory_is_as_the_deterministic_mode_fills_it():
    def program(x):
        return torch.empty(3), torch.empty_like(x), x.new_empty_strided((2,), (1,)), x + 1

    x = torch.zeros(2, dtype=torch.int64)
    try:
        torch.use_deterministic_algorithms(True)
        for got, expected in zip(ptdebug.compile(program)(x), program(x)):
            equal(got, expected, exact=True)
    finally:
        torch.use_deterministic_algorithms(False)


def test_constants_are_folded_without_the_autocast_that_the_program_turns_off():
    def program(x):
        with torch.autocast("cpu", enabled=False):
            factor = torch.tensor([[1.1, 2.2], [3.3, 4.4]])
            product = factor @ factor
        return x + product

    with torch.autocast("cpu", dtype=torch.bfloat16):
        equal(ptdebug.compile(program)(torch.zeros(2, 2)), program(torch.zeros(2, 2)), exact=True)


def test_gradients_flow_through_a_graph_of_views_alone():
    captured = capture(lambda x: x.expand(3, 4), R(1, 4))
    (result,) = captured.module.graph.output_node().args[0]
    fake = captured.inputs[0].requires_grad_()
    with fake.fake_mode:
        result.meta["val"] = fake.expand(3, 4)
    compiled = compile_graph(Captured(captured.module, captured.inputs, grad_enabled=True), recording_context()[0])
    x = R(2, 4)[:1].requires_grad_()
    compiled(x)[0].sum().backward()
    assert x.grad.tolist() == [[3.0] * 4]


def test_gradients_go_through_a_view_as_complex_numbers():
    captured = capture(lambda x: torch.view_as_complex(x), R(3, 2))
    (result,) = captured.module.graph.output_node().args[0]
    fake = captured.inputs[0].requires_grad_()
    with fake.fake_mode:
        result.meta["val"] = torch.view_as_complex(fake)
    context, _ = recording_context()
    compiled = compile_graph(Captured(captured.module, captured.inputs, grad_enabled=True), context)
    x, y = (R(3, 2, requires_grad=True) for _ in range(2))
    y.data.copy_(x.data)
    compiled(x)[0].abs().sum().backward()
    torch.view_as_complex(y).abs().sum().backward()
    assert torch.equal(x.grad, y.grad) and not context.fallback


def test_absolute_values_of_complex_numbers_are_loops():
    parts = [0.0, -0.0, 1e-40, 3.0, -4.0, 1e38, float("inf"), float("-inf"), float("nan")]
    x = torch.tensor([complex(a, b) for a in parts for b in parts], dtype=torch.complex64).view(9, 9)
    inputs = x, torch.randn(9, 9, dtype=torch.complex64)
    program = lambda x, y: (torch.abs(x), torch.abs(y * 2).sum(0), torch.abs(y.conj()), torch.abs(y.t()))
    keeping = check(program, *inputs)
    assert not any(d.subject.startswith("abs") for d in keeping.decisions if d.kind == "fallback")


def test_the_default_device_is_the_programs(tmp_path: Path) -> None:
    """Not what the engine makes for itself: to measure a product, to round a number, to draw random numbers."""
    def program(x: torch.Tensor, w: torch.Tensor) -> Any:
        return F.dropout((x @ w).sin() * 0.3 + 1 / 3, 0.5)

    x, w = torch.randn(64, 64), torch.randn(64, 64, requires_grad=True)
    runs = []
    with ptdebug.record(out=str(tmp_path)) as recording, torch.device("meta"):
        for call in (program, ptdebug.compile(program)):
            torch.manual_seed(0)
            result = call(x, w)
            runs.append((result, *torch.autograd.grad(result.sum(), w)))
    torch.testing.assert_close(runs[1], runs[0])
    assert [(one.status, one.reason) for one in recording.compiles()] == [("compiled", "")]
