"""Library calls: each way of computing a product or a convolution gives eager's values and strides."""
from __future__ import annotations

import math
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from ptdebug.engine import passes
from ptdebug.engine.aot.aten_graph import trace
from ptdebug.engine.compile import compile_graph
from ptdebug.engine.passes import extern_kernels
from ptdebug.engine.passes.extern_kernels import conv_bias, epilogues
from ptdebug.engine.toolchain import benchmarking
from torch import nn

from .programs import capture, recording_context


@pytest.fixture(autouse=True)
def own_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("PTDEBUG_CACHE_DIR", str(tmp_path))
    return tmp_path


def compiled(program, *inputs, **settings):
    """(results, ATen operators called by the wrapper, the recorder's memory)"""
    context, keeping = recording_context(**settings)
    call = compile_graph(capture(program, *inputs), context)
    assert not context.fallback, context.fallback
    return call(*inputs), keeping.records["wrapper", ""].lines, keeping


def assert_like(results, expected):
    for result, wanted in zip(results, expected, strict=True):
        torch.testing.assert_close(result, wanted, rtol=2e-5, atol=2e-5)
        assert result.stride() == wanted.stride()


def calls(lines, operator):
    return sum(f"aten_{operator}_default(" in line.text for line in lines)


# ---- batches with one matrix
@pytest.mark.parametrize("x", [
    torch.randn(3, 70, 8).transpose(0, 1), torch.randn(4, 5, 8).transpose(0, 1), torch.randn(6, 10, 8)[:, ::2],
    torch.randn(5, 8, 3).permute(2, 0, 1), torch.randn(2, 8, 3, 4).transpose(1, 3),
    torch.randn(3, 8, 200).transpose(1, 2),
])  # fmt: skip
def test_a_batch_with_one_matrix_is_one_product(x):
    batches = x[..., 0, 0].numel()

    def program(x, w, b):
        batch = x.flatten(0, -3)
        return F.linear(x, w, b).sin(), torch.matmul(x, w.t()), torch.bmm(batch, w.t().expand(batches, 8, 20))

    w, b = torch.randn(20, 8), torch.randn(20)
    with torch.no_grad():
        results, lines, _ = compiled(program, x, w, b)
        expected = program(x, w, b)
        assert_like(results, expected)
        assert calls(lines, "bmm") == 0 and calls(lines, "mm") > 0
        forced, lines, _ = compiled(program, x, w, b, overrides={"bmm-to-mm:*": "bmm", "lowering:bmm*": "extern"})
    assert_like(forced, expected)
    assert calls(lines, "bmm") > 0


def test_other_batches_are_left_alone():
    def program(x, w, many):
        return torch.bmm(x, w.expand(3, 12, 5)), torch.bmm(x, many)

    for x in (torch.randn(3, 600, 12)[:, :300], torch.randn(4, 3, 12).transpose(0, 1)):  # many rows; few columns
        _, lines, _ = compiled(program, x, torch.randn(12, 5), torch.randn(3, 12, 5))
        assert calls(lines, "bmm") == 2


# ---- bias
def test_loops_add_the_bias_of_a_product_that_only_they_read():
    def program(x, w, b):
        return F.gelu(F.linear(x, w, b)).sum(-1)

    inputs = torch.randn(6, 8), torch.randn(5, 8), torch.randn(5)
    results, lines, keeping = compiled(program, *inputs)
    assert_like(results, [program(*inputs)])
    assert calls(lines, "mm") == 1 and calls(lines, "addmm") == 0
    assert [m.removed for m in keeping.records["passes", "extern-kernels"].matches] == [("addmm",)]
    forced, lines, _ = compiled(program, *inputs, overrides={"unfuse-addmm:*": "addmm"})
    assert_like(forced, results)
    assert calls(lines, "addmm") == 1


