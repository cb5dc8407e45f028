"""Attention stays whole: what masks hide, the kernel that takes them, and values and gradients on a GPU as in eager."""
from __future__ import annotations

import math
from types import SimpleNamespace

import pytest
import torch
import torch.nn.functional as F
from ptdebug.engine.aot.aten_graph import trace
from ptdebug.engine.aot.attention import choice, constant_masks, kernels
from ptdebug.engine.graphs.functional_graph import AtenGraph
from ptdebug.engine.lowering import lowerings
from ptdebug.engine.passes.no_ops import remove_no_ops
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx.passes.fake_tensor_prop import FakeTensorProp

from .programs import Captured, Keeping, capture, recording_context
from .training.checking import compile

sdpa = F.scaled_dot_product_attention
gpu = pytest.mark.gpu
without_gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")


# ---- masks that depend on no input -----------------------------------------------------------------------------------
def positions(q):
    return torch.arange(q.shape[2], device=q.device)


def packed(q):
    """As transformers finds that no sequences are packed, before it hides what is after the query."""
    ids = positions(q)[None]
    step = ids[:, 1:] - ids[:, :-1]
    documents = F.pad((step != 1).cumsum(-1), (1, 0))[0]
    row, column = positions(q)[:, None], positions(q)[None]
    return ((column <= row) & (documents[row] == documents[column]))[None, None]


def causal(q):
    return positions(q)[:, None] >= positions(q)


MASKS = {
    "every row": (lambda q: (positions(q) >= 0)[:, None].expand(q.shape[0], 1, -1, q.shape[2]), "dropped"),
    "zeros": (lambda q: torch.zeros(q.shape[2], q.shape[2]).to(q.dtype), "dropped"),
    "inverted ones": (lambda q: (1.0 - torch.ones(2, 1, 1, q.shape[2])) * torch.finfo(q.dtype).min, "dropped"),
    "triangle": (causal, "causal"),
    "packed": (packed, "causal"),
    "infinity": (lambda q: torch.full((q.shape[2], q.shape[2]), -math.inf).triu(1), "causal"),
    "where": (lambda q: torch.where(causal(q), torch.tensor(0.0), torch.tensor(-math.inf)), "causal"),
    "window": (lambda q: causal(q) & (positions(q)[:, None] - positions(q) < 5), ""),
    "after": (lambda q: positions(q)[:, None] <= positions(q), ""),
    "low": (lambda q: torch.full((q.shape[2], q.shape[2]), -60000.0).triu(1), ""),
    "one hidden": (lambda q: (positions(q) != 3)[None], ""),
    "of an input": (lambda q: (q[0, 0, :, 0] == q[0, 0, :, 0])[:, None].expand(-1, q.shape[2]), ""),
    "random": (lambda q: torch.rand(q.shape[2], q.shape[2]) >= 0, ""),  # but it shows everything
}


def attend(q):
    return [sdpa(q * (1 + k), q, q, mask(q)) for k, (mask, _) in enumerate(MASKS.values())]


def chosen(keeping: Keeping, kind: str) -> list[str]:
    return [d.chosen for d in keeping.decisions if d.kind == kind]


def test_a_mask_that_depends_on_no_input_is_known(monkeypatch):
    """Values and gradients through tracer and engine, with sizes that vary from the second call on."""
    monkeypatch.setattr(choice, "SKIPPING", {"cpu"})
    keeping = Keeping()
    compiled = compile(attend, recorder=keeping, recording=True, way="aten")
    for size in (9, 12):
        q = torch.randn(2, 3, size, 16, requires_grad=True)
        gradients = []
        for f in (compiled, attend):
            results = f(q)
            gradients.append([*results, *torch.autograd.grad(sum(r.square().sum() for r in results), q)])
        torch.testing.assert_close(*gradients, rtol=1e-4, atol=1e-4)
        known = [name for name, (_, option) in MASKS.items() if option and (size == 9 or name != "where")]
        assert chosen(keeping, "sdpa-mask") == [MASKS[name][1] for name in known]
        keeping.decisions.clear()
    assert not compiled.fallbacks


