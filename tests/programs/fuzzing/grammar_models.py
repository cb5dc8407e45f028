"""The templates of random programs for models and training loops as people write them: attention with caches, experts,
losses, layers of all kinds, averages of weights, and the questions that libraries ask before they compute.
`grammar_torch.py` says what the kinds are.
"""
# ruff: noqa: E501 - a template is one line

from __future__ import annotations

from .grammar import Statement

MODEL_EXPRESSIONS: dict[str, list[str]] = {
    "T": [
        "rotated(<T>)", "rotated(<T>, <N> % 4)", "rotated(<V>)[:1] + <T>", "attended(<T>, <T>, <T>)", "attended(<T>, <V>, <V>)", "attended(<T>, <T>, <T>, causal=<B>)", "attended(<T>, <V>, <V>, mask=(<V>[:, 0] > <F>).float())", "attended(<T>, <T>, <T>, p=0.5)",
        "drop_path(<T>, 0.5, <B>)", "greedy(EXPERTS, torch.tensor(<N> % 3), 3).sum() + <T>", "converged(<T>, <N>)[0]", "<O>.t.new_empty(2, 3).fill_(<F>)",
        "MODEL(torch.tensor([<N> % 5, 1])).logits[:, :3]", "MODEL(embeds=<T>).logits[:, 2:]", "MODEL(embeds=<T>, labels=torch.tensor([<N> % 5, -100])).loss + <T>", "MODEL(embeds=<T>, labels=torch.tensor([1, 2]), return_dict=<B>)[0][..., None].mean() + <T>", "MODEL(torch.tensor([[1, <N> % 5]])).logits[0, :, :3]",
        "MODEL(embeds=<T>, use_cache=True)[0][:, :3]", "MODEL(embeds=<V>, use_cache=<B>).logits[:1, :3] + <T>", "MODEL(embeds=<T>, causal=<B>).hidden[-1]", "BLOCK(<T>, use_cache=True)", "BLOCK(<V>, use_cache=<B>)[:1] + <T>", "MODEL.block1(<T>, mask=None)", "MODEL.blocks[<N> % 2].norm1(<T>)",
        "EXPERTS(<T>)", "EXPERTS(<V>).sum(0) + <T>", "CONVOLVED(<T>)", "RECURRENT(<T>)", "RECURRENT(<V>)[:1] + <T>", "Outputs(a=<T>).a", "Outputs(a=<T>, b=<T>)['b']", "Output(<T>, <T>)[1]", "Output(logits=<T>).logits",
        "<T> * torch.sigmoid(1.702 * <T>)", "0.5 * <T> * (1.0 + torch.tanh(math.sqrt(2.0 / math.pi) * (<T> + 0.044715 * torch.pow(<T>, 3.0))))", "<T> / <T>.norm(dim=-1, keepdim=True).clamp_min(1e-6)", "(<T> - <T>.mean(-1, keepdim=True)) / (<T>.var(-1, keepdim=True, unbiased=False) + 1e-5).sqrt()", "<T> + torch.arange(<T>.shape[-1]).float()[None, :]",
        "<T>.view(<T>.shape[0], -1, 1).transpose(1, 2).reshape(<T>.size(0), -1)", "<T>.view(*<T>.shape[:-1], 3, 1).permute(0, 2, 1).squeeze(1)", "<T>[:, :, None].repeat(1, 1, 2).amax(-1)", "<T>.flatten(1).unflatten(1, (-1, 3)).squeeze(1)", "torch.cat([<T>.new_zeros(1, 3), <T>[:-1]])", "torch.cat((<T>[:, -1:], <T>[:, :-1]), -1)", "torch.stack((<T>[..., ::2].sum(-1), <T>[..., 1::2].sum(-1)), -1).sum(-1, keepdim=True) + <T>",
        "torch.einsum('bi,ij->bj', <T>, torch.eye(3))", "torch.einsum('bi,bj->bij', <T>, <T>).diagonal(dim1=1, dim2=2)", "torch.einsum('...i,...i->...', <T>, <T>)[:, None] + <T>", "torch.baddbmm(<T>[None], <T>[None], torch.eye(3)[None])[0]", "torch.triu(torch.full((3, 3), float('-inf')), diagonal=1).softmax(-1)[:2] + <T>", "<T>.masked_fill(torch.tril(torch.ones(2, 3)) == 0, -1e9).softmax(-1)",
        "attends_to(<T>, <V>)", "F.scaled_dot_product_attention(<T>[None], <T>[None], <T>[None], is_causal=<B>)[0]", "attends_to(<T>, <V>, masked=True)", "F.multi_head_attention_forward(<T>, <T>, <T>, 3, 1, torch.ones(9, 3), None, None, None, False, 0.0, torch.eye(3), None, training=<B>)[0]",
        "F.cross_entropy(<T>, torch.tensor([0, <N> % 3])) * <T>", "F.cross_entropy(<T>, F.softmax(<T>, 1), label_smoothing=0.1) + <T>", "F.nll_loss(F.log_softmax(<T>, -1), torch.tensor([2, <N> % 3]), reduction='none')[:, None] + <T>", "F.binary_cross_entropy_with_logits(<T>, (<T> > 0).float(), pos_weight=torch.tensor(<F>)) + <T>", "F.kl_div(F.log_softmax(<T>, 1), F.softmax(<T>, 1), reduction='batchmean') + <T>", "F.cosine_similarity(<T>, <T>)[:, None] * <T>", "F.triplet_margin_loss(<T>, <T>, <T>) + <T>", "F.huber_loss(<T>, <T>.detach(), delta=0.5) + <T>", "F.margin_ranking_loss(<T>, <T>, <T>.sign()) + <T>", "F.ctc_loss(<T>[:, None].log_softmax(-1), torch.tensor([[1]]), [2], [1]) + <T>",
        "F.gumbel_softmax(<T>, hard=<B>)", "F.normalize(<T>, dim=<N> % 2)", "F.glu(torch.cat([<T>, <T>], -1))", "F.pad(<T>, (1, 1), mode='constant', value=<F>)[:, 1:-1]", "F.pad(<T>[None], (1, 0), mode='replicate')[0, :, 1:]", "F.interpolate(<T>[None], scale_factor=2, mode='nearest')[0, :, ::2]", "F.interpolate(<T>[None, None], size=(4, 6), mode='bilinear', align_corners=<B>)[0, 0, ::2, ::2]", "F.unfold(<T>[None, None], (1, 2)).sum() + <T>", "F.grid_sample(<T>[None, None], torch.zeros(1, 2, 3, 2), align_corners=False)[0, 0]", "F.one_hot(torch.tensor([0, <N> % 3]), num_classes=3).to(<T>)", "F.embedding(torch.tensor([0, 0]), <V>)", "F.embedding_bag(torch.tensor([0, 0, 0]), <V>, torch.tensor([0, 2]))", "F.max_pool1d(<T>[None], 3, 1, 1)[0]", "F.avg_pool1d(<T>[None], 3, stride=1, padding=1)[0]", "F.conv1d(<T>[None], torch.ones(2, 2, 1))[0]", "F.conv_transpose1d(<T>[None], torch.ones(2, 2, 1))[0]", "F.layer_norm(<T>, <T>.shape[-1:])", "F.rms_norm(<T>, (3,))", "F.group_norm(<T>[None], 1)[0]", "F.batch_norm(<T>, <T>[0].detach().clone(), torch.ones(3), training=<B>)", "F.prelu(<T>, torch.tensor([<F>]))", "F.local_response_norm(<T>[None], 2)[0]", "F.cross_entropy(<V>, torch.zeros(<V>.shape[0], dtype=torch.long)) + <T>", "F.pairwise_distance(<T>, <T>)[:, None] + <T>",
        "nn.Conv1d(2, 2, 1, bias=False).requires_grad_(False).weight.new_ones(2, 3)", "nn.Flatten()(<T>[None]).view(2, 3)", "nn.Upsample(scale_factor=2)(<T>[None])[0, :, ::2]", "nn.ReflectionPad1d(1)(<T>[None])[0, :, 1:-1]", "nn.Hardtanh(-1, <N> % 3 + 1)(<T>)", "nn.Softmax(dim=-1)(<T>)", "nn.CosineSimilarity(dim=1)(<T>, <T>)[:, None] + <T>", "nn.MSELoss(reduction='none')(<T>, <T>)", "nn.Threshold(0.1, <N>)(<T>)", "nn.PReLU()(<T>)", "nn.Identity(1, unused=2)(<T>)", "nn.GroupNorm(1, 3)(<T>)", "nn.Dropout1d(0.5)(<T>)", "nn.Unflatten(1, (3, 1))(<T>)[..., 0]", "nn.ModuleDict({'a': <U>})['a'](<T>)", "nn.ParameterList([<T>.detach()])[0]", "nn.ParameterDict({'a': <T>.detach()})['a'] * 2",
        "torch.linalg.norm(<T>, dim=1, keepdim=True) + <T>", "torch.linalg.solve(torch.eye(2) * 2 + <T> @ <T>.t() * 0, <T>)", "torch.linalg.inv(torch.eye(3) * (abs(<N>) + 1))[:2] + <T>", "torch.linalg.svd(<T>.detach())[1].sum() + <T>", "torch.linalg.qr(<T>.detach())[1]", "torch.linalg.cholesky(torch.eye(2) * (abs(<N>) + 1)) @ <T>", "torch.linalg.eigvalsh(<T>.detach() @ <T>.detach().t() * 0 + torch.eye(2)).sum() + <T>", "torch.linalg.multi_dot([<T>, <T>.t(), <T>])", "torch.cdist(<T>, <T>) @ <T>", "torch.cross(<T>, <T>, dim=1)", "torch.kron(<T>, torch.ones(1, 1))", "torch.block_diag(<T>[:1], <T>[1:])[:, :3]", "torch.cartesian_prod(<T>[0], <T>[1])[:3].t()[:, :3]", "torch.vander(<T>[0], 3)[:2] + <T>", "torch.cov(<T>) @ <T>", "torch.trapezoid(<T>)[:, None] + <T>", "torch.cumulative_trapezoid(<T>, dim=0) + <T>", "torch.gradient(<T>)[1]", "torch.renorm(<T>, 2, 0, 1.0)", "torch.nanmean(<T>, 1, keepdim=True) + <T>", "torch.count_nonzero(<T>, 0) + <T>", "torch.fft.irfft(torch.fft.rfft(<T>), n=3)", "torch.fft.fftshift(<T>)", "torch.polar(<T>.abs(), <T>).real", "torch.view_as_complex(torch.stack([<T>, <T>], -1)).imag",
        "torch.take_along_dim(<T>, <T>.argsort(-1), dim=-1)", "<T>.scatter_reduce(1, torch.tensor([[0, 0, 1], [2, 1, 1]]), <T>, reduce='amax')", "<T>.scatter_add(0, torch.zeros(1, 3, dtype=torch.long), <T>)", "<T>.index_put((torch.tensor([0]), torch.tensor([<N> % 3])), torch.tensor(<F>))", "<T>.index_copy(0, torch.tensor([1]), <T>[:1])", "<T>.masked_scatter(<T> > 0, <T>)", "<T>.where(<T> > <F>, 0.0)", "torch.where(<T> > <F>, <F>, <T>)", "<T>.index_reduce(0, torch.tensor([0]), <T>[:1], 'prod')", "<T>[torch.arange(2), torch.tensor([<N> % 3, 0])][:, None] + <T>", "<T>[..., [0, 1, 2]][[1, 0]]", "<T>[None, ..., 0, None].expand(2, 2, 1).sum(0) + <T>", "<T>[<T>.sum(-1) > <F>].sum(0) + <T>", "<T>[torch.randperm(2)]", "<T>[:, torch.argsort(<T>[0])]", "torch.where(<T> > 0)[0].sum() + <T>", "torch.argwhere(<T> > <F>).sum(0)[:1] + <T>", "torch.unique_consecutive(<T>.round()).sum() + <T>", "torch.searchsorted(<T>[0].sort().values, <T>) + <T>", "torch.bucketize(<T>, torch.tensor([0.0, 1.0])).to(<T>.dtype)", "torch.histc(<T>.detach(), 3).expand(2, 3)", "torch.multinomial(F.softmax(<T>, 1), 1) + <T>", "torch.combinations(<T>[0]).t()[:, :3]", "torch.tril_indices(2, 3)[:, :3] + <T>", "torch.stack(torch.meshgrid(torch.arange(2), torch.arange(3), indexing='ij')).sum(0) + <T>", "torch.poisson(<T>.abs())", "torch.bernoulli(torch.sigmoid(<T>))",
        "<T>.to(<T>)", "<T>.to(<T>.dtype)", "<T>.to('cpu', non_blocking=True)", "<T>.to(device='cpu', dtype=torch.float64).float()", "<T>.cpu()", "<T>.bfloat16().float()", "<T>.double().sin().to(torch.get_default_dtype())", "<T>.type('torch.FloatTensor')", "<T>.contiguous(memory_format=torch.contiguous_format)", "<T>.new_zeros(<T>.shape[:-1] + (3,))", "<T>.new_ones(<T>.size()) * <N>", "torch.zeros(*<T>.shape)", "torch.empty_like(<T>).normal_()", "torch.zeros(<T>.shape[0], <T>.size(1), dtype=<T>.dtype, device=<T>.device)", "torch.tensor(<T>.tolist(), dtype=<T>.dtype)", "torch.tensor(float('inf')).clamp(max=1) * <T>", "torch.scalar_tensor(<F>) + <T>", "torch.linspace(0, 1, 3) * <T>", "torch.logspace(0, 1, 3)[None] + <T>", "torch.full_like(<T>, <N>)", "torch.eye(2, 3) + <T>", "<T>.__class__(<T>.detach())", "torch.ones((), dtype=<T>.dtype).expand_as(<T>)",
        "torch.no_grad()(torch.sin)(<T>)", "torch.autograd.functional.jacobian(lambda a: a.sum(0), <T>).sum((0, 1)) + <T>", "torch.autograd.functional.vjp(torch.sin, <T>, <T>)[1]", "functools.partial(torch.utils.checkpoint.checkpoint, use_reentrant=False)(<C>, <W>)", "torch.jit.annotate(torch.Tensor, <T>)", "typing.cast(torch.Tensor, <T>)", "F.relu(<T>, inplace=False)", "F.dropout(<T>, p=0.5, training=<U>.training)", "types.MethodType(lambda self, a: a * 2, <A>)(<T>)", "weakref.ref(<T.var>)()", "nn.utils.rnn.pad_sequence(list(<V>.split(1)), batch_first=True)[0, :1] + <T>", "nn.utils.rnn.pad_packed_sequence(nn.utils.rnn.pack_padded_sequence(<T>[None], [<N> % 2 + 1], batch_first=True), batch_first=True, total_length=2)[0][0]", "inspect.unwrap(decorated)(<T>)",
    ],
    "N": [
        "MODEL.config.layers", "len(MODEL.cache)", "len(BLOCK.cache)", "sum(p.numel() for p in MODEL.parameters() if p.requires_grad)", "sum(1 for m in MODEL.modules() if isinstance(m, nn.Linear))", "MODEL.head.out_features", "len(MODEL(embeds=<T>).hidden)", "MODEL.embed.padding_idx", "converged(<T>, 4)[1]", "getattr(MODEL.config, 'heads', 4)", "len(list(MODEL.named_children()))", "len(MODEL.block0._modules)",
        "<T>.shape.numel()", "<T>.shape[-1] // 2", "<T>.ndim", "<T>.nelement()", "<T>.nbytes", "len(<T>.size())", "<T>.data_ptr() % 4", "<T>.untyped_storage().nbytes() * 0", "(<V>.shape[0] + 1) // 2", "max(1, <V>.shape[0] - 1)", "math.ceil(<V>.shape[0] / 2)", "int(<V>.shape[0] * 0.5)", "round(<V>.size(0) / 2)", "min(<V>.shape[0], <N>)", "2 ** (<V>.shape[0] - 1).bit_length()", "torch.numel(<T>)", "torch.Size([2, 3]).numel()", "<V>.shape.numel()",
        "len(inspect.signature(plain).parameters)", "int(hashlib.md5(<S>.encode()).hexdigest()[:2], 16)", "struct.calcsize('if')", "struct.unpack('<i', struct.pack('<i', <N>))[0]", "fractions.Fraction(<N>, 3).numerator", "statistics.median_low([<N>, 1, 2])", "len(textwrap.wrap(<S>, 2))", "len(os.environ.get('NOT_SET', <S>))", "len(pathlib.PurePath('a', <S>).parts)", "int(time.perf_counter() > 0)", "sys.version_info[0]", "int(sys.version_info >= (3, 8))", "operator.call(len, <LN>)", "sys.maxsize % 5", "plain.__code__.co_argcount", "len(weakref.WeakSet())",
    ],
    "F": ["MODEL.block0.norm1.eps", "<T>.shape[-1] ** -0.5", "1.0 / math.sqrt(<V>.shape[0])", "torch.finfo(torch.float32).min", "<T>.abs().amax().item()", "float(torch.tensor(<F>))", "0.5 * (1 + math.cos(math.pi * <N> / 10))", "statistics.fmean([<F>, 1.0])", "float(fractions.Fraction(<N>, 4))", "<T>.std().item()", "math.log(<V>.shape[0])", "float('inf')", "min(1.0, <N> / 3)", "torch.nn.init.calculate_gain('relu')"],
    "B": [
        "torch.jit.is_scripting()", "torch.jit.is_tracing()", "torch.onnx.is_in_onnx_export()", "torch.overrides.has_torch_function((<T>,))", "torch.overrides.is_tensor_like(<A>)", "torch.is_tensor(<A>)", "torch.cuda.is_available()", "torch.distributed.is_available() and torch.distributed.is_initialized()", "torch._C._get_tracing_state() is not None", "<T>.is_cuda", "<T>.device == torch.device('cpu')", "<T>.device.type == 'cpu'", "<T>.dtype in (torch.float16, torch.bfloat16)", "torch.is_autocast_enabled()", "torch.get_autocast_dtype('cpu') == torch.bfloat16", "<T>.is_contiguous(memory_format=torch.contiguous_format)", "<T>.shape[-1] % 2 == 0", "<T>.shape == (2, 3)", "<T>.size() == torch.Size([2, 3])", "tuple(<T>.shape) in {(2, 3), (3, 3)}", "<T>.ndim != 2", "<V>.ndim == 2 and <V>.shape[1] == 3", "<V>.shape[0] > <T>.shape[0]", "<V>.shape == <T>.shape", "<V>.shape[0] in (1, 2)", "0 in <V>.shape",
        "isinstance(<A>, Number)", "isinstance(<A>, collections.abc.Sequence)", "isinstance(<A>, (tuple, list, torch.Size))", "isinstance(<T>, nn.Parameter)", "isinstance(MODEL.block0.mlp, nn.Sequential)", "isinstance(<A>, float)", "hasattr(MODEL, 'block7')", "MODEL.head.weight is MODEL.embed.weight", "MODEL.block0.gamma is None", "MODEL.training", "'positions' in MODEL.block0._buffers", "any('head' in name for name, _ in MODEL.named_parameters())", "torch.isnan(<T>).any()", "(<T> == <T>).all().item()", "not torch.isfinite(<T>).all()", "<F> in <T>", "<T>.any() and <B>", "bool((<T> > <F>).any())", "<T>.max() > <F>", "torch.isclose(<T>, <T>).all().item()", "math.isclose(<F>, <F>)", "callable(getattr(<A>, 'forward', None))", "inspect.isfunction(<C>)", "inspect.isclass(<A>)", "os.path.exists('/nowhere')", "'NOT_SET' in os.environ", "all(p.grad is None for p in MODEL.parameters())", "RECURRENT.state is None",
    ],
    "S": ["repr(MODEL.block0.norm1)", "str(<T>.dtype).split('.')[-1]", "f'{tuple(<T.var>.shape)}'", "MODEL._get_name()", "'.'.join(['block', str(<N>)])", "next(iter(MODEL.state_dict()))", "str(torch.device('cpu', 0))", "torch.__version__[:1]", "str(pathlib.PurePosixPath('a') / <S>)", "hashlib.sha1(<S>.encode()).hexdigest()[:4]", "os.path.join('a', <S>)", "os.path.splitext(<S> + '.py')[1]", "textwrap.dedent('  ' + <S>)", "str(inspect.signature(plain))", "plain.__qualname__", "str(fractions.Fraction(<N>, 3))", "f'{<N.var>:03d}_{<F.var>:.1e}'", "str(<T>.size())", "'x'.join(map(str, <T>.shape))", "f'loss {<T.var>.mean().item():.4f}'", "str({name: tuple(p.shape) for name, p in BLOCK.named_parameters()})[:60]", "MODEL.__class__.__module__"],
    "LT": ["list(MODEL(embeds=<T>).hidden[:1])", "[h for h in <T>.split(1)] + [<T>]", "list(map(lambda m: m(<T>), MODEL.blocks))", "list(<T>.tensor_split(2, 1))[:0] + [<T>]", "[*torch.func.vmap(lambda a: (a, a * 2))(<T>)]", "list(F.max_pool1d(<T>[None], 3, 1, 1, return_indices=True))[:1] and [<T>]", "[t.clone() for t in <LT>]", "[a.lerp(b, 0.5) for a, b in zip(<LT>, <LT>)] + [<T>]", "list(KeyValues().update(<T>, <T>, 0))"],
    "LN": ["list(torch.Size([2, <N>]))", "[*<T>.shape, <N>]", "[p.numel() for p in MODEL.block0.parameters()]", "[m.in_features for m in MODEL.modules() if isinstance(m, nn.Linear)]", "<V>.argmax(-1).tolist()", "torch.randperm(4).tolist()", "[len(c) for c in torch.arange(5).chunk(2)]", "greedy(EXPERTS, torch.tensor(1), 2).tolist()", "[i for i, m in enumerate(MODEL.children()) if isinstance(m, Block)]", "list(struct.pack('>h', <N> % 99))"],
    "DT": ["{k: v.detach().clone() for k, v in BLOCK.state_dict().items() if k == 'gamma'} | {'a': <T>}", "Outputs(a=<T>)", "dict(Outputs(a=<T>, b=<T>))"],
    "DN": ["{name: p.numel() for name, p in BLOCK.named_parameters(recurse=False)}", "dict(vars(MODEL.config), act=<N>)", "{type(m).__name__: i for i, m in enumerate(BLOCK.modules())}"],
    "O": ["Record(<T>, len(MODEL.blocks))"],
    "C": ["attention_of(<V>)", "MODEL.block0", "functools.partial(rotated, offset=<N> % 3)", "F.gelu", "getattr(F, 'silu')", "functools.partial(F.layer_norm, normalized_shape=(3,))", "functools.partial(drop_path, drop_prob=0.5, training=<B>)", "nn.GELU(approximate='tanh')", "{'relu': F.relu, 'tanh': torch.tanh}.get(<S>, torch.sigmoid)", "nn.Sequential(collections.OrderedDict(a=nn.Tanh()))", "torch.autograd.function.once_differentiable(torch.sin)"],
    "G": ["(block(<T>) for block in MODEL.blocks)", "iter(MODEL(embeds=<T>).hidden)", "(row.expand(2, 3) for row in <V>)"],
    "U": ["MODEL.block0", "BLOCK", "EXPERTS", "CONVOLVED", "RECURRENT", "Root(3)", "nn.Sequential(<U>, nn.LayerNorm(3))", "nn.ModuleList([<U>, nn.Identity()])[<N> % 2]", "filled(nn.Linear(3, 3, bias=<B>))", "nn.Sequential(*[nn.Tanh() for _ in range(<N> % 3)])", "copy.deepcopy(BLOCK)"],
    "V": ["rotated(<V>)", "EXPERTS(<V>)", "BLOCK(<V>)", "attended(<V>, <V>, <V>, causal=<B>)", "<V>.masked_fill(<V> > <F>, 0.0)", "<V>.view(<V>.shape[0], -1)", "<V>.reshape(-1, <V>.size(-1))", "torch.cat([<V>[:, 1:], <V>[:, :1]], 1)", "<V>[torch.randperm(<V>.shape[0])]", "<V>.repeat_interleave(2, 0)", "<V>[::2]", "F.softmax(<V>, 0)", "<V>[: max(1, <V>.shape[0] // 2)]", "<V>[torch.arange(<V>.shape[0] - 1, -1, -1)]", "<V>.new_zeros(<V>.shape)", "<V> * (torch.arange(<V>.size(0)) % 2)[:, None]", "torch.stack([row * 2 for row in <V>])", "<V>[<V>.sum(-1).argsort()]", "<V>.tile(2, 1)", "<V>.roll(1, 0)", "F.interpolate(<V>.t()[None], size=<V>.shape[0] + 1)[0].t()"],
}  # fmt: skip

