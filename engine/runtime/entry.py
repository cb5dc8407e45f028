"""The prologue of a compiled graph: the conditions of a call that neither guards nor kernels check.

Functionalization assumes that inputs do not alias each other, and compiled code records no gradients; guards on the
user's values check neither.
"""
from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch.fx._lazy_graph_module import _LazyGraphModule

from ...artifacts.context import CHANGED_INPUTS
from ..graphs.functional_graph import AtenGraph, Captured, FromGraph
from ..unsupported import EngineUnsupported
from .complex_constants import with_exact_constants

Compiled = Callable[..., Sequence[Any]]


@dataclass(frozen=True)
class EntryFacts:
    """What the entry of an inference graph knows of it: which results of the captured graph the compiled one makes, and
    which inputs it writes, and of these which autograd does not count."""

    made: tuple[int, ...]
    written: tuple[int, ...]
    uncounted: tuple[int, ...] = ()

    @classmethod
    def of(cls, aten: AtenGraph) -> EntryFacts:
        """Those of a functional graph."""
        made = tuple(k for k, output in enumerate(aten.outputs) if isinstance(output, FromGraph))
        return cls(made, tuple(sorted(set(aten.mutations.values()))), aten.uncounted)


def entry(call: Compiled, facts: EntryFacts, captured: Captured) -> Compiled:
    """`call`, with what a graph like this needs before it; most need nothing."""
    if captured.grad_enabled and any(isinstance(v, torch.Tensor) and v.requires_grad for v in captured.inputs):
        call = torch.no_grad()(call)
    call = _with_inference_mode(call, facts.made, captured)
    call = uncounted(without_autocast(call), facts.uncounted)
    call = _counted(call, facts.made, captured)
    if facts.written:
        call = apart(call, captured.module, captured.inputs, set(facts.written))
    return call


def _with_inference_mode(call: Compiled, made: tuple[int, ...], captured: Captured) -> Compiled:
    """`call` in the inference mode where the graph turns it on for all that it returns.

    Raises EngineUnsupported where it does so for a part of it.
    """
    returned: Any = captured.module.graph.output_node().args[0]
    values = [returned[k].meta.get("val") for k in made]
    kinds = {value.is_inference() for value in values if isinstance(value, torch.Tensor)}
    if not kinds - {torch.is_inference_mode_enabled()}:
        return call
    if len(kinds) > 1 or torch.is_inference_mode_enabled():
        raise EngineUnsupported("the inference mode changes inside the graph")
    return torch.inference_mode()(call)


def without_autocast(call: Compiled) -> Compiled:
    """`call` with autocast off where it is on now: the casts are in the graph, and its library calls want no others."""
    if not torch._C._is_any_autocast_enabled():
        return call

    def plain(*inputs: Any) -> Sequence[Any]:
        with torch._C._DisableAutocast():
            return call(*inputs)

    return plain


def eager_form(module: torch.fx.GraphModule) -> Compiled:
    """The captured graph as a plain function: a GraphModule would print its code when an operator raises."""
    _LazyGraphModule.force_recompile(module)
    exact = with_exact_constants(module)
    return module.forward if exact is module else exact.forward


def uncounted(call: Compiled, positions: tuple[int, ...]) -> Compiled:
    """`call`, where autograd's counts of writes to the inputs at `positions` stay what they were."""
    if not positions:
        return call

    def run(*inputs: Any) -> Sequence[Any]:
        tensors = tuple([inputs[i] for i in positions])
        counts = tuple([tensor._version for tensor in tensors])
        try:
            return call(*inputs)
        finally:
            torch._C._autograd._unsafe_set_version_counter(tensors, counts)

    return run


def _counted(call: Compiled, made: tuple[int, ...], captured: Captured) -> Compiled:
    """`call`, where new results that the program writes in place have autograd's count of these writes."""
    returned: Any = captured.module.graph.output_node().args[0]
    values = [(k, returned[k].meta.get("val")) for k in made if isinstance(returned[k], torch.fx.Node)]
    writes = {k: v._version for k, v in values if isinstance(v, torch.Tensor) and not v.is_inference() and v._version}
    if not writes:
        return call
    counts = tuple(writes.values())

    def run(*inputs: Any) -> Sequence[Any]:
        results = call(*inputs)
        torch._C._autograd._unsafe_set_version_counter(tuple([results[k] for k in writes]), counts)
        return results

    return run


def marking(call: Compiled) -> Compiled:
    """`call`, but what it raises after it has written to an input is marked: CHANGED_INPUTS."""

    def run(*inputs: Any) -> Sequence[Any]:
        tensors = [value for value in inputs if isinstance(value, torch.Tensor)]
        before = [tensor.clone() if tensor.is_inference() else tensor._version for tensor in tensors]
        try:
            return call(*inputs)
        except Exception as error:
            if not all(map(_is_as_before, tensors, before)):
                setattr(error, CHANGED_INPUTS, True)
            raise

    return run


def _is_as_before(tensor: torch.Tensor, before: torch.Tensor | int) -> bool:
    """`before`: how often the tensor was written; its values where that is not counted (made in inference mode)."""
    if isinstance(before, int):
        return tensor._version == before
    return tensor.layout is torch.strided and torch.equal(tensor, before)


def apart(call: Compiled, module: torch.fx.GraphModule, inputs: tuple[Any, ...], written: set[int]) -> Compiled:
    """`call`, but the captured graph itself for arguments where one that is written shares memory with another.

    Parameters and an optimizer's states stay where they are: at the addresses of the last call nothing is new, as long
    as no size varies.
    """
    tensors = [(i, i in written) for i, value in enumerate(inputs) if isinstance(value, torch.Tensor)]
    varies = any(type(size) is not int for i, _ in tensors for size in (*inputs[i].shape, *inputs[i].stride()))
    known: list[int] = []

    def checked(*inputs: Any) -> Sequence[Any]:
        nonlocal known
        addresses = [inputs[i].data_ptr() for i, _ in tensors]
        if addresses != known:
            if _written_twice(inputs, tensors):
                return eager_form(module)(*inputs)
            known = [] if varies else addresses
        return call(*inputs)

    return checked


def shares_written(inputs: Sequence[Any], written: set[int]) -> bool:
    """Whether memory of an input that is written, by position, belongs to another input too."""
    return _written_twice(inputs, [(i, i in written) for i, v in enumerate(inputs) if isinstance(v, torch.Tensor)])


def _written_twice(inputs: Sequence[Any], tensors: list[tuple[int, bool]]) -> bool:
    """Whether memory of a written input belongs to another input too, by address: NumPy arrays that overlap have
    storages of their own. `tensors` are (position, whether it is written)."""
    spans = []
    for position, is_written in tensors:
        storage = inputs[position].untyped_storage()
        start = storage.data_ptr()
        spans.append((start, start + storage.nbytes(), is_written))
    spans.sort()
    end, any_written = 0, False
    for start, stop, is_written in spans:
        if start >= end:
            any_written = is_written
        elif any_written or is_written:
            return True
        end = max(end, stop)
    return False
