"""The inputs of a captured graph with wrapper subclasses, flattened into inputs of its plain graph."""
from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
import torch.fx
from torch._subclasses.fake_tensor import FakeTensorMode

from ...graphs.functional_graph import Captured
from .layout import Layout, take_apart

Leaf = Callable[[Any], tuple[torch.fx.Node, Any]]


@dataclass(frozen=True)
class Inputs:
    """Stand-ins (`values`) for the inputs. The plain graph takes those that `takes` says of the parts of all inputs,
    under these `names`: a tensor that is part of several is one input, as the captured graph knows it. `owners` has,
    for each of the plain graph's, the positions of the inputs that it is part of."""

    values: tuple[Any, ...]
    layouts: tuple[Layout | None, ...]
    names: tuple[str, ...]
    takes: tuple[int, ...]
    owners: dict[torch.fx.Node, list[int]]

    @classmethod
    def of(cls, captured: Captured, mode: FakeTensorMode, leaf: Leaf) -> Inputs:
        """Those of a graph; `leaf` makes the plain graph's."""
        placed = [node for node in captured.module.graph.nodes if node.op == "placeholder"]
        values, layouts = list[Any](), list[Layout | None]()
        names, takes, owners, count = list[str](), list[int](), dict[torch.fx.Node, list[int]](), 0
        known: dict[int, tuple[torch.fx.Node, Any]] = {}
        for i, (node, name, value) in enumerate(zip(placed, captured.input_names, captured.inputs)):
            requires_grad = (node.meta.get("autograd") or (getattr(value, "requires_grad", False),))[0]
            layout = Layout.of(value)
            parts: list[Any] = []
            take_apart(value, parts)
            fresh = []
            for k, part in enumerate(parts):
                alone = layout is None and requires_grad  # a leaf of autograd's
                found = None if alone else known.get(id(part))
                if found is None:
                    found = leaf(part)
                    names.append(name if layout is None else f"{name}, part {k}")
                    takes.append(count + k)
                    if isinstance(part, torch.Tensor) and not alone:
                        known[id(part)] = found
                owners.setdefault(found[0], []).append(i)
                fresh.append(found[1])
            count += len(parts)
            made = fresh[0]
            if layout is not None:
                with mode, torch.no_grad():
                    made = layout.put_together(iter(fresh))
            if isinstance(made, torch.Tensor) and requires_grad:
                made.requires_grad_()
            values.append(made)
            layouts.append(layout)
        return cls(tuple(values), tuple(layouts), tuple(names), tuple(takes), owners)


def taken(inputs: Sequence[Any], takes: Sequence[int]) -> list[Any]:
    """What the plain graph takes of the inputs of a call."""
    parts: list[Any] = []
    for value in inputs:
        take_apart(value, parts)
    return [parts[k] for k in takes]
