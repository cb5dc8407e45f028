"""Where a program names "cuda" without a number, the current GPU is meant: with several, guards know which it was."""
from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import torch
from torch.utils._pytree import tree_leaves

from ..sources.roots import GLOBAL_STATE

if TYPE_CHECKING:
    from ..variables.core.base import Translator


def guard_current_gpu(tx: Translator, result: Any, arguments: Iterable[Any]) -> None:
    """A guard on the current GPU where a result is on one that no argument, a node of the graph, is on."""
    made = result[0] if isinstance(result, (tuple, list)) and result else result
    if not (isinstance(made, torch.Tensor) and made.is_cuda) or torch.cuda.device_count() < 2:
        return
    values = [leaf.meta.get("val") for leaf in tree_leaves(list(arguments)) if isinstance(leaf, torch.fx.Node)]
    if any(isinstance(value, torch.Tensor) and value.device == made.device for value in values):
        return
    now = torch.cuda.current_device()
    words = f"torch.cuda.current_device() == {now}"
    tx.guards.add(GLOBAL_STATE, "LAMBDA", (lambda _: torch.cuda.current_device() == now, words))