def test_masks_not_known_stay():
    """A triangle that is not square, one that is too large to be computed, and one that somebody wants to stay."""
    def function(q, k):
        rows, columns = torch.arange(q.shape[2])[:, None], torch.arange(k.shape[2])
        return sdpa(q, k, k, rows * 2 >= columns * 2)

    q, k = torch.randn(2, 3, 9, 16), torch.randn(2, 3, 12, 16)
    for keys, settings, most, expected in (
        (k, {}, 1 << 20, []), (q, {}, 100, []), (q, {"overrides": {"sdpa-mask:*": "as-given"}}, 1 << 20, ["as-given"]),
    ):
        context, keeping = recording_context(**settings)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(constant_masks, "LARGEST", most)
            patch.setattr(choice, "SKIPPING", {"cpu"})
            trace(capture(function, q, keys), context, lowerings())
        assert chosen(keeping, "sdpa-mask") == expected


def test_a_mask_that_a_cpu_cannot_compute_stays(takers):
    """An integer divided by zero is an error there, and some number on a GPU."""
    def function(q):
        one, zero = [positions(q).unsqueeze(1) * n for n in (1, 0)]
        return sdpa(q, q, q, torch.remainder(one, zero) != 5)

    _, keeping = traced(function, ((2, 12, 64, 32), torch.half))
    assert chosen(keeping, "sdpa-mask") == []


# ---- the kernel, and the layout that it wants ------------------------------------------------------------------------
SCORES = (2, 12, 33, 197)
GIVEN = {
    "bool": ((2, 1, 33, 197), torch.bool), "padding": ((2, 1, 1, 197), torch.bool), "2d": ((33, 197), torch.half),
    "heads": ((1, 12, 33, 197), torch.half), "3d": ((12, 33, 197), torch.half), "row": ((2, 1, 33, 1), torch.bool),
}


def traced(function, *tensors, known=False, **settings):
    """The graph for tensors on a GPU, which need not be there, and the context's records."""
    mode = FakeTensorMode()
    with mode:
        inputs = tuple(torch.empty(shape, dtype=dtype, device="cuda") for shape, dtype in tensors)
    module = torch.fx.symbolic_trace(function)
    module.graph.output_node().args = ((module.graph.output_node().args[0],),)
    if known:
        FakeTensorProp(module, mode).propagate_dont_convert_inputs(*inputs)
    context, keeping = recording_context(**settings)
    return trace(Captured(module, inputs), context, lowerings()).module.graph, keeping


def called(graph, name):
    return [node for node in graph.nodes if f"_scaled_dot_product_{name}" in str(node.target)]


@pytest.fixture
def takers(monkeypatch):
    """What torch says of kernels where no GPU is: all take what is laid out well, none another mask."""
    def known(call):
        usual = (call.mask is None or call.mask.stride(-1) == 1) and call.query.shape[-1] % 8 == 0
        return [*((kernels.CUDNN, kernels.EFFICIENT) if usual else ()), kernels.MATH]

    monkeypatch.setattr(choice, "takers", known)


@pytest.mark.parametrize("name", GIVEN)
def test_a_mask_is_laid_out_for_kernels(takers, name):
    query, key = ((2, 12, 33, 64), torch.half), ((2, 12, 197, 64), torch.half)
    graph, keeping = traced(lambda q, k, m: sdpa(q, k, k, m, scale=0.5), query, key, GIVEN[name])
    (call,) = called(graph, "cudnn")
    mask = call.args[3].meta["val"]
    assert mask.shape == SCORES and mask.dtype == torch.half and mask.stride(3) == 1
    assert not any(stride % kernels.ALIGNED for stride in mask.stride()[:3])
    written = [n.meta["val"] for n in graph.nodes if n.target is torch.ops.aten.cat.default]
    assert math.prod(written[0].shape) <= math.prod(GIVEN[name][0]) * (208 if name == "row" else 2)  # not expanded
    assert call.kwargs == {"scale": 0.5}
    assert chosen(keeping, "sdpa") == ["cudnn"]


@pytest.mark.parametrize("trained", [False, True])
def test_plans_of_cudnns_backwards_are_the_graphs_own(trained, monkeypatch):
    """By another dropout than the program's, and with gradients in the layout of results."""
    calls, seen = [], []

    def kernel(query, key, value, mask, statistics, dropout, causal, debug, scale):
        calls.append(math.copysign(1, dropout))
        return (sdpa(query, key, value, mask, dropout, causal, scale=scale),)

    fake = SimpleNamespace(_scaled_dot_product_cudnn_attention=SimpleNamespace(default=kernel))
    monkeypatch.setattr(kernels, "aten", fake)
    q = torch.randn(2, 5, 3, 8).transpose(1, 2).requires_grad_(trained)
    result = kernels.computed(kernels.Attention(q, q, q, None, 0.0, False, None, False), kernels.CUDNN)
    assert calls == [-1 if trained else 1]
    if trained:
        result.register_hook(seen.append)
        (found,) = torch.autograd.grad((result.contiguous() * torch.arange(8.0)).sum(), q)
        assert seen[0].stride() == result.stride() and torch.equal(seen[0][0, 1, 0], torch.arange(8.0))
        torch.testing.assert_close(found, torch.autograd.grad((sdpa(q, q, q) * torch.arange(8.0)).sum(), q)[0])


