"""The time that each operator of a graph takes in eager."""
from __future__ import annotations

from functools import partial
from typing import Any

import torch
import torch.fx

from ...engine.graphs.random_fills import RANDOM_FILLS
from ..recorded.inputs import clones
from .machine import fastest

SECONDS = 0.002  # for each operator


def node_seconds(module: torch.fx.GraphModule, inputs: tuple[Any, ...], device: str) -> dict[str, float]:
    """Seconds of each node of an ATen graph by name, as far as it runs in eager; views take what they take."""
    found: dict[str, float] = {}
    live: dict[torch.fx.Node, Any] = {}
    supply = iter(clones(inputs, device))
    with torch.no_grad():
        for node in module.graph.nodes:
            if node.op == "placeholder":
                live[node] = next(supply, None)
            elif node.op == "get_attr":
                live[node] = getattr(module, str(node.target))
            elif node.op == "call_function":
                target: Any = RANDOM_FILLS.get(node.target, node.target)
                args = torch.fx.node.map_arg(node.args, live.get)
                kwargs = torch.fx.node.map_arg(node.kwargs, live.get)
                try:
                    live[node] = target(*args, **kwargs)
                    found[node.name] = fastest(partial(target, *args, **kwargs), device, SECONDS)
                except Exception:  # what needs it is not timed, either
                    live[node] = None
    return found
