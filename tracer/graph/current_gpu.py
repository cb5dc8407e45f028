"""Where a program names "cuda" without a number, the current GPU is meant: guards and graphs then know which it was."""
from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

import torch
from torch.utils._pytree import tree_leaves

from ..sources.roots import GLOBAL_STATE

if TYPE_CHECKING:
    from ..variables.core.base import Translator


def with_numbered_gpu(
    target: Any, op: str, args: tuple[Any, ...], kwargs: Mapping[str, Any]
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """The arguments of a call, in which the current GPU has its number: what torch knows of a result on "cuda" it keeps
    for later calls, whichever GPU is the current one then."""
    if not (any(map(_unnumbered, (*args, *kwargs.values()))) or target == "cuda") or torch.cuda.device_count() < 2:
        return args, dict(kwargs)
    now = torch.device("cuda", torch.cuda.current_device())
    moves = op == "call_method" and target in ("to", "new_empty", "new_full", "new_ones", "new_tensor", "new_zeros")
    named = {key: now if _unnumbered(value) and (key == "device" or isinstance(value, torch.device)) else value
             for key, value in kwargs.items()}
    given = tuple([now if _unnumbered(value) and (moves or isinstance(value, torch.device)) else value
                   for value in args])
    if op == "call_method" and target == "cuda" and len(args) == 1 and not kwargs:
        given = (*args, now)
    return given, named


def _unnumbered(value: Any) -> bool:
    return (type(value) is str and value == "cuda") or (type(value) is torch.device and value == _CUDA)


_CUDA = torch.device("cuda")


def guard_current_gpu(tx: Translator, result: Any, arguments: Iterable[Any]) -> None:
    """A guard on the current GPU where a result is on one that no argument, a node of the graph, is on."""
    made = result[0] if isinstance(result, (tuple, list)) and result else result
    if not (isinstance(made, torch.Tensor) and made.device.type == "cuda") or torch.cuda.device_count() < 2:
        return
    values = [leaf.meta.get("val") for leaf in tree_leaves(list(arguments)) if isinstance(leaf, torch.fx.Node)]
    if any(isinstance(value, torch.Tensor) and value.device == made.device for value in values):
        return
    now = torch.cuda.current_device()
    words = f"torch.cuda.current_device() == {now}"
    tx.guards.add(GLOBAL_STATE, "LAMBDA", (lambda _: torch.cuda.current_device() == now, words))
