"""Operators that the program or a library registers, as autograd sees them.

Where one has no kernel for autograd, eager runs it with autograd still on: what it calls inside is recorded, or its
result says that a gradient is missing (torch/csrc/autograd/autograd_not_implemented_fallback.cpp). A node of a graph
can do neither.
"""
from __future__ import annotations

from typing import Any

import torch
import torch.fx
from torch.utils._pytree import tree_leaves

from ..breaks.reasons import Reason
from ..breaks.unsupported import Unsupported

TORCHS = ("aten", "prims")
_KEYS = ("Autograd", "AutogradCPU", "AutogradCUDA", "CompositeImplicitAutograd")


def is_own(target: Any) -> bool:
    """Whether a node calls an operator that torch does not have."""
    kinds = (torch._ops.OpOverload, torch._ops.OpOverloadPacket)
    return isinstance(target, kinds) and any(name.partition("::")[0] not in TORCHS for name in names_of(target))


def refuse_hidden_gradients(target: Any, args: Any, result: Any) -> None:
    """Raises Unsupported where a gradient would go through what the operator `target` calls inside. Its arguments
    are nodes and constants, its result is fake."""
    if not isinstance(target, (torch._ops.OpOverload, torch._ops.OpOverloadPacket)) or not torch.is_grad_enabled():
        return
    name = next((name for name in names_of(target) if not _autograd_knows(name)), "")
    inputs = [leaf.meta["val"] for leaf in tree_leaves(args) if isinstance(leaf, torch.fx.Node)] if name else []
    if not any(isinstance(value, torch.Tensor) and value.requires_grad for value in inputs):
        return
    if any(isinstance(leaf, torch.Tensor) and _differentiable(leaf) for leaf in tree_leaves(result)):
        raise Unsupported(Reason.MISSING_GRADIENT, detail=name)


def names_of(target: Any) -> list[str]:
    """The names of an operator, or of all overloads of one."""
    if isinstance(target, torch._ops.OpOverload):
        return [target.name()]
    return [getattr(target, overload).name() for overload in target.overloads()]


def _autograd_knows(name: str) -> bool:
    if name.partition("::")[0] in TORCHS:
        return True
    return any(torch._C._dispatch_has_kernel_for_dispatch_key(name, key) for key in _KEYS)


def _differentiable(tensor: torch.Tensor) -> bool:
    return tensor.is_floating_point() or tensor.is_complex()