@pytest.mark.parametrize("program", [
    lambda x, w, b: F.linear(x, w, b),
    lambda x, w, b: F.linear(x, w, b).view(2, 3, 5),
    lambda x, w, b: F.linear(x, w, b) @ w,
    lambda x, w, b: F.linear(x.bfloat16(), w.bfloat16(), b.bfloat16()).relu(),
    lambda x, w, b: torch.addmm(b, x, w.t(), beta=0.5).relu(),
    lambda x, w, b: torch.addmm(b[:1], x, w.t()).relu(),
    lambda x, w, b: torch.addmm(torch.ones(6, 1), x, w.t()).relu(),
], ids=["result", "view", "product", "bfloat16", "factor", "one", "column"])
def test_a_bias_stays_with_the_library(program):
    inputs = torch.randn(6, 8), torch.randn(5, 8), torch.randn(5)
    results, lines, _ = compiled(program, *inputs)
    expected = program(*inputs)
    torch.testing.assert_close(results[0], expected)
    assert calls(lines, "addmm") == 1


# ---- products
@pytest.mark.parametrize("bias", [True, False])
def test_either_library_computes_a_product(bias):
    def program(x, w, b):
        return F.linear(x, w, b if bias else None), F.linear(x, w, b if bias else None).relu() @ w

    inputs = torch.randn(3, 50, 96), torch.randn(80, 96), torch.randn(80)
    for chosen in ("mkl", "onednn"):
        results, lines, keeping = compiled(program, *inputs, overrides={"matmul:*": chosen})
        assert_like(results, program(*inputs))
        called = sum("mkldnn__linear_pointwise" in line.text for line in lines if "=" in line.text)
        assert bool(called) == (chosen == "onednn")
        assert any(d.kind == "matmul" and d.forced for d in keeping.decisions)


@pytest.mark.parametrize("layout", [lambda w: w, lambda w: w.t().contiguous().t()], ids=["rows", "columns"])
@pytest.mark.parametrize("bias", [True, False])
def test_the_faster_library_takes_a_weight_as_it_lies(monkeypatch, layout, bias):
    monkeypatch.setattr(benchmarking, "_measured", lambda calls: {"mkl": 1.0, "onednn": 0.95})
    inputs = torch.randn(150, 96), layout(torch.randn(80, 96)), torch.randn(80)

    def program(x, w, b):
        return F.linear(x, w, b if bias else None)

    results, lines, _ = compiled(program, *inputs)
    assert_like(results, [program(*inputs)])
    assert sum("mkldnn__linear_pointwise" in line.text for line in lines if "=" in line.text) == 1
    assert not any("fused_" in line.text for line in lines)  # no copy of the weight


def test_each_library_measures_on_the_layout_of_the_weight(monkeypatch):
    measured = []
    run_all = lambda calls: measured.append([call() for call in calls.values()]) or {}
    monkeypatch.setattr(benchmarking, "_measured", run_all)
    compiled(lambda x, w: (F.linear(x, w), x @ w.view(96, 80)), torch.randn(150, 96), torch.randn(80, 96))
    assert len(measured) == 2
    for one, *others in measured:
        assert len(others) == 2
        for other in others:
            torch.testing.assert_close(one, other)


def test_sums_that_onednn_would_make_too_far_off_are_not_offered_to_it(monkeypatch):
    monkeypatch.setattr(benchmarking, "_measured", lambda calls: dict.fromkeys(calls, 1.0))
    inputs = torch.randn(150, 1536), torch.randn(80, 1536)
    results, _, keeping = compiled(lambda x, w: F.linear(x, w), *inputs)
    torch.testing.assert_close(results[0], F.linear(*inputs), rtol=1e-4, atol=1e-4)
    options = next(d.options for d in keeping.decisions if d.kind == "matmul")
    assert [o.name for o in options] == ["mkl", "ptdebug"]


@pytest.mark.parametrize("program", [
    lambda x, w: x.double() @ w.double().t(),
    lambda x, w: x.bfloat16() @ w.bfloat16().t(),
    lambda x, w: x[:2] @ w.t(),  # small
    lambda x, w: x.repeat(1, 2)[:, ::2] @ w.t(),  # neither rows nor columns are dense
], ids=["double", "bfloat16", "small", "strided"])
def test_other_products_are_left_alone(program):
    inputs = torch.randn(150, 96), torch.randn(80, 96)
    results, _, keeping = compiled(program, *inputs)
    torch.testing.assert_close(results[0], program(*inputs))
    assert not [d for d in keeping.decisions if d.kind == "matmul"]


