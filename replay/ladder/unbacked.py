"""The values of data-dependent numbers and sizes (u0, u1, ...) in a recorded graph: it is run, piece by piece, on the
recorded inputs."""
from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

import torch

from ...artifacts.records import Graph, Node, NodeRef, TensorMeta
from ...dependencies import msgspec
from ..recorded.graphs import graph_module
from ..recorded.inputs import clones
from ..recorded.state import deterministic
from .rungs import run_graph

_UNBACKED = re.compile(r"\b(?:u|zuf)\d+\b")


def bind_unbacked(
    record: Graph, symbols: Mapping[str, float], inputs: tuple[Any, ...], trust: bool = False
) -> dict[str, float]:
    """`symbols` and the value of each unbacked symbol that a node of `record` defines."""
    found = dict(symbols)
    for position, node in enumerate(record.nodes):
        new = [name for name in _defined(node.value) if name not in found]
        if node.op in ("placeholder", "output") or not new:
            continue
        part = _up_to(record, position)
        with deterministic():
            ran = run_graph(graph_module(part, found, trust), clones(inputs))
        found |= {name: value for name, value in _read(node.value, ran.outputs[0]) if name in new}
    return found


def _defined(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield from _UNBACKED.findall(value)
    elif isinstance(value, TensorMeta):
        yield from (name for size in value.shape if isinstance(size, str) for name in _UNBACKED.findall(size))
    elif isinstance(value, tuple):
        for item in value:
            yield from _defined(item)


def _up_to(record: Graph, position: int) -> Graph:
    """The graph of the first nodes, which returns the last of them."""
    last = Node("output", "output", "output", ([NodeRef(record.nodes[position].id)],))
    return msgspec.structs.replace(record, nodes=(*record.nodes[: position + 1], last))


def _read(meta: Any, value: Any) -> Iterator[tuple[str, float]]:
    """The symbols that are, alone, a size of `value` or its number."""
    if isinstance(meta, str) and meta.isidentifier() and isinstance(value, (int, float)):
        yield meta, value
    elif isinstance(meta, TensorMeta) and isinstance(value, torch.Tensor):
        yield from ((name, n) for name, n in zip(meta.shape, value.shape) if isinstance(name, str))
    elif isinstance(meta, tuple) and isinstance(value, (tuple, list)):
        for item, part in zip(meta, value):
            yield from _read(item, part)