_SIMPLE = r"""
averaged(MODEL.block1, MODEL.block0)
averaged(BLOCK, MODEL.block1, decay=<F>)
MODEL(embeds=<T>, labels=torch.tensor([1, <N> % 5])).loss.backward()
loss = MODEL(embeds=<T>, labels=torch.tensor([<N> % 5, 2])).loss\nloss.backward()\nLOG.append(MODEL.embed.weight.grad)\nMODEL.zero_grad()
for i in range(2):\n    loss = F.mse_loss(BLOCK(<T>), <T>.detach()) / 2\n    loss.backward()\nnorm = nn.utils.clip_grad_norm_(BLOCK.parameters(), 1.0)\nLOG.append(norm.item() > <F>)\nfor p in BLOCK.parameters(): p.grad = None
optimizer = torch.optim.AdamW([{'params': [p for p in BLOCK.parameters() if p.ndim < 2], 'weight_decay': 0.0}, {'params': [p for p in BLOCK.parameters() if p.ndim >= 2]}], lr=1e-2)\nBLOCK(<T>).square().mean().backward()\noptimizer.step()\noptimizer.zero_grad()\nLOG.append(len(optimizer.param_groups))
optimizer = torch.optim.SGD(EXPERTS.parameters(), lr=0.1, nesterov=True, momentum=0.9, weight_decay=1e-4)\nscheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: 1 / (step + 1))\nEXPERTS(<T>).sum().backward()\noptimizer.step()\nscheduler.step()\nLOG.append(scheduler.get_last_lr())
scaler = torch.amp.GradScaler('cpu', enabled=<B>)\nscaler.scale(BLOCK(<T>).sum()).backward()\nLOG.append(scaler.get_scale())
with torch.no_grad(): MODEL.block0.gamma_copy = BLOCK.gamma * <F>
with torch.autocast('cpu', torch.bfloat16): <T.new> = BLOCK(<T>).float()
with torch.inference_mode(): LOG.append(MODEL(embeds=<T>).logits.argmax(-1).tolist())
MODEL.config.layers = <N> % 2 + 1
MODEL.config.act = <S>
MODEL.cache = KeyValues(<N> % 4 + 2)
MODEL.cache.limit += 1
BLOCK.cache.update(<T>, <T>, 0)
RECURRENT.state = None
CONVOLVED.down = filled(nn.Linear(3, 3)) if <B> else None
BLOCK.gamma = None if <B> else nn.Parameter(torch.ones(3) * <N>)
BLOCK.mlp[1] = nn.ReLU()
BLOCK.mlp.act = nn.Tanh()
BLOCK.mlp.append(nn.Identity())
MODEL.add_module('extra', nn.Identity())
MODEL.block0.norm2.weight.data.fill_(<F>)
MODEL.block0.norm2.weight.requires_grad_(<B>)
MODEL.embed.weight.data[0] = <F>
for name, parameter in MODEL.named_parameters():\n    if 'norm' in name: parameter.requires_grad = <B>
for module in MODEL.modules():\n    if isinstance(module, nn.Linear): module.weight.data.mul_(<F>)
for module in BLOCK.modules(): module.tag = type(module).__name__
BLOCK.apply(lambda m: LOG.append(type(m).__name__))
BLOCK.load_state_dict({k: v * 0.5 for k, v in BLOCK.state_dict().items()}, strict=<B>)
LOG.append(str(BLOCK.load_state_dict({'gamma': torch.ones(3)}, strict=False))[:40])
MODEL.eval() if <B> else MODEL.train()
b, c = <T>.shape\n<T.new> = <T>.view(b * c).reshape(b, c)
m, _ = <V>.shape\n<T.new> = <V>.new_ones(m, 3).cumsum(0)[:1] + <T>
*batch, width = <T>.shape\n<T.new> = torch.zeros(*batch, width)
(_, columns), rows = <V>.shape, <V>.size(0)\nLOG.append((rows, columns))
<T.new>, index = <T>.max(dim=-1, keepdim=True)\n$T = $T + <T>\nLOG.append(index)
<T.new>, _ = torch.sort(<T>, dim=-1, descending=<B>)
out = torch.zeros(4, 3)\nout[:2] = <T>\nout[2:, 0] += <F>\n<T.new> = out[1:3]
out = <T>.new_zeros(<V>.shape[0] + 2, 3)\nout[2:] = <V>\n<T.new> = out[:2] + <T>
out = []\nfor row in <V>:\n    out.append(row * len(out))\n<T.new> = torch.stack(out).sum(0) + <T>
state = torch.zeros(3)\nfor row in <T>:\n    state = 0.9 * state + row\n<T.new> = state + <T>
hidden = {}\nhandle = BLOCK.norm1.register_forward_hook(lambda m, a, o: hidden.update(out=o.detach()))\n<T.new> = BLOCK(<T>)\nhandle.remove()\nLOG.append(hidden['out'])
handles = [m.register_forward_pre_hook(lambda m, a: LOG.append(type(m).__name__)) for m in BLOCK.children()]\n<T.new> = BLOCK(<T>)\nfor handle in handles: handle.remove()
<W.new> = <W>\n$W.retain_grad()\n(BLOCK($W) * 2).sum().backward()\nLOG.append($W.grad)
<W.new> = <W>\n<T.new> = MODEL(embeds=$W).logits[:, :3]\n(grad,) = torch.autograd.grad($T.sum(), $W, retain_graph=True)\nLOG.append(grad)
<W.new> = <W>\nhidden = $W * 2\nhidden.retain_grad()\nhidden.square().sum().backward()\nLOG.append(hidden.grad)
<W.new> = <W>\nloss = ($W - <T>).pow(2).mean()\npenalty = torch.autograd.grad(loss, $W, create_graph=True)[0].norm()\n(loss + 0.1 * penalty).backward()\nLOG.append($W.grad)
<W.new> = <W>\nfor _ in range(3):\n    loss = ($W * <T>).sum()\n    loss.backward()\n    with torch.no_grad():\n        $W -= 0.1 * $W.grad\n        $W.grad.zero_()\nLOG.append($W.detach())
<W.new> = <W>\noptimizer = torch.optim.LBFGS([$W], max_iter=2)\ndef closure():\n    optimizer.zero_grad()\n    loss = $W.square().sum()\n    loss.backward()\n    return loss\noptimizer.step(closure)\nLOG.append($W.detach())
noise = torch.randn_like(<T>)\n<T.new> = <T> + <F> * noise\nif <B>: $T = $T.clamp_(0, 1)
keep = torch.rand(<V>.shape[0]) > 0.5\n<T.new> = <V>[keep].sum(0) + <T>
lam = random.betavariate(1, 1)\n<T.new> = lam * <T> + (1 - lam) * <T>.flip(0)
mask = torch.arange(3)[None] < torch.tensor([[1], [<N> % 4]])\n<T.new> = (<T> * mask).sum(1, keepdim=True) / mask.sum(1, keepdim=True).clamp(min=1) + <T>
queue = <T>.clone()\nqueue[: 1] = <T>[-1:]\n<T.new> = torch.roll(queue, 1, dims=0)
nn.init.normal_(<T.own>, std=0.02)
nn.init.xavier_uniform_(BLOCK.qkv.weight)
nn.init.kaiming_uniform_(EXPERTS.gate.weight, a=math.sqrt(5))
nn.init.trunc_normal_(BLOCK.qkv.weight, std=<F> * <F> + 0.1)
torch.nn.utils.clip_grad_value_(MODEL.parameters(), <F>)
<T.own> = <T.own>.view(2, 3).contiguous().to(<T>.device)
<T.own>.sub_(<T.own>.mean(dim=0, keepdim=True)).div_(<F>)
<T.own>[:, 1:].copy_(<T>[:, :-1])
<T.own>[torch.arange(2), torch.tensor([0, <N> % 3])] = <F>
<T.own>[<T> > <F>] = <T>[<T> > 0].mean()
<T.own>.masked_fill_(torch.isnan(<T.own>), 0.0)
<T.own>.scatter_(1, torch.tensor([[<N> % 3], [0]]), <F>)
<T.own>.index_add_(0, torch.tensor([1, 1]), <T>, alpha=2)
<T.own>.index_copy_(0, torch.tensor([<N> % 2]), <T>[:1])
<T.own>.lerp_(<T>, 0.1)
<T.own>.addcmul_(<T>, <T>, value=<F>)
<T.own>.clamp_min_(<F>).sqrt_() if <B> else None
<T.own>.swapaxes(0, 1)[0] += 1
<T.own>.normal_(0, 1)
<T.own>.uniform_(-1, 1)
<T.own>.flatten()[::2] *= <N>
<T.own>.set_(<T>.clone())
<DT.own>.update({k: v.detach() for k, v in <DT>.items()})
<LT.own>[:] = [t * <F> for t in <LT.own>]
<N.new> = int(<V>.shape[0] * 1.5)\n<T.new> = torch.zeros($N, 3).sum() + <T>
started = time.time()\n<T.new> = <T> * 2\nLOG.append(time.time() >= started)
torch.manual_seed(<N>)\n<T.new> = torch.rand(2, 3)\nstate = torch.get_rng_state()\nLOG.append(torch.rand(1))\ntorch.set_rng_state(state)
torch.nn.functional.dropout(<T.own>, 0.5, True, inplace=True)
LOG.append({k: tuple(v.shape) for k, v in BLOCK.state_dict().items()})
LOG.append([(n, p.requires_grad) for n, p in EXPERTS.named_parameters()])
LOG.append(Output(<N>, <N>))
print(f'epoch {<N.var>}: loss={<T.var>.mean().item():.3f}')
print(repr(BLOCK.norm1), tuple(<T>.shape))
assert <T>.shape[-1] == 3, f'width {<T.var>.shape[-1]}'
assert <V>.dim() == 2 and <V>.size(1) == 3
torch._assert(<V>.shape[1] == 3, 'three columns')
if not isinstance(<A>, (int, float)): LOG.append(type(<A>).__name__)
if torch.jit.is_scripting(): raise AssertionError
""".strip().split("\n")

