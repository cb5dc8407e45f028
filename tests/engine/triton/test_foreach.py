"""One kernel for independent loop nests of one form: values as in eager, one text, tables that follow the addresses."""
from __future__ import annotations

import ctypes

import pytest
import torch
from ptdebug.artifacts.context import CompileContext
from ptdebug.engine.codegen.triton import describe_kernel, generate, kernels_for_plan
from ptdebug.engine.ir.ir import Foreach
from ptdebug.engine.lowering import lower
from ptdebug.engine.runtime.kernel_tables import Table, Tables
from ptdebug.engine.scheduler import schedule
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx.experimental.proxy_tensor import make_fx

from .programs import PlanRunner


def tensors(sizes, dtype=torch.float32):
    generator = torch.Generator().manual_seed(0)
    return [torch.randn(size, generator=generator).to(dtype) for size in sizes]


def compiled(function, inputs) -> PlanRunner:
    context = CompileContext()
    plan = schedule(lower(make_fx(function, tracing_mode="fake")(*inputs), context), context)
    return PlanRunner(plan, kernels_for_plan(plan, context))


def members(runner: PlanRunner) -> list[int]:
    return [len(item.members) for item in runner.plan.items if isinstance(item, Foreach)]


def decay(*xs):
    return [torch.sqrt(x * x + 1) * 0.5 - x for x in xs]


def strided(*xs):
    return [x[:, ::2] * 2 + 1 for x in xs]


def scaled(scale, *xs):
    return [x * scale for x in xs]


def positions(*xs):
    return [x + torch.arange(x.numel()).reshape(x.shape) for x in xs]


CASES = {
    "contiguous": (decay, tensors([(70, 41), (7,), (64, 5), (3, 4, 5), (2049,)])),
    "numbers": (decay, tensors([()] * 5)),
    "strided": (strided, tensors([(4, 31), (6, 9), (5, 51), (30, 71), (11, 13)])),
    "shared operand": (scaled, [torch.tensor(3.0), *tensors([(9,), (70, 5), (16,), (33,), (12, 3)])]),
    "positions": (positions, tensors([(9,), (1100,), (16,), (33,), (12, 3)])),
    "sixteen bits": (decay, tensors([(9,), (1100,), (16,), (33,), (12, 3)], torch.bfloat16)),
}


@pytest.mark.parametrize("name", CASES)
def test_as_in_eager(name):
    function, inputs = CASES[name]
    run = compiled(function, inputs)
    assert members(run) == [len(inputs) - (function is scaled)]
    expected = function(*inputs)
    for got, wanted in zip(run(*inputs), expected):
        loose = {"rtol": 0, "atol": 0.04} if got.dtype is torch.bfloat16 else {}  # eager rounds at each operator
        torch.testing.assert_close(got, wanted, **loose)
    source = next(iter(run.kernels.values())).source
    assert len(source.launches) == 1 and len(source.launches[0].pointers) == 2
    assert sum("tl.store" in line.text for line in source.lines) == 1


def test_addresses_may_change_and_need_not_be_aligned():
    inputs = tensors([(9,), (100,), (16,), (33,), (12,)])
    run = compiled(decay, inputs)
    moved = [torch.cat([torch.zeros(1), x])[1:] for x in inputs]
    for given in (inputs, moved, inputs, [x * 2 for x in inputs]):
        for got, wanted in zip(run(*given), decay(*given)):
            torch.testing.assert_close(got, wanted)


def test_numbers_on_the_cpu_travel_with_the_table():
    x, number = torch.ones(4), torch.tensor(2.5, dtype=torch.float64)
    tables = Tables(Table(((0, 1),), ((7,),), (2,)), [(1, 8)], torch.device("cpu"))
    assert tables.programs.tolist() == [[0, 0], [0, 1]]
    for value in (2.5, -3.5):
        number.fill_(value)
        rows = tables.rows([x.data_ptr(), number.data_ptr()], 0)
        assert rows[0] == x.data_ptr() and rows[2] == 7 and rows[1] % 16 == 0
        assert ctypes.c_double.from_address(int(rows[1])).value == value


def test_numbers_are_computed_on_the_cpu_and_read_on_the_gpu():
    def corrected(*xs):
        return [x / (1 - 0.9 ** (step + 1).double()) for x, step in zip(xs[::2], xs[1::2])]

    with FakeTensorMode() as mode:
        sizes = (5, 6, 700, 8, (3, 4))
        inputs = [torch.empty(n, device=d) for size in sizes for n, d in ((size, "cuda"), ((), "cpu"))]
    context = CompileContext()
    module = make_fx(corrected)(*inputs)
    del mode
    plan = schedule(lower(module, context), context)
    assert [(g.device.type, len(g.members)) for g in plan.items] == [("cpu", 5), ("cuda", 5)]
    text = generate(plan.items[1], plan.program.buffers, context).text
    assert "tl.pointer_type(tl.float64)" in text and "pow" not in text


def test_a_gpu_loads_vectors_where_sizes_allow():
    pytest.importorskip("triton")
    run = compiled(decay, tensors([(2048,), (64, 16), (160,), (16,), (4, 4)]))
    kernel = describe_kernel(next(iter(run.kernels.values())).source, "cuda:90")
    assert not kernel.log
    assert "ld.global.v4.b32" in kernel.outputs["ptx"] and "st.global.v4.b32" in kernel.outputs["ptx"]


def test_lines_lead_to_all_members():
    inputs = tensors([(9,), (100,), (16,), (33,), (12,)])
    run = compiled(decay, inputs)
    source = next(iter(run.kernels.values())).source
    line = next(line for line in source.lines if "tl.store" in line.text)
    assert len({origin for origin in line.origins if origin.startswith("loop_ir:")}) == 5
