"""Values of generated kernels: in Triton's interpreter on the CPU here, and on a GPU where there is one."""
from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType
from unittest.mock import patch

import ptdebug
import pytest
import torch
import torch.nn.functional as F
from ptdebug.artifacts.context import CompileContext
from ptdebug.engine.codegen.triton import tiling
from ptdebug.engine.ir import interpreter, ir
from ptdebug.engine.lowering import activations, registry
from ptdebug.engine.lowering.body import BodyBuilder
from ptdebug.engine.scheduler import occupancy

from tests.devices import DEVICES


def _programs() -> ModuleType:
    spec = importlib.util.spec_from_file_location("triton_programs", Path(__file__).with_name("programs.py"))
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


programs = _programs()
TOLERANCES = {torch.bfloat16: (2e-2, 2e-2), torch.float16: (2e-3, 2e-3)}


def _assert_same(actual: object, expected: object) -> None:
    expected = expected if isinstance(expected, (tuple, list)) else (expected,)
    assert len(actual) == len(expected)
    for a, e in zip(actual, expected):
        rtol, atol = TOLERANCES.get(e.dtype, (1e-5, 1e-6))
        torch.testing.assert_close(a, e, rtol=rtol, atol=atol, equal_nan=True)
        assert a.stride() == e.stride()


@pytest.mark.parametrize("name", programs.PROGRAMS)
def test_values_agree_with_eager(name: str) -> None:
    function, inputs = programs.PROGRAMS[name]
    _assert_same(programs.compiled(function, inputs)(*inputs), function(*inputs))


@pytest.mark.parametrize("name", ["softmax_nan", "layer_norm", "argmax", "variance", "column_max", "any_all"])
def test_loops_agree_with_eager(name: str) -> None:
    """The same programs with tiles so small that rows need loops."""
    function, inputs = programs.PROGRAMS[name]
    _assert_same(_with_tile(function, inputs, "looped")(*inputs), function(*inputs))


def _with_tile(function: object, inputs: tuple[torch.Tensor, ...], shape: str) -> object:
    """The program with the first tile of `shape` that each kernel's decision offers, and small blocks."""
    class Choosing(CompileContext):
        def decide(self, kind, subject, options, default, why, **rest):
            names = [o if isinstance(o, str) else o.name for o in options]
            if kind == "tile":
                return next((n for n in names if n.startswith(shape)), default)
            return super().decide(kind, subject, options, default, why, **rest)

    context = Choosing()
    plan = programs.plan_of(function, inputs, context)
    kernels = programs.kernels_for_plan(plan, context)
    assert any(launch.tile.startswith(shape) for k in kernels.values() for launch in k.source.launches)
    return programs.PlanRunner(plan, kernels)


