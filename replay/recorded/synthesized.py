"""Inputs made up from recorded metadata, where their values were not kept.

Numbers are normal, integers are 0 or 1 (they index almost anything); always the same. Sizes, strides, dtypes and shared
memory are those of the call.
"""
from __future__ import annotations

import torch

from ...artifacts.records import Graph, SavedInput, SavedInputs, TensorMeta
from .graphs import ReplayError, dtype
from .memory import seen

LIMIT = 1 << 28
"""Elements of one piece of memory."""
INTEGERS = 2


def described(graph: Graph) -> SavedInputs:
    """The inputs of a graph as its placeholders describe them, of a recording without any."""
    inputs = []
    for node in graph.nodes:
        if node.op == "placeholder" and isinstance(node.value, TensorMeta):
            inputs.append(SavedInput(node.target, node.value))
        elif node.op == "placeholder":
            inputs.append(SavedInput(node.target, None, value=_number(node.target, str(node.value))))
    return SavedInputs(tuple(inputs), note="--inputs none")


def _number(name: str, text: str) -> float:
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    raise ReplayError(f"the inputs of this graph were not saved, and the value of {name} was not recorded")


def synthesized(saved: SavedInputs) -> tuple[object, ...]:
    """Values for all inputs. Raises ReplayError where metadata does not say enough."""
    pieces: dict[str, torch.Tensor] = {}
    for item in saved.inputs:
        if item.meta is not None:
            pieces[item.alias_of or item.name] = _piece(saved, item.alias_of or item.name)
    return tuple(item.value if item.meta is None else _value(item, pieces) for item in saved.inputs)


def _value(item: SavedInput, pieces: dict[str, torch.Tensor]) -> torch.Tensor:
    shape, stride, offset = _layout(item)
    assert item.meta is not None
    if item.meta.device == "meta":
        return torch.empty_strided(shape, stride, dtype=dtype(item.meta.dtype), device="meta")
    memory = pieces[item.alias_of or item.name]
    return seen(memory, dtype(item.meta.dtype), shape, stride, offset, item.conjugated, item.negated)


def _piece(saved: SavedInputs, owner: str) -> torch.Tensor:
    """The memory that inputs share with `owner`, filled."""
    members = [i for i in saved.inputs if i.meta is not None and (i.alias_of or i.name) == owner]
    kinds = {dtype(i.meta.dtype) for i in members if i.meta is not None}
    if len(kinds) > 1:
        raise ReplayError(f"the inputs of this graph were not saved, and {owner} is seen with several dtypes")
    count = 0
    for item in members:
        shape, stride, offset = _layout(item)
        if min([*shape, *stride, offset]) < 0:
            raise ReplayError(f"the recording is damaged: the input {item.name!r} has negative sizes")
        if 0 not in shape:
            count = max(count, offset + 1 + sum((size - 1) * step for size, step in zip(shape, stride)))
    if count > LIMIT:
        raise ReplayError(f"the inputs of this graph were not saved, and {owner} is too large to be made up")
    return _numbers(count, kinds.pop())


def _numbers(count: int, kind: torch.dtype) -> torch.Tensor:
    random = torch.Generator().manual_seed(0)
    if kind.is_floating_point or kind.is_complex:
        wide = torch.complex64 if kind.is_complex else torch.float32
        return torch.randn(count, generator=random, dtype=wide, device="cpu").to(kind)
    return torch.randint(INTEGERS, (count,), generator=random, device="cpu").to(kind)


def _layout(item: SavedInput) -> tuple[list[int], list[int], int]:
    meta = item.meta
    if meta is None or item.unsaved or len(meta.shape) != len(meta.stride):
        why = item.unsaved or "not strided memory"
        raise ReplayError(f"the inputs of this graph were not saved (an input is {why})")
    numbers = [*meta.shape, *meta.stride, meta.offset]
    if not all(isinstance(n, int) for n in numbers):
        raise ReplayError(f"the inputs of this graph were not saved, and the size of {item.name} was not recorded")
    return [int(s) for s in meta.shape], [int(s) for s in meta.stride], int(meta.offset)
