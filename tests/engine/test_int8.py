"""Graphs as PT2E quantizes them: loops round as torch does, and products run on oneDNN's integers."""
from __future__ import annotations

import ptdebug
import pytest
import torch
import torch.ao.quantization.fx._decomposed
import torch.nn.functional as F
from ptdebug.artifacts.recording import Recording
from ptdebug.artifacts.records import Pass, Schedule
from ptdebug.cli.compile_options import say_once
from ptdebug.cli.exporting import ExportError
from ptdebug.tracer.frames import dispatch

q = torch.ops.quantized_decomposed
U8, S8 = (0, 255, torch.uint8), (-128, 127, torch.int8)


def fake_quantized(x: torch.Tensor, scale: float = 0.05, zero: int = 20, bounds: tuple = U8) -> torch.Tensor:
    return q.dequantize_per_tensor.default(q.quantize_per_tensor.default(x, scale, zero, *bounds), scale, zero, *bounds)


class Layer(torch.nn.Module):
    """A float layer whose weight is quantized, a scale for each output."""

    def __init__(self, *shape: int, zero: int = 0, **options) -> None:
        super().__init__()
        weight = torch.randn(shape) / torch.tensor(shape[1:]).prod() ** 0.5
        self.register_buffer("scales", weight.abs().amax(tuple(range(1, len(shape)))) / 60)
        self.register_buffer("zeros", torch.full(shape[:1], zero))
        self.register_buffer("weight", q.quantize_per_channel.default(weight, self.scales, self.zeros, 0, *S8))
        self.bias = torch.nn.Parameter(torch.randn(shape[0]))
        self.options = options

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        weight = q.dequantize_per_channel.default(self.weight, self.scales, self.zeros, 0, *S8)
        if weight.dim() == 4:
            return F.conv2d(x, weight, self.bias, **self.options)
        return F.linear(x, weight, self.bias)


@pytest.fixture
def compiled(tmp_path):
    """A function's compiled results, the extern kernels of its graph, and the decisions about integers."""
    def run(function, *inputs):
        dispatch.reset()
        with torch.no_grad(), ptdebug.record("r", out=tmp_path):
            result = ptdebug.compile(function)(*inputs)
        assert not ptdebug.stats()["reasons"]
        with Recording.open(tmp_path / "r") as recording:
            plans = [record for _, record in recording.records(Schedule)]
            calls = [group.kernel for plan in plans for group in plan.groups if group.kind == "extern"]
            decisions = {d.subject: d for _, d in recording.decisions() if d.kind == "int8"}
        return result, calls, decisions

    return run


def same(got: torch.Tensor, wanted: torch.Tensor, step: float = 0.0) -> bool:
    """Equal but for rounding, or for one step of the last quantization in few places."""
    assert got.dtype == wanted.dtype and got.shape == wanted.shape and got.stride() == wanted.stride()
    away = (got.double() - wanted.double()).abs()
    return bool(away.max() <= step * 1.01 + 1e-4 and (away > 1e-4).float().mean() < 0.01)


def test_quantization_in_loops_rounds_as_torch_does():
    def everything(x, weight, scales, zeros, scale, zero):
        positive = fake_quantized(x).relu() + 1
        per_tensor = q.quantize_per_tensor.tensor(x * 2, scale, zero, *S8)
        per_channel = q.quantize_per_channel.default(weight, scales, zeros, 0, *S8)
        narrow = q.quantize_per_channel.default(weight, scales[:5], zeros[:5], 1, -100, 100, torch.int8)
        bytes_ = q.quantize_per_tensor.default(x, 0.03, 120, *U8)
        half = q.dequantize_per_tensor.default(bytes_, 0.03, 120, *U8, out_dtype=torch.bfloat16)
        return (per_tensor, q.dequantize_per_tensor.tensor(per_tensor, scale, zero, *S8), per_channel, narrow, bytes_,
                q.dequantize_per_channel.default(per_channel, scales, zeros, 0, *S8), half, positive)

    torch.manual_seed(0)
    x = torch.cat([torch.randn(500) * 4, torch.tensor([float("inf"), -float("inf"), float("nan"), -0.0, 1e30])])
    arguments = (x, torch.randn(7, 5, 10), torch.rand(7) / 10, torch.randint(-5, 5, (7,)), torch.tensor(0.0777),
                 torch.tensor(3))
    for got, wanted in zip(ptdebug.compile(everything)(*arguments), everything(*arguments)):
        assert got.dtype == wanted.dtype and torch.equal(got.nan_to_num(), wanted.nan_to_num())
    assert not ptdebug.stats()["reasons"]


