"""Where results of a captured graph with wrapper subclasses come from: the inputs, and the outputs of the plain
graph."""
from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensor
from torch.utils._pytree import tree_leaves

from ...unsupported import EngineUnsupported
from .layout import Layout, take_apart


@dataclass(frozen=True)
class Given:
    """The input at this position."""

    position: int


@dataclass(frozen=True)
class Again:
    """The same as the result at this position."""

    position: int


@dataclass(frozen=True)
class Constant:
    """No tensor."""

    value: Any


@dataclass(frozen=True)
class Made:
    """Made of `count` values of the plain graph, from `start` on; after them come `numbers` sizes."""

    start: int
    count: int
    numbers: int
    layout: Layout | None


@dataclass(frozen=True)
class Number:
    """The value at this position of the plain graph's: a size that varies."""

    position: int


Result = Given | Again | Constant | Made | Number


def results_of(returned: Sequence[Any], inputs: Sequence[Any], into: list[Any]) -> tuple[Result, ...]:
    """Where each result comes from; the plain tensors that they are made of are appended to `into`."""
    tensors = [(i, value) for i, value in enumerate(inputs) if isinstance(value, torch.Tensor)]
    known: dict[int, Result] = {id(value): Given(i) for i, value in tensors}
    found: list[Result] = []
    for k, value in enumerate(returned):
        if isinstance(value, torch.SymInt) and not value.node.is_nested_int():
            found.append(Number(len(into)))
            into.append(value)
        elif isinstance(value, (torch.SymInt, torch.SymFloat, torch.SymBool)):
            raise EngineUnsupported("a dynamic number is a result of a graph with wrapper subclasses")
        elif not isinstance(value, torch.Tensor):
            found.append(Constant(value))
        elif id(value) in known:
            found.append(known[id(value)])
        else:
            start = len(into)
            take_apart(value, into)
            count, layout = len(into) - start, Layout.of(value)
            if layout is not None:
                if any(isinstance(leaf, (torch.SymInt, FakeTensor)) for leaf in tree_leaves(layout.context)):
                    raise EngineUnsupported("the metadata of a wrapper subclass is computed in the graph")
                into += layout.numbers()
            found.append(Made(start, count, len(into) - start - count, layout))
            known[id(value)] = Again(k)
    return tuple(found)


def put_together(results: Sequence[Result], inputs: Sequence[Any], values: Sequence[Any]) -> tuple[Any, ...]:
    """The results, of the values of the plain graph."""
    found: list[Any] = []
    for result in results:
        if isinstance(result, Given):
            found.append(inputs[result.position])
        elif isinstance(result, Constant):
            found.append(result.value)
        elif isinstance(result, Number):
            found.append(values[result.position])
        elif isinstance(result, Made):
            end = result.start + result.count
            parts, numbers = iter(values[result.start : end]), iter(values[end : end + result.numbers])
            found.append(next(parts) if result.layout is None else result.layout.put_together(parts, numbers))
        else:
            found.append(found[result.position])
    return tuple(found)


def fill_in(results: Sequence[Result], inputs: Sequence[Any], made: Sequence[Any]) -> tuple[Any, ...]:
    """The results, of which those that are made are there already."""
    own = iter(made)
    found: list[Any] = []
    for result in results:
        if isinstance(result, (Made, Number)):
            found.append(next(own))
        else:
            found += put_together([result], inputs, ()) if not isinstance(result, Again) else [found[result.position]]
    return tuple(found)