def test_rows_shared_by_programs(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two kernels and a workspace, for a reduction of few long rows."""
    monkeypatch.setattr(tiling, "PERSISTENT_LIMIT", 16)
    monkeypatch.setattr(tiling, "SPLIT_FROM", 64)
    monkeypatch.setattr(tiling, "PROCESSORS", 16)
    monkeypatch.setattr(occupancy, "LAUNCH", 0.0)
    both = lambda x: tuple(torch.var_mean(x)[i] for i in (0, 1))
    for function in (lambda x: x.sum(), lambda x: x.amax(), lambda x: x.argmax(), both):
        x = torch.randn(67, 131)
        runner = programs.compiled(function, (x,))
        launches = [k.name for kernel in runner.kernels.values() for k in kernel.source.launches]
        assert any(name.endswith("_combine") for name in launches), launches
        _assert_same(runner(x), function(x))


@pytest.mark.parametrize("columns", [64, 70])
def test_columns_shared_by_programs(columns: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Sums over the rows of a tensor, as of the gradients of a layer norm; what follows them waits for the shares."""
    monkeypatch.setattr(tiling, "PERSISTENT_LIMIT", 16)
    monkeypatch.setattr(tiling, "SPLIT_FROM", 64)

    def function(x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, ...]:
        product, plain = (x * y).sum(0), x.sum(0)
        return product.to(torch.bfloat16), plain.to(torch.bfloat16), x.amax(0), plain * 2 + product

    inputs = tuple(torch.randint(-8, 9, (301, columns)).float() for _ in range(2))  # exact in any order of the sum
    runner = programs.compiled(function, inputs)
    launches = [k for kernel in runner.kernels.values() for k in kernel.source.launches]
    assert [k.name.rpartition("_")[2] for k in launches] == ["partial", "combine"]
    assert launches[0].grid[1] > 1 and launches[0].constants["X_BLOCK"] >= 32
    _assert_same(runner(*inputs), function(*inputs))


def test_columns_are_read_in_whole_sectors() -> None:
    """However short the rows are that a program could hold: neighbouring threads read neighbouring columns."""
    for rows in (40, 300, 8192):
        plan_inputs = (torch.empty(rows, 4096, dtype=torch.bfloat16),)
        context = CompileContext()
        plan = programs.plan_of(lambda x: x.sum(0), plan_inputs, context)
        (kernel,) = programs.kernels_for_plan(plan, context).values()
        assert kernel.source.launches[0].constants["X_BLOCK"] >= 32


def test_a_value_for_each_row_does_not_make_a_transposition() -> None:
    x, rows = torch.empty(4, 64, 96), torch.empty(4, 64)
    for function, shape in ((lambda x, r: F.pad(x * r[..., None], (0, 0, 0, 1)), "pointwise-x"),
                            (lambda x, r: x.transpose(1, 2).contiguous() * 2, "pointwise-y")):
        context = CompileContext()
        kernels = programs.kernels_for_plan(programs.plan_of(function, (x, rows), context), context)
        (launch,) = [k for kernel in kernels.values() for k in kernel.source.launches]
        assert launch.tile.startswith(shape)


def test_narrow_floats_are_rounded_to_nearest() -> None:
    """By Triton's interpreter, too, of which ours makes a GPU: whatever they come from."""
    x = torch.linspace(-3, 3, 301)
    for source in (x, x.double(), (x * 1000).long()):
        function = lambda x: (x.bfloat16(), x.half())
        for got, known in zip(programs.compiled(function, (source,))(source), function(source)):
            assert torch.equal(got, known)


def test_index_out_of_bounds_is_reported() -> None:
    function, (indices, table) = programs.PROGRAMS["embedding"]
    runner = programs.compiled(function, (indices, table))
    with pytest.raises(IndexError, match="embedding"):
        runner(indices + 3, table)


def test_addresses_do_as_well_as_tensors() -> None:
    function, inputs = programs.PROGRAMS["gelu_bias"]
    runner = programs.compiled(function, inputs)
    (kernel,) = runner.kernels.values()
    out = torch.empty(6, 40)
    memory = dict(zip(runner.plan.program.inputs, inputs))
    assert kernel(*(memory.get(n, out).data_ptr() for n in kernel.signature.buffers)) == 0
    torch.testing.assert_close(out, function(*inputs))


def test_agrees_with_the_reference_interpreter_bit_for_bit() -> None:
    """Where all operations round correctly (torch's square root does not), there is one right answer."""
    def function(x, y):
        return (x * y + 1.0).reciprocal() - x / y

    inputs = (torch.rand(5, 7) + 1, torch.rand(7) + 1)
    runner = programs.compiled(function, inputs)
    for ours, reference in zip(runner(*inputs), interpreter.run_plan(runner.plan, inputs)):
        assert torch.equal(ours, reference)


@pytest.mark.parametrize("device", DEVICES)
def test_quotients_by_one_number_of_a_row(device: str) -> None:
    """Rows over their maximum: zeros of both signs, maxima that are 0, subnormal, infinite or almost."""
    most = torch.tensor([1.5, 3e38, 2e38, 1e-40, 1e-30, 0.0, -1e-35, float("inf"), float("nan"), -0.0, 7.0])
    x = torch.rand(len(most), 1200, generator=torch.Generator().manual_seed(0)) * most[:, None]
    x[:, :3] = torch.tensor([-0.0, 0.0, -1e-42])
    x = torch.where(most[:, None] <= 0, most[:, None] * 1e3 - 1e-34, x)  # no other zero than the largest
    x[0, 3], x[:, 5] = float("-inf"), most
    x = x.to(device)
    function = lambda x: (x / x.amax(-1, keepdim=True), x / 4.0, x / 3.0)
    runner = programs.compiled(function, (x,))
    assert "divided_by_shared" in "".join(k.source.text for k in runner.kernels.values())
    for got, known in zip(runner(x), function(x)):
        if device == "cuda":  # to the bit; Triton's interpreter rounds products that it adds to
            same = (got == known) & (torch.signbit(got) == torch.signbit(known)) | got.isnan() & known.isnan()
            assert same.all() or (got - known)[~same].abs().max() < 1e-37  # of subnormals, by one
        torch.testing.assert_close(got, known, rtol=3e-7, atol=1e-44, equal_nan=True)
        assert torch.equal(torch.signbit(got[~got.isnan()]), torch.signbit(known[~known.isnan()]))


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_quotients_that_are_rounded_to_16_bits(device: str, dtype: torch.dtype) -> None:
    """Divisors whose inverse is no normal number, too: the quotient is eager's, or the next number."""
    numbers = [1.0, 3.0, -7.0, 1e30, 3e38, 3e-31, 1e-38, -1e-40, 1e-45, 0.0, float("inf"), float("nan")]
    by = torch.tensor(numbers)[:, None]
    x = torch.cat([by * torch.linspace(-3, 3, 1021), torch.tensor([0.0, 1.0, float("inf")]).expand(len(by), 3)], 1)
    x, by = x.to(device), torch.cat([by, torch.zeros(len(by), 9)], 1).to(device)
    function = lambda x, by: (x / by.sum(1, keepdim=True)).to(dtype)
    runner = programs.compiled(function, (x, by))
    assert "narrow_quotient" in "".join(k.source.text for k in runner.kernels.values())
    got, known = runner(x, by)[0], function(x, by)
    same = (got == known) | got.isnan() & known.isnan()
    near = torch.nextafter(got.float().to(dtype).cpu(), known.cpu()).to(device) == known
    assert (same | near).all() and same.float().mean() > 0.99
    assert torch.equal(torch.signbit(got[~got.isnan()]), torch.signbit(known[~known.isnan()]))


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.float16])
def test_which_zero_is_the_larger(device: str, dtype: torch.dtype) -> None:
    """As for the kernels of eager's device, where the code runs there."""
    x = torch.tensor([0.0, -0.0, 0.0, -0.0, float("nan"), 1.0, -1.0], dtype=dtype, device=device)
    y = torch.tensor([-0.0, 0.0, 0.0, -0.0, 1.0, float("nan"), -0.0], dtype=dtype, device=device)
    function = lambda x, y: (
        torch.maximum(x, y), torch.minimum(x, y), x.relu(), x.clamp(max=-0.0), x.clamp(0.0, 1.0), x.clamp(min=y),
    )  # fmt: skip
    for got, known in zip(programs.compiled(function, (x, y))(x, y), function(x, y)):
        torch.testing.assert_close(got, known, rtol=0, atol=0, equal_nan=True)
        assert device == "cpu" or torch.equal(torch.signbit(got[got == got]), torch.signbit(known[got == got]))