@pytest.mark.parametrize(("activation", "name"), [
    (lambda y: y, "none"), (torch.relu, "relu"), (F.relu6, "hardtanh"), (F.hardswish, "hardswish"), (F.silu, "swish"),
])  # fmt: skip
def test_a_convolution_and_its_activation_are_one_call(compiled, tmp_path, activation, name):
    torch.manual_seed(0)
    layer, x = Layer(8, 4, 3, 3, padding=1, stride=2), torch.randn(2, 4, 9, 9)

    def function(x):
        return fake_quantized(activation(layer(fake_quantized(x))), 0.02, 30)

    got, calls, decisions = compiled(function, x)
    assert same(got, function(x), 0.02) and calls == ["onednn.qconv_pointwise.default"]
    (decision,) = decisions.values()
    assert decision.chosen == "int8"
    with Recording.open(tmp_path / "r") as recording:
        (match,) = [m for _, p in recording.records(Pass) for m in p.matches if m.rule == "int8"]
    assert (name in match.why) == (name != "none") and match.why.endswith("quantized")


def test_a_residual_block_stays_on_integers(compiled):
    torch.manual_seed(0)
    one, two = Layer(8, 8, 3, 3, padding=1), Layer(8, 8, 3, 3, padding=1)

    def function(x):
        x = q.quantize_per_tensor.default(x, 0.04, 9, *U8)

        def again():
            return q.dequantize_per_tensor.default(x, 0.04, 9, *U8)

        y = fake_quantized(one(again()).relu(), 0.03, 0)
        z = fake_quantized((two(y) + again()).relu(), 0.05, 0)
        return F.max_pool2d(z, 2), z.flatten(1)

    x = torch.randn(2, 8, 6, 6)
    got, calls, _ = compiled(function, x)
    assert calls == ["onednn.qconv_pointwise.default", "ptdebug.int8_convolution_sum.default"]
    assert all(same(a, b, 0.05) for a, b in zip(got, function(x)))