_COMPOUND: list[tuple[str, float]] = [
    ("for block in MODEL.blocks:\n    <T.new> = block(<T>)\n    <BODY>", 1),
    ("for i, (name, child) in enumerate(BLOCK.named_children()):\n    LOG.append((i, name, type(child).__name__))\n    <BODY>", 1),
    ("for step in range(2):\n    with torch.set_grad_enabled(step == 0):\n        <T.new> = BLOCK(<T>)\n        <BODY>\n    LOG.append($T.requires_grad)", 1),
    ("for epoch in range(2):\n    MODEL.train(epoch == 0)\n    <T.new> = MODEL(embeds=<T>).logits[:, :3]\n    <BODY>", 1),
    ("for start in range(0, <V>.shape[0], 2):\n    batch = <V>[start : start + 2]\n    LOG.append(batch.shape[0])\n    <BODY>", 1),
    ("for a, b in zip(<V>.split(1), <V>.split(1)):\n    <T.new> = a * b + <T>\n    <BODY>", 1),
    ("while <T>.norm() > <F>:\n    <BODY>\n    break", 1),
    ("if <T>.requires_grad and torch.is_grad_enabled():\n    <BODY>\nelse:\n    <BODY>", 1),
    ("if <V>.shape[0] == 1:\n    <BODY>\nelif <V>.shape[0] % 2:\n    <BODY>", 1),
    ("if torch.isnan(<T>).any():\n    raise FloatingPointError('nan')\n<BODY>", 0.7),
    ("if any(isinstance(m, nn.Dropout) for m in <U>.modules()):\n    <BODY>", 0.7),
    ("try:\n    <T.new> = MODEL()\nexcept ValueError as error:\n    LOG.append(str(error))\n    <BODY>", 0.7),
    ("try:\n    <T.new> = MODEL.missing\nexcept AttributeError as error:\n    LOG.append(str(error))\n    <BODY>", 0.7),
    ("try:\n    <T.new> = nn.Linear(4, 2)(<T>)\nexcept RuntimeError as error:\n    LOG.append(str(error))\n    <BODY>", 0.7),
    ("try:\n    <T.new> = torch.cat([<T>, <V>], 1)\nexcept RuntimeError as error:\n    LOG.append(type(error).__name__)\n    <BODY>", 0.7),
    ("class Layer(nn.Module):\n    def __init__(self, inner):\n        super().__init__()\n        self.inner = inner\n        self.register_buffer('calls', torch.zeros(()))\n    def forward(self, a):\n        self.calls += 1\n        <FUNCTION T a:T>\nlayer = Layer(<U>)\n<T.new> = layer.inner(layer(<T>))\nLOG.append(layer.calls)", 0.7),
    ("class Layer(nn.Linear):\n    def forward(self, a):\n        a = super().forward(a)\n        <FUNCTION T a:T>\n<U.new> = filled(Layer(3, 3))\n<T.new> = $U(<T>)", 0.7),
    ("class Op(torch.autograd.Function):\n    @staticmethod\n    def forward(ctx, a):\n        ctx.save_for_backward(a)\n        ctx.shape = a.shape\n        return a.clamp(min=0)\n    @staticmethod\n    def backward(ctx, grad):\n        (a,) = ctx.saved_tensors\n        return grad * (a > 0)\n<W.new> = <W>\nOp.apply($W).sum().backward()\nLOG.append($W.grad)\n<BODY>", 0.7),
    ("@torch.jit.unused\ndef <C.new>(a: Tensor, scale: Optional[float] = None) -> Tensor:\n    scale = scale or <F>\n    <FUNCTION T a:T>\n<T.new> = $C(<T>)", 0.7),
    ("@functools.wraps(torch.sin)\ndef <C.new>(a, *args, **kwargs):\n    <FUNCTION T a:T>\n<T.new> = $C(<T>, inplace=False)", 0.7),
    ("def <C.new>(a):\n    <FUNCTION T a:T>\n<T.new> = torch.utils.checkpoint.checkpoint($C, <W>, use_reentrant=False, preserve_rng_state=<B>)", 0.7),
    ("def <C.new>(a):\n    <FUNCTION T a:T>\nhandle = BLOCK.register_forward_hook(lambda m, i, o: $C(o))\n<T.new> = BLOCK(<T>)\nhandle.remove()", 0.5),
    ("with torch.no_grad():\n    MODEL.eval()\n    <T.new> = MODEL(embeds=<T>, use_cache=True).logits[:, :3]\n    <BODY>\nMODEL.train()", 0.7),
    ("with torch.autocast(device_type='cpu', dtype=torch.bfloat16, enabled=<B>):\n    <T.new> = MODEL(embeds=<T>).logits[:, :3].float()\n    <BODY>", 0.7),
]  # fmt: skip

MODEL_STATEMENTS: list[Statement] = [
    *(Statement(text.replace(r"\n", "\n"), 0.6) for text in _SIMPLE),
    *(Statement(text, weight) for text, weight in _COMPOUND),
]
