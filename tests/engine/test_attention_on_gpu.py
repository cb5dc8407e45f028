"""Attention on a GPU: values and gradients as near to the exact ones as eager's, rows that see nothing as in eager."""
from __future__ import annotations

import math

import pytest
import torch
import torch.nn.functional as F

from tests.devices import GPU

from .programs import Keeping
from .training.checking import compile

pytestmark = GPU
sdpa = F.scaled_dot_product_attention


def case(queries, keys, size, mask=None, groups=1, **options):
    """An attention of 2 batches and 4 heads, the shape of its mask (with its dtype), and how it is called."""
    return queries, keys, size, mask, groups, options


def shown(*shape):
    return shape, torch.bool


def added(*shape):
    return shape, None


CASES = {
    "none": case(197, 197, 64), "causal": case(64, 64, 64, is_causal=True), "size 40": case(57, 57, 40),
    "bool": case(197, 197, 64, shown(2, 1, 197, 197)), "padding": case(57, 57, 80, shown(2, 1, 1, 57)),
    "scaled": case(48, 33, 128, shown(48, 33), scale=0.3), "size 36": case(33, 33, 36, shown(33, 33)),
    "bias": case(64, 64, 64, added(1, 4, 64, 64)), "bias of heads": case(197, 197, 64, added(4, 197, 197)),
    "full bias": case(33, 57, 128, added(2, 4, 33, 57)), "one query": case(1, 131, 64, shown(2, 1, 1, 131)),
    "groups": case(64, 64, 64, groups=2, enable_gqa=True),
    "groups, masked": case(64, 64, 64, shown(2, 1, 64, 64), groups=2, enable_gqa=True),
}
DTYPES = {torch.float16: 2e-3, torch.bfloat16: 2e-2, torch.float32: 2e-3}


