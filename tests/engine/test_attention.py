"""Attention by our own kernel: ATen's results, layouts and NaN, as near to the exact value, on each kind of machine."""
from __future__ import annotations

import math

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings, strategies as st
from ptdebug.engine.compile import compile_graph
from ptdebug.engine.kernels import attention
from ptdebug.engine.toolchain import benchmarking

from .machines import on_each_machine
from .programs import Keeping, capture, recording_context
from .training.checking import compile

EPSILON = torch.finfo(torch.float32).eps
machine = on_each_machine(attention)


def layouts(draw, shape):
    """Random numbers of a shape in some layout with dense rows: of a product's part, of heads, of a larger tensor."""
    batch, heads, rows, size = shape
    kind = draw(st.sampled_from(["dense", "by rows", "part", "same for all heads"]))
    if kind == "dense":
        return torch.randn(shape)
    if kind == "by rows":
        return torch.randn(batch, rows, heads, size).transpose(1, 2)
    if kind == "part":
        return torch.randn(batch, rows, 3, heads, size)[:, :, 1].transpose(1, 2)
    return torch.randn(batch, 1, rows, size).expand(shape)


def masks(draw, scores):
    """None, or a mask for `scores` with the same along some dimensions and rows that see nothing."""
    if not draw(st.booleans()):
        return None
    shape = [1 if draw(st.booleans()) else n for n in scores[-draw(st.sampled_from([2, 4])):]]
    mask = torch.randn(shape)
    if draw(st.booleans()):  # what is hidden at the end of rows is not computed
        shown = torch.arange(shape[-1]) < torch.randint(shape[-1] + 1, [*shape[:-1], 1])
        mask = torch.where(shown, mask, -math.inf)
    elif draw(st.booleans()):
        mask = torch.where(torch.rand(shape) < draw(st.sampled_from([0.3, 0.95])), -math.inf, mask)
    if draw(st.booleans()) and len(shape) == 4:
        mask = mask.transpose(2, 3).contiguous().transpose(2, 3)
    return mask


SPECIAL = st.sampled_from([math.nan, math.inf, -math.inf, 3e38, 1e-40])


@st.composite
def arguments(draw):
    torch.manual_seed(draw(st.integers(0, 1 << 30)))
    batch, heads = draw(st.integers(1, 3)), draw(st.integers(1, 3))
    queries, keys = (draw(st.integers(1, 70) | st.sampled_from([49, 128, 520])) for _ in range(2))
    size = draw(st.integers(1, 40) | st.sampled_from([64, 80, 128, 200]))
    scores = (batch, heads, queries, keys)
    tensors = [layouts(draw, (batch, heads, rows, size)) for rows in (queries, keys, keys)]
    mask = masks(draw, scores)
    causal = mask is None and draw(st.booleans())
    scale = draw(st.none() | st.sampled_from([0.01, 2.0]))
    # Infinities: of more keys, ATen multiplies only some by zero; of 8 to 15, its vectors decide; and rounding does,
    # whether a small weight is zero.
    if scale != 2.0 and keys <= 512 and not 8 <= keys < 16 and draw(st.integers(0, 3)) == 0:
        which = draw(st.integers(0, 2))
        tensors[which] = tensors[which].clone()
        tensors[which].select(2, draw(st.integers(0, tensors[which].shape[2] - 1)))[..., 0] = draw(SPECIAL)
    return tensors, mask, causal, scale


def results(call, tensors, mask, causal, scale, dtype=torch.float32):
    tensors = [t if t.dtype == dtype else t.to(dtype) for t in tensors]
    mask = None if mask is None else mask.to(dtype)
    return call(*tensors, 0.0, causal, attn_mask=mask, scale=scale)


@settings(max_examples=150, deadline=None)
@given(arguments())
def test_the_kernel(machine, given):
    tensors, *rest = given
    exact = results(attention.ATEN, tensors, *rest, dtype=torch.float64)
    eager = results(attention.ATEN, tensors, *rest)
    ours = results(attention.OPERATOR, tensors, *rest)
    query, key, value = [t.nan_to_num(0, 0, 0).abs() for t in tensors]
    score = (query @ key.transpose(2, 3)).max() * (rest[-1] or query.shape[3] ** -0.5)  # the terms that are added up
    largest = (1 + score) * value.max(), 1 + score
    assert torch.equal(ours[0].isnan(), eager[0].isnan())
    for got, known, true, size in zip(ours, eager, exact, largest, strict=True):
        assert (got.dtype, got.shape, got.stride()) == (known.dtype, known.shape, known.stride())
        assert torch.equal(got.isfinite(), known.isfinite())
        finite = got.isfinite() & true.isfinite()
        error, eagers = [(t - true)[finite].abs().max() if finite.any() else 0.0 for t in (got, known)]
        assert error <= 2 * eagers + 4 * EPSILON * size


