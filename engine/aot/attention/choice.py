"""Attention while a graph is traced: what its mask hides, and which kernel computes it.

In eager, `scaled_dot_product_attention` chooses among fused kernels and two matrix products around a softmax. It falls
back on the products for masks whose layout no kernel takes, and so it would here, where a library makes other masks
than in eager. So the mask is simplified (decision `sdpa-mask`), laid out as kernels want it, and one of the kernels
that take it is called (decision `sdpa`), before autograd and the decompositions see the attention.
"""
from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Protocol

import torch
import torch.fx

from ....artifacts.context import CompileContext
from ....artifacts.records import Option
from ...toolchain.benchmarking import timed_options, verdict
from .constant_masks import hidden
from .kernels import MATH, Attention, are_aligned, computed, in_other_forms, prepared, takers
from .measuring import measured
from .position_masks import ABOVE_DIAGONAL, NOTHING
from .target_kernels import takers_there
from .written_out import WrittenOut

ATEN = torch.nn.functional.scaled_dot_product_attention
FUNCTIONS = frozenset((
    ATEN, torch.ops.aten.scaled_dot_product_attention, torch.ops.aten.scaled_dot_product_attention.default,
))
"""What `attend` is traced in the place of."""

WORTH = 0.9  # of the time of torch's first, below which another kernel is chosen
SKIPPING = {"cuda"}  # kinds of devices where a causal kernel is the faster one: a CPU's skips what a mask hides as well
GIVEN, DROPPED, CAUSAL = "as-given", "dropped", "causal"


class Tracer(Protocol):
    """What records the graph."""

    context: CompileContext
    constants: torch.nn.Module

    def source(self) -> torch.fx.Node | None: ...

    def node_of(self, value: torch.Tensor) -> torch.fx.Node | None: ...


def attend(
    tracer: Tracer, query: Any, key: Any, value: Any, attn_mask: Any = None, dropout_p: Any = 0.0,
    is_causal: Any = False, scale: Any = None, enable_gqa: Any = False,
) -> torch.Tensor:
    """`torch.nn.functional.scaled_dot_product_attention` of tensors that are traced."""
    call = Attention(query, key, value, attn_mask, dropout_p, is_causal, scale, enable_gqa)
    if not _is_usual(call):
        return _by_torch(call)
    if call.query.device.type != "cuda":
        return _by_torch(_with_simple_mask(tracer, call))
    call = _cast(call)
    eager = next(iter(_takers(tracer, call)), "")
    simple = _with_simple_mask(tracer, call)
    ready = prepared(simple, eager)
    known = _takers(tracer, ready)
    others = bool(call.dropout) and known[:1] != [eager]  # another kernel draws other random numbers
    if not eager or not known or others:  # torch says what is wrong
        return _by_torch(call)
    if eager == MATH and not are_aligned(call):
        known = [MATH]
    if call.dropout:  # the random numbers are those of torch's choice
        torchs = _takers(tracer, simple)[0]
        if torchs not in known:
            return _by_torch(simple)
        known = [torchs]
    for form in in_other_forms(ready) if known[0] == MATH and not call.dropout else ():
        if _takers(tracer, form)[0] != MATH and are_aligned(form):
            ready, known = form, _takers(tracer, form)
            break
    result = computed(ready, _choose(tracer, ready, known, eager))
    if ready.value.shape[-1] != call.value.shape[-1]:
        result = result.narrow(3, 0, call.value.shape[-1])
    return _laid_out(result, eager, tracer.source())


def attend_as_one(tracer: Tracer, found: WrittenOut, values: Mapping[torch.fx.Node, Any]) -> torch.Tensor | None:
    """The result of an attention that the program has written out, by a kernel; None where its own operators compute
    it: where they round as in eager, or its mask may hide a whole row."""
    query, key, value = values[found.query], values[found.right].transpose(-2, -1), values[found.value]
    rounding = "intermediate-precision"
    asked = tracer.context.override(rounding, _subject(tracer)), tracer.context.preferred.get(rounding, ("",))[0]
    if "eager" in asked or torch.is_inference_mode_enabled() or torch.is_autocast_enabled("cuda"):
        return None
    flat = query.dim() == 3
    if flat:
        query, key, value = [t.unsqueeze(0) for t in (query, key, value)]
    call = Attention(query, key, value, None, 0.0, False, found.scale, False)
    if not _is_usual(call):
        return None
    if found.hides is not None or found.added is not None:
        known = _hidden(tracer, found, values, call)
        if known is None:
            return None
        call = replace(call, causal=known == ABOVE_DIAGONAL)
    ready = prepared(call, MATH)
    fused = [kernel for kernel in _takers(tracer, ready) if kernel != MATH]
    if not fused or MATH not in _takers(tracer, ready) or not are_aligned(ready):
        return None
    kernel = _choose(tracer, ready, [*fused, MATH], MATH)
    if kernel == MATH:
        return None
    result = computed(ready, kernel)
    return _laid_out(result.squeeze(0) if flat else result, MATH, tracer.source())


def _hidden(
    tracer: Tracer, found: WrittenOut, values: Mapping[torch.fx.Node, Any], call: Attention
) -> str | None:
    """What the mask of an attention that is written out hides, if that is known."""
    if found.hides is not None:
        mask = values[found.hides].logical_not()
    else:
        assert found.added is not None
        mask = values[found.added]
        if not isinstance(mask, torch.Tensor) or not mask.is_floating_point() or mask.requires_grad:
            return None  # a mask that is true adds 1, and hides nothing
    node = tracer.node_of(mask) if torch._is_functional_tensor(mask) else None
    return None if node is None else hidden(node, tracer.constants, call.query.shape[2], call.key.shape[2])


