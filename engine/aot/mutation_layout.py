"""Keeps the memory layout of a tensor that is written in place during tracing.

Functionalization gives a mutated tensor the layout of its new value, and later views of it, which alias or copy
depending on strides, would follow that. Here the new value is first put into the old layout.
"""
from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.fx

from ...operators.overlap import is_dense, may_repeat, repeats
from ..unsupported import EngineUnsupported

EXPANDING = frozenset(("expand", "expand_as", "broadcast_to", "broadcast_tensors"))
"""Functions that repeat elements without copying them. What is written to such a view comes back, in the rules of
functionalization, as the old value plus the difference: another value after rounding, and NaN after infinities."""
WINDOWS = "unfold"
"""Its windows may share elements, or leave some out: what is written to them comes back as a sum over all windows, and
as zero in what they leave out (`unfold_backward`)."""


def versions(node: torch.fx.Node, values: dict[torch.fx.Node, Any]) -> list[tuple[torch.fx.Node, int]]:
    """The tensors that `node` reads, and how often each was written so far."""
    tensors = [(n, values.get(n)) for n in node.all_input_nodes]
    return [(n, _writes(v)) for n, v in tensors if isinstance(v, torch.Tensor) and torch._is_functional_tensor(v)]


def functional_form(target: Any) -> Callable[..., Any] | None:
    """What a method that writes in place computes, as a method that does not; None where there is none that draws no
    random numbers and takes no view."""
    name = target if isinstance(target, str) else getattr(target, "__name__", "")
    packet = getattr(torch.ops.aten, name, None)
    if not name.endswith("_") or name.endswith("__") or packet is None:
        return None
    tags = {tag for overload in packet.overloads() for tag in getattr(packet, overload).tags}
    if torch.Tag.inplace_view in tags or torch.Tag.nondeterministic_seeded in tags:
        return None
    return getattr(torch.Tensor, name[:-1], None)


class Written:
    """Follows the memory of the values of a graph while it runs on functional tensors."""

    def __init__(self) -> None:
        self._bases: dict[int, torch.fx.Node] = {}  # storage -> the node whose value it was made for
        self._inferred: dict[int, torch.Tensor] = {}  # storage -> that value when it was made, with eager's strides
        self._expanded: dict[int, torch.fx.Node] = {}  # storage -> a node that may repeat or leave out elements
        self._around: dict[int, torch.fx.Node] = {}  # storage -> a node that reads what its base does not have
        self._written: set[int] = set()

    def follow(self, node: torch.fx.Node, value: Any) -> None:
        """Record whose memory the value of `node` has."""
        if not isinstance(value, torch.Tensor) or not torch._is_functional_tensor(value):
            return
        storage = _storage(value)
        base = self._bases.setdefault(storage, node)
        if base is node:
            torch._sync(value)
            self._inferred.setdefault(storage, torch._from_functional_tensor(value))
            return
        varies = _name(node) == "as_strided" and value._has_symbolic_sizes_strides
        if _name(node) in EXPANDING or _name(node) == WINDOWS or varies or repeats(value):
            self._expanded[storage] = node
        layout = base.meta.get("val", self._inferred[storage])
        if _name(node) == "as_strided" and not _fills(layout):
            self._around[storage] = node
            if base.op not in ("placeholder", "get_attr") and not _lies_close(layout):
                # eager may have copied what lies between its elements, too
                raise EngineUnsupported(f"{node} reads memory around {base}, which is made here")
            if storage in self._written:
                raise EngineUnsupported(f"{node} reads memory around {base}, which was written")
            if value.dtype != self._inferred[storage].dtype:  # a view in another dtype is a copy of the elements
                raise EngineUnsupported(f"{node} reads memory around {base} as {value.dtype}")

    def keep_layouts(self, before: list[tuple[torch.fx.Node, int]], values: dict[torch.fx.Node, Any]) -> None:
        """Put what was written since `before` back into its layout; EngineUnsupported where elements share memory."""
        for node, version in before:
            value = values[node]
            if _writes(value) == version:
                continue
            storage = _storage(value)
            base = self._bases[storage]
            self._written.add(storage)
            if storage in self._around:
                raise EngineUnsupported(f"{node} is written, and {self._around[storage]} reads memory around {base}")
            if base is not node and storage in self._expanded:
                how = self._expanded[storage]
                raise EngineUnsupported(f"{node} is written, which may share elements through {how}")
            inferred = self._inferred[storage]
            if may_repeat(inferred):
                raise EngineUnsupported(f"{base} is written, and several of its elements share memory")
            _restride(values[base], inferred)
            if base is not node:
                torch._sync(value)  # a view of what has its layout again, whose strides the next view is made by


def _restride(value: torch.Tensor, inferred: torch.Tensor) -> None:
    """Give a functional tensor the strides of `inferred`."""
    torch._sync(value)
    inner = torch._from_functional_tensor(value)
    wanted, found = _numbers(inferred.stride()), _numbers(inner.stride())
    if _numbers(inner.shape) != _numbers(inferred.shape) or wanted == found or inner.dtype != inferred.dtype:
        return
    torch._disable_functionalization()
    try:
        with torch.no_grad():
            window = torch.ops.aten.new_empty_strided.default(inner, inferred.shape, inferred.stride())
            kept = torch.ops.aten.copy.default(window, inner)
            torch._functionalize_replace(value, kept)
            torch._functionalize_commit_update(value)
            torch._functionalize_sync(value)
    finally:
        torch._enable_functionalization(reapply_views=True)


def _fills(tensor: Any) -> bool:
    """Whether a tensor covers its storage, from the start and without gaps."""
    return isinstance(tensor, torch.Tensor) and tensor.is_contiguous() and tensor.storage_offset() == 0


def _lies_close(tensor: Any) -> bool:
    """Whether nothing lies between a tensor's elements, as far as its sizes tell."""
    return isinstance(tensor, torch.Tensor) and not tensor._has_symbolic_sizes_strides and is_dense(tensor)


def _numbers(sizes: Any) -> list[Any]:
    return [s.node.expr if isinstance(s, torch.SymInt) else s for s in sizes]


def _storage(tensor: torch.Tensor) -> int:
    return tensor.untyped_storage()._cdata


def _writes(tensor: torch.Tensor) -> int:
    """How often the memory of a functional tensor was written; tensors of the inference mode have no `_version`."""
    count: int = torch._functionalize_mutation_counter(tensor)
    return count


def _name(node: torch.fx.Node) -> str:
    return node.target if isinstance(node.target, str) else getattr(node.target, "__name__", "").partition(".")[0]
