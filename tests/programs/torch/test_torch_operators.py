"""Programs about operators that are more than a kernel: generators, NumPy, subclasses, distributions, attention."""
# mypy: ignore-errors
# ruff: noqa: RUF059 - programs as people write them

from __future__ import annotations

import numpy as np
import pytest
import torch
import torch.nn as nn
import torch.nn.functional as F

from ..checking import Programs, call, check

program = Programs()


@program
def functions_in_another_form(compile):
    def f(x, z):
        choices = [torch.combinations(x[0], r, again) for r in (1, 2, 5) for again in (False, True)]
        covariances = torch.cov(x), torch.cov(x[0]), torch.cov(x, correction=0), torch.cov(z), torch.cov(x.long())
        correlations = torch.corrcoef(x), torch.corrcoef(z), torch.corrcoef(x[0])
        runs = torch.unique_consecutive(x, dim=-1), x.unique_consecutive(True, dim=-1), x.unique(dim=-1)
        return choices, covariances, correlations, runs, [run.dim() for run in (runs[0], runs[1][0], runs[2])]

    f = compile(f, fullgraph=True)
    torch.manual_seed(0)
    return f(torch.randn(3, 4), torch.randn(3, 4, dtype=torch.complex64))


@program
def functions_and_modules_as_arguments_of_torchs_functions(compile):
    calls = []

    def distance(a, b):
        calls.append(a.shape)
        return (a - b).abs().sum(-1)

    def f(a, b, c):
        one = F.triplet_margin_with_distance_loss(a, b, c, distance_function=nn.PairwiseDistance(), swap=True)
        return one, F.triplet_margin_with_distance_loss(a, b, c, distance_function=distance, margin=2.0)

    f = compile(f)
    x = torch.arange(6.0).view(2, 3)
    return f(x, x + 1, x * 2), calls


@program
def compiler_controls(compile):
    @torch.compiler.disable
    def eager_only(x):
        return x * 2, torch.compiler.is_compiling()

    def opaque(x):
        return x.sin() if x.sum() > 0 else x.cos()

    torch.compiler.allow_in_graph(opaque)

    def f(x):
        y, compiling = eager_only(x)
        return y + 1, compiling

    def g(x):
        return opaque(x) + 1

    out = compile(f)(torch.ones(3)), compile(g)(torch.ones(3)), compile(g)(-torch.ones(3))
    with torch.compiler.set_stance("force_eager"):
        forced = compile(lambda x: torch.compiler.is_compiling())(torch.ones(1))
    return out, forced


@program
def checks(compile):
    def f(x, n):
        torch._check(n > 1)
        torch._check(x.shape[0] == 3, lambda: "three")
        torch._check_is_size(n)
        return x * n

    f = compile(f)
    return f(torch.ones(3), 2), call(f, torch.ones(3), 0), call(f, torch.ones(2), 3)


@program
def generators(compile):
    g = torch.Generator().manual_seed(3)

    def f(x):
        a = torch.rand(3, generator=g)
        b = torch.randn(2, generator=g) + x[:2]
        x = x.clone().uniform_(0, 1, generator=g)
        return a, b, torch.randperm(4, generator=g), torch.bernoulli(x, generator=g), x

    f = compile(f)
    return f(torch.ones(3)), f(torch.ones(3)), g.get_state().sum()


@program
def seeds(compile):
    def f(x):
        torch.manual_seed(7)
        a = torch.rand(3)
        state = torch.get_rng_state()
        b = torch.rand(3)
        torch.set_rng_state(state)
        return a, b, torch.rand(3), F.dropout(x, 0.5)

    return compile(f)(torch.ones(4)), torch.rand(1)


@program
def forked_random_state(compile):
    def f(x):
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(1)
            y = torch.rand(2)
        return y, torch.rand(2) + x

    return compile(f)(torch.ones(2))


@program
def numpy_arrays(compile):
    def f(x, a):
        y = torch.from_numpy(a) + x
        n = x.detach().numpy()
        z = np.sin(n) + a
        n[0] = 5.0
        return y, z, torch.as_tensor(z), x, np.add(a, 1).sum(), torch.tensor(a.tolist())

    f = compile(f)
    return f(torch.ones(3), np.arange(3, dtype=np.float32)), f(torch.ones(3), np.arange(3, dtype=np.float32))


class Tagged(torch.Tensor):
    """Counts the functions that see it."""

    seen = 0

    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        cls.seen += 1
        return super().__torch_function__(func, types, args, kwargs or {})


class Plain:
    """Not a tensor, but with a say in torch's functions."""

    def __init__(self, value):
        self.value = value

    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        plain = [a.value if isinstance(a, Plain) else a for a in args]
        return Plain(func(*plain, **(kwargs or {})))