def tensors(name, dtype):
    queries, keys, size, mask, groups, _ = CASES[name]
    heads = lambda rows, n: torch.randn(2, rows, n, size, device="cuda", dtype=dtype).transpose(1, 2).requires_grad_()
    given = [heads(queries, 4), heads(keys, 4 // groups), heads(keys, 4 // groups)]
    if mask is None:
        return given
    shape, kind = mask
    made = torch.randn(shape, device="cuda", dtype=dtype)
    if kind is None:
        return [*given, made]
    made = made > -0.5
    made[..., 0] = True  # no row sees nothing
    return [*given, made]


def attend(name, given):
    query, key, value, *mask = given
    return sdpa(query, key, value, *mask, **CASES[name][-1])


def gradients(results, given):
    wanted = [t for some in given for t in some if t.requires_grad]
    return torch.autograd.grad(sum((r.float() ** 2).sum() for r in results), wanted)


def laid_out(tensor):
    return [stride for n, stride in zip(tensor.shape, tensor.stride()) if n != 1]


def exactly(given):
    double = [[t.detach().double().requires_grad_(t.requires_grad) if t.is_floating_point() else t for t in some]
              for some in given]
    with torch.nn.attention.sdpa_kernel(torch.nn.attention.SDPBackend.MATH):
        results = [attend(name, some) for name, some in zip(CASES, double)]
        return [*results, *gradients(results, double)]


@pytest.mark.parametrize("dtype", DTYPES)
def test_values_and_gradients(dtype):
    torch.manual_seed(0)
    given = [tensors(name, dtype) for name in CASES]
    function = lambda given: [attend(name, some) for name, some in zip(CASES, given)]
    keeping = Keeping()
    compiled = compile(function, recorder=keeping, recording=True)
    runs = []
    for f in (function, compiled):
        results = f(given)
        runs.append([*results, *gradients(results, given)])
    assert not compiled.fallbacks
    for eager, ours, exact in zip(*runs, exactly(given)):
        near, far = [(t.double() - exact).abs().max() for t in (ours, eager)]
        assert near <= 2 * far + DTYPES[dtype] * exact.abs().max()
    for eager, ours in zip(runs[0][: len(CASES)], runs[1]):
        assert laid_out(ours) == laid_out(eager)
    with torch.no_grad():
        for eager, ours in zip(function(given), compiled(given)):
            torch.testing.assert_close(ours, eager, rtol=10 * DTYPES[dtype], atol=DTYPES[dtype])
    found = [d.chosen for d in keeping.decisions if d.kind == "sdpa"]
    assert found.count("math") == (dtype == torch.float32) * sum("groups" in name for name in CASES) * 2


def positions(q):
    return torch.arange(q.shape[2], device=q.device)


MADE = {  # while they are traced; masks of "layout" are no kernel's as they are
    "layout": lambda q: (positions(q) != 3)[:, None].expand(2, 1, -1, q.shape[2]),
    "everything": lambda q: (positions(q) >= 0)[:, None].expand(2, 1, -1, q.shape[2]),
    "causal": lambda q: positions(q)[:, None] >= positions(q),
    "window": lambda q: (positions(q)[:, None] - positions(q)).abs() < 7,
    "nothing": lambda q: (positions(q)[:, None] != 3) & (positions(q) != 4),
    "no batch": lambda q: torch.tensor([True, False], device=q.device)[:, None, None, None].expand(2, 1, 1, q.shape[2]),
}


def masked(q, table, ids):
    """Attentions with masks made here, and with a bias like T5's, which has a gradient."""
    bias = F.embedding(ids, table).permute(2, 0, 1)[None]
    return [sdpa(q, q, q, bias), *(sdpa(q, q, q, mask(q)) for mask in MADE.values())]


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("trained", [False, True])
def test_masks_made_in_the_graph_at_sizes_that_vary(dtype, trained):
    compiled = compile(masked)
    for size in (64, 57, 33, 40):
        q = torch.randn(2, size, 4, 64, device="cuda", dtype=dtype).transpose(1, 2).requires_grad_(trained)
        table = torch.randn(9, 4, device="cuda", dtype=dtype, requires_grad=trained)
        ids = torch.randint(9, (size, size), device="cuda")
        runs = []
        for f in (masked, compiled):
            results = f(q, table, ids)
            runs.append(results)
            if trained:
                seen = [r for r, name in zip(results[1:], MADE) if name not in ("no batch", "nothing", "layout")]
                loss = sum((r.float() ** 2).sum() for r in [results[0], *seen])
                runs[-1] = [*results, *torch.autograd.grad(loss, [q, table], retain_graph=True)]
        for k, (eager, ours) in enumerate(zip(*runs)):
            large = eager.abs().max().item()
            torch.testing.assert_close(
                ours, eager, rtol=5 * DTYPES[dtype], atol=5 * DTYPES[dtype] * max(large, 1), equal_nan=True,
                msg=lambda m, at=(size, k): f"{at}: {m}")
    assert not compiled.fallbacks and len(compiled.contexts) <= 3


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_gradients_of_cudnn_beside_plans_that_the_program_has_made(dtype):
    """torch finds cuDNN's plan for a backward by all but the layout of the gradient that comes in: here it is made for
    one that is dense, of results that are not."""
    q = torch.randn(2, 57, 4, 64, device="cuda", dtype=dtype).transpose(1, 2).requires_grad_()
    with torch.nn.attention.sdpa_kernel(torch.nn.attention.SDPBackend.CUDNN_ATTENTION):
        planned = sdpa(q, q, q)
        torch.autograd.grad(planned, q, planned.detach().contiguous())
    attend = lambda q: sdpa(q, q, q)
    dense = lambda q: sdpa(q, q, q, MADE["everything"](q))  # as eager's products give it
    exact = q.detach().double().requires_grad_()
    for function in (attend, dense):
        found = []
        for f, x in ((compile(function, overrides={"sdpa:*": "cudnn"}), q), (function, exact)):
            result = f(x)
            found.append(torch.autograd.grad(result, x, result.detach())[0].double())
        assert (found[0] - found[1]).abs().max() <= 3 * DTYPES[dtype] * found[1].abs().max()


def test_autocast_dropout_and_kernels_turned_off():
    def function(q, m):
        with torch.autocast("cuda", torch.bfloat16):
            first = sdpa(q, q, q, m)
        with torch.nn.attention.sdpa_kernel(torch.nn.attention.SDPBackend.EFFICIENT_ATTENTION):
            second = sdpa(q, q, q, m)
        return first, second, sdpa(q.half(), q.half(), q.half(), dropout_p=0.25)

    keeping = Keeping()
    compiled = compile(function, recorder=keeping, recording=True)
    q = torch.randn(2, 4, 64, 64, device="cuda")
    m = torch.randn(2, 1, 64, 64, device="cuda")
    torch.manual_seed(1)
    eager = function(q, m)
    torch.manual_seed(1)
    ours = compiled(q, m)
    assert ours[0].dtype == torch.bfloat16 and not compiled.fallbacks
    for a, b, near in zip(ours, eager, (2e-2, 1e-3, 1e-3)):
        torch.testing.assert_close(a, b, rtol=near, atol=near)
    assert [d.chosen for d in keeping.decisions if d.kind == "sdpa"][1] == "efficient"


def test_a_forced_kernel():
    for kernel in ("cudnn", "flash", "efficient", "math"):
        keeping = Keeping()
        compiled = compile(lambda q: sdpa(q, q, q, is_causal=True), recorder=keeping, recording=True,
                           overrides={"sdpa:*": kernel})
        q = torch.randn(2, 4, 64, 64, device="cuda", dtype=torch.half)
        torch.testing.assert_close(compiled(q), sdpa(q, q, q, is_causal=True), rtol=2e-3, atol=2e-3)
        assert [d.chosen for d in keeping.decisions if d.kind == "sdpa"] == [kernel] and math.isfinite(q.sum())


def written(q, k, v):
    """Attention by hand: without a mask, causal, and in batches of matrices."""
    first = F.softmax(torch.matmul(q, k.transpose(2, 3)) / 8.0, dim=-1, dtype=torch.float32).to(q.dtype)
    after = torch.ones(q.shape[2], q.shape[2], device=q.device, dtype=torch.bool).triu(1)
    second = (q @ k.mT * 0.125).masked_fill(after, -math.inf).softmax(-1)
    third = torch.bmm((q[0] * 0.1), k[0].mT).softmax(-1)
    return first @ v, second @ v, torch.bmm(third, v[0])


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_attention_that_is_written_out(dtype):
    given = [torch.randn(2, 4, 80, 64, device="cuda", dtype=dtype, requires_grad=True) for _ in range(3)]
    keeping = Keeping()
    compiled = compile(written, recorder=keeping, recording=True)
    runs = []
    double = [t.detach().double().requires_grad_() for t in given]
    for f, some in ((written, given), (compiled, given), (written, double)):
        results = f(*some)
        runs.append([*results, *torch.autograd.grad(sum((r.float() ** 2).sum() for r in results), some)])
    for eager, ours, exact in zip(*runs):
        near, far = [(t.double() - exact).abs().max() for t in (ours, eager)]
        assert near <= 2 * far + DTYPES[dtype] * exact.abs().max()
    assert [laid_out(r) for r in runs[0][:3]] == [laid_out(r) for r in runs[1][:3]]
    assert len([d for d in keeping.decisions if d.kind == "sdpa" and d.chosen != "math"]) == 3
