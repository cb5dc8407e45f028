"""Where each result of a differentiated graph comes from: what the autograd node returns, and what is made around it.

The node returns memory of its own only. Views of inputs are made outside, from the inputs; where several results alias
one intermediate, the node returns that intermediate (autograd's base of the views) and the views are made outside, from
it. So gradients flow as they do in eager, and later in-place changes behave alike.
"""
from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
import torch.fx

from ...graphs.functional_graph import (
    LAZY_VIEWS,
    Captured,
    Constant,
    FromGraph,
    FromInput,
    Output,
    ViewOfGraph,
    ViewOfInput,
    check_view_layout,
    creation,
    is_view,
)
from ...unsupported import EngineUnsupported
from ..aten_graph import functionalization
from ..output_aliasing import check_view, lazy_kind
from .graph_walks import storage_of


@dataclass(frozen=True)
class Results:
    """`values` are what the graph returns (functional tensors), `outputs` what becomes of them for the program."""

    values: list[Any]
    outputs: tuple[Output, ...]


def results_of(
    captured: Captured, wrapped: Sequence[Any], returned: Sequence[Any], inside: list[int], assigned: list[int]
) -> Results:
    """Sort the results of the trace; the new values of the inputs `inside` and `assigned` are the first graph outputs.

    Raises EngineUnsupported for results that cannot be made in this way.
    """
    found = _Finder(captured, wrapped, [wrapped[i] for i in (*inside, *assigned)])
    found.bases(returned)
    fakes: Any = captured.module.graph.output_node().args[0]
    outputs = []
    for value, node in zip(returned, fakes):
        fake = node.meta.get("val") if isinstance(node, torch.fx.Node) else None
        outputs.append(found.output(value, fake if isinstance(fake, torch.Tensor) else None))
    return Results(found.values, tuple(outputs))


class _Finder:
    def __init__(self, captured: Captured, wrapped: Sequence[Any], values: list[Any]) -> None:
        self.inputs = captured.inputs
        self.recorded = captured.grad_enabled  # where what is made around the node is made
        self.wrapped = wrapped
        self.values = values
        tensors = [(i, value) for i, value in enumerate(wrapped) if isinstance(value, torch.Tensor)]
        self.owners = {storage_of(value): i for i, value in reversed(tensors)}
        self.base: dict[int, torch.Tensor] = {}  # storage -> what is returned of it, where several results share it
        self.position: dict[int, int] = {}  # id of a tensor -> its graph output
        self.seen: dict[int, Output] = {}

    def bases(self, returned: Sequence[Any]) -> None:
        """Choose, for each storage that several results share, the tensor that they are views of."""
        groups: dict[int, dict[int, torch.Tensor]] = {}
        for value in returned:
            if isinstance(value, torch.Tensor) and torch._is_functional_tensor(value):
                torch._sync(value)
                groups.setdefault(storage_of(value), {})[id(value)] = value
        for storage, members in groups.items():
            if storage not in self.owners and len(members) > 1:
                self.base[storage] = _common_base(list(members.values()))

    def output(self, value: Any, fake: torch.Tensor | None) -> Output:
        """Where one result comes from; `fake` is what the program saw when it was captured."""
        if not isinstance(value, torch.Tensor):
            if isinstance(value, (tuple, list, dict)):
                raise EngineUnsupported("the captured graph returns nested values")
            return Constant(value)
        if id(value) not in self.seen:
            self.seen[id(value)] = self._tensor(value, fake)
        return self.seen[id(value)]

    def _tensor(self, value: torch.Tensor, fake: torch.Tensor | None) -> Output:
        for i, given in enumerate(self.wrapped):
            if given is value:
                return FromInput(i)
        if value.requires_grad and value.is_leaf:
            raise EngineUnsupported("a result is a tensor that requires grad and was made inside the graph")
        if not torch._is_functional_tensor(value):  # a constant that the graph returns as it is
            return FromGraph(self._returned(value))
        torch._sync(value)
        owner = self.owners.get(storage_of(value))
        if owner is not None:
            _same_kind(self.inputs[owner], value)
            _check_history(self.wrapped[owner], value)
            # Not the functional tensor's layout: a view of a mutated input has that of the new value there.
            inner = torch._from_functional_tensor(value)
            shown, lazily = value if fake is None else fake, lazy_kind(inner)
            check_view_layout(self.wrapped[owner], inner, inner if fake is None else fake)
            detached = _detached(self.inputs[owner], value)
            made = creation(fake, self.recorded, self.inputs[owner])
            return ViewOfInput(owner, *_layout(shown, lazily), detached, lazily, view=is_view(fake), creation=made)
        base = self.base.get(storage_of(value))
        if base is None:
            return self._own(value)
        if base is value:
            _layout(value)
            return FromGraph(self._returned(value))
        _same_kind(base, value)
        _check_history(base, value)
        return ViewOfGraph(self._returned(base), *_layout(value), _detached(base, value), creation(fake, self.recorded))

    def _own(self, value: torch.Tensor) -> Output:
        """A result with memory of its own; of one that is conjugated or negated lazily, what it is a view of."""
        lazily = lazy_kind(torch._from_functional_tensor(value))
        if lazily:
            with functionalization(), torch.set_grad_enabled(value.requires_grad):
                value = LAZY_VIEWS[lazily](value)
        return FromGraph(self._returned(value), lazily=lazily)

    def _returned(self, value: torch.Tensor) -> int:
        if id(value) not in self.position:
            self.values.append(value)
            self.position[id(value)] = len(self.values) - 1
        return self.position[id(value)]