@program
def tensor_subclasses(compile):
    Tagged.seen = 0
    f = compile(lambda x, y: torch.sin(x + y) * 2)
    out = f(torch.ones(2).as_subclass(Tagged), torch.ones(2))
    plain = compile(lambda p: torch.add(p, 2))(Plain(torch.ones(2)))
    return out.as_subclass(torch.Tensor), type(out).__name__, Tagged.seen, plain.value


@program
def function_modes(compile):
    from torch.overrides import TorchFunctionMode

    names = []

    class Log(TorchFunctionMode):
        def __torch_function__(self, func, types, args=(), kwargs=None):
            names.append(func.__name__)
            return func(*args, **(kwargs or {}))

    def f(x):
        with Log():
            y = torch.sin(x)
        return y + 1

    f = compile(f)
    out = [f(torch.ones(2))]
    g = compile(lambda x: torch.cos(x))
    with Log():
        out.append(g(torch.ones(2)))
    return out, names


@program
def sparse_and_nested(compile):
    def f(x):
        s = x.to_sparse()
        values = s.coalesce().values() * 2
        return (s @ x).sum(), values, s.coalesce().indices(), torch.nested.nested_tensor([x[0], x[1, :1]]).size(0)

    return compile(f)(torch.eye(2))


@program
def fft_linalg_and_complex(compile):
    def f(x):
        z = torch.fft.rfft(x)
        u, s, vh = torch.linalg.svd(x @ x.T)
        q, r = torch.linalg.qr(x)
        view = torch.view_as_real(z)
        return z.abs(), s, r.abs(), view, torch.linalg.norm(x, dim=-1), torch.polar(x.abs(), x).imag

    return compile(f, fullgraph=True)(torch.randn(3, 4))


@program
def out_arguments_and_foreach(compile):
    def f(x, ys):
        out = torch.empty(3)
        torch.add(x, 1, out=out)
        same = torch._foreach_mul_(ys, 2)
        same_tuple = torch._foreach_add_(pair := tuple(ys), [x, x], alpha=0.5) is pair
        total, index = torch.max(x, 0)
        values = torch.sort(x, descending=True)
        whole = values.values, values.indices, values[0], same is ys, same_tuple
        return out, torch._foreach_sqrt([v.abs() for v in ys]), total, index, same, whole

    ys = [torch.ones(3), torch.ones(3)]
    return compile(f, fullgraph=True)(torch.randn(3), ys), ys


@program
def functions_of_torch(compile):
    def f(x):
        grid = torch.meshgrid(torch.arange(2), torch.arange(3), indexing="ij")
        parts = torch.split(x, [1, 2]), torch.chunk(x, 2), torch.tensor_split(x, 3), x.unbind(0)
        same = torch.is_tensor(x), torch.is_floating_point(x), torch.numel(x), x.dtype.is_floating_point
        info = torch.finfo(x.dtype).max, torch.iinfo(torch.int8).min, torch.result_type(x, 1), x.shape.numel()
        made = torch.tensor([[1, 2], [3, 4]]), torch.as_tensor(3.0), torch.full((2,), 7), torch.zeros_like(x)
        more = torch.block_diag(x, x), torch.cartesian_prod(x[0], x[1]), torch.einsum("ij->j", x)
        return grid, parts, same, info, made, more

    return compile(f, fullgraph=True)(torch.randn(3, 2))


@program
def numbers_of_numpy(compile):
    class Scaled(nn.Module):
        def __init__(self):
            super().__init__()
            self.scale, self.count, self.half = np.sqrt(8), np.int64(3), np.float32(0.1)

        def forward(self, x):
            x = x / np.sqrt(x.shape[-1]) + self.count * self.half
            return x.view(np.prod(x.shape[:2]), -1) * self.scale, self.half * x == self.half, type(self.half * 2)

    m = Scaled()
    f = compile(m)
    out = [f(torch.ones(3, 4, 2)), f(torch.ones(3, 4, 5)), f(torch.ones(3, 4, 6))]
    m.scale = 2.0
    out.append(f(torch.ones(3, 4, 2)))
    m.half = np.float64(0.1)
    return out, f(torch.ones(3, 4, 2, dtype=torch.float16))


@program
def functions_of_numpy_on_numbers(compile):
    def f(x, k, rate):
        y = x * np.log(2.0) + np.clip(k, 0, 2) - np.mean([1, 2]) + np.maximum(1, k) * np.power(2, 3)
        number = np.exp(1) if isinstance(np.float32(1), np.floating) else np.isscalar(k)
        return y, number, type(number), np.bool_(True), k == np.int64(2), x[np.int64(0)], rate * np.float32(2)

    f = compile(f)
    return [f(torch.ones(2), k, rate) for k, rate in ((1, 0.5), (2, 0.25), (3, 0.125))]


@program
def numpy_that_warns(compile):
    import warnings

    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        out = compile(lambda x: x + np.log(0.0))(torch.ones(2))
    return out, [str(w.message) for w in seen if w.category is RuntimeWarning]


