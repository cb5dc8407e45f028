"""Freezing: what depends on parameters alone is computed once, and again when one of them changes."""
from __future__ import annotations

import gc
import math
import weakref

import ptdebug
import pytest
import torch
from ptdebug.engine.compile import compile_graph
from ptdebug.engine.runtime.frozen_call import FrozenCall
from ptdebug.engine.toolchain import benchmarking
from ptdebug.tracer.runtime.statistics import STATISTICS
from torch import nn

from .programs import Captured, capture, recording_context


@pytest.fixture(autouse=True)
def own_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("PTDEBUG_CACHE_DIR", str(tmp_path))
    return tmp_path


@pytest.fixture
def packed_is_fastest(monkeypatch):
    """Choices of the library do not depend on how busy this machine is."""
    order = {"mkl-packed": 1e-6, "channels-last": 1e-6}
    monkeypatch.setattr(benchmarking, "_measured", lambda calls: {name: order.get(name, 1e-3) for name in calls})


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.first = nn.Conv2d(3, 8, 3, padding=1)
        self.norm = nn.BatchNorm2d(8)
        self.second = nn.Conv2d(8, 8, 3, padding=1, bias=False)
        self.norm_again = nn.BatchNorm2d(8, affine=False)
        self.wide, self.narrow = nn.Linear(8, 512), nn.Linear(512, 256)
        for norm in (self.norm, self.norm_again):
            norm.running_mean.normal_()
            norm.running_var.uniform_(0.5, 2.0)
        nn.init.normal_(self.norm.weight)

    def forward(self, x):
        first = self.norm(self.first(x)).relu()
        second = (self.norm_again(self.second(first)) + first).relu()
        return self.narrow(self.wide(second.mean((2, 3))).relu())


def compiled(program, *inputs, frozen=(), freezing=True, **settings):
    """(the compiled graph of `program`, what was recorded); the inputs at `frozen` are a module's parameters."""
    context, keeping = recording_context(**settings)
    context.freezing = freezing
    captured = capture(program, *inputs)
    names = tuple(f"L['m']._parameters['p{i}']" if i in frozen else f"L['x{i}']" for i in range(len(inputs)))
    call = compile_graph(Captured(captured.module, captured.inputs, input_names=names), context)
    assert not context.fallback, context.fallback
    return call, keeping


def folded(keeping):
    """The operators that run once."""
    record = keeping.records.get(("wrapper", "folding"))
    lines = [line.text for line in record.lines] if record else []
    return [line.split(" = ")[1].partition("(")[0] for line in lines if " = aten_" in line]


def test_a_model_gives_eagers_results_and_sees_changes_of_its_parameters(packed_is_fastest):
    torch.manual_seed(0)
    model, x = Net().eval(), torch.randn(4, 3, 16, 16)
    fast = ptdebug.compile(model, options={"freezing": True})

    def check():
        torch.testing.assert_close(fast(x), model(x), rtol=1e-3, atol=1e-4)

    with torch.no_grad():
        check()
        model.second.weight.mul_(2)
        check()
        model.norm.running_mean.add_(1)
        check()
        model.narrow.weight = nn.Parameter(torch.randn(256, 512))
        check()
        model.wide.weight.data = torch.randn(512, 8)
        check()
        model.load_state_dict(Net().state_dict())
        check()
    model.train()
    expected = model(x)
    torch.testing.assert_close(fast(x), expected, rtol=1e-3, atol=1e-4)
    fast(x).sum().backward()
    assert model.wide.weight.grad is not None


