"""The templates of random programs for what programs use of torch now and then: control flow as operators, operators of
their own, parametrizations, schedulers, modes, generators. `grammar_torch.py` says what the kinds are.
"""
# ruff: noqa: E501 - a template is one line

from __future__ import annotations

from .grammar import Statement

RARE_TORCH_EXPRESSIONS: dict[str, list[str]] = {
    "T": [
        "Methods.quiet(<T>)", "Methods.thrice(<T>)", "Methods().doubled(<T>)", "Methods().tripled(<T>)",
        "operators.scaled(<T>, <N>)", "torch.ops.random_programs.scaled(<T>, 2)", "operators.scaled(<W>, 3)", "operators.halves(<T>)[1]", "sum(operators.halves(<T>, how='up'))", "operators.positives(<T>).sum() + <T>",
        "torch.ops.random_programs.shifted(<T>, <F>)", "torch.ops.random_programs.shifted.default(<T>)", "operators.unfaked(<T>)", "torch.cond(<B>, torch.sin, lambda a: a * 2, (<T>,))", "torch.ops.aten.add.Tensor(<T>, <T>)",
        "torch.func.jacfwd(lambda a: a.sum(1) * <N>)(<T>).sum(0)", "torch.func.hessian(lambda a: a.pow(3).sum())(<T>).sum((0, 1))", "torch.func.vmap(lambda a, b: a + b, in_dims=(0, None))(<T>, <T>[0])", "torch.func.vmap(lambda a: (a, a * 2))(<T>)[1]",
        "torch.func.grad(lambda a, b: (a * b).sum(), argnums=(0, 1))(<T>, <T>)[1]", "torch.func.grad(lambda a: ((a * 2).sum(), a.sin()), has_aux=True)(<T>)[1]", "torch.func.jvp(lambda a, b: a * b, (<T>, <T>), (<T>, <T>))[0]",
        "torch.func.functional_call(TIED, dict(TIED.named_parameters()), <T>)", "torch.func.functional_call(NET, {'linear.bias': <T>[0], 'total': <T>[1]}, (<T>, <N>), {'key': 'b'})", "torch.func.vmap(lambda p: torch.func.functional_call(HOOKED[0], {'weight': p}, <T>))(torch.stack([torch.eye(3), torch.ones(3, 3)])).sum(0)",
        "torch.func.vmap(lambda a: a + torch.rand(3), randomness='different')(<T>)", "torch.func.vmap(lambda a: a * <N>, chunk_size=1)(<T>)", "torch.func.vjp(lambda a: (a * 2, a.sum()), <T>, has_aux=True)[0]", "torch.func.grad(lambda a: Straight.apply(a, 2).sum())(<T>)",
        "Shared.apply(<W>, <T>, <N>)[0]", "Shared.apply(<T>, <W>, 2)[1]", "Negated.apply(<T>.clone())", "Negated.apply(<W> * 1)", "torch.utils.checkpoint.checkpoint(torch.sin, <W>, use_reentrant=True)", "torch.utils.checkpoint.checkpoint_sequential(HOOKED, 2, <W>, use_reentrant=False)",
        "checkpointed(lambda a: torch.nn.functional.dropout(a, 0.5), <W>)", "torch.nn.functional.scaled_dot_product_attention(<T>[None], <T>[None], <T>[None])[0]", "GATED(<T>[None])[0][0]", "ATTENTION(<T>[None], <T>[None], <T>[None])[0][0]", "EMBEDDED(torch.tensor([<N> % 4, 1]))",
        "torch.complex(<T>, <T>).abs()", "torch.view_as_real(torch.complex(<T>, <T>))[..., 1]", "<T>.to_sparse().to_dense()", "pytree.tree_map(torch.sin, {'a': [<T>]})['a'][0]", "torch.distributions.Normal(<T>, 1.0).log_prob(<T>)", "torch.distributions.Normal(0.0, 1.0).sample((2, 3)) + <T>",
        "torch.randn(2, 3, generator=GENERATOR)", "torch.rand(2, 3, generator=torch.Generator().manual_seed(<N> % 9))", "torch.nn.utils.rnn.pad_sequence([<V>, <T>], batch_first=True)[1, :2]", "torch.nn.utils.parameters_to_vector(HOOKED[0].parameters())[:6].view(2, 3)", "torch.nn.functional.one_hot(<T>.long().clamp(0, 2), 3).sum(0)[:2] + <T>",
        "torch.nn.LazyLinear(3)(<T>)", "torch.nn.Parameter(<T>.detach())", "in_thread(<U>, <T>)", "in_thread(torch.mul, <W>, <T>)", "torch.roll(<T>, <N>, 1)", "torch.zeros(2, 3).scatter(1, torch.tensor([[0], [2]]), 1.0) + <T>", "<T>.index_add(0, torch.tensor([0, 0]), <T>)", "<T>.repeat(2, 1)[1:3]",
        "torch.tensordot(<T>, torch.eye(3), 1)", "<T>.unfold(1, 2, 1).sum(-1).sum(1, keepdim=True) + <T>", "torch.compiler.disable(lambda a: a * <N>)(<T>)", "torch.compiler.allow_in_graph(elsewhere.moved)(<T>)", "torch.hypot(<T>, <T>)", "<T>.type(torch.float64).type_as(<T>)",
        "torch.empty(2, 3).copy_(<T>)", "<T>.new_full((2, 3), <N>)", "<T>.new_tensor([<N>, 1.0, 2.0]) + <T>", "<T>.reshape(-1).view_as(torch.ones(6)).view(2, 3)", "torch.asarray(<T>)", "torch.atleast_3d(<T>)[..., 0]", "torch.lerp(<T>, <T>, 0.5)", "<T>.float().half().float()",
    ],
    "N": [
        "len(OPTIMIZER.state)", "torch.compiler.is_dynamo_compiling() * 0", "len(HALVED.parametrizations.weight)", "pytree.tree_flatten([<T>, {'a': 1}])[1].num_leaves", "torch.iinfo(torch.int8).max", "<T>.element_size()", "len(torch.unique(<T>))",
        "torch.get_num_threads() * 0", "len(<W>.grad_fn.next_functions) if <W>.grad_fn else 0", "Shared.apply(<T>, <T>, 1)[2].item()", "operators.positives(<T>).shape[0]", "int(torch.bincount(torch.tensor([1, <N> % 3, 1]))[1])", "torch.tensor(<LN> + [1]).sum().item()",
    ],
    "F": ["torch.finfo(<T>.dtype).eps", "SCHEDULER.get_last_lr()[0]", "OPTIMIZER.param_groups[0]['lr']", "torch.nn.utils.clip_grad_norm_(NET.parameters(), 1.0).item()", "torch.quantile(<T>.detach(), 0.5).item()"],
    "B": [
        "torch.are_deterministic_algorithms_enabled()", "parametrize.is_parametrized(<U>)", "torch.is_floating_point(<T>)", "<T>.is_sparse", "torch.backends.cuda.math_sdp_enabled()", "share_memory(<T>, <T>)", "<W>.grad_fn is None",
        "in_thread(torch.is_grad_enabled)", "torch.get_default_device().type == 'cpu'", "<T>.isnan().any().item()", "<T>._is_view()", "isinstance(<U>, torch.nn.Linear)", "torch.compiler.is_exporting()", "<U> is <U>",
    ],
    "S": ["str(<T>.grad_fn)[:1]", "str(torch.promote_types(<T>.dtype, torch.int64))", "str(<U>)[:9]", "torch.typename(<T>)", "type(<U>).__mro__[-2].__name__", "str(<T>.layout)", "HALVED.__class__.__name__", "repr(<T>.shape)"],
    "LT": ["list(operators.halves(<T>))", "pytree.tree_leaves({'a': <T>, 'b': [<T>]})", "list(torch.func.jvp(torch.mul, (<T>, <T>), (<T>, <T>)))", "list(Shared.apply(<W>, <T>, <N>))[:2]", "torch._foreach_add([<T>, <T>], 1)", "list(torch.unbind(torch.stack([<T>, <T>])))"],
    "DT": ["pytree.tree_map(lambda a: a * 2, <DT>)", "dict(a=operators.scaled(<T>, 2))"],
    "C": ["torch.ops.random_programs.shifted", "functools.partial(operators.scaled, n=<N>)", "torch.func.vjp(torch.sin, <T>)[0].add", "Negated.apply", "torch.compiler.disable(torch.cos)", "functools.partial(torch.func.functional_call, HOOKED, {})"],
    "M": ["sdpa_kernel(SDPBackend.MATH)", "deterministic(<B>)", "torch.autograd.set_multithreading_enabled(False)", "torch.overrides.BaseTorchFunctionMode()", "parametrize.cached()", "torch.autograd.forward_ad.dual_level()", "torch.autocast('cpu', dtype=torch.float16)", "torch.nn.utils.parametrize.cached()"],
    "U": ["WEIGHTED", "PLUSSED", "torch.nn.Sequential(WEIGHTED, <U>)", "torch.nn.ModuleList([<U>])[0]", "copy.deepcopy(PLUSSED)", "torch.nn.utils.parametrizations.weight_norm(filled(torch.nn.Linear(3, 3)))", "torch.nn.Dropout(0.5).train(<B>)"],
    "V": ["operators.positives(<V>)[:, None].expand(-1, 3)", "operators.scaled(<V>, 2)", "torch.nn.functional.pad(<V>, (0, 0, 0, 1))", "torch.func.vmap(torch.sin)(<V>)", "torch.sort(<V>, 0).values", "torch.unique(<V>, dim=0)"],
    "W": ["torch.nn.Parameter(<T>.detach().clone())"],
}  # fmt: skip