@pytest.mark.parametrize("side", [1, 3])
@pytest.mark.parametrize("read", ["by the sum", "by its convolution", "later"])
def test_a_sum_overwrites_what_is_added_if_nothing_else_reads_it(compiled, read, side):
    torch.manual_seed(0)
    one, two, three = (Layer(8, 8, size, size, padding=size // 2) for size in (3, 3, side))

    def function(x):
        x = fake_quantized(one(fake_quantized(x)).relu(), 0.03, 0)
        y = x if read == "by its convolution" else fake_quantized(two(x).relu(), 0.02, 0)
        z = fake_quantized((three(y) + x).relu(), 0.05, 0)
        return z.mean((2, 3)), x + 1 if read == "later" else None

    x = torch.randn(2, 8, 6, 6)
    got, calls, _ = compiled(function, x)
    in_place = {3: "onednn.qconv2d_pointwise.binary", 1: "ptdebug.int8_rows_sum_.default"}
    copied = {3: "ptdebug.int8_convolution_sum.default", 1: "ptdebug.int8_rows_sum.default"}
    wanted = (in_place if read == "by the sum" else copied)[side]
    assert calls[-1] == wanted and all(same(a, b, 0.05) for a, b in zip(got, function(x)) if b is not None)
    dispatch.reset()
    with torch.no_grad():
        from_python = ptdebug.compile(function, options={"cpp_wrapper": False})
        assert all(torch.equal(again[0], got[0]) for again in (from_python(x), from_python(x)))


def test_int8_layers_are_called_from_cpp(tmp_path):
    torch.manual_seed(0)
    convolve, project, last = Layer(8, 4, 3, 3, padding=1), Layer(5, 8), Layer(5, 5)

    def function(x):
        y = fake_quantized(F.relu6(convolve(fake_quantized(x))), 0.02, 30)
        z = fake_quantized(F.gelu(project(fake_quantized(y.mean((2, 3)), 0.01, 20))), 0.03, 5)
        scale, zero = q.choose_qparams.tensor(z, 0, 255, torch.finfo(torch.float32).eps, torch.uint8)
        z = q.quantize_per_tensor.tensor(z, scale, zero, *U8)
        return last(q.dequantize_per_tensor.tensor(z, scale, zero, *U8))

    x, results, chosen = torch.randn(2, 4, 6, 6), [], []
    for name, options in (("default", {}), ("python", {"cpp_wrapper": False})):
        dispatch.reset()
        with torch.no_grad(), ptdebug.record(name, out=tmp_path):
            results.append(ptdebug.compile(function, options=options)(x))
        with Recording.open(tmp_path / name) as recording:
            chosen += [d.chosen for _, d in recording.decisions() if d.kind in ("wrapper", "python-wrapper")]
    assert chosen == ["cpp", "python"] and torch.equal(*results) and same(results[0], function(x), 0.03)


@pytest.mark.parametrize("approximate", ["none", "tanh"])
def test_linear_layers_of_several_rows(compiled, approximate):
    torch.manual_seed(0)
    one, two = Layer(24, 16), Layer(10, 24)

    def function(x):
        y = F.gelu(one(fake_quantized(x)), approximate=approximate)
        return two(fake_quantized(y, 0.02, 10))

    x = torch.randn(3, 5, 16)
    got, calls, _ = compiled(function, x)
    assert calls == ["onednn.qlinear_pointwise.default"] * 2 and same(got, function(x), 0.02)


def test_scales_that_are_chosen_at_each_call(compiled):
    torch.manual_seed(0)
    layer = Layer(6, 4)

    def function(x):
        scale, zero = q.choose_qparams.tensor(x, 0, 255, 1e-5, torch.uint8)
        x = q.quantize_per_tensor.tensor(x, scale, zero, *U8)
        return layer(q.dequantize_per_tensor.tensor(x, scale, zero, *U8)), scale, zero

    x = torch.randn(3, 4)
    for odd in (x[0, 0].item(), 0.0, float("inf"), float("nan")):
        x[0, 0] = odd
        (result, *chosen), calls, _ = compiled(function, x)
        wanted, *right = function(x)
        assert calls == ["onednn.qlinear_pointwise.tensor"]
        assert all(torch.equal(a.nan_to_num(), b.nan_to_num()) for a, b in zip(chosen, right))
        assert same(result, wanted) or not wanted.isfinite().all()


def test_nan_passes_an_activation(compiled):
    """oneDNN's own makes 0 of it."""
    torch.manual_seed(0)
    layer = Layer(6, 4)

    def function(x):
        scale, zero = q.choose_qparams.tensor(x, 0, 255, 1e-5, torch.uint8)
        x = q.quantize_per_tensor.tensor(x, scale, zero, *U8)
        y = layer(q.dequantize_per_tensor.tensor(x, scale, zero, *U8))
        return y.relu(), layer(q.dequantize_per_tensor.tensor(x, scale, zero, *U8)).clamp(-1, 1)

    x = torch.randn(3, 4)
    for odd in (0.5, float("nan"), float("inf")):
        x[0, 0] = odd
        got, calls, _ = compiled(function, x)
        assert calls == ["onednn.qlinear_pointwise.tensor"] * 2
        assert all(torch.allclose(a, b, atol=1e-4, equal_nan=True) for a, b in zip(got, function(x)))


def test_what_onednn_refuses_runs_in_loops(compiled):
    """int8 images, bounds that cross, weights without elements (which end the process)."""
    torch.manual_seed(0)
    convolve, project, empty = Layer(4, 4, 3, 3, padding=1), Layer(6, 4), Layer(6, 1)
    empty.weight = empty.weight[:, :0]

    def function(image, x):
        signed = convolve(fake_quantized(image, 0.05, 3, S8)) + fake_quantized(image)
        return fake_quantized(signed), fake_quantized(project(fake_quantized(x)).clamp(1, 0.2)), empty(x[:, :0])

    inputs = torch.randn(2, 4, 6, 6), torch.randn(3, 4)
    got, calls, decisions = compiled(function, *inputs)
    assert calls.count("onednn.qlinear_pointwise.default") == 1 and not any("qconv" in call for call in calls)
    assert any("its image is int8" in decision.why for decision in decisions.values())
    assert all(same(a, b, 0.05) for a, b in zip(got, function(*inputs)))


def test_integers_that_are_moved_stay_the_tensors_of_the_program(compiled):
    """Results have their own memory and strides; what depends on strides reads those of the program."""
    def function(x):
        y = q.dequantize_per_tensor.default(x, 0.05, 20, *U8)
        first = q.quantize_per_tensor.default(y, 0.05, 20, *U8)
        again = q.quantize_per_tensor.default(q.dequantize_per_tensor.default(first, 0.05, 20, *U8), 0.05, 20, *U8)

        def dequantized():
            return q.dequantize_per_tensor.default(x, 0.05, 20, *U8)

        return first, again, dequantized().as_strided((4, 3), (3, 1), 2), dequantized().expand(5, *x.shape)

    wide = torch.randint(0, 255, (4, 8), dtype=torch.uint8)
    for x in (wide[:, :4].clone(), wide[:, ::2]):
        got, _, _ = compiled(function, x)
        assert all(same(a, b) for a, b in zip(got, function(x)))
        assert len({tensor.untyped_storage().data_ptr() for tensor in (x, *got)}) == 5


def test_what_keeps_a_layer_from_integers_is_said(compiled):
    torch.manual_seed(0)
    layer, x = Layer(6, 4), torch.randn(3, 4)
    got, calls, decisions = compiled(lambda x: layer(x) * 2, x)
    (decision,) = decisions.values()
    assert decision.chosen == "dequantized" and "its rows are not quantized" in decision.why
    assert not any("qlinear" in call for call in calls) and same(got, layer(x) * 2)


def test_layers_that_the_quantizer_left_in_float_are_said(compiled):
    torch.manual_seed(0)
    layer, left, x = Layer(6, 4), torch.nn.Linear(6, 3), torch.randn(3, 4)
    got, _, decisions = compiled(lambda x: left(layer(fake_quantized(x))), x)
    assert sorted((d.chosen, "left it in float" in d.why) for d in decisions.values()) == [
        ("dequantized", True), ("int8", False)]
    assert same(got, left(layer(fake_quantized(x))), 0.02)


def test_a_module_in_which_nothing_was_quantized_is_said(caplog):
    """As on torch 2.11, where the quantizer finds no layers in what `torch.export` traces unless it is strict."""
    say_once.cache_clear()
    module = torch.fx.symbolic_trace(torch.nn.Sequential(torch.nn.Linear(4, 3)))
    module.meta["_observed_graph_module_attrs"] = object()  # as PT2E's preparation leaves it
    ptdebug.compile(module)
    assert "no operator of its graph is quantized" in caplog.text
    caplog.clear()
    say_once.cache_clear()
    module.graph.create_node("call_module", "activation_post_process_0")  # it observes
    ptdebug.compile(module)
    ptdebug.compile(torch.fx.symbolic_trace(torch.nn.Linear(4, 3)))
    assert not caplog.text


@pytest.mark.parametrize("zero", [3, 100, 0.5, torch.tensor(60, dtype=torch.int8)])
def test_weights_with_a_zero_of_their_own(zero):
    """oneDNN would ignore it. What does not fit in 8 bits without it runs in eager; others are no integers, or wrap."""
    dispatch.reset()
    torch.manual_seed(0)
    layer = Layer(6, 4)
    layer.zeros = torch.full((6,), zero) if isinstance(zero, (int, float)) else zero.expand(6).clone()
    with torch.no_grad():
        function = ptdebug.compile(lambda x: layer(fake_quantized(x)))
        for _ in range(2):
            x = torch.randn(3, 4)
            assert same(function(x), layer(fake_quantized(x)))


def test_a_changed_weight_is_packed_anew():
    torch.manual_seed(0)
    layer, x = Layer(6, 4), torch.randn(3, 4)
    with torch.no_grad():
        function = ptdebug.compile(lambda x: layer(fake_quantized(x)))
        assert same(function(x), layer(fake_quantized(x)))
        layer.weight.neg_()
        assert same(function(x), layer(fake_quantized(x)))


def test_a_package_packs_its_weights_when_it_is_loaded(tmp_path):
    torch.manual_seed(0)
    layer, x = Layer(6, 4), torch.randn(3, 4)

    class Model(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = layer

        def forward(self, x):
            return self.layer(fake_quantized(x))

    package = ptdebug.export(Model(), (x,))
    with pytest.raises(ExportError, match="weights are packed when they are loaded, by Python"):
        ptdebug.export(Model(), (x,), cpp=True)
    program = ptdebug.load(package.save(tmp_path / "int8.ptd"))
    with torch.no_grad():
        assert same(program(x), layer(fake_quantized(x)))
        program.weights["layer.weight"].neg_()  # the package's own
        layer.weight.neg_()
        assert same(program(x), layer(fake_quantized(x)))
    assert "qlinear" in package.package.entries[0].half.text


def test_integers_at_sizes_that_vary():
    torch.manual_seed(0)
    convolve, project = Layer(8, 4, 3, 3, padding=1), Layer(5, 8)

    def function(x):
        y = fake_quantized(convolve(fake_quantized(x)).relu(), 0.02, 0)
        return project(fake_quantized(y.mean((2, 3)), 0.01, 0))

    with torch.no_grad():
        compiled = ptdebug.compile(function, dynamic=True)
        for batch, size in ((2, 8), (3, 6), (5, 9)):
            x = torch.randn(batch, 4, size, size)
            assert same(compiled(x), function(x), 0.02)
    assert not ptdebug.stats()["reasons"]


@pytest.mark.parametrize("side", [1, 3])
def test_residual_sums_of_int8_at_sizes_that_vary(tmp_path, side):
    torch.manual_seed(0)
    one, two, three = (Layer(8, n, size, size, padding=size // 2) for n, size in ((4, 3), (4, 3), (8, side)))

    def function(x):
        y = fake_quantized(one(fake_quantized(x)).relu(), 0.02, 0)
        z = fake_quantized(two(fake_quantized(x)), 0.02, 0, S8)
        return fake_quantized(three(y) + z, 0.03, 0, S8)

    dispatch.reset()
    with torch.no_grad(), ptdebug.record("r", out=tmp_path):
        compiled = ptdebug.compile(function, dynamic=True)
        for batch, size in ((2, 8), (3, 6), (5, 9)):
            x = torch.randn(batch, 4, size, size)
            assert same(compiled(x), function(x), 0.03)
    assert not ptdebug.stats()["reasons"]
    with Recording.open(tmp_path / "r") as recording:
        decisions = [d for _, d in recording.decisions()]
    assert {d.chosen for d in decisions if d.kind in ("wrapper", "python-wrapper")} == {"cpp"}
    assert "in-place" in [d.chosen for d in decisions if d.kind == "in-place"]


@pytest.mark.parametrize("rows", (1, 4))
def test_weight_only_int4(compiled, rows):
    """As gpt-fast packs them: torch's kernel is called, and what is around it is fused."""
    torch.manual_seed(0)
    packed = torch.ops.aten._convert_weight_to_int4pack_for_cpu(torch.randint(16, (64, 128), dtype=torch.int32), 2)
    scales_and_zeros = torch.rand(128 // 32, 64, 2).to(torch.bfloat16)

    def layer(x):
        return F.silu(torch.ops.aten._weight_int4pack_mm_for_cpu(x * 2, packed, 32, scales_and_zeros))

    x = torch.randn(rows, 128, dtype=torch.bfloat16)
    known = layer(x)
    got, calls, _ = compiled(layer, x)
    assert calls == ["aten._weight_int4pack_mm_for_cpu.default"]
    torch.testing.assert_close(got, known, rtol=2e-2, atol=2e-2)
