"""The templates of random programs that use more of torch than tensors: modules, gradients, modes, views, sizes that
vary. `grammar.py` has the language, and says what the kinds are.

Further kinds: U a module that takes T to T, V a tensor of shape (m, 3) whose m varies between calls, W a leaf of shape
(2, 3) that requires a gradient.
"""
# ruff: noqa: E501 - a template is one line

from __future__ import annotations

from .grammar import Statement

TORCH_LEAVES: dict[str, list[str]] = {
    "U": ["NET", "HOOKED", "TIED", "NORM", "HALVED", "LAZILY", "NOISY"],
    "V": ["r", "torch.ones(3, 3)"],
    "W": ["leaf(x)", "leaf(y)"],
}

TORCH_EXPRESSIONS: dict[str, list[str]] = {
    "T": [
        "<U>(<T>)", "<U>(<T>)", "<U>(<T>)", "NET(<T>, <N>)", "NET(<T>, key='b')", "NET(<T>, key=<S>)", "NET.linear(<T>)", "NET.layers[<N>](<T>)",
        "NET.total + <T>", "NET.scale * <T>", "HALVED.weight[:2] + <T>", "list(TIED.parameters())[0][:2]", "TIED[2].weight[1:]",
        "dict(NET.named_buffers())['total'] + <T>", "NET.state_dict()['scale'] + <T>", "functools.reduce(lambda a, m: m(a), HOOKED, <T>)",
        "torch.func.functional_call(NET, {'scale': <T>[0]}, (<T>,))", "torch.func.functional_call(HOOKED, {'0.bias': <T>[1]}, <T>)",
        "Straight.apply(<T>, <N>)", "Straight.apply(<W>, 2)", "checkpointed(torch.sin, <W>)", "checkpointed(lambda a: Straight.apply(a, 3), <W>)",
        "checkpointed(NET, <T>)", "checkpointed(<U>, <W>)", "checkpointed(<C>, <T>)", "torch.autograd.grad((<T|w:W>).sum(), w)[0] if (w := leaf(<T>)) is not None else x",
        "torch.func.vmap(lambda a: a * <N> + <F>)(<T>)", "torch.func.vmap(lambda a, b: (a * b).sum() + a)(<T>, <T>)", "torch.func.vmap(torch.sin, in_dims=1, out_dims=1)(<T>)",
        "torch.func.grad(lambda a: (a * <T>).sum())(<T>)", "torch.func.grad(lambda a: a.pow(2).mean() * <N>)(<T>)", "torch.func.jvp(torch.sin, (<T>,), (<T>,))[1]",
        "torch.func.vjp(lambda a: a * <T>, <T>)[1](<T>)[0]", "torch.func.jacrev(lambda a: a.sum(0) * <N>)(<T>).sum(0)", "torch.func.vmap(torch.func.grad(lambda a: a.sin().sum()))(<T>)",
        "torch.func.grad_and_value(lambda a: (a ** 2).sum())(<T>)[0]",
        "<T>[<T> > 0].sum() + <T>", "(<T> > 0).nonzero().sum() + <T>", "torch.nonzero(<T> > <F>).float().sum(0)[:1] + <T>", "<T>[<T> > <F>].relu().mean().nan_to_num() + <T>",
        "torch.masked_select(<T>, <T> > 0).sum() * <T>", "<T>.index_select(0, torch.tensor([1, 0]))", "<T>.gather(1, torch.zeros(2, 3, dtype=torch.long))",
        "torch.nn.functional.dropout(<T>, 0.5)", "torch.nn.functional.dropout(<T>, 0.5, training=<B>)", "torch.randn(2, 3) * <T>", "torch.bernoulli(torch.full((2, 3), 0.5))",
        "torch.rand(2, 3, generator=torch.Generator().manual_seed(3))", "torch.randn_like(<T>)", "torch.randperm(3).float() + <T>", "torch.normal(0.0, 1.0, (2, 3))",
        "torch.nn.functional.layer_norm(<T>, (3,))", "torch.nn.functional.softmax(<T>, <N> % 2)", "<T> @ <T>.t() @ <T>", "torch.addmm(<T>, <T>, torch.eye(3))", "<T>.cumsum(0)",
        "<T>.cumsum(1) * <T>", "<T>.cumprod(<N> % 2)", "<T>.cummax(1).values + <T>", "<T>.cummin(0)[0]", "<T>.logcumsumexp(0)", "torch.nn.functional.softmax(<T>, 1).cumsum(1)",
        "<T>.sort(1).values", "<T>.topk(3, 1)[0]", "<T>.max(0).values + <T>", "torch.cat([<T>, <T>])[1:3]", "torch.split(torch.cat([<T>, <T>]), 2)[1]", "<T>.unflatten(1, (3, 1)).squeeze(-1)",
        "torch.from_numpy(<T>.detach().numpy() * 2)", "torch.from_numpy(np.where(<T>.detach().numpy() > <F>, <T>.detach().numpy(), np.float32(2)))",
        "torch.tensor(<T>.detach().numpy()[:, [2, 0, 1]])", "torch.from_numpy(<T>.detach().numpy().T.copy()).t().reshape(2, 3)", "torch.as_tensor(np.concatenate([<T>.detach().numpy(), <T>.detach().numpy()]))[:2]",
        "<T> * (<T>.detach().numpy().max() + 0)", "torch.from_numpy(np.tile(<T>.detach().numpy()[0], (2, 1)))", "torch.from_numpy(<T>.detach().numpy()[::-1, ::-1] * 2)", "torch.from_numpy(np.ascontiguousarray(<T>.detach().numpy()[:, ::-1]))", "(<T>.detach().numpy()[::-1] + <F>).max() * <T>", "sum(torch.from_numpy(row.copy()) for row in <T>.detach().numpy()) + <T>",
        "torch.from_numpy((<T>.detach().numpy() > <F>).astype('f4'))", "torch.from_numpy(<T>.detach().numpy().reshape(3, 2).swapaxes(0, 1).copy()).view(2, 3)", "torch.from_numpy(np.square(np.abs(<T>.detach().numpy())))", "torch.as_tensor(np.asarray(<T>.detach()) + <N>)", "torch.tensor(<T>.tolist()) + <T>",
        "plainly(<T>.as_subclass(Counting) * <T> + <N>)", "plainly(torch.relu(<T>.as_subclass(Counting)).view(3, 2).reshape(2, 3))", "torch.add(Quantity(<T>), <T>).data", "torch.sin(Quantity(<T>)).data", "hooked(<W>, <N>)",
        "torch.autograd.grad(hooked((w := leaf(<T>)) * <T>, <N>).sum(), w)[0]", "<T>.as_subclass(Tagged)", "torch.tensor(<LN>, dtype=torch.float32).sum() + <T>", "torch.stack([<T>, <T>]).unbind(0)[1]", "<T>.movedim(0, 1).movedim(0, 1)", "<T>.data",
        "<V>[:2]", "<V>[-2:]", "<V>.sum(0) + <T>", "<V>.view(-1, 3).mean(0) + <T>", "(<V>.t() @ <V>)[:2]", "torch.cat([<V>, <T>])[:2]", "<V>.view(-1)[:6].view(2, 3)", "<V>.max(0).values * <T>",
        "<T>[<T>.sum(1).argmax()] * <F> + <T>", "<T>[torch.tensor(<N> % 3)].relu() + <T>", "<T>[torch.tensor(<N> % 2)].expand(2, 3)",
        "<T>[:, torch.tensor(<N> % 3), None] + <T>", "[<T>[torch.tensor(<N> % 2)], <T>][1]",
        "<W>", "<W> * 2", "(<W> * <T>).sum(0) + <T>", "torch.nn.functional.pad(<V>, (0, 0, 0, 2))[:2]",
    ],
    "N": [
        "int(<T>.argmax())", "<T>.nonzero().shape[0]", "len(<T>[<T> > 0])", "NET.count", "len(NET.seen)", "<V>.shape[0]", "len(<V>)", "<V>.numel()", "<V>.size(0) * 2", "<V>.stride(0)",
        "sum(p.numel() for p in <U>.parameters())", "len(list(<U>.modules()))", "len(<U>.state_dict())", "<T>.storage_offset()", "<T>.stride(0)", "int(torch.tensor(<N>))", "torch.tensor(<N>).item()",
        "torch.randint(0, 5, (1,)).item()", "(<T> > 0).sum().item()", "<T>._version * 0", "getattr(torch.cos(<T>.as_subclass(Counting)) + <N>, 'steps', 0)", "int(np.sum([1, 2]))", "int(np.argmax(<T>.detach().numpy()))", "<T>.detach().numpy().size", "torch.nonzero(<T>).size(1)",
    ],
    "F": ["<T>.tolist()[0][1]", "<T>.max().item()", "float(<T>.mean())", "<T>.norm().item()", "np.random.rand()", "<V>.shape[0] / 2", "float(np.float32(<F>))", "random.gauss(0, 1)"],
    "B": [
        "<U>.training", "<T>.is_contiguous()", "<T>.is_leaf", "bool((<T> > 0).all())", "torch.equal(<T>, <T>)", "torch.is_autocast_enabled('cpu')", "torch.is_inference_mode_enabled()", "<V>.shape[0] > <N>",
        "<V>.shape[0] == 3", "<V>.size(0) % 2 == 0", "isinstance(<U>, torch.nn.Module)", "hasattr(LAZILY, 'first')", "<W>.grad is None", "TIED[0].weight is TIED[2].weight", "torch.allclose(<T>, <T>)",
        "isinstance(<T>, Tagged)", "torch.get_default_dtype() is torch.float64", "<T>.dtype.is_floating_point", "<T>.sum() < <T>.mean()", "torch.compiler.is_compiling() * 0",
    ],
    "S": ["type(<U>).__name__", "torch.mul(Quantity(<T>), <N>).unit", "type(<T>.as_subclass(Counting).sum()).__name__", "','.join(name for name, _ in <U>.named_parameters())", "str(list(NET.named)[<N> % 2])", "str(<T>.tolist()[1])", "f'{<F>:.3f}'", "str(tuple(<V>.shape))", "str(<T>.device)", "f'{<V.var>.shape[0]}'", "'{:>3} {}'.format(<V>.shape[0], <S>)", "'%d of %s' % (<V>.shape[0], <S>)", "'{0[0]}{1!r}'.format(<V>.shape, <N>)", "'%3d|%s' % <V>.shape"],
    "LT": ["[p.detach()[:2] for p in [HALVED.weight]]", "list(<V>.split(2))[:1]", "[<U>(t) for t in <LT>]", "list(torch.func.vjp(torch.mul, <T>, <T>)[1](<T>))", "list(torch.broadcast_tensors(<T>, <T>))", "list(torch.meshgrid(<T>[0], <T>[1], indexing='ij'))[:0] + [<T>]", "[row + <T> for row in <V>]"],
    "LN": ["<T>.long().tolist()[0]", "list(<V>.shape)", "list(<T>.stride())", "torch.arange(<N> % 4).tolist()", "[len(t) for t in <V>.split(2)]", "(<T> > 0).nonzero().flatten().tolist()"],
    "DT": ["{k: b + <T> for k, b in NET.named_buffers()} | {'a': <T>}", "{'a': <U>(<T>)}"],
    "C": ["<U>", "(lambda a: Straight.apply(a, 2))", "torch.func.grad(lambda a: a.sum())", "torch.func.vmap(torch.cos)", "functools.partial(checkpointed, torch.sin)", "NET.forward", "torch.nn.Tanh()"],
    "G": ["iter(<V>)", "(m(<T>) for m in HOOKED)", "iter(<V>.split(2)[:1])"],
    "M": ["torch.autocast('cpu', dtype=torch.bfloat16)", "torch.autocast('cpu', enabled=<B>)", "torch.inference_mode()", "torch.inference_mode(False)", "default_dtype(torch.float64)", "torch.device('cpu')",
          "torch.autograd.profiler.record_function('r')", "torch.random.fork_rng()", "Swapped({torch.sin: torch.cos, torch.zeros: torch.ones})", "Swapped({torch.relu: torch.neg, torch.Tensor.add: torch.Tensor.sub})", "torch.autograd.set_detect_anomaly(False)", "torch.autograd.graph.saved_tensors_hooks(lambda t: t, lambda t: t)"],
    "U": ["(<U> if <B> else <U>)", "[NET, TIED][<N> % 2]", "torch.nn.Sequential(<U>, torch.nn.ReLU())", "HOOKED[:<N> % 3 + 1]", "<U>.train(<B>)", "<U>.eval()", "copy.deepcopy(NET)"],
    "V": ["<V> * 2", "torch.relu(<V>)", "<V> + <T>[0]", "torch.cat([<V>, <T>])", "<V>[1:]", "<V>[:-1]", "<V>.clone()", "NET.linear(<V>)", "<V> @ torch.eye(3)", "torch.cat([<V>, <V>])", "<V>[<V>[:, 0] > 0]",
          "<V>.flip(0)", "torch.ones_like(<V>)", "torch.arange(<V>.shape[0] * 3.0).view(-1, 3)", "<V> - <V>.mean(0)", "<V>.t().contiguous().t()", "torch.zeros(<V>.shape[0], 3)", "<V>.expand(<V>.shape[0], 3)"],
    "W": ["leaf(<T>)"],
}  # fmt: skip

