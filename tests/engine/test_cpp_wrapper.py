"""The C++ wrapper against eager: values, strides, memory, side effects, errors; and what keeps the Python wrapper."""
from __future__ import annotations

import threading
import weakref

import ptdebug
import pytest
import torch
from ptdebug.artifacts.context import CHANGED_INPUTS
from ptdebug.engine import stages as compiler
from ptdebug.engine.codegen.cpp_wrapper import load
from ptdebug.engine.compile import compile_graph
from ptdebug.engine.graph_cache import half

from .programs import capture, clones, recording_context, same_storage


def compiled(program, *inputs, **settings):
    """(the compiled graph of `program`, what was recorded), in C++ where that is possible."""
    context, keeping = recording_context(**settings)
    context.cpp_wrapper = True
    call = compile_graph(capture(program, *inputs), context)
    assert not context.fallback, context.fallback
    return call, keeping


def in_cpp(program, *inputs, **settings):
    """The compiled graph, whose wrapper is C++."""
    call, keeping = compiled(program, *inputs, **settings)
    decisions = {d.kind: d for d in keeping.decisions}
    assert "python-wrapper" not in decisions, decisions["python-wrapper"].why
    assert decisions["wrapper"].chosen == "cpp"
    return call


def agree(program, *inputs, **settings):
    """Compiled and eager give the same results in the same layout, and change their inputs alike."""
    call = in_cpp(program, *inputs, **settings)
    for _ in range(2):
        ours, theirs = clones(inputs), clones(inputs)
        got, expected = call(*ours), program(*theirs)
        expected = expected if isinstance(expected, tuple) else (expected,)
        assert len(got) == len(expected)
        for a, b in zip((*got, *ours), (*expected, *theirs)):
            assert (a.dtype, a.shape, a.stride()) == (b.dtype, b.shape, b.stride()) and type(a) is torch.Tensor
            assert a._version == b._version
            torch.testing.assert_close(a, b)
    return call


def test_kernels_and_buffers_between_them():
    def program(x, y):
        for _ in range(4):
            x = (x * y).cumsum(0)
        return x.t(), x.sum(), x[1:, ::2] > 0

    agree(program, torch.randn(6, 5), torch.randn(5))


def test_buffers_too_large_for_the_stack_are_tensors():
    program = lambda x: (x.cumsum(1) * 2).cumsum(0)
    agree(program, torch.randn(300, 200))
    agree(lambda x: tuple((x * k).cumsum(0).cumsum(0) for k in range(40)), torch.randn(500))


@pytest.mark.parametrize("shape", [(), (5,), (3, 0), (1, 1)])
@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16, torch.int8, torch.bool])
def test_sizes_and_dtypes(shape, dtype):
    agree(lambda x: (x.to(torch.float32) + 1, ~(x > 0), x.clone(), x.sum() + 1), torch.ones(shape).to(dtype))


def test_inputs_at_any_offset_and_stride():
    agree(lambda x, y: x.t() + y, torch.randn(40)[3:15].view(3, 4), torch.randn(8, 6)[::2, 1::2])


def test_what_is_written_to_inputs():
    def program(x, y):
        x.add_(1)
        y.copy_(x * 2)
        return x + y

    agree(program, torch.randn(7), torch.randn(7))


def test_swapped_inputs_are_read_before_they_are_written():
    def program(x, y):
        old = x.clone()
        x.copy_(y)
        y.copy_(old)
        return x * y

    agree(program, torch.randn(5), torch.randn(5))


def test_results_that_are_inputs_or_the_same_tensor_twice():
    program = lambda x, y: (x, (z := x + y), z, y)
    x, y = torch.randn(4), torch.randn(4)
    got = in_cpp(program, x, y)(x, y)
    assert got[0] is x and got[3] is y and got[1] is got[2]
    assert torch.equal(got[1], x + y)


def test_tensors_that_the_graph_holds():
    table = torch.arange(5.0)
    agree(lambda x: x * table.sin(), torch.randn(5))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_matrix_products(dtype):
    def program(x, w, b):
        h = torch.relu(x @ w + 1)
        return torch.addmm(b, h, w, beta=0.5), torch.bmm(h[None], w[None]).tanh(), h.t() @ h

    torch.manual_seed(1)
    agree(program, torch.randn(6, 8, dtype=dtype), torch.randn(8, 8, dtype=dtype), torch.randn(8, dtype=dtype))


def test_products_of_whole_numbers():
    a = torch.arange(12).view(3, 4)
    agree(lambda a, b: (a @ b + 1) * 2, a, a.t())


def test_convolution_and_attention():
    def program(x, w, b, q):
        y = torch.conv2d(x * 2, w, b, stride=2, padding=1)
        return y.relu(), torch.nn.functional.scaled_dot_product_attention(q, q + 1, q * 2)

    agree(program, torch.randn(2, 3, 8, 8), torch.randn(4, 3, 3, 3), torch.randn(4), torch.randn(1, 2, 5, 8))


def test_parameters_are_tensors_and_other_classes_go_through_python():
    class Marked(torch.Tensor):
        pass

    x = torch.randn(4)
    call = in_cpp(lambda x: x * 2 + 1, x)
    with torch.no_grad():
        assert torch.equal(call(torch.nn.Parameter(x))[0], x * 2 + 1)
    assert torch.equal(call(x.as_subclass(Marked))[0].as_subclass(torch.Tensor), x * 2 + 1)


def test_an_index_out_of_range_raises_as_in_python():
    program = lambda x, i: torch.ops.aten.index.Tensor(x + 1, [i])
    call = agree(program, torch.randn(6), torch.tensor([0, -1, 3]))
    with pytest.raises(IndexError, match="out of range"):
        call(torch.randn(6), torch.tensor([0, 6, 3]))