def test_a_permuted_bias_is_laid_out_once_and_an_aligned_one_is_taken_as_it_is(takers):
    query = ((2, 12, 32, 64), torch.half)
    graph, keeping = traced(lambda q, m: sdpa(q, q, q, m.permute(0, 3, 1, 2)), query, ((1, 32, 32, 12), torch.half))
    (decision,) = [d for d in keeping.decisions if d.kind == "sdpa"]
    assert "math" in decision.why and [o.name for o in decision.options] == ["cudnn", "efficient", "math"]
    (call,) = called(graph, "cudnn")
    assert call.args[3].meta["val"].stride() == (0, 1024, 32, 1)
    graph, _ = traced(lambda q, m: sdpa(q, q, q, m), query, ((2, 12, 32, 32), torch.half))
    assert not any(n.target is torch.ops.aten.clone.default for n in graph.nodes) and called(graph, "cudnn")


def test_what_no_kernel_takes_is_brought_into_another_form(takers, monkeypatch):
    """Heads are filled, or repeated where several share a key."""
    tensors = ((2, 12, 32, 36), torch.half), ((2, 1, 32, 32), torch.bool)
    graph, _ = traced(lambda q, m: sdpa(q, q, q, m), *tensors)
    (call,) = called(graph, "cudnn")
    assert call.args[0].meta["val"].shape[-1] == 40 and call.kwargs == {"scale": 1 / 6}
    (result,) = graph.output_node().args[0]
    assert result.meta["val"].shape == (2, 12, 32, 36)
    monkeypatch.setattr(choice, "takers", lambda call: ["math"] if call.grouped else ["efficient", "math"])
    tensors = ((2, 12, 32, 64), torch.half), ((2, 4, 32, 64), torch.half)
    graph, _ = traced(lambda q, k: sdpa(q, k, k, enable_gqa=True), *tensors)
    (call,) = called(graph, "efficient_attention")
    assert call.args[1].meta["val"].shape == (2, 12, 32, 64)


def test_what_rounds_or_draws_in_another_way_stays_eagers(takers):
    """Other forms in 32 bits or of small heads, dropout where eager multiplies, and rows that kernels refuse."""
    mask = ((2, 1, 32, 1), torch.bool)
    expanded = lambda q, m: sdpa(q, q, q, m.expand(2, 12, 32, 32))
    for function, query in (
        (expanded, ((2, 12, 32, 36), torch.float)), (expanded, ((2, 12, 32, 4), torch.half)),
        (lambda q, m: sdpa(q, q, q, m.expand(2, 12, 32, 32), dropout_p=0.5), ((2, 12, 32, 64), torch.half)),
        (lambda q, m: expanded(q.narrow(3, 4, 64), m), ((2, 12, 32, 72), torch.half)),
        (lambda q, m: expanded(q.transpose(2, 3), m), ((2, 12, 64, 32), torch.half)),
    ):
        graph, _ = traced(function, query, mask)
        assert not called(graph, "")


def test_kernels_can_be_forced_and_what_is_unusual_is_torchs(takers, monkeypatch):
    query = ((2, 12, 32, 64), torch.half)
    mask = ((2, 1, 32, 32), torch.bool)
    function = lambda q, m: sdpa(q, q, q, m)
    graph, _ = traced(function, query, mask, overrides={"sdpa:*": "efficient"})
    assert called(graph, "efficient_attention") and not called(graph, "cudnn")
    graph, _ = traced(function, query, mask, overrides={"sdpa:*": "math"})
    assert not called(graph, "") and any(n.target is torch.ops.aten.bmm.default for n in graph.nodes)
    monkeypatch.setattr(choice, "_by_torch", lambda call: call.query + 1)
    for odd in (lambda q, m: sdpa(q.select(0, 0), q.select(0, 0), q.select(0, 0)), lambda q, m: sdpa(q, q, q.float()),
                lambda q, m: sdpa(q, q, q, m, is_causal=True), lambda q, m: sdpa(q, q, q, m.narrow(3, 0, 5))):
        graph, _ = traced(odd, query, mask)
        assert not called(graph, "")