def _layout(value: torch.Tensor, lazily: str = "") -> tuple[tuple[Any, ...], tuple[Any, ...], Any, torch.dtype]:
    inner = torch._from_functional_tensor(value) if torch._is_functional_tensor(value) else value
    if lazy_kind(inner) != lazily:
        raise EngineUnsupported("a result is a lazily conjugated view")
    return tuple(inner.size()), tuple(inner.stride()), inner.storage_offset(), inner.dtype


def _same_kind(base: torch.Tensor, view: torch.Tensor) -> None:
    """Raises EngineUnsupported for a view that strides alone cannot say, where gradients flow through it."""
    if view.requires_grad:
        check_view(base, view.dtype)


def _check_history(base: torch.Tensor, view: torch.Tensor) -> None:
    """Raises EngineUnsupported where gradients do not reach `view` as they reach a view of `base`: a function of the
    program says what its derivative is, or it was written where it was detached."""
    if not view.requires_grad:
        return
    end = torch.autograd.graph.get_gradient_edge(base) if base.requires_grad else None
    edge: Any = torch.autograd.graph.get_gradient_edge(view)
    node, number = edge.node, edge.output_nr
    while end is None or node is not end.node or number != end.output_nr:
        leads = [following for following in node.next_functions if following[0] is not None]
        if len(leads) != 1 or isinstance(node, torch.autograd.function.BackwardCFunction):
            raise EngineUnsupported("a result shares memory with another tensor, but not its history of gradients")
        ((node, number),) = leads


def _detached(base: torch.Tensor, view: torch.Tensor) -> bool:
    return base.requires_grad and not view.requires_grad


def _common_base(members: list[torch.Tensor]) -> torch.Tensor:
    """What all members are views of: autograd's base of those that require grad, else the largest."""
    bases = {id(base): base for base in (_base(m) for m in members if m.requires_grad)}
    if len(bases) > 1:
        raise EngineUnsupported("results share memory but not one history of gradients")
    if bases:
        return next(iter(bases.values()))
    return max((_base(m) for m in members), key=lambda base: base.numel())


def _base(value: torch.Tensor) -> torch.Tensor:
    return value._base if value._is_view() and value._base is not None else value