_SIMPLE = r"""
operators.add_into(<T.own>, <T>)
torch.ops.random_programs.add_into(<T.own>, <T>)
torch.use_deterministic_algorithms(<B>)
torch.use_deterministic_algorithms(False)
torch.set_default_dtype(torch.float64)\n<T.new> = torch.ones(2, 3) / 3\ntorch.set_default_dtype(torch.float32)
torch.set_default_device('cpu')\n<T.new> = torch.ones(2, 3)\ntorch.set_default_device(None)
torch.set_float32_matmul_precision('high')\n<T.new> = <T> @ torch.eye(3)\ntorch.set_float32_matmul_precision('highest')
handle = <U>.register_forward_hook(keyword_hook, with_kwargs=True)\n<T.new> = NET(<T>, key='b')\nhandle.remove()
handle = NET.register_forward_hook(keyword_hook, with_kwargs=True)\n<T.new> = NET(<T>, key='b')\nhandle.remove()
handle = torch.nn.modules.module.register_module_forward_hook(reading_hook)\n<T.new> = <U>(<T>)\nhandle.remove()
handle = HOOKED.register_full_backward_pre_hook(gradient_hook)\nHOOKED(<W>).sum().backward()\nhandle.remove()
handle = HOOKED[2].register_forward_hook(after_forward, always_call=True)\n<T.new> = HOOKED(<T>)\nhandle.remove()
linear = filled(torch.nn.Linear(3, 3))\nparametrize.register_parametrization(linear, 'weight', Plus())\n<T.new> = linear(<T>)\nparametrize.remove_parametrizations(linear, 'weight')
PLUSSED.weight = torch.eye(3) * <N>
WEIGHTED.parametrizations.weight.original0.data.mul_(2)
NET.load_state_dict(NET.state_dict())
NET.to(torch.float64).to(torch.float32)
NET.extra_layer = torch.nn.Linear(3, 3, bias=False)
NET.total, NET.count = <T>[0].detach(), <N>
delattr(NET, 'note') if hasattr(NET, 'note') else None
<W.new> = <W>\n<T.new> = trained($W, <C>, torch.optim.SGD([$W], lr=0.1))
<W.new> = <W>\noptimizer = torch.optim.AdamW([$W], lr=0.1)\n<T.new> = trained($W, torch.sin, optimizer, torch.optim.lr_scheduler.StepLR(optimizer, 1, 0.5))\nLOG.append(optimizer.param_groups[0]['lr'])
<W.new> = <W>\noptimizer = torch.optim.RMSprop([{'params': [$W], 'lr': 0.2}])\n<T.new> = trained($W, lambda a: a * <T>, optimizer)\nLOG.append(len(optimizer.state_dict()['state']))
NET(<T>).sum().backward()\nOPTIMIZER.step()\nOPTIMIZER.zero_grad(set_to_none=<B>)
OPTIMIZER.step()\nSCHEDULER.step()
torch.nn.utils.clip_grad_norm_(NET.parameters(), 1.0)
GENERATOR.manual_seed(<N> % 9)
generator = torch.Generator().manual_seed(3)\n<T.new> = torch.rand(2, 3, generator=generator)\nLOG.append(torch.rand(1, generator=generator).item())
<W.new> = <W>\noperators.scaled($W, <N>).sum().backward()\nLOG.append($W.grad)
<W.new> = <W>\n<T.new>, <T.new>, index = Shared.apply($W, <T>, <N>)\n$T.sum().backward()\nLOG.append((index, $W.grad))
<W.new> = <W>\ncheckpointed(lambda a: torch.nn.functional.dropout(a, 0.5), $W).sum().backward()\nLOG.append($W.grad)
<W.new> = <W>\n$W.register_post_accumulate_grad_hook(lambda p: LOG.append('accumulated'))\n($W * <T>).sum().backward()
<W.new> = <W>\ntorch.autograd.backward([($W * <T>).sum(), $W.sum()])\nLOG.append($W.grad)
<W.new> = <W>\n<T.new> = torch.autograd.grad(($W ** 3).sum(), $W, create_graph=True)[0]\n$T.sum().backward()\nLOG.append($W.grad)
<T.new> = torch.cond(<T>.sum() > <F>, lambda a, b: a * b, lambda a, b: a - b, (<T>.detach() + 0, <T>.detach() + 1))
<N.new> = <N> % 4\n<T.new> = while_loop(lambda i, a: i < 3, lambda i, a: (i + 1, a * 2), (torch.tensor($N), <T>.detach() + 0))[1]
<T.new> = scan(lambda carry, row: (carry + row, carry * row), torch.zeros(3), <T>.detach() + 0)[1]
torch._dynamo.graph_break()
torch._dynamo.maybe_mark_dynamic(<V>, 0)
torch._dynamo.mark_static(<V>)
torch._dynamo.mark_static(<V.own>, 0)
torch._foreach_mul_([<T.own>], <F>)
<T.new> = in_thread(checkpointed, <C>, <T>)
with torch.no_grad(): LOG.append(in_thread(torch.is_grad_enabled))
""".strip().split("\n")

