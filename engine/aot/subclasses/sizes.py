"""Dynamic sizes and numbers as nodes of a plain graph: read from its inputs, and computed from those."""
from __future__ import annotations

import functools
import operator
from collections import ChainMap
from typing import Any

import sympy
import torch
import torch.fx
from torch.utils._sympy.functions import CleanDiv, FloorDiv, Mod, PythonMod

from ...unsupported import EngineUnsupported

_ARITHMETIC: dict[Any, Any] = {
    sympy.Add: operator.add, sympy.Mul: operator.mul, sympy.Pow: operator.pow, Mod: operator.mod,
    PythonMod: operator.mod, FloorDiv: operator.floordiv, CleanDiv: operator.floordiv,
}  # fmt: skip


class Sizes:
    """Where the inputs of a graph tell sizes; the latest first: the backward has inputs of its own."""

    def __init__(self, graph: torch.fx.Graph) -> None:
        self.graph = graph
        self._known: ChainMap[Any, tuple[torch.fx.Node, int | None]] = ChainMap()

    def begin(self) -> None:
        """The inputs of another part of the graph come."""
        self._known = self._known.new_child()

    def learn(self, node: torch.fx.Node, value: Any) -> None:
        """An input, a tensor or a number."""
        if isinstance(value, (torch.SymInt, torch.SymFloat)):
            self._known.maps[0].setdefault(value.node.expr, (node, None))
        for dimension, size in enumerate(value.shape) if isinstance(value, torch.Tensor) else ():
            if isinstance(size, torch.SymInt):
                self._known.maps[0].setdefault(size.node.expr, (node, dimension))

    def node_of(self, size: torch.SymInt | torch.SymFloat) -> Any:
        """The node, or constant, of a size or another number."""
        if size.node.is_nested_int():
            raise EngineUnsupported("a ragged size is an argument of an operator on plain tensors")
        found = self._computed(size.node.expr)
        if isinstance(found, torch.fx.Node):
            found.meta.setdefault("val", size)
        return found

    def _computed(self, expression: sympy.Expr) -> Any:
        if expression.is_Integer:
            return int(expression)
        if expression in self._known:
            node, dimension = self._known[expression]
            read = torch.ops.aten.sym_size.int
            return node if dimension is None else self.graph.call_function(read, (node, dimension))
        function = _ARITHMETIC.get(expression.func)
        power = expression.args[1] if expression.func is sympy.Pow else None
        if function is None or (power is not None and not (power.is_Integer and power > 0)):
            raise EngineUnsupported(f"the size {expression} in a graph with wrapper subclasses")
        compute = lambda a, b: self.graph.call_function(function, (a, b))
        return functools.reduce(compute, map(self._computed, expression.args))