def _takers(tracer: Tracer, call: Attention) -> list[str]:
    """What can compute a call where the graph will run, in torch's order."""
    elsewhere = tracer.context.compiled_for
    return takers_there(call, elsewhere) if elsewhere else takers(call)


def _choose(tracer: Tracer, call: Attention, known: list[str], eager: str) -> str:
    """One of the kernels `known` to take a prepared call: torch's first, unless another is measured to be faster."""
    default, why = known[0], "the first in torch's order that takes this attention"
    if tracer.context.compiled_for:
        why = f"estimated, as the GPU is not here: {why}"
    fused = [kernel for kernel in known if kernel != MATH] if are_aligned(call) else []
    measures = default != MATH and not call.hidden_low and not tracer.context.compiled_for
    times = measured(call, fused) if measures else {}
    if times:
        fastest = min(times, key=times.__getitem__)
        default = fastest if times[fastest] < WORTH * times[default] else default
        why = verdict(times, default, "for these sizes", "it is the first in torch's order")
    if eager != default:
        why = f"{why}; eager computes this by {eager}"
    options: list[str | Option] = [*timed_options(times, ()), *(kernel for kernel in known if kernel not in times)]
    return tracer.context.decide("sdpa", _subject(tracer), options, default, why, origins=_origins(tracer))


def _laid_out(result: torch.Tensor, eager: str, source: torch.fx.Node | None) -> torch.Tensor:
    """A result in the layout that the program has seen, which kernels do not agree on: those of products is dense, a
    fused kernel's is the query's. A copy of it that undoes this is removed (`../../passes/no_ops.py`)."""
    known = _seen(source)
    strides = known.stride() if isinstance(known, torch.Tensor) else ()
    if not strides or not all(type(n) is int for n in (*strides, *result.shape)):
        if eager != MATH or result.is_contiguous():
            return result
        return result.clone(memory_format=torch.contiguous_format)
    if all(n == 1 or a == b for n, a, b in zip(result.shape, result.stride(), strides)):
        return result
    order = sorted(range(len(strides)), key=lambda dim: -strides[dim])
    back = sorted(range(len(strides)), key=order.__getitem__)
    if order == list(range(len(order))):
        return result.clone(memory_format=torch.contiguous_format)
    return result.permute(order).clone(memory_format=torch.contiguous_format).permute(back)


def _seen(source: torch.fx.Node | None) -> Any:
    """The result of a node of the captured graph, as the program has it."""
    return source.meta.get("val") if source is not None else None


def _by_torch(call: Attention) -> torch.Tensor:
    """As torch itself chooses."""
    result: torch.Tensor = ATEN(
        call.query, call.key, call.value, call.mask, call.dropout, call.causal, scale=call.scale,
        enable_gqa=call.grouped)
    return result


def _is_usual(call: Attention) -> bool:
    """Whether the arguments are those of fused kernels: anything else is left to torch, errors as well."""
    tensors = [t for t in (call.query, call.key, call.value, call.mask) if t is not None]
    if not all(type(t) in (torch.Tensor, torch.nn.Parameter) and torch._is_functional_tensor(t) for t in tensors):
        return False
    query = call.query
    if any(t.dim() != 4 or t.dtype != query.dtype or t.device != query.device for t in (call.key, call.value, query)):
        return False
    if not isinstance(call.dropout, (int, float)) or not 0 <= call.dropout < 1 or not isinstance(call.causal, bool):
        return False
    if call.scale is not None and not (isinstance(call.scale, (int, float)) and math.isfinite(call.scale)):
        return False
    mask = call.mask
    if mask is None:
        return True
    scores = (*query.shape[:3], call.key.shape[2])
    sizes = zip(reversed(mask.shape), reversed(scores))
    spread = mask.dim() in (2, 3, 4) and all(n == 1 or n == whole for n, whole in sizes)
    return spread and mask.dtype in (torch.bool, query.dtype) and mask.device == query.device and not call.causal


def _with_simple_mask(tracer: Tracer, call: Attention) -> Attention:
    """The same without a mask, where the mask hides nothing, or what is after the query: decision `sdpa-mask`."""
    node = None if call.mask is None or call.mask.requires_grad else tracer.node_of(call.mask)
    found = None if node is None else hidden(node, tracer.constants, call.query.shape[2], call.key.shape[2])
    if found is None or (found == ABOVE_DIAGONAL and call.query.device.type not in SKIPPING):
        return call
    simple, why = {
        NOTHING: (DROPPED, "the mask depends on no input, and hides nothing"),
        ABOVE_DIAGONAL: (CAUSAL, "the mask depends on no input, and hides the keys after the query's position"),
    }[found]
    chosen = tracer.context.decide(
        "sdpa-mask", _subject(tracer), (simple, GIVEN), simple, why, origins=_origins(tracer))
    return call if chosen == GIVEN else replace(call, mask=None, causal=simple == CAUSAL)


def _cast(call: Attention) -> Attention:
    """As autocast converts the arguments of an attention, which sees none of the kernels' operators."""
    device = call.query.device.type
    if not torch.is_autocast_enabled(device):
        return call
    dtype = torch.get_autocast_dtype(device)
    lower = lambda t: t.to(dtype) if t is not None and t.is_floating_point() and t.dtype != torch.float64 else t
    query, key, value, mask = [lower(t) for t in (call.query, call.key, call.value, call.mask)]
    return replace(call, query=query, key=key, value=value, mask=mask)


def _subject(tracer: Tracer) -> str:
    source = tracer.source()
    return source.name if source is not None else "attention"


def _origins(tracer: Tracer) -> tuple[str, ...]:
    source = tracer.source()
    return (f"capture#{source.name}",) if source is not None else ()