_COMPOUND: list[tuple[str, float]] = [
    ("with deterministic(<B>):\n    <BODY>\n    LOG.append(torch.are_deterministic_algorithms_enabled())", 1),
    ("with sdpa_kernel([SDPBackend.MATH]):\n    <T.new> = torch.nn.functional.scaled_dot_product_attention(<T>[None], <T>[None], <T>[None])[0]\n    <BODY>", 1),
    ("with sdpa_kernel([SDPBackend.MATH], set_priority=True):\n    <BODY>\n    torch._dynamo.graph_break()\n    <BODY>\nLOG.append(torch._C._get_sdp_priority_order())", 0.7),
    ("with np.errstate(divide='ignore'):\n    torch._dynamo.graph_break()\n    <BODY>\nLOG.append(np.geterr()['divide'])", 0.4),
    ("with torch.autocast('cpu', dtype=torch.bfloat16):\n    with torch.autocast('cpu', enabled=False):\n        <BODY>\n    <T.new> = (<T> @ torch.eye(3)).float()", 1),
    ("@torch.autocast('cpu', dtype=torch.bfloat16)\ndef <C.new>(a):\n    <FUNCTION T a:T>\n<T.new> = $C(<T>)", 0.7),
    ("@torch.inference_mode()\ndef <C.new>(a):\n    <FUNCTION T a:T>\n<T.new> = $C(<T>)", 0.7),
    ("with parametrize.cached():\n    <T.new> = HALVED.weight[:2] + <T>\n    <BODY>\n    <T.new> = HALVED.weight[:2] * 2", 0.7),
    ("with torch.enable_grad():\n    <W.new> = <W>\n    def <C.new>(a):\n        <FUNCTION T a:T>\n    <T.new> = torch.func.grad(lambda a: $C(a).sum())($W)", 0.5),
    ("def <C.new>(a):\n    <FUNCTION T a:T>\n<T.new> = torch.func.vmap($C)(torch.stack([<T>, <T>])).sum(0)", 0.7),
    ("def <C.new>(a):\n    <FUNCTION T a:T>\n<T.new> = torch.func.jvp($C, (<T>,), (<T>,))[1]", 0.5),
    ("class Wrapped(torch.nn.Module):\n    def __init__(self, inner, n):\n        super().__init__()\n        self.inner, self.n = inner, n\n    def forward(self, a):\n        self.n += 1\n        <FUNCTION T a:T>\nwrapped = Wrapped(<U>, <N>)\n<T.new> = wrapped.inner(wrapped(<T>))\nLOG.append(wrapped.n)", 0.7),
    ("for p in OPTIMIZER.param_groups[0]['params']:\n    LOG.append(tuple(p.shape))\n    <BODY>", 0.5),
    ("with in_thread(torch.no_grad):\n    <BODY>", 0.3),
    ("torch.set_grad_enabled(False)\n<BODY>\ntorch.set_grad_enabled(True)", 0.5),
]  # fmt: skip

_SLOW = ("torch.cond(<T>", "while_loop(", "scan(")
"""Eager compiles these with Dynamo on each call, which takes half a second."""

RARE_TORCH_STATEMENTS: list[Statement] = [
    *(Statement(text.replace(r"\n", "\n"), 0.4 if any(word in text for word in _SLOW) else 1.0) for text in _SIMPLE),
    *(Statement(text, 1.5 * weight) for text, weight in _COMPOUND),
]