def test_a_parameter_that_is_given_memory_where_the_last_one_lay(packed_is_fastest):
    model, x = nn.Linear(64, 64).eval(), torch.randn(64, 64)
    fast, memory = ptdebug.compile(model, options={"freezing": True}), bytearray(64 * 64 * 4)
    with torch.no_grad():
        for _ in range(3):
            model.weight.data = torch.frombuffer(memory, dtype=torch.float32).view(64, 64).normal_()
            torch.testing.assert_close(fast(x), model(x), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("channels, kernel, groups", [(16, 3, 1), (16, 3, 16), (5, 3, 1), (64, 1, 1)])
def test_packed_convolutions_keep_nan(channels, kernel, groups):
    settings = {"padding": kernel // 2, "groups": groups}
    weight, bias = torch.randn(channels, channels // groups, kernel, kernel), torch.randn(channels)
    x = torch.randn(2, channels, 14, 14).contiguous(memory_format=torch.channels_last)
    x[0, 0, 3, 3], x[1, 1, 5, 5] = math.nan, math.inf

    def program(x, weight, bias):
        image = nn.functional.conv2d(x, weight, bias, **settings)
        return image.relu(), (nn.functional.conv2d(x, weight, **settings) + x).relu(), image.relu() + x

    call, keeping = compiled(program, x, weight, bias, frozen=(1, 2))
    assert "_convolution_pointwise_binary" in "\n".join(line.text for line in keeping.records["wrapper", ""].lines)
    for got, expected in zip(call(x, weight, bias), program(x, weight, bias)):
        torch.testing.assert_close(got, expected, rtol=1e-4, atol=1e-4, equal_nan=True)
        assert got.stride() == expected.stride()


def test_models_that_share_code_keep_their_own_values():
    class Scaled(nn.Module):
        def __init__(self, value):
            super().__init__()
            self.scale = nn.Parameter(torch.full((3,), value))

        def forward(self, x):
            return x * self.scale.exp()

    fast = ptdebug.compile(Scaled.forward, options={"freezing": True})
    models, x = [Scaled(0.0), Scaled(1.0)], torch.randn(3)
    with torch.no_grad():
        for _ in range(2):
            for model in models:
                torch.testing.assert_close(fast(model, x), model(x))


def test_batch_norm_goes_into_the_convolution_and_weights_are_packed(packed_is_fastest):
    model, x = Net().eval(), torch.randn(32, 3, 8, 8)
    parameters = [t.detach() for t in (
        model.first.weight, model.first.bias, model.norm.running_mean, model.norm.running_var, model.norm.weight,
        model.norm.bias, model.wide.weight)]

    def program(x, weight, bias, mean, variance, gamma, beta, wide):
        y = nn.functional.batch_norm(nn.functional.conv2d(x, weight, bias, padding=1), mean, variance, gamma, beta)
        return nn.functional.linear(y.relu().mean((2, 3)), wide).tanh()

    call, keeping = compiled(program, x, *parameters, frozen=range(1, 8))
    torch.testing.assert_close(call(x, *parameters)[0], program(x, *parameters), rtol=1e-4, atol=1e-5)
    wrapper = "\n".join(line.text for line in keeping.records["wrapper", ""].lines)
    assert [m.rule for m in keeping.records["passes", "freezing"].matches] == ["batch-norm"]
    assert "_convolution_pointwise_default" in wrapper
    assert "_mkl_linear_default" in wrapper or not torch.backends.mkl.is_available()
    kept, keeping = compiled(program, x, *parameters, frozen=range(1, 8), overrides={"freezing:graph": "keep"})
    assert folded(keeping) == []
    torch.testing.assert_close(kept(x, *parameters)[0], program(x, *parameters), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("program, once", [
    (lambda x, w: x + w.sin().cos(), ["aten_sin_default", "aten_cos_default"]),
    (lambda x, w: x + w.t(), []),
    (lambda x, w: (x + w.sin().t(), w.cos()), ["aten_sin_default"]),
    (lambda x, w: x + torch.cat([w[:1].exp(), w[1:].neg()]),
     ["aten_slice_Tensor", "aten_exp_default", "aten_slice_Tensor", "aten_neg_default", "aten_cat_default"]),
    (lambda x, w: x + torch.rand_like(w) * w, []),
    (lambda x, w: x + w.var(0).unsqueeze(0), ["aten_var_correction"]),
], ids=["chain", "view", "result", "cat", "random", "reduction"])
def test_what_runs_once(program, once):
    x, w = torch.randn(3, 3), torch.randn(3, 3)
    call, keeping = compiled(program, x, w, frozen=(1,))
    torch.manual_seed(0)
    results = call(x, w)
    torch.manual_seed(0)
    expected = program(x, w)
    expected = expected if isinstance(expected, tuple) else (expected,)
    for result, wanted in zip(results, expected, strict=True):
        torch.testing.assert_close(result, wanted)
        assert result.stride() == wanted.stride()
    assert folded(keeping) == once


@pytest.mark.parametrize("program", [
    lambda m, x: m.weight @ m.weight * len(x) + x[0],
    lambda m, x: m.weight.abs() ** m.power + x[0],
    lambda m, x: torch.full((8,), m.power) * m.bias + x,
    lambda m, x: m.weight.exp() * x.sum().item() + x[0],
], ids=["size", "float", "filled", "item"])
def test_what_a_number_that_varies_goes_into_runs_on_each_call(program):
    model = nn.Linear(8, 8)
    fast = ptdebug.compile(program, options={"freezing": True})
    STATISTICS.clear()
    with torch.no_grad():
        for count in (2, 3, 4):
            model.power, x = count + 0.5, torch.randn(count, 8)
            torch.testing.assert_close(fast(model, x), program(model, x))
    assert not [reason for reason in STATISTICS.reasons if not reason.startswith("recompile")]


def test_a_convolution_whose_settings_vary_is_not_packed(packed_is_fastest):
    models = [nn.Sequential(nn.Conv2d(4, 8, 3, padding="same", dilation=steps, groups=2)) for steps in (1, 2, 3)]
    fast = ptdebug.compile(lambda model, x: model(x), options={"freezing": True})
    STATISTICS.clear()
    with torch.no_grad():
        for model in models:
            x = torch.randn(2, 4, 9, 7)
            torch.testing.assert_close(fast(model, x), model(x), rtol=1e-4, atol=1e-5)
    assert [(reason[:9], count) for reason, count in STATISTICS.reasons.items()] == [("recompile", 1)]


def test_a_result_is_the_programs_own():
    call, _ = compiled(lambda x, w: (x + w.sin(), w.sin()), torch.ones(3), torch.ones(3), frozen=(1,))
    call(torch.ones(3), torch.ones(3))[1].zero_()
    torch.testing.assert_close(call(torch.ones(3), torch.ones(3))[1], torch.ones(3).sin())


def test_an_input_that_the_graph_writes_is_not_frozen():
    def program(x, w):
        w.add_(1)
        return x + w.sin()

    call, keeping = compiled(program, torch.ones(3), torch.ones(3), frozen=(1,))
    w = torch.ones(3)
    for count in (1, 2):
        torch.testing.assert_close(call(torch.ones(3), w)[0], torch.ones(3) + torch.full((3,), 1.0 + count).sin())
    assert folded(keeping) == []


def test_a_graph_from_disk_folds_too(tmp_path):
    model, x = Net().eval(), torch.randn(2, 3, 8, 8)
    for _ in range(2):
        fast = ptdebug.compile(model, options={"freezing": True})
        with torch.no_grad():
            torch.testing.assert_close(fast(x), model(x), rtol=1e-3, atol=1e-4)
            model.second.weight.mul_(2)
            torch.testing.assert_close(fast(x), model(x), rtol=1e-3, atol=1e-4)


def test_values_go_with_the_tensors_that_they_were_computed_from():
    made = []

    def fold(weight):
        made.append(weakref.ref(value := weight.sin()))
        return (value,)

    call = FrozenCall(lambda x, w, value: (x + value,), fold, (1,))
    weight = torch.ones(3)
    call(torch.ones(3), weight)
    call(torch.ones(3), weight)
    assert len(made) == 1
    weight.mul_(2)
    torch.testing.assert_close(call(torch.ones(3), weight)[0], torch.ones(3) + weight.sin())
    assert len(made) == 2 and made[0]() is None
    del weight
    gc.collect()
    assert made[1]() is None and not call.known
