"""Attention on the CPU: ATen's kernel, or ptdebug's (`../../kernels/attention.py`), whichever is faster for these
sizes."""
from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, cast

import torch
import torch.fx

from ....artifacts.context import CompileContext
from ....artifacts.records import RuleMatch
from ...graphs.functional_graph import AtenGraph
from ...kernels import attention
from ...lowering.pointwise import keeps_rounding
from ...toolchain.benchmarking import TOO_BUSY, Call, costs, timed_options, verdict

LIBRARY, OWN = "aten", "ptdebug"
WORTH = 0.9  # of the library's time, below which ptdebug's kernel is chosen
Layout = tuple[tuple[int, ...], tuple[int, ...]]
"""Sizes and strides of a tensor."""

DTYPES = (torch.float32, torch.bfloat16, torch.float16)
LARGEST_HEAD = 256  # elements: packed blocks of more would not stay in L2
ENOUGH = 1 << 28  # multiplications: of more, a part of the batch is measured


@dataclass(frozen=True)
class Attention:
    """The node of an attention: the layouts of query, key, value and mask, with dynamic numbers as first seen, and
    their dtype."""

    node: torch.fx.Node
    layouts: tuple[Layout, ...]
    dtype: torch.dtype
    causal: bool
    scale: float | None

    def describe(self) -> str:
        """All that the time depends on, besides the machine."""
        return f"attention {self.layouts} {self.dtype} {self.causal}"

    def calls(self) -> dict[str, Call]:
        """Each way, on made-up data."""
        query, key, value, *mask = [_made_up(*layout, self.dtype) for layout in self.layouts]
        keywords = {"attn_mask": mask[0] if mask else None, "scale": self.scale}
        ways: dict[str, Callable[..., object]] = {LIBRARY: attention.ATEN, OWN: attention.attention}
        return {name: partial(way, query, key, value, 0.0, self.causal, **keywords) for name, way in ways.items()}


def choose_attention(graph: AtenGraph, context: CompileContext) -> list[RuleMatch]:
    """Choose the kernel of each attention, decisions of kind "sdpa"."""
    matches = []
    for node in list(graph.module.graph.nodes):
        found = _recognize(node)
        if found is None or not attention.KERNEL.available:
            continue
        known = costs(found.describe(), found.calls)
        default = OWN if known and known[OWN] < WORTH * known[LIBRARY] else LIBRARY
        (queries, size), keys = found.layouts[0][0][2:], found.layouts[1][0][2]
        where = f"for {queries} queries of {size} and {keys} keys"
        why = verdict(known, default, where, "ptdebug's kernel has to save 10 %") if known else TOO_BUSY
        if keeps_rounding(context, node, found.dtype):
            default, why = LIBRARY, "it rounds the attention weights, as eager does"
        options = timed_options(known, (LIBRARY, OWN))
        origins = (f"forward#{node.name}",)
        if context.decide("sdpa", node.name, options, default, why, origins=origins) == OWN:
            node.target = attention.OPERATOR
            matches.append(RuleMatch("attention", (node.name,), (node.name,), why))
    return matches


def _recognize(node: torch.fx.Node) -> Attention | None:
    """An attention that both kernels compute: no dropout, nothing empty, and what is causal is not turned over."""
    if node.target is not attention.ATEN:
        return None
    names = ("query", "key", "value", "dropout_p", "is_causal")
    given: dict[str, Any] = {**dict(zip(names, node.args)), **node.kwargs}
    scale, mask, causal = given.get("scale"), given.get("attn_mask"), given.get("is_causal", False)
    tensors = [cast(torch.fx.Node, n).meta["val"] for n in (*[given[n] for n in names[:3]], mask) if n is not None]
    if given.get("dropout_p", 0.0) != 0.0 or not isinstance(causal, bool) or not _is_positive(scale):
        return None
    dtype = tensors[0].dtype
    if dtype not in DTYPES or any(t.dtype not in (dtype, torch.float32) for t in tensors[3:]):
        return None
    if any(t.dtype != dtype for t in tensors[:3]):
        return None
    if any(t.device.type != "cpu" or t.layout is not torch.strided for t in tensors):
        return None
    if any(t.dim() != 4 for t in tensors[:3]) or (mask is not None and tensors[3].dim() not in (2, 4)):
        return None
    layouts = [(_numbers(t.shape), _numbers(t.stride())) for t in tensors]
    if any(numbers is None for layout in layouts for numbers in layout):
        return None
    known = cast(list[Layout], layouts)
    if not _fit(*[size for size, _ in known]) or any(stride[3] != 1 for _, stride in known[:3]):
        return None
    return Attention(node, _part(known), dtype, causal, scale)


def _is_positive(scale: Any) -> bool:
    return scale is None or (isinstance(scale, (int, float)) and 0.0 < scale < float("inf"))


def _numbers(sizes: Any) -> tuple[int, ...] | None:
    """Sizes or strides, those that vary as first seen; None where one is data-dependent."""
    numbers = [size.node.hint if isinstance(size, torch.SymInt) else size for size in sizes]
    return None if any(n is None for n in numbers) else tuple(map(int, numbers))


def _fit(query: tuple[int, ...], key: tuple[int, ...], value: tuple[int, ...], mask: tuple[int, ...] = ()) -> bool:
    """Whether ATen's kernel, which checks little, stays within memory, and there is something to compute."""
    scores = (*query[:3], key[2])
    same = key == value and key[:2] == query[:2] and key[3] == query[3]
    spread = all(n in (1, whole) for n, whole in zip(reversed(mask), reversed(scores)))
    return same and spread and 0 not in (*query, *key) and query[3] <= LARGEST_HEAD


def _part(layouts: list[Layout]) -> tuple[Layout, ...]:
    """The same with the part of the batch that is measured."""
    (batch, heads, queries, size), keys = layouts[0][0], layouts[1][0][2]
    most = max(1, min(batch, ENOUGH // (heads * queries * keys * size)))
    cut = lambda shape: (min(shape[0], most), *shape[1:]) if len(shape) == 4 else shape
    return tuple([(cut(shape), stride) for shape, stride in layouts])


def _made_up(shape: tuple[int, ...], stride: tuple[int, ...], dtype: torch.dtype) -> torch.Tensor:
    span = 1 + sum((n - 1) * step for n, step in zip(shape, stride))
    return torch.full((span,), 0.5, dtype=dtype).as_strided(shape, stride)