@pytest.mark.parametrize("size, keys, causal", [(64, 128, False), (32, 700, False), (200, 1100, True), (80, 50, True)])
def test_it_is_as_near_to_the_exact_value_as_atens(machine, size, keys, causal):
    torch.manual_seed(0)
    tensors = [torch.randn(2, 3, keys, size) for _ in range(3)]
    exact, eager, ours = [
        results(call, tensors, None, causal, None, dtype)[0]
        for call, dtype in ((attention.ATEN, torch.float64), (attention.ATEN, torch.float32),
                            (attention.OPERATOR, torch.float32))]
    assert (ours - exact).square().mean() <= 1.2 * (eager - exact).square().mean()


@pytest.mark.parametrize("scale", [None, 100.0])
@pytest.mark.parametrize("large", [1.0, 1e14, 1e18, 1e25])
def test_the_lowest_number_hides_as_infinity_does_where_a_row_sees_anything(machine, scale, large):
    torch.manual_seed(0)
    lowest, keys = torch.finfo(torch.float32).min, torch.arange(1100)
    seen = [keys < n for n in (1, 17, 500, 512, 513, 1100)] + [keys >= n for n in (1099, 600, 5)]
    hidden = torch.stack([*seen, keys < 0, keys < 0]).logical_not()
    tensors = [torch.randn(1, 2, n, 24) * size for n, size in ((11, 1.0), (1100, large), (1100, 1.0))]
    mask = torch.randn(11, 1100).masked_fill(hidden, lowest)
    mask[-1, 30:] = -math.inf
    ours, eager = [call(*tensors, attn_mask=mask, scale=scale) for call in (attention.OPERATOR, attention.ATEN)]
    infinite = attention.OPERATOR(*tensors, attn_mask=mask.masked_fill(hidden, -math.inf), scale=scale)
    for got, known, apart in zip(ours, eager, infinite, strict=True):
        torch.testing.assert_close(got, known, rtol=1e-4, atol=1e-4)
        torch.testing.assert_close(got.narrow(2, 0, 9), apart.narrow(2, 0, 9), rtol=1e-5, atol=1e-5)


def test_infinite_values_that_the_lowest_number_hides_give_nan_as_in_eager(machine):
    mask = torch.zeros(3, 40).masked_fill(torch.arange(40) > 16, torch.finfo(torch.float32).min)
    query, key, value = torch.randn(1, 1, 3, 8), torch.randn(1, 1, 40, 8), torch.randn(1, 1, 40, 8)
    value[..., 30, 0] = math.inf
    for ours, eager in zip(attention.OPERATOR(query, key, value, attn_mask=mask),
                           attention.ATEN(query, key, value, attn_mask=mask), strict=True):
        torch.testing.assert_close(ours, eager, equal_nan=True)


@pytest.fixture
def slow_library(monkeypatch):
    """A machine on which ATen's kernel is the slower one."""
    known = {"aten": 3e-3, "ptdebug": 1e-3}
    monkeypatch.setattr("ptdebug.engine.passes.extern_kernels.attention.costs", lambda *_: known)


