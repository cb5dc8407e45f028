"""The inputs of the graphs of a compilation: recorded ones, what earlier graphs make of them, random gradients."""
from __future__ import annotations

import contextlib
from collections.abc import Mapping
from typing import Any

import torch

from ...artifacts.records import Graph, Node, TensorMeta
from ..ladder.rungs import run_graph
from ..recorded.graphs import ReplayError, graph_module, size_value
from ..recorded.inputs import clones
from ..recorded.state import deterministic
from .tensors import random_tensor


def inputs_of(graph: Graph, known: Mapping[str, Any], symbols: Mapping[str, float]) -> tuple[list[Any], list[str]]:
    """A value for each placeholder of an ATen graph, and the names of those that had to be made up.

    `known` has values by name: the inputs of the compilation, and intermediate values of its forward.
    """
    values, made_up = [], []
    unnamed = iter(symbols.values())  # sizes that a trace of stock's does not describe
    for node in graph.nodes:
        if node.op != "placeholder":
            continue
        found = known.get(node.id)
        if found is None and isinstance(node.value, str):
            found = size_value(node.value, symbols)
        if found is None and node.value is None:
            found = int(next(unnamed, 2))
        if found is None or not _fits(found, node, symbols):
            if not isinstance(node.value, TensorMeta):
                raise ReplayError(f"the input {node.id} of the graph {graph.name} is not known")
            found = random_tensor(numeric(node.value, symbols))
            made_up.append(node.id)
        values.append(found)
    return values, made_up


def numeric(meta: TensorMeta, symbols: Mapping[str, float]) -> TensorMeta:
    """Metadata with numbers in place of symbols."""
    shape, stride = (tuple(int(size_value(n, symbols)) for n in numbers) for numbers in (meta.shape, meta.stride))
    return TensorMeta(meta.dtype, shape, stride, meta.device, meta.requires_grad)


def _fits(value: Any, node: Node, symbols: Mapping[str, float]) -> bool:
    if not isinstance(node.value, TensorMeta):
        return not isinstance(value, torch.Tensor)
    shape = numeric(node.value, symbols).shape
    dtype = node.value.dtype.removeprefix("torch.")
    return isinstance(value, torch.Tensor) and tuple(value.shape) == shape and str(value.dtype) == f"torch.{dtype}"


def arguments(values: tuple[Any, ...]) -> dict[str, Any]:
    """The inputs of a compilation by their names in its ATen graphs: arg0, arg1, ..."""
    return {f"arg{number}": value for number, value in enumerate(values)}


def intermediates(graph: Graph, known: Mapping[str, Any], symbols: Mapping[str, float]) -> dict[str, Any]:
    """The values of a graph's nodes, run in eager on what is known of its inputs; none where it does not run."""
    with contextlib.suppress(Exception), deterministic():
        values, _ = inputs_of(graph, known, symbols)
        return run_graph(graph_module(graph, symbols), clones(tuple(values))).values
    return {}
