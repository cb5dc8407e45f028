"""What `grammar_models.py` names: parts of models and of training loops, as people write them."""
from __future__ import annotations

MODEL_FUNCTIONS = '''
import fractions, hashlib, inspect, os, pathlib, statistics, struct, textwrap, time, weakref
import torch.nn.functional as F
from torch import nn, Tensor
from numbers import Number
from typing import Optional


def rotated(x: Tensor, offset: int = 0) -> Tensor:
    rows, width = x.shape
    inverse = 1.0 / (10000 ** (torch.arange(0, width, 2, device=x.device).float() / width))
    angles = torch.outer(torch.arange(offset, offset + rows, device=x.device).type_as(inverse), inverse)
    cos, sin = (torch.cat((f(angles), f(angles)), dim=-1)[:, :width] for f in (torch.cos, torch.sin))
    half = width // 2
    return x * cos + torch.cat((-x[..., half:], x[..., :half]), dim=-1) * sin


def attended(q, k, v, causal=False, mask: Optional[Tensor] = None, p=0.0):
    weights = torch.matmul(q, k.transpose(-2, -1)) / math.sqrt(k.size(-1))
    if causal:
        rows, columns = weights.shape[-2:]
        weights = weights.masked_fill(torch.ones(rows, columns, dtype=torch.bool).triu(1), float("-inf"))
    if mask is not None:
        weights = weights + (1.0 - mask) * torch.finfo(weights.dtype).min
    weights = F.dropout(F.softmax(weights, dim=-1, dtype=torch.float32).to(q.dtype), p=p)
    return weights @ v


def attends_to(q, k, masked=False):  # with fewer keys than values, eager reads outside of their memory
    if masked:
        return F.scaled_dot_product_attention(q[None], k[None], 2 * k[None], attn_mask=torch.zeros(len(q), len(k)))[0]
    return F.scaled_dot_product_attention(q[None, None], k[None, None], 2 * k[None, None])[0, 0]


def attention_of(context):
    return lambda a: attended(a, context, context)


def drop_path(x, drop_prob: float = 0.0, training: bool = False):
    if drop_prob == 0.0 or not training:
        return x
    keep = 1 - drop_prob
    kept = x.new_empty((x.shape[0],) + (1,) * (x.ndim - 1)).bernoulli_(keep)
    if keep > 0.0:
        kept.div_(keep)
    return x * kept


def greedy(model, start, steps):
    tokens = [start]
    for _ in range(steps):
        logits = model(torch.stack(tokens).float().view(-1, 1).expand(-1, 3))
        tokens.append(logits[-1].argmax())
        if tokens[-1] == 2:
            break
    return torch.stack(tokens)


@torch.no_grad()
def averaged(target, source, decay=0.9):
    for p, q in zip(target.parameters(), source.parameters()):
        p.mul_(decay).add_(q.detach(), alpha=1 - decay)
    for a, b in zip(target.buffers(), source.buffers()):
        a.copy_(b)


def converged(x, most):
    steps = 0
    while x.abs().max().item() > 0.5 and steps < most:
        x, steps = x / 2, steps + 1
    return x, steps
'''