# ---- small products
SMALL = {
    "rotations": ((500, 3, 3), (500, 3, 3)), "points": ((500, 3, 3), (500, 3, 1)), "one term": ((9, 4, 1), (9, 1, 5)),
    "vectors": ((40, 1, 30), (40, 30, 20)), "sums": ((40, 20, 30), (40, 30, 1)), "scalars": ((40, 1, 50), (40, 50, 1)),
    "tall": ((1000, 3), (3, 4)), "wide": ((3, 3), (3, 1000)), "tall, one column": ((1000, 4), (4, 1)),
}


@pytest.mark.parametrize("name, dtype", [
    *((name, torch.float32) for name in SMALL), *((name, torch.float64) for name in ("rotations", "vectors", "tall")),
])  # fmt: skip
def test_small_matrices_are_multiplied_in_loops(name, dtype):
    """As dense ones, transposed, expanded, and with loops before and after."""
    torch.manual_seed(0)
    left, right = (torch.randn(s, dtype=dtype) for s in SMALL[name])
    again = (left.mT.contiguous().mT, right.mT.contiguous().mT), (left[:1].expand_as(left), right)
    plain, between = lambda a, b: a @ b, (lambda a, b: a * 2 @ (b + 1), lambda a, b: torch.relu(a @ b).sum(-1))
    for inputs, programs in (((left, right), (plain, *between)), *((inputs, (plain,)) for inputs in again)):
        for program in programs:
            results, lines, _ = compiled(program, *inputs)
            assert_like(results, [program(*inputs)])
        assert calls(lines, "bmm") + calls(lines, "mm") == 0
        product = "mm" if left.dim() == 2 else "bmm"
        forced, lines, _ = compiled(lambda a, b: a @ b, *inputs, overrides={f"lowering:{product}": "extern"})
        assert_like(forced, [inputs[0] @ inputs[1]])
        assert calls(lines, "bmm") + calls(lines, "mm") == 1


@pytest.mark.parametrize("program", [
    lambda x: torch.bmm(x.view(8, 16, 12), x.view(8, 12, 16)),  # many terms
    lambda x: torch.bmm(x.view(8, 64, 3), x.view(8, 3, 64)),  # many results
    lambda x: x.view(-1, 3)[:100] @ x.view(-1)[:9].view(3, 3),  # too few rows to matter
    lambda x: x.sin().view(-1, 8) @ x.cos().view(-1)[:64].view(8, 8),  # eight sines for each
    lambda x: torch.bmm(x.view(-1, 3, 2).half(), x.view(-1, 2, 3).half()),
])  # fmt: skip
def test_other_products_are_the_librarys(program):
    x = torch.randn(1536)
    results, lines, _ = compiled(program, x)
    torch.testing.assert_close(results[0], program(x), rtol=1e-3, atol=1e-3)
    assert calls(lines, "bmm") + calls(lines, "mm") == 1


@pytest.mark.parametrize("rows, loops", [(1, True), (2, True), (4, False)])
@pytest.mark.parametrize("dtype", [torch.int8, torch.uint8])
def test_few_rows_with_a_matrix_of_bytes(rows, loops, dtype):
    generator = torch.Generator().manual_seed(0)
    x, scale = torch.randn(rows, 200, generator=generator), torch.rand(96, generator=generator)
    weight = torch.randint(-128, 127, (96, 200), generator=generator).to(dtype)
    for program, matrix in ((lambda x, w, s: F.linear(x, w.to(x.dtype)) * s, weight),
                            (lambda x, w, s: (x @ w.to(x.dtype)) * s, weight.t().contiguous())):
        results, lines, _ = compiled(program, x, matrix, scale)
        exact, eager = program(x.double(), matrix, scale.double()), program(x, matrix, scale)
        assert (results[0] - exact).abs().max() <= 2 * (eager - exact).abs().max()
        assert (calls(lines, "mm") + calls(lines, "product") == 0) == loops
    results, lines, _ = compiled(lambda x, w: x @ (w * 2).to(x.dtype).t(), x, weight)
    assert calls(lines, "mm") + calls(lines, "product") > 0


