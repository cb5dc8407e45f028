"""The time that each operator of a graph takes in eager."""
from __future__ import annotations

import operator
from functools import partial
from typing import Any

import torch
import torch.fx
from torch.utils._pytree import tree_leaves

from ...engine.graphs.random_fills import fill_of
from ..recorded.inputs import clones
from .stopwatch import Stopwatch

SECONDS = 0.002  # for each operator


def run_nodes(
    module: torch.fx.GraphModule, inputs: tuple[Any, ...], device: str, watch: Stopwatch, prefix: str
) -> None:
    """Time each node of an ATen graph, as far as it runs in eager; the name of its time is `prefix` and its own."""
    live: dict[torch.fx.Node, Any] = {}
    supply = iter(clones(inputs, device))
    last = torch.fx.Interpreter(module).user_to_last_uses
    with torch.no_grad():
        for node in module.graph.nodes:
            if node.op == "placeholder":
                live[node] = next(supply, None)
            elif node.op == "get_attr":
                live[node] = getattr(module, str(node.target))
            elif node.op == "call_function":
                target: Any = fill_of(node.target) or node.target
                args = torch.fx.node.map_arg(node.args, live.get)
                kwargs = torch.fx.node.map_arg(node.kwargs, live.get)
                try:
                    live[node] = target(*args, **kwargs)
                    watch.run(f"{prefix}{node.name}", partial(target, *args, **kwargs), SECONDS)
                except Exception:  # what needs it is not timed, either
                    live[node] = None
            for used in last.get(node, ()):
                live.pop(used, None)


def run_captured(module: torch.fx.GraphModule, inputs: tuple[Any, ...], watch: Stopwatch, prefix: str) -> None:
    """The same for a captured graph. What writes to its arguments is not timed: once is not as twice."""
    with torch.no_grad():
        _Timed(module, watch, prefix).run(*inputs)


class _Timed(torch.fx.Interpreter):
    def __init__(self, module: torch.fx.GraphModule, watch: Stopwatch, prefix: str) -> None:
        super().__init__(module)
        self._watch, self._prefix = watch, prefix

    def run_node(self, node: torch.fx.Node) -> Any:
        result = super().run_node(node)
        if node.op.startswith("call_") and not _writes(node) and _has_tensor(result):
            args, kwargs = self.fetch_args_kwargs_from_env(node)
            call = partial(getattr(self, node.op), node.target, args, kwargs)
            self._watch.run(f"{self._prefix}{node.name}", call, SECONDS)
        return result


def _has_tensor(value: Any) -> bool:
    return any(isinstance(leaf, torch.Tensor) for leaf in tree_leaves(value))


def _writes(node: torch.fx.Node) -> bool:
    name = node.target if isinstance(node.target, str) else getattr(node.target, "__name__", "")
    return (name.endswith("_") and not name.endswith("__")) or node.target is operator.setitem \
        or node.kwargs.get("out") is not None or bool(node.kwargs.get("inplace"))