_SIMPLE = r"""
<T.own>.detach().numpy()[0] = <N>
<U.new> = <U>
<V.new> = <V>
<W.new> = <W>
<V.own> = <V>
<T.own> = <U>(<T>)
<T.own> = <U>(<T>)
<U>.train(<B>)
<U>.eval()
NET.count = <N>
NET.count += 1
NET.extra = <A>
NET.total.add_(<F>)
NET.total = <T>[0].detach()
NET.seen.append(<N>)
NET.note = <S>
NET.register_buffer('more', <T>)
del NET.seen[:1]
<U>.zero_grad()
<U>.requires_grad_(<B>)
NET.scale.requires_grad_(<B>)
for parameter in <U>.parameters():\n    parameter.requires_grad = <B>
NET.named['c'] = torch.nn.ReLU()
NET.layers.append(torch.nn.ReLU())
NET.linear.bias = None
handle = <U>.register_forward_hook(reading_hook)\nhandle.remove()
handle = <U>.register_forward_hook(after_forward)\n<T.new> = <U>(<T>)\nhandle.remove()
handle = <U>.register_forward_pre_hook(before_forward)\n<T.new> = HOOKED(<T>)\nhandle.remove()
handle = HOOKED[0].register_full_backward_hook(lambda m, gi, go: LOG.append('backward'))\nHOOKED(<W>).sum().backward()\nhandle.remove()
<W.new> = <W>\n($W * <T>).sum().backward()\n<T.new> = $W.grad
<W.new> = <W>\nNoted.apply($W * <T>, TOTAL).sin().sum().backward()\nLOG.append($W.grad)
<W.new> = <W>\nhidden = $W * <T>\nhidden.register_hook(lambda g: noted(g, TOTAL))\n(hidden * <T>).sum().backward()\nLOG.append(TOTAL.clone())
<W.new> = <W>\nhidden = $W * <T>\nloss = (hidden.sin() * <T>).sum()\ntorch._dynamo.graph_break()\nhidden.retain_grad()\n(loss + hidden.sum()).backward()\n<T.new> = hidden.grad
<W.new> = <W>\nhidden = $W * <T>\nloss = (hidden.cos() * $W).sum()\ntorch._dynamo.graph_break()\n<T.new> = torch.autograd.grad(loss, hidden)[0]
<T.new> = (<T>.half() * <F>).float()
<T.new> = (<T>.to(torch.bfloat16) * <F> + <N>).float() * <T>
LOG.append((<T>.half() * 1000 * <N>).sum(dtype=torch.float32))
<W.new> = <W>\nStraight.apply($W * <T>, <N>).sum().backward()\nLOG.append($W.grad)
<W.new> = <W>\n<U>($W).mean().backward()\nLOG.append($W.grad)
<W.new> = <W>\nhandle = $W.register_hook(lambda g: g * 2)\n($W * <T>).sum().backward()\nLOG.append($W.grad)\nhandle.remove()
<W.new> = <W>\n<T.new>, = torch.autograd.grad(<C>($W).sum(), [$W], allow_unused=True)\n$T = $T if $T is not None else x
<W.new> = <W>\noptimizer = torch.optim.SGD([$W], lr=0.1, momentum=0.9)\nfor _ in range(2):\n    optimizer.zero_grad()\n    ($W * <T>).sum().backward()\n    optimizer.step()\n<T.new> = $W.detach()
<W.new> = <W>\noptimizer = torch.optim.Adam([$W], lr=<F>)\n<C>($W).sum().backward()\noptimizer.step()\nLOG.append(len(optimizer.state))
<U>(<T>).sum().backward()
<W.own>.grad = None
with torch.no_grad(): NET.scale.mul_(<F>)
<T.new> = <T>\n$T.view(-1)[<N> % 6] = <F>
<T.new> = <T.own>[0]\n$T.add_(<F>)\n$T = $T + <T>
<T.new> = <T.own>.view(3, 2).t()\n$T.mul_(2)\n$T = $T + 0 * x.view(2, 3)
<T.own>.t()[1].mul_(<F>)
<T.own>[<T> > 0] = <F>
<T.own>[<T> > 0] += 1
<T.own>[:, <N> % 3] = <T>[:, 0]
<T.own>[0], <T.own>[1] = <T>[1], <T>[0]
<T.own>.copy_(<T>)
<T.own>.zero_()
<T.own>.fill_(<N>)
<T.own>.clamp_(min=<F>)
<T.own>.data = <T>
<W.own>.data = <T>
<W.own>.grad = <T>
<W.new> = <W>\n$W.grad = None\n($W * <T>).sum().backward()
del <W.own>.grad
<U>.zero_grad(set_to_none=<B>)
<W.new> = <W>\nwith torch.no_grad(): $W.data = <T>; LOG.append($W * <F>)
for p, q in zip(<U>.parameters(), <U>.parameters()): p.data = 0.5 * p.data + <F>
<U>(<T>).sum().backward()\n<T.new> = torch.nn.utils.clip_grad_norm_(<U>.parameters(), <F>) + <T>
<DT.new> = NET.state_dict()\n$DT.note = <N>\nLOG.append(($DT.note, list($DT)))
<T.own>.requires_grad_(<B>)
<T.own>.detach_()
<T.own>.masked_fill_(<T> > 0, <F>)
<T.own>.index_fill_(0, torch.tensor([0]), <F>)
<T.own>.mark = <N>
<T.own>.unbind(0)[1].add_(<T>[0])
<T.own>.transpose_(0, 1).transpose_(0, 1)
<T.own>.diagonal().add_(<N>)
<LT.new> = list(<T.own>.chunk(3, 1))\n$LT[0].add_(1)\n$LT = [x]
torch.add(<T>, <N>, out=<T.own>)
torch.nn.functional.relu_(<T.own>)
torch.nn.init.constant_(<T.own>, <F>)
<V.own>.add_(1)
<V.own>[0] = <F>
print(<T>)
print(<V>.shape[0], <T>.sum())
print(<T>.tolist())
torch.manual_seed(<N>)
random.seed(<N>)
np.random.seed(3)
<T.new> = torch.from_numpy(<T>.detach().numpy())\n$T.add_(1)
<F.new> = <T>.max().item()
<N.new> = int(<T>.argmax())
<T.new> = <T> * 2\n$T[torch.tensor(<N> % 3)] = <F>
<T.new> = <T> * 2\n$T[torch.tensor(<N> % 2)] += <T>[torch.tensor(<N> % 2)] * <F>
<T.own>[torch.tensor(<N> % 2)].mul_(<F>)
<LN.new> = <T>.long().tolist()[1]
torch.set_grad_enabled(<B>)
torch.set_grad_enabled(True)
torch._check(<V>.shape[0] > 0)
torch.compiler.cudagraph_mark_step_begin() if False else None
assert torch.isfinite(<T>).all(), 'not finite'
""".strip().split("\n")