@pytest.mark.parametrize("halves", [torch.bfloat16, torch.float16])
def test_few_rows_of_halves_with_a_matrix_of_bytes_are_rounded_once(halves):
    x, scale = torch.randn(2, 200).to(halves), torch.rand(96).to(halves)
    weight = torch.randint(0, 255, (96, 200)).to(torch.uint8)
    program = lambda x, w, s: (F.linear(x, w.to(x.dtype)), F.linear(x[:1], w.to(x.dtype)) * s)
    results, lines, _ = compiled(program, x, weight, scale)
    exact = F.linear(x.double(), weight.double())
    torch.testing.assert_close(results[0], exact.to(halves), rtol=torch.finfo(halves).eps, atol=1e-2)
    torch.testing.assert_close(results[1], program(x, weight, scale)[1], rtol=2 * torch.finfo(halves).eps, atol=1e-2)
    assert calls(lines, "mm") == 0


# ---- convolutions
class Block(nn.Module):
    """What convolutions stand between: normalization, pooling, a residual, a concatenation, an upsampling."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, 8, 3, padding=1)
        self.norm = nn.BatchNorm2d(8)
        self.grouped = nn.Conv2d(8, 8, 3, padding=1, groups=4, bias=False)
        self.narrow = nn.Conv2d(8, 4, 1)
        self.strided = nn.Conv2d(8, 4, 1, stride=2)
        self.last = nn.Conv2d(8, 6, 1, bias=False)

    def forward(self, x):
        x = F.max_pool2d(F.relu(self.norm(self.stem(x))), 3, 2, 1)
        y = torch.cat([self.narrow(x), F.interpolate(self.strided(x), scale_factor=2)], 1) + self.grouped(x)
        z = self.last(y)
        return z, z.flatten(2).transpose(1, 2), F.silu(y), F.adaptive_avg_pool2d(z, 1).flatten(1)


@pytest.fixture(scope="module")
def block():
    torch.manual_seed(0)
    block = Block().eval()
    block.norm.running_mean.normal_()
    return block


@pytest.mark.parametrize("way", ["contiguous", "channels-last", "matmul"])
@pytest.mark.parametrize("shape", [(2, 3, 16, 16), (1, 3, 8, 8), (2, 3, 4, 4)])
def test_each_layout_gives_eagers_values_and_strides(block, way, shape):
    ways = {"convolution": "channels-last" if way == "matmul" else way}  # the stem, and the grouped one
    overrides = {f"conv-layout:{name}": ways.get(name, way)
                 for name in ("convolution", "convolution_1", "convolution_2", "convolution_4")}
    overrides["conv-layout:convolution_3"] = ways["convolution"]
    image = torch.randn(shape)
    with torch.no_grad():
        results, _, _ = compiled(block, image, overrides=overrides)
        assert_like(results, block(image))


def test_a_product_of_pixels_costs_what_the_faster_library_takes(monkeypatch):
    times = {"contiguous": 9.0, "channels-last": 3.0, "matmul": 4.0, "matmul-onednn": 2.0, "matmul-ptdebug": 5.0,
             "mkl": 4.0, "onednn": 2.0, "ptdebug": 5.0}
    monkeypatch.setattr(benchmarking, "_measured", lambda calls: {name: times[name] for name in calls})
    program, inputs = lambda x, w: F.conv2d(x, w).relu(), (torch.randn(2, 96, 32, 32), torch.randn(80, 96, 1, 1))
    results, lines, keeping = compiled(program, *inputs)
    assert_like(results, [program(*inputs)])
    assert any("mkldnn__linear_pointwise" in line.text for line in lines)
    options = next(d.options for d in keeping.decisions if d.subject == "convolution")
    assert {o.name: o.score for o in options} == {"contiguous": 9e6, "channels-last": 3e6, "matmul": 2e6}


@pytest.mark.parametrize("way", ["contiguous", "channels-last"])
@pytest.mark.parametrize("length", [16, 5])
def test_convolutions_of_rows(way, length):
    torch.manual_seed(0)
    first, second = nn.Conv1d(4, 6, 3, 2, 1), nn.Conv1d(6, 6, 2, groups=3, bias=False)
    norm = nn.GroupNorm(2, 6)

    def program(x):
        y = F.gelu(norm(first(x)))
        z = second(y)
        return z, z.transpose(1, 2), F.layer_norm(y.transpose(1, 2), (6,)), y.flatten(1) * 2, y + y.transpose(0, 0)

    x = torch.randn(3, 4, length)
    module = Program(program, first, second, norm)
    with torch.no_grad():
        overrides = {"conv-layout:convolution*": way}
        results, _, keeping = compiled(module, x, overrides=overrides)
        assert_like(results, module(x))
    rules = [m.rule for m in keeping.records["passes", "extern-kernels"].matches]
    assert rules.count("rows-as-images") == 2 and rules.count("layout") == 2 * (way != "contiguous")


def test_a_gate_on_halves_of_the_channels_keeps_them_innermost():
    """A chunk of an image with channels innermost has gaps; what is computed from it has not."""
    torch.manual_seed(0)
    first, second = nn.Conv2d(3, 16, 3, padding=1), nn.Conv2d(8, 4, 3, padding=1)

    def program(x):
        a, b = first(x)[..., 1:].chunk(2, 1)
        gate = torch.tanh(a) * torch.sigmoid(b)
        return second(gate), gate

    x, module = torch.randn(2, 3, 12, 12), Program(program, first, second)
    with torch.no_grad():
        results, _, keeping = compiled(module, x, overrides={"conv-layout:convolution*": "channels-last"})
        assert_like(results, module(x))
    copies = [n for n in keeping.records["passes", "extern-kernels"].graph.nodes if n.id.startswith("clone")]
    assert len(copies) == 3  # the image, and two results in eager's layout


def test_a_blur_with_one_kernel_for_all_channels_has_a_layout():
    def program(x, kernel):
        return F.conv2d(x, kernel.expand(3, 1, 1, 5), groups=3)

    inputs = torch.randn(2, 3, 20, 20), torch.randn(1, 1, 1, 5)
    for way in ("contiguous", "channels-last"):
        results, _, keeping = compiled(program, *inputs, overrides={"conv-layout:convolution": way})
        assert_like(results, [program(*inputs)])
        assert [d.chosen for d in keeping.decisions if d.kind == "conv-layout"] == [way]


class Program(nn.Module):
    """A function as a module that owns the modules it calls."""

    def __init__(self, function, *modules) -> None:
        super().__init__()
        self.owned, self.function = nn.ModuleList(modules), function

    def forward(self, x):
        return self.function(x)


def test_a_layout_is_chosen_by_measured_cost_and_by_the_layouts_around(monkeypatch):
    def program(x, w, v):
        return F.relu(F.conv2d(F.relu(F.conv2d(x, w)), v)).sum((2, 3))

    def known(fast):
        return lambda subject, _: {"contiguous": 1.0, "channels-last": 0.5 if fast in subject else 1.1}

    inputs = torch.randn(1, 4, 9, 9), torch.randn(4, 4, 3, 3), torch.randn(4, 4, 5, 5)
    expected = [program(*inputs)]
    for fast, turned in (("(4, 4, 3, 3)", 1), ("(4, 4, ", 2), ("nothing", 0)):
        monkeypatch.setattr("ptdebug.engine.passes.extern_kernels.convolution.costs", known(fast))
        results, _, keeping = compiled(program, *inputs)
        assert_like(results, expected)
        chosen = [d.chosen for d in keeping.decisions if d.kind == "conv-layout"]
        assert chosen.count("channels-last") == turned
        assert all(d.options[0].score == 1e6 for d in keeping.decisions if d.kind == "conv-layout")


def test_graphs_that_look_at_strides_are_left_alone():
    def program(x, w):
        return F.relu(F.conv2d(x, w)).as_strided((3,), (2,)).sum()

    context, _ = recording_context(overrides={"conv-layout:*": "channels-last"})
    aten = passes.run(trace(capture(program, torch.randn(1, 4, 9, 9), torch.randn(4, 4, 3, 3)), context), context)
    before = [n.name for n in aten.module.graph.nodes]
    extern_kernels.choose(aten, context)
    assert [n.name for n in aten.module.graph.nodes] == before


def test_on_a_machine_too_busy_to_measure_calls_run_as_in_eager(own_cache: Path, monkeypatch):
    monkeypatch.setattr(benchmarking, "_waited", iter(range(10**6)).__next__)

    def program(x, weight, rows, columns):
        return F.conv2d(x, weight), rows @ columns.t()

    inputs = (torch.randn(1, 256, 64, 64), torch.randn(256, 256, 1, 1), torch.randn(512, 512), torch.randn(512, 512))
    results, _, keeping = compiled(program, *inputs)
    assert_like(results, program(*inputs))
    chosen = [(d.chosen, d.why) for d in keeping.decisions if d.kind in ("conv-layout", "matmul")]
    assert chosen == [("contiguous", benchmarking.TOO_BUSY), ("mkl", benchmarking.TOO_BUSY)]
    assert not (own_cache / "benchmarks").exists()


# ---- biases of convolutions on a GPU
@pytest.mark.parametrize("way", ["loops", "library"])
def test_loops_add_the_bias_of_a_convolution(way, monkeypatch):
    monkeypatch.setattr(conv_bias, "GPU", "cpu")

    def program(x, w, b):
        first = F.conv2d(x, w, b, padding=1)
        return F.gelu(first) * 2, F.conv2d(x, w, b)  # the second leaves: the library's pass is as good as another

    inputs = (torch.randn(2, 3, 9, 9), torch.randn(4, 3, 3, 3), torch.randn(4))
    with torch.no_grad():
        forced = {"conv-bias:*": way, "conv-layout:*": "contiguous"}
        results, lines, keeping = compiled(program, *inputs, overrides=forced)
        assert_like(results, program(*inputs))
    asked = [d.chosen for d in keeping.decisions if d.kind == "conv-bias"]
    without = sum("convolution" in line.text and ", None, " in line.text for line in lines)
    assert asked == [way] and without == (way == "loops")


# ---- activations by products on a GPU
def _tanh_gelus(x):
    inner = 0.7978845608028654 * (x + 0.044715 * torch.pow(x, 3.0))
    yield 0.5 * x * (1.0 + torch.tanh(inner))
    yield x * 0.5 * (1.0 + torch.tanh(x * 0.7978845608 * (1.0 + 0.044715 * x * x)))
    yield 0.5 * (x * (torch.tanh(math.sqrt(2 / math.pi) * (0.044715 * x * x * x + x)) + 1))


ACTIVATIONS = [F.relu, lambda x: F.gelu(x, approximate="tanh"),
               *[lambda x, k=k: list(_tanh_gelus(x))[k] for k in range(3)]]


@pytest.mark.parametrize("way", ["library", "loops"])
@pytest.mark.parametrize("bias", [True, False])
def test_a_product_computes_the_activation(bias, way, monkeypatch):
    monkeypatch.setattr(epilogues, "GPU", "cpu")
    monkeypatch.setattr(epilogues, "ROUNDED", (torch.float32,))

    def program(x, w, b, v):
        return *[F.linear(f(F.linear(x + k, w, b if bias else None)), v) for k, f in enumerate(ACTIVATIONS)],

    inputs = (torch.randn(2, 4, 8), torch.randn(16, 8), torch.randn(16), torch.randn(4, 16))
    with torch.no_grad():
        results, lines, keeping = compiled(program, *inputs, overrides={"epilogue:*": way})
        for result, expected in zip(results, program(*inputs), strict=True):  # a CPU's operator has the exact GELU
            torch.testing.assert_close(result, expected, rtol=5e-3, atol=5e-3)
    asked = [d.chosen for d in keeping.decisions if d.kind == "epilogue"]
    assert asked == [way] * len(ACTIVATIONS)
    assert calls(lines, "_addmm_activation") == len(ACTIVATIONS) * (way == "library")


def test_an_activation_stays_in_loops(monkeypatch):
    """Where the product has another reader, loops read the activation, it is another function, or a ReLU, of NaN 0."""
    monkeypatch.setattr(epilogues, "GPU", "cpu")
    monkeypatch.setattr(epilogues, "ROUNDED", (torch.float32,))

    def program(x, w, b):
        first, second, third = (torch.addmm(b, x + k, w) for k in range(3))
        almost = 0.5 * third * (1 + torch.tanh(0.79 * (third + 0.044715 * third ** 3)))
        gelus = (F.gelu(t, approximate="tanh") for t in (first, second))
        fourth = F.relu(torch.addmm(b, x + 3, w)) @ w.t()
        return next(gelus) @ w.t(), first, next(gelus).sum(), F.gelu(third) @ w.t(), almost @ w.t(), fourth

    inputs = (torch.randn(4, 8), torch.randn(8, 16), torch.randn(16))
    with torch.no_grad():
        results, lines, _ = compiled(program, *inputs)
        assert_like(results, program(*inputs))
    assert calls(lines, "_addmm_activation") == 0
