"""What a mask hides, where it depends on no input: the operators that made it are computed on the CPU while the graph
is traced.

A library that makes its masks while it is traced (`arange(queries) >= 0`) would not have made them in eager, where it
looks at them first; a kernel without a mask is the faster one.
"""
from __future__ import annotations

import math
from typing import Any

import torch
import torch.fx
from torch.utils._pytree import tree_map

from ..real_tensors import without_modes
from .position_masks import ABOVE_DIAGONAL, LONGEST, NOTHING, hidden_by_position

LARGEST = 1 << 27  # elements of all values on the way to a mask; of more, computing them takes too long

_VIEWS = (
    "alias detach diagonal expand permute reshape select slice split squeeze t transpose unbind unsqueeze "
    "unsafe_view _unsafe_view view"
)
_MOVED = (
    "cat clone constant_pad_nd copy flip full full_like gather index index_select lift_fresh lift_fresh_copy "
    "masked_fill new_full new_ones new_zeros ones ones_like repeat roll scalar_tensor stack tril triu where zeros "
    "zeros_like _to_copy"
)
_COMPARED = "all any eq ge gt isinf isnan le logical_and logical_not logical_or logical_xor lt ne"
_ROUNDED_ONCE = "abs add clamp maximum minimum mul neg rsub sub"
_OF_INTEGERS = (
    "amax amin arange bitwise_and bitwise_left_shift bitwise_not bitwise_or bitwise_right_shift bitwise_xor cumsum "
    "floor_divide fmod max min remainder sum"
)
_EXACT = frozenset(f"{_VIEWS} {_MOVED} {_COMPARED} {_ROUNDED_ONCE}".split())
_EXACT_OF_INTEGERS = frozenset(_OF_INTEGERS.split())
"""Operators that give the same on each device; the second of them where their results are integers."""


def hidden(mask: torch.fx.Node, constants: torch.nn.Module, queries: Any, keys: Any) -> str | None:
    """What the mask of an attention hides, if that is known and one of the above; a node of a graph that is traced,
    whose constants are attributes of `constants`."""
    found = hidden_by_position(mask, queries, keys)
    if found is not None:
        return found
    with without_modes():
        value = _computed(mask, constants)
        return None if value is None or value.numel() == 0 else _hidden_by(value, queries, keys)


def _hidden_by(value: torch.Tensor, queries: Any, keys: Any) -> str | None:
    for dim in range(value.dim()):
        if value.stride(dim) == 0 and value.shape[dim] > 1:
            value = value.narrow(dim, 0, 1)
    seen = value if value.dtype == torch.bool else value == 0
    if bool(seen.all()):
        return NOTHING
    if not (type(queries) is int and queries == keys and value.shape[-2:] == (queries, keys)):
        return None
    past = torch.ones(queries, keys, dtype=torch.bool).tril_()
    lost = seen.logical_not() if value.dtype == torch.bool else value == -math.inf
    return ABOVE_DIAGONAL if bool((seen == past).all()) and bool((lost != past).all()) else None


def _computed(node: torch.fx.Node, constants: torch.nn.Module) -> torch.Tensor | None:
    """The value of a node that is the same for all inputs; None where it is not, or would take too long."""
    made = _made_of(node)
    if made is None:
        return None
    values: dict[torch.fx.Node, Any] = {}
    for step in made:
        given = lambda part: tree_map(_on_cpu, torch.fx.node.map_arg(part, values.__getitem__))
        if step.op == "get_attr":
            values[step] = getattr(constants, str(step.target)).cpu()
        else:
            function: Any = step.target
            try:
                values[step] = function(*given(step.args), **given(step.kwargs))
            except (IndexError, RuntimeError):  # the CPU has no such kernel, or the program fails here
                return None
    found = values[node]
    return found if isinstance(found, torch.Tensor) else None


def _made_of(node: torch.fx.Node) -> list[torch.fx.Node] | None:
    """What is to be computed for a node, in order; None where that is too much, not exact, or depends on an input."""
    found: set[torch.fx.Node] = set()
    waiting, elements = [node], 0
    while waiting:
        step = waiting.pop()
        if step in found:
            continue
        elements += _elements(step)
        if not _is_exact(step) or elements > LARGEST or len(found) == LONGEST:
            return None
        found.add(step)
        waiting += step.all_input_nodes
    order: list[torch.fx.Node] = []
    step = node
    while found:  # backwards from the mask, which is the last of them
        if step in found:
            found.remove(step)
            order.append(step)
        step = step.prev
    return order[::-1]


def _elements(node: torch.fx.Node) -> int:
    """How many elements an operator computes; more than can be where that is not known."""
    value = node.meta.get("val")
    if not isinstance(value, torch.Tensor):
        return 0
    if not all(type(n) is int for n in (*value.shape, *value.stride())):
        return LARGEST + 1
    return math.prod([n for n, stride in zip(value.shape, value.stride()) if stride])


def _is_exact(node: torch.fx.Node) -> bool:
    if node.op != "call_function":
        return node.op == "get_attr"
    target = node.target
    if not isinstance(target, torch._ops.OpOverload):
        return getattr(target, "__name__", "") == "getitem"
    name = target._schema.name
    if not name.startswith("aten::"):
        return False
    name = name.removeprefix("aten::")
    value = node.meta.get("val")
    of_integers = isinstance(value, torch.Tensor) and not (value.is_floating_point() or value.is_complex())
    return name in _EXACT or (name in _EXACT_OF_INTEGERS and of_integers)


def _on_cpu(value: Any) -> Any:
    return torch.device("cpu") if isinstance(value, torch.device) else value