@program
def discrete_distributions(compile):
    import torch.distributions as D

    def f(x):
        by_weight, by_logits = D.Categorical(x), D.Categorical(logits=x, validate_args=False)
        coin = D.Bernoulli(logits=x)
        drawn = by_weight.sample(), coin.sample()
        return drawn, by_weight.log_prob(drawn[0]), by_logits.entropy(), by_logits.probs, coin.mean, by_weight.logits

    return [compile(f)(torch.arange(1.0, n)) for n in (4, 6)]


@program
def chains_of_distributions(compile):
    import torch.distributions as D

    def f(x):
        scaled = D.TransformedDistribution(D.Normal(x, 1.0), [D.ExpTransform(), D.AffineTransform(0.0, 2.0)])
        mixed = D.MixtureSameFamily(D.Categorical(torch.ones(3)), D.Normal(x, 1.0))
        return scaled.log_prob(x.exp()), mixed.log_prob(x), D.Gamma(x.exp(), 1.0).rsample()

    return compile(f)(torch.randn(3))


@program
def attention_with_functions(compile):
    from torch.nn.attention.flex_attention import create_block_mask, flex_attention

    mask = create_block_mask(lambda b, h, q, k: q >= k, 1, 1, 16, 16, device="cpu")
    table = torch.randn(4)

    def f(q, k, v):
        plain = flex_attention(q, q, q, score_mod=lambda s, b, h, i, j: s + (i - j))
        return plain, flex_attention(
            q, k, v, score_mod=lambda s, b, h, i, j: s * 2 + table[h], block_mask=mask, enable_gqa=True, return_lse=True
        )

    q, k, v = torch.randn(1, 4, 16, 8), torch.randn(1, 2, 16, 8), torch.randn(1, 2, 16, 8)
    return compile(f, fullgraph=True)(q, k, v)


@program
def checkpoints_with_a_policy(compile):
    from torch.utils.checkpoint import CheckpointPolicy, checkpoint, create_selective_checkpoint_contexts

    w = torch.randn(3, 3, requires_grad=True)

    def policy(ctx, op, *args, **kwargs):
        saved = op is torch.ops.aten.mm.default
        return CheckpointPolicy.MUST_SAVE if saved else CheckpointPolicy.PREFER_RECOMPUTE

    def f(x):
        contexts = [
            lambda: create_selective_checkpoint_contexts(policy),
            lambda: create_selective_checkpoint_contexts([torch.ops.aten.mm.default]),
        ]
        for context_fn in contexts:
            x = checkpoint(lambda x: (x @ w).sin() @ w, x, use_reentrant=False, context_fn=context_fn)
        return x.sum()

    x = torch.randn(3, 3, requires_grad=True)
    compile(f, fullgraph=True)(x).backward()
    return x.grad, w.grad


class Squared(torch.autograd.Function):
    """With a context of its own, rules for vmap, and gradients that may be None."""

    generate_vmap_rule = True

    @staticmethod
    def forward(x, k):
        return x * x * k

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.set_materialize_grads(False)
        ctx.save_for_backward(inputs[0])
        ctx.k = inputs[1]

    @staticmethod
    def backward(ctx, g):
        (x,) = ctx.saved_tensors
        return g * 2 * x * ctx.k, None


@program
def functions_compiled_by_themselves(compile):
    x = torch.ones(3, requires_grad=True)
    compile(lambda x: Squared.apply(x, 3).sum(), fullgraph=True)(x).backward()
    y = compile(Squared.apply)(x, 2)
    y.sum().backward()
    return y, x.grad


@program
def nothing_is_dropped_from_a_view_whose_sizes_vary(compile):
    """torch's Python form of dropout copies what eager gives back, and promises other strides for it."""
    results = []
    for dropout in (F.dropout, torch.ops.aten.dropout, torch.ops.aten.dropout.default):
        for grad in (False, True):
            x = torch.arange(320.0).as_strided((7, 5, 8), (45, 9, 1), 5).requires_grad_(grad)
            y = compile(lambda x, dropout=dropout: dropout(x[:], 0.0, True), dynamic=True)(x)
            results += [y.clone(), y.stride(), y.data_ptr() == x.data_ptr()]
    return results


@program
def dropout_with_its_mask(compile):
    """torch's Python form gives the tensor itself where nothing is dropped, and takes None for False."""
    torch.manual_seed(0)
    results = []
    for dropout in (torch.native_dropout, torch.ops.aten.native_dropout, torch.ops.aten.native_dropout.default):
        for p, train in ((0.5, False), (0.5, None), (0.0, True), (0.5, True)):
            x = torch.ones(3, 4, requires_grad=True)
            y, mask = compile(lambda x, dropout=dropout, p=p, train=train: dropout(x, p, train))(x)
            results += [y, mask, y is x]
    return results


@pytest.mark.parametrize("name", program)
def test_a_program_with_operators_is_the_program(name: str) -> None:
    check(program[name])