def test_an_error_after_inputs_were_written_says_so():
    def program(x, y, i):
        x.add_(1)
        return torch.ops.aten.index.Tensor(y.cumsum(0), [i])

    inputs = torch.zeros(6), torch.randn(6), torch.tensor([1, 2])
    call = in_cpp(program, *inputs, overrides={"fuse:*": "separate"})
    x = torch.zeros(6)
    with pytest.raises(IndexError) as raised:
        call(x, torch.randn(6), torch.tensor([1, 9]))
    assert getattr(raised.value, CHANGED_INPUTS, False) == bool(x.any())


def test_threads_share_a_wrapper():
    call = in_cpp(lambda x, y: ((x * y).cumsum(0) + x @ y).cumsum(1), *[torch.randn(20, 20)] * 2)
    wrong = []

    def work(seed):
        x = torch.full((20, 20), 1.0 + seed)
        for _ in range(50):
            (got,) = call(x, x)
            if not torch.allclose(got, ((x * x).cumsum(0) + x @ x).cumsum(1)):
                wrong.append(seed)

    threads = [threading.Thread(target=work, args=(k,)) for k in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_memory_is_given_back():
    x = torch.randn(64, 64)
    call = in_cpp(lambda x: (x @ x).cumsum(0) * 2, x)
    (result,) = call(x)
    gone = weakref.ref(result)
    assert not same_storage(result, call(x)[0])
    del result
    assert gone() is None


@pytest.mark.parametrize(("program", "why"), [
    (lambda x: torch.linalg.det(x @ x) + 1, "is not called through torch's C interface"),
    (lambda x: (x + 1, x.t()), "a view of an input"),
    (lambda x: torch.rand_like(x) + x, "not called through"),
])
def test_what_keeps_the_python_wrapper_says_why(program, why):
    x = torch.eye(3)
    call, keeping = compiled(program, x)
    (refused,) = [d.why for d in keeping.decisions if d.kind == "python-wrapper"]
    assert why in refused
    torch.manual_seed(0)
    expected = program(x)
    torch.manual_seed(0)
    torch.testing.assert_close(tuple(call(x)), expected if isinstance(expected, tuple) else (expected,))


def test_the_source_is_recorded_with_what_each_line_comes_from():
    _, keeping = compiled(lambda x, w: (x @ w).cumsum(0) + 1, torch.randn(4, 4), torch.randn(4, 4))
    record = keeping.records["wrapper", "cpp"]
    assert record.language == "cpp"
    origins = {origin for line in record.lines for origin in line.origins}
    assert "forward#mm" in origins and any(origin.startswith("loop_ir:") for origin in origins)
    assert {line.text for line in record.lines} <= {line.text for line in keeping.records["kernels", "cpp"].lines}


def test_the_option_and_the_decision():
    x = torch.randn(8)
    for settings, expected in (({}, "python"), ({"overrides": {"wrapper:*": "cpp"}}, "cpp")):
        context, keeping = recording_context(**settings)
        compile_graph(capture(lambda x: x + 1, x), context)
        assert [d.chosen for d in keeping.decisions if d.kind == "wrapper"] == [expected]
    fast = ptdebug.compile(lambda x: x.cumsum(0) + 1, options={"cpp_wrapper": True})
    assert torch.equal(fast(x), x.cumsum(0) + 1)


def test_sizes_and_numbers_that_vary(monkeypatch):
    monkeypatch.setenv("PTDEBUG_GRAPH_CACHE", "0")
    program = lambda x, k: ((x[:, None] * k).cumsum(0) + x.shape[0], x.shape[0] * k)
    called = []
    real = load.load
    monkeypatch.setattr(compiler, "load_native", lambda *given: called.append(given) or real(*given))
    fast = ptdebug.compile(program, dynamic=True, options={"cpp_wrapper": True})
    for n, k in ((5, 3), (9, -2), (2, 7), (4, 2**40)):
        x = torch.randn(n)
        (ours, size), (theirs, expected) = fast(x, k), program(x, k)
        torch.testing.assert_close(ours, theirs)
        assert size == expected and type(size) is int
    assert called


@pytest.mark.parametrize("program", [
    lambda x, k: (x * 2, k + 1, k * k, -k),
    lambda x, k: (x * 2, x.shape[0] * k ** 3 - k),
    lambda x, k: (x * 2, (k * 3) % 7, (k + 2**60) // 5, max(k * 2, x.shape[0])),
], ids=["sums", "powers", "quotients"])
def test_numbers_have_all_their_digits(program):
    fast = ptdebug.compile(program, dynamic=True, options={"cpp_wrapper": True})
    for k in (3, -5, 2**20, 2**31, 2**62, -(2**62) - 1, 2**63 - 1, -(2**63)):
        assert fast(torch.ones(3), k)[1:] == program(torch.ones(3), k)[1:]


def test_a_graph_from_disk_has_its_wrapper(monkeypatch, tmp_path):
    monkeypatch.setenv("PTDEBUG_CACHE_DIR", str(tmp_path))
    monkeypatch.setenv("PTDEBUG_GRAPH_CACHE", "1")
    table, x = torch.arange(4.0), torch.randn(4)
    from_disk = []
    monkeypatch.setattr(half, "load_native", lambda *given: from_disk.append(given[1]) or load.load(*given))
    for _ in range(2):
        fast = ptdebug.compile(lambda x: (x * 2).cumsum(0) + torch.tensor([1.0, 2.0, 3.0, 4.0]) * table,
                               options={"cpp_wrapper": True}, isolate_recompiles=True)
        with torch.no_grad():
            torch.testing.assert_close(fast(x), (x * 2).cumsum(0) + torch.tensor([1.0, 2.0, 3.0, 4.0]) * table)
    assert len(from_disk) == 1
