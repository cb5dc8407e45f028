"""What a functional graph is: the captured graph it was made from, its inputs, and where each result comes from.

Everything that a compiled graph needs to know when it is loaded from disk is in this folder; `aot/aten_graph.py`, which
makes these graphs, is not needed then.
"""
from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import chain
from typing import Any, Protocol

import torch
import torch.fx
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode

from ...operators.overlap import same_places
from ..unsupported import EngineUnsupported
from .wrapper_source import Folding


class Captured(Protocol):
    """What the engine needs of a captured graph (see tracer/fx/backend_call.py, which has the full account)."""

    @property
    def module(self) -> torch.fx.GraphModule: ...
    @property
    def inputs(self) -> tuple[Any, ...]: ...
    @property
    def input_names(self) -> tuple[str, ...]: ...
    @property
    def grad_enabled(self) -> bool: ...


BETWEEN_PARTS = "between_parts"
"""In the meta of a captured graph's output, of a graph that is a part of another (`aot/segments.py`): the positions of
the results that go to other parts alone, so that the program never has them."""

LAZY_VIEWS: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {"conj": torch._conj, "neg": torch._neg_view}
"""Lazy views, whose elements are computed when they are read; each is its own inverse."""


@dataclass(frozen=True)
class FromInput:
    """The result is input `index` itself."""

    index: int


@dataclass(frozen=True)
class ViewOfInput:
    """The result shares memory with input `index`: a strided view of it, sizes in elements (ints or SymInts).

    A view of an input that requires grad does too, also under no_grad, unless it is `detached`; one that is
    `differentiable` is part of autograd's graph, although what is compiled records no gradients. `lazily` as in
    FromGraph. What `detach()` gives last is no `view` for autograd, which allows `detach_()` of it. `creation` is what
    autograd is to know of how the view was made (see `creation`).
    """

    index: int
    size: tuple[Any, ...]
    stride: tuple[Any, ...]
    offset: Any
    dtype: torch.dtype
    detached: bool = False
    lazily: str = ""
    differentiable: bool = False
    view: bool = True
    creation: str = ""


def is_view(fake: torch.Tensor | None) -> bool:
    """Whether a result that shares memory with an input was a view when it was captured: detach() gives none."""
    return fake is None or fake.requires_grad or fake._is_view()


def creation(fake: torch.Tensor | None, recorded: bool, base: torch.Tensor | None = None) -> str:
    """How a result that is a view was made (CreationMeta of torch/csrc/autograd/variable.h): autograd refuses to write
    in place what is one of several views that an operator returned, or was made under no_grad. "" where a view that is
    made after the graph has run, where gradients are `recorded` or not, is the same for it; so it is where `base` was
    made so already."""
    if fake is None or not fake._is_view():
        return ""
    asked: Any = torch._C._autograd._get_creation_meta
    kind: str = asked(fake).name
    if kind == ("DEFAULT" if recorded else "NO_GRAD_MODE"):
        return ""
    if kind != "DEFAULT" and base is not None and base._is_view() and asked(base).name == kind:
        return ""
    return kind if kind in ("DEFAULT", "MULTI_OUTPUT_NODE", "NO_GRAD_MODE") else ""


def check_view_layout(base: torch.Tensor, view: torch.Tensor, inferred: torch.Tensor) -> None:
    """Raises EngineUnsupported where `view`, of an input, has another offset or strides than at capture: torch's
    Python form of an operator copied what eager gives back. That of an input that is written has the layout of its new
    value."""
    if not torch._functionalize_has_data_mutation(base) and not same_places(view, inferred):  # type: ignore[attr-defined]
        raise EngineUnsupported("a view of an input has another offset or strides than its fake tensor")


@dataclass(frozen=True)
class FromGraph:
    """The result is output `index` of the ATen graph.

    Each result of the user's function is a separate object; one that is `saved` for the backward need not be.
    `lazily` is "conj" or "neg" where the program's result is a view that conjugates or negates the output.
    """

    index: int
    saved: bool = False
    lazily: str = ""


@dataclass(frozen=True)
class ViewOfGraph:
    """The result shares memory with output `index` of the graph, which is also returned: sizes as in ViewOfInput."""

    index: int
    size: tuple[Any, ...]
    stride: tuple[Any, ...]
    offset: Any
    dtype: torch.dtype
    detached: bool = False
    creation: str = ""


@dataclass(frozen=True)
class Constant:
    """The result is a Python value (a number, None, or a torch.SymInt)."""

    value: Any


Output = FromInput | ViewOfInput | FromGraph | ViewOfGraph | Constant


@dataclass(frozen=True)
class AtenGraph:
    """A functional ATen graph. Its first outputs are the new values of mutated inputs, as `mutations` says.

    `mutations` maps graph output index to input index; `outputs` has one entry for each output of the captured graph.

    Of a backward, the inputs from `first_tangent` on are tangents, from outside: at run time one may be None (zeros) or
    have other strides. Its inputs come in a list, which it empties: what is dead is freed at once.

    `folding` computes further inputs, after the captured graph's, from frozen ones (see `freezing/`).

    `uncounted` are the mutated inputs that are written as `x.data`: autograd, which counts writes, is not to know.
    `further` are those that it sees written more than once, each as often again.
    """

    module: torch.fx.GraphModule
    inputs: tuple[Any, ...]
    mutations: dict[int, int]
    outputs: tuple[Output, ...]
    first_tangent: int | None = None
    folding: Folding | None = None
    uncounted: tuple[int, ...] = ()
    further: tuple[int, ...] = ()

    @property
    def is_backward(self) -> bool:
        """Whether this is the backward half of a joint graph."""
        return self.first_tangent is not None


def fake_mode_of(captured: Captured) -> FakeTensorMode:
    """The mode that made the fake tensors of a captured graph; a new one where there is none."""
    made = (node.meta.get("val") for node in captured.module.graph.nodes)
    for value in chain(captured.inputs, made):
        if isinstance(value, FakeTensor):
            return value.fake_mode
    return FakeTensorMode()


def pairs_numbers(base: torch.dtype, view: torch.dtype) -> bool:
    """Whether the view is between complex numbers and pairs of reals."""
    return base.is_complex != view.is_complex and (base.to_real() if base.is_complex else base) == (
        view.to_real() if view.is_complex else view
    )