_COMPOUND: list[tuple[str, float]] = [
    ("with torch.no_grad():\n    <BODY>\n    for p in <U>.parameters():\n        p.add_(<F>)", 1),
    ("with torch.enable_grad():\n    <W.new> = <W>\n    <BODY>\n    ($W * <T>).sum().backward()", 1),
    ("with torch.autocast('cpu', dtype=torch.bfloat16):\n    <T.new> = NET.linear(<T>)\n    <BODY>", 1),
    ("with torch.inference_mode():\n    <BODY>", 1),
    ("with default_dtype(torch.float64):\n    <T.new> = torch.ones(2, 3) * <N>\n    <BODY>", 1),
    ("with torch.device('cpu'):\n    <T.new> = torch.zeros(2, 3)\n    <BODY>", 0.5),
    ("with torch.random.fork_rng():\n    torch.manual_seed(<N>)\n    <T.new> = torch.rand(2, 3)\n    <BODY>", 0.5),
    ("for layer in HOOKED:\n    <T.new> = layer(<T>)\n    <BODY>", 1),
    ("for <S.new>, p in <U>.named_parameters():\n    LOG.append(tuple(p.shape))\n    <BODY>", 1),
    ("for <T.new> in <V>:\n    $T = $T + <T>\n    <BODY>", 1),
    ("if <V>.shape[0] > <N>:\n    <BODY>\nelse:\n    <BODY>", 2),
    ("for <N.new> in range(<V>.shape[0] % 4):\n    <BODY>", 1),
    ("if <T>.sum() > <F>:\n    <BODY>\nelse:\n    <BODY>", 1),
    ("def <C.new>(a):\n    <FUNCTION T a:T>\n<T.new> = checkpointed($C, <W>)", 1),
    ("@torch.no_grad()\ndef <C.new>(a):\n    <FUNCTION T a:T>\n<T.new> = $C(<T>)", 1),
    ("@torch.compiler.disable\ndef <C.new>(a):\n    <FUNCTION T a:T>\n<T.new> = $C(<T>)", 1),
    ("class Inner(torch.nn.Module):\n    def forward(self, a):\n        <FUNCTION T a:T>\n<U.new> = Inner()\n<T.new> = $U(<T>)", 0.7),
    ("try:\n    <T.new> = <T>.view(<N>, 4)\nexcept RuntimeError as error:\n    LOG.append(type(error).__name__)\n    <BODY>", 1),
    ("try:\n    <T.new> = <T> @ <T>\nexcept RuntimeError as error:\n    LOG.append(str(error))\n    <BODY>", 1),
    ("try:\n    <N.new> = int(<T>)\nexcept (RuntimeError, ValueError) as error:\n    LOG.append(type(error).__name__)\n    <BODY>", 1),
    ("with torch.autograd.graph.save_on_cpu():\n    <W.new> = <W>\n    <T.new> = $W * <T>\n    <BODY>\n$T.sum().backward()", 0.3),
]  # fmt: skip

TORCH_STATEMENTS: list[Statement] = [
    *(Statement(text.replace(r"\n", "\n")) for text in _SIMPLE),
    *(Statement(text, 1.5 * weight) for text, weight in _COMPOUND),
]