def heads(packed, count):
    batch, rows, width = packed.shape
    return packed.view(batch, rows, 3, count, width // 3 // count).permute(2, 0, 3, 1, 4)


def block(x, weight, mask):
    query, key, value = heads(x @ weight, 4)
    mixed = F.scaled_dot_product_attention(query, key, value, attn_mask=mask) + F.scaled_dot_product_attention(
        query, key.relu(), value, is_causal=True, scale=0.3)
    return mixed.transpose(1, 2).reshape(x.shape[0], x.shape[1], -1).relu()


BLOCK = (torch.randn(2, 40, 64), torch.randn(64, 192) / 8, torch.randn(2, 1, 1, 40))


def compiled(*inputs, program=block, **changed):
    context, keeping = recording_context(**changed)
    call = compile_graph(capture(program, *inputs), context)
    assert not context.fallback, context.fallback
    return call, keeping


@pytest.mark.parametrize("wrapper", ["python", "cpp"])
@pytest.mark.parametrize("way", ["ptdebug", "aten"])
def test_a_graph_takes_the_kernel_that_is_chosen(slow_library, way, wrapper):
    overrides = {"wrapper:graph": wrapper} | ({} if way == "ptdebug" else {"sdpa:*": way})
    call, keeping = compiled(*BLOCK, overrides=overrides)
    for _ in range(2):
        torch.testing.assert_close(call(*BLOCK)[0], block(*BLOCK), rtol=2e-5, atol=2e-5)
    decided = [d for d in keeping.decisions if d.kind == "sdpa"]
    assert [(d.kind, d.chosen) for d in decided] == [("sdpa", way)] * 2
    assert [(o.name, o.score) for o in decided[0].options] == [("aten", 3000.0), ("ptdebug", 1000.0)]
    assert not [d for d in keeping.decisions if d.kind == "python-wrapper"]
    lines = keeping.records["wrapper", wrapper if wrapper == "cpp" else ""].lines
    assert any("ptdebug_attention" in line.text for line in lines) == (way == "ptdebug")
    assert (("kernels", "attention") in keeping.records) == (way == "ptdebug")


@pytest.mark.parametrize("native", [False, True])
def test_a_step_of_training(slow_library, native):
    keeping = Keeping()
    program = compile(block, recorder=keeping, recording=True, cpp_wrapper=native)
    found = []
    for function in (block, program):
        inputs = [t.detach().clone().requires_grad_() for t in BLOCK[:2]]
        result = function(*inputs, BLOCK[2])
        result.square().sum().backward()
        found.append([result, *[t.grad for t in inputs]])
    for eagers, ours in zip(*found, strict=True):
        torch.testing.assert_close(ours, eagers, rtol=1e-4, atol=1e-4)
        assert ours.stride() == eagers.stride()
    assert not program.fallbacks
    assert [d.chosen for d in keeping.decisions if d.kind == "sdpa"] == ["ptdebug"] * 2
    assert not [d for d in keeping.decisions if d.kind == "python-wrapper"]


@pytest.mark.parametrize("native", [False, True])
def test_sizes_that_vary(slow_library, native):
    keeping = Keeping()
    program = compile(block, dynamic=True, recorder=keeping, recording=True, cpp_wrapper=native)
    for batch, rows in ((2, 40), (3, 33), (5, 130)):
        x, mask = torch.randn(batch, rows, 64), torch.randn(batch, 1, 1, rows)
        torch.testing.assert_close(program(x, BLOCK[1], mask), block(x, BLOCK[1], mask), rtol=2e-5, atol=2e-5)
    assert not program.fallbacks and len(program.contexts) == 1
    assert [d.chosen for d in keeping.decisions if d.kind == "sdpa"] == ["ptdebug"] * 2


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("mask", [None, torch.bfloat16, torch.float32])
def test_16_bits_are_nearer_to_the_exact_value_than_atens(slow_library, dtype, mask):
    torch.manual_seed(0)
    hidden = None if mask is None else torch.randn(2, 1, 1, 50).to(dtype if mask == torch.bfloat16 else mask)

    def program(x, weight, hidden):
        query, key, value = heads(x @ weight, 4)
        return F.scaled_dot_product_attention(query, key, value, attn_mask=hidden, is_causal=hidden is None)

    inputs = torch.randn(2, 50, 64, dtype=dtype), torch.randn(64, 192, dtype=dtype) / 8, hidden
    inputs = inputs if mask else inputs[:2]
    whole = program if mask else (lambda x, weight: program(x, weight, None))
    call, keeping = compiled(*inputs, program=whole)
    (ours,), eager = call(*inputs), whole(*inputs)
    query, key, value = [t.double() for t in heads(inputs[0] @ inputs[1], 4)]
    exact = F.scaled_dot_product_attention(query, key, value, is_causal=mask is None,
                                           attn_mask=None if mask is None else hidden.double())
    assert (ours.dtype, ours.shape, ours.stride()) == (dtype, eager.shape, eager.stride())
    assert (ours - exact).square().mean() <= (eager - exact).square().mean()
    assert [d.chosen for d in keeping.decisions if d.kind == "sdpa"] == ["ptdebug"]


def test_rounding_as_eagers_is_atens(slow_library):
    inputs = [t.bfloat16() for t in BLOCK]
    call, keeping = compiled(*inputs, overrides={"intermediate-precision:*": "eager"})
    assert torch.equal(call(*inputs)[0], block(*inputs))
    assert [d.chosen for d in keeping.decisions if d.kind == "sdpa"] == ["aten"] * 2


@pytest.mark.parametrize("which", [0, 1, 2])
@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize("keys", [9, 33, 130])
def test_numbers_of_16_bits_that_are_not_finite(which, value, keys):
    torch.manual_seed(0)
    tensors = [torch.randn(1, 2, rows, 8, dtype=torch.bfloat16) for rows in (3, keys, keys)]
    tensors[which][:, 1, 1, 0] = value
    for ours, eager in zip(attention.OPERATOR(*tensors), attention.ATEN(*tensors), strict=True):
        torch.testing.assert_close(ours, eager, rtol=0.02, atol=0.02, equal_nan=True)


def test_the_wrapper_for_16_bits_is_python(slow_library):
    inputs = [t.bfloat16() for t in BLOCK]
    call, keeping = compiled(*inputs, overrides={"wrapper:graph": "cpp"})
    torch.testing.assert_close(call(*inputs)[0], block(*inputs), rtol=0.1, atol=0.05)
    assert [d.why for d in keeping.decisions if d.kind == "python-wrapper"] == ["attention in 16 bits"]


def test_a_step_of_training_in_16_bits(slow_library):
    found = []
    program = compile(block)
    for function, dtype in ((block, torch.float64), (block, torch.bfloat16), (program, torch.bfloat16)):
        inputs = [t.detach().bfloat16().to(dtype).requires_grad_() for t in BLOCK[:2]]
        result = function(*inputs, BLOCK[2].bfloat16().to(dtype))
        result.square().sum().backward()
        found.append([result, *[t.grad for t in inputs]])
    for exact, eagers, ours in zip(*found, strict=True):
        assert (ours.dtype, ours.stride()) == (eagers.dtype, eagers.stride())
        assert (ours - exact).square().mean() <= 1.2 * (eagers - exact).square().mean()
    assert not program.fallbacks


LEFT = {
    "doubles": lambda q, k, v: F.scaled_dot_product_attention(q.double(), k.double(), v.double()),
    "a scale that turns scores over": lambda q, k, v: F.scaled_dot_product_attention(q, k, v, scale=-1.0),
    "large heads": lambda q, k, v: F.scaled_dot_product_attention(*[t.repeat(1, 1, 1, 20) for t in (q, k, v)]),
}


@pytest.mark.parametrize("what", LEFT)
def test_what_is_left_to_aten(slow_library, what):
    inputs = [torch.randn(2, 3, 20, 16) for _ in range(3)]
    call, keeping = compiled(*inputs, program=LEFT[what])
    torch.testing.assert_close(call(*inputs)[0], LEFT[what](*inputs))
    assert not [d for d in keeping.decisions if d.kind == "sdpa"]


def test_where_the_machine_is_busy_atens_stays(monkeypatch):
    monkeypatch.setattr("ptdebug.engine.passes.extern_kernels.attention.costs", lambda *_: {})
    _, keeping = compiled(*BLOCK)
    found = [d for d in keeping.decisions if d.kind == "sdpa"]
    assert [(d.chosen, d.why) for d in found] == [("aten", benchmarking.TOO_BUSY)] * 2


def test_threads_share_the_queries_of_one_head():
    query, key, value = [torch.randn(1, 1, 700, 48) for _ in range(3)]
    found = []
    threads = torch.get_num_threads()
    try:
        for count in (1, 3):
            torch.set_num_threads(count)
            found.append(attention.OPERATOR(query, key, value, 0.0, True))
    finally:
        torch.set_num_threads(threads)
    for alone, shared in zip(*found, strict=True):
        torch.testing.assert_close(alone, shared, rtol=1e-6, atol=1e-6)


def test_nothing_to_compute():
    for queries, keys in ((0, 3), (3, 0)):
        query, key = torch.randn(2, 2, queries, 4), torch.randn(2, 2, keys, 4)
        out, logs = attention.OPERATOR(query, key, key)
        assert torch.equal(out, torch.zeros(2, 2, queries, 4)) and torch.equal(logs, torch.zeros(2, 2, queries))