@pytest.mark.parametrize("turned", [True, False])
def test_a_result_has_the_layout_that_the_program_has_seen(takers, turned):
    """Without a copy, where the program makes another of it that gives it the kernel's layout again."""
    def function(x, m):
        q = x.transpose(1, 2)
        result = sdpa(q, q, q, m.expand(2, 12, 32, 32))  # math in eager, and dense
        turn = lambda t: t.reshape(2, -1, 32, 64).transpose(1, 2).clone(memory_format=torch.contiguous_format)
        return turn(result) + 1 if turned else result

    dense = FakeTensorMode().from_tensor(torch.empty(2, 12, 32, 64))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(choice, "_seen", lambda source: dense)
        graph, _ = traced(function, ((2, 32, 12, 64), torch.half), ((2, 1, 32, 1), torch.bool))
    remove_no_ops(AtenGraph(graph.owning_module, (), {}, ()))
    copies = [n for n in graph.nodes if n.target is torch.ops.aten.clone.default]
    assert len(copies) == (not turned)
    (result,) = graph.output_node().args[0]
    assert result.meta["val"].is_contiguous()


QUERY = ((2, 12, 64, 32), torch.half)
WRITTEN = {
    "plain": lambda q, k, m: torch.softmax(q @ k.transpose(-2, -1) / 8.0, -1) @ q,
    "in float32": lambda q, k, m: F.softmax(torch.matmul(q, k.mT), dim=-1, dtype=torch.float32).to(torch.half) @ q,
    "dropout": lambda q, k, m: F.dropout((q @ k.mT * 0.5).softmax(-1), 0.1, False).matmul(k),
    "causal": lambda q, k, m: torch.softmax(
        (q @ k.mT).masked_fill(torch.ones_like(m).triu(1), float("-inf")), -1) @ k,
}
OTHERWISE = {
    "a mask": lambda q, k, m: torch.softmax((q @ k.mT).masked_fill(m, float("-inf")), -1) @ k,
    "another dimension": lambda q, k, m: torch.softmax(q @ k.mT, 2) @ k,
    "dropout": lambda q, k, m: F.dropout((q @ k.mT).softmax(-1), 0.1) @ k,
    "negative": lambda q, k, m: torch.softmax(q @ k.mT * -1.0, -1) @ k,
    "written": lambda q, k, m: torch.softmax(q @ k.mT, -1) @ k.add_(1),
    "rounded": lambda q, k, m: torch.div(q @ k.mT, 8, rounding_mode="floor").softmax(-1) @ k,
    "integers": lambda q, k, m: (q @ k.mT).to(torch.int32).half().softmax(-1) @ k,
    "8 bits": lambda q, k, m: (q @ k.mT).softmax(-1).to(torch.float8_e4m3fn).half() @ k,
    "true is added": lambda q, k, m: (q @ k.mT + torch.ones_like(m).tril()).softmax(-1) @ k,
    "more queries": lambda q, k, m: (q.narrow(2, 0, 1) @ k.mT + torch.zeros_like(m, dtype=torch.half)).softmax(-1) @ k,
    "keywords": lambda q, k, m: F.dropout(input=F.softmax(input=torch.mul(q @ k.mT, other=2.0), dim=-1), p=0.0) @ k,
    "a keyword": lambda q, k, m: (q @ k.mT).masked_fill(torch.ones_like(m).triu(1), value=-math.inf).softmax(-1) @ k,
}


@pytest.mark.parametrize("name", WRITTEN)
def test_attention_that_is_written_out(takers, name):
    graph, keeping = traced(WRITTEN[name], QUERY, QUERY, ((64, 64), torch.bool), known=True)
    (call,) = called(graph, "cudnn")
    assert call.kwargs["scale"] == {"plain": 1 / 8, "dropout": 0.5}.get(name, 1.0)
    assert (call.args[6:7] == (True,)) is (name == "causal") and chosen(keeping, "sdpa") == ["cudnn"]
    graph, _ = traced(WRITTEN[name], QUERY, QUERY, ((64, 64), torch.bool), known=True, overrides={"sdpa:*": "math"})
    assert not called(graph, "")


@pytest.mark.parametrize("name", OTHERWISE)
def test_what_is_no_attention_or_may_hide_a_row_stays(takers, name):
    graph, _ = traced(OTHERWISE[name], QUERY, QUERY, ((64, 64), torch.bool), known=True)
    assert not called(graph, "")