MODELS = '''

@dataclasses.dataclass
class Output:
    logits: Tensor
    loss: Optional[Tensor] = None
    hidden: tuple = ()

    def __getitem__(self, n):
        return [v for v in (self.logits, self.loss) if v is not None][n]


class Outputs(collections.OrderedDict):
    def __getattr__(self, name):
        try:
            return self[name]
        except KeyError:
            raise AttributeError(name)


class KeyValues:
    def __init__(self, limit=4):
        self.keys, self.values, self.limit = [], [], limit

    def update(self, key, value, layer):
        if len(self.keys) <= layer:
            self.keys.append(key)
            self.values.append(value)
        else:
            self.keys[layer] = torch.cat([self.keys[layer], key], dim=-2)[-self.limit:]
            self.values[layer] = torch.cat([self.values[layer], value], dim=-2)[-self.limit:]
        return self.keys[layer], self.values[layer]

    def __len__(self):
        return self.keys[0].shape[-2] if self.keys else 0


class Root(nn.Module):
    """A norm with a weight, as large models have it."""

    def __init__(self, width, eps=1e-6):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))
        self.eps = eps

    def _norm(self, x):
        return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + self.eps)

    def forward(self, x):
        return self._norm(x.float()).type_as(x) * self.weight

    def extra_repr(self):
        return f"{tuple(self.weight.shape)}, eps={self.eps}"


class Block(nn.Module):
    def __init__(self, width=3, cache=None, **more):
        super().__init__()
        self.norm1, self.norm2 = Root(width), nn.LayerNorm(width)
        self.qkv = nn.Linear(width, 3 * width, bias=False)
        parts = dict(up=nn.Linear(width, 4), act=nn.GELU(), down=nn.Linear(4, width))
        self.mlp = nn.Sequential(collections.OrderedDict(parts))
        self.gamma = nn.Parameter(torch.full((width,), 0.5)) if more.get("scaled", True) else None
        self.cache, self.layer = cache, more.get("layer", 0)
        self.register_buffer("positions", torch.arange(8).unsqueeze(1), persistent=False)

    def forward(self, x, mask: Optional[Tensor] = None, use_cache: bool = False, **kwargs):
        q, k, v = self.qkv(self.norm1(x)).chunk(3, dim=-1)
        if use_cache and self.cache is not None:
            k, v = self.cache.update(k, v, self.layer)
        y = attended(rotated(q), rotated(k), v, mask=mask, causal=kwargs.pop("causal", False))
        x = x + (y if self.gamma is None else self.gamma * y)
        return x + drop_path(self.mlp(self.norm2(x)), 0.1, self.training)


class Experts(nn.Module):
    def __init__(self, count=2, width=3):
        super().__init__()
        self.gate = nn.Linear(width, count, bias=False)
        self.experts = nn.ModuleList(nn.Linear(width, width) for _ in range(count))

    def forward(self, x):
        weights, chosen = torch.topk(F.softmax(self.gate(x), dim=-1), 1, dim=-1)
        out = torch.zeros_like(x)
        for i, expert in enumerate(self.experts):
            rows, slot = torch.where(chosen == i)
            if rows.numel() == 0:
                continue
            out.index_add_(0, rows, weights[rows, slot, None] * expert(x[rows]))
        return out


class Model(nn.Module):
    config = types.SimpleNamespace(layers=2, width=3, act="gelu")

    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(5, 3, padding_idx=0)
        self.cache = KeyValues()
        for i in range(self.config.layers):
            setattr(self, f"block{i}", Block(cache=self.cache, layer=i, scaled=bool(i)))
        self.head = nn.Linear(3, 5, bias=False)
        self.head.weight = self.embed.weight
        self.apply(self._start)

    @staticmethod
    def _start(module):
        if isinstance(module, (nn.Linear, nn.Embedding)):
            with torch.no_grad():
                module.weight.copy_(torch.linspace(-1, 1, module.weight.numel()).view_as(module.weight))
            if getattr(module, "bias", None) is not None:
                nn.init.zeros_(module.bias)

    @property
    def blocks(self):
        return [getattr(self, f"block{i}") for i in range(self.config.layers)]

    def forward(self, tokens=None, embeds=None, labels=None, return_dict=True, **kwargs):
        if (tokens is None) ^ (embeds is not None):
            raise ValueError("tokens or embeds")
        x = self.embed(tokens) if embeds is None else embeds
        hidden = ()
        for block in self.blocks:
            hidden += (x,)
            x = block(x, **kwargs)
        logits = self.head(x)
        loss = None
        if labels is not None:
            loss = F.cross_entropy(logits.view(-1, logits.size(-1)), labels.view(-1), ignore_index=-100)
        if not return_dict:
            return (logits,) if loss is None else (loss, logits)
        return Output(logits, loss, hidden)


class Convolved(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv1d(1, 2, 3, padding="same")
        self.norm = nn.GroupNorm(1, 2)
        self.pool = nn.AdaptiveAvgPool1d(3)
        self.down: Optional[nn.Module] = None

    def forward(self, x):
        identity = x
        out = self.pool(F.silu(self.norm(self.conv(x.unsqueeze(1)))))
        if self.down is not None:
            identity = self.down(x)
        return out.flatten(1)[:, :3] + identity


class Recurrent(nn.Module):
    def __init__(self):
        super().__init__()
        self.cell = nn.LSTMCell(3, 3)
        self.state = None

    def forward(self, x):
        h, c = self.state if self.state is not None else (x.new_zeros(1, 3), x.new_zeros(1, 3))
        out = []
        for row in x.split(1):
            h, c = self.cell(row, (h, c))
            out.append(h)
        self.state = h.detach(), c.detach()
        return torch.cat(out)


MODEL = Model()
BLOCK = filled(Block(cache=KeyValues()))
EXPERTS = filled(Experts())
CONVOLVED = filled(Convolved())
RECURRENT = filled(Recurrent())
'''