@pytest.mark.parametrize(("ordered", "op"), [(True, "maximum"), (False, "where")])
def test_a_gpu_before_torch_2_13_orders_zeros(monkeypatch: pytest.MonkeyPatch, ordered: bool, op: str) -> None:
    monkeypatch.setattr(activations, "_ORDERED_ZEROS", ordered)
    builder = BodyBuilder()
    x = builder.constant(1.5, torch.float32)
    for device, expected in (("cuda", op), ("cpu", "where")):
        builder.device = device
        result = activations._at_least(builder, x, 0)
        row = next(row for row in builder._rows.values() if row.name == result)
        assert row.op == expected


def test_constants_keep_the_sign_of_zero() -> None:
    for dtype in (torch.float64, torch.float32, torch.float16):
        x = _floats_of(dtype)
        function = lambda x: (torch.copysign(x, -0.0), torch.div(x, -0.0), torch.where(x > 0, x, -0.0),
                              F.pad(x, (1, 1), value=-0.0))
        for got, known in zip(programs.compiled(function, (x,))(x), function(x)):
            assert torch.equal(got, known) and torch.equal(torch.signbit(got), torch.signbit(known))


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("dtype", [torch.float8_e4m3fn, torch.float8_e5m2])
def test_eight_bit_floats(dtype: torch.dtype, device: str) -> None:
    """What is too large for them becomes what torch makes of it; the plan is one for a GPU, where loops hold them."""
    ends = torch.tensor([448.0, 463.9, 464.0, 464.1, 480.0, 57344.0, 61439.0, 61440.0, 1e9, float("inf"), 0.0, 1e-9])
    x = torch.cat([ends, -ends, torch.randn(100) * 300, torch.tensor([float("nan")])]).to(device)
    function = lambda x: (x.to(dtype), x.to(dtype).float() * 2, x.half().to(dtype))
    context = CompileContext()
    with patch.object(registry, "LOOP_DTYPES", registry.LOOP_DTYPES | {dtype}):
        plan = programs.plan_of(function, (x,), context)
    assert not any(isinstance(item, ir.ExternCall) for item in plan.items)
    for got, known in zip(programs.PlanRunner(plan, programs.kernels_for_plan(plan, context))(x), function(x)):
        torch.testing.assert_close(got.float(), known.float(), rtol=0, atol=0, equal_nan=True)


def _floats_of(dtype: torch.dtype) -> torch.Tensor:
    return torch.tensor([[-2.0, -1.0, 3.0], [0.5, 1.0, -7.0]], dtype=dtype)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_more_elements_than_32_bits_count() -> None:
    """Pointwise, sums of rows and of columns; what is compiled for sizes that vary has 64-bit positions if need be."""
    x = torch.ones(1 << 16, (1 << 15) + 1, dtype=torch.int8, device="cuda")
    x[-1, -1], x[-2, 0] = 5, 7
    function = lambda x: (x[-3:] + 1, x.sum(1, dtype=torch.int32), x.amax(0), x * 2)
    for got, known in zip(programs.compiled(function, (x,))(x), function(x)):
        assert torch.equal(got, known)
    varying = ptdebug.compile(lambda x: x * 2, dynamic=True)
    assert torch.equal(varying(x[:3]), x[:3] * 2) and torch.equal(varying(x)[-4:], x[-4:] * 2)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@pytest.mark.parametrize("name", programs.PROGRAMS)
def test_values_on_a_gpu(name: str) -> None:
    function, inputs = programs.PROGRAMS[name]
    inputs = tuple(t.cuda() for t in inputs)
    _assert_same(programs.compiled(function, inputs)(*inputs), function(*inputs))


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("dtype", [torch.int8, torch.uint8, torch.int16])
def test_sums_of_narrow_integers_wrap_around_before_they_are_used(device: str, dtype: torch.dtype) -> None:
    """Seed 27009717: the sum stays in a register, for a maximum of another dtype."""
    x, y = torch.full((3, 700), 99, dtype=dtype, device=device), torch.zeros((), device=device)
    function = lambda x, y: (torch.maximum(x.sum(1, dtype=dtype), y), x.amax(1) * 3 + y)
    runner = programs.compiled(function, (x, y))
    for got, known in zip(runner(x, y), function(x, y)):
        assert torch.equal(got, known)
