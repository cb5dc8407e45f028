"""Results that are views of inputs which require grad: made outside of the autograd node, by the user's own operators,
so that autograd knows their bases."""
from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.fx

from ...graphs.functional_graph import Captured
from ...runtime.entry import eager_form
from ...unsupported import EngineUnsupported

Compiled = Callable[..., Sequence[Any]]


def views_of_inputs(returned: Sequence[Any], inputs: Sequence[Any]) -> tuple[int, ...]:
    """The positions of the results that are such views, where there is any result that needs gradients."""
    tensors = [value for value in inputs if isinstance(value, torch.Tensor)]
    own = [value for value in returned if isinstance(value, torch.Tensor) and not _is_among(value, tensors)]
    if not any(value.requires_grad for value in own):
        return ()
    found = []
    for k, value in enumerate(returned):
        if _is_among(value, own) and value._is_view() and _is_among(value._base, tensors):
            if value.requires_grad != value._base.requires_grad:
                raise EngineUnsupported("a view of a wrapper subclass was made while gradients were off")
            found.append(k)
    return tuple(found)


def _is_among(value: Any, others: Sequence[Any]) -> bool:
    return any(value is other for other in others)


def with_views(call: Compiled, make: Compiled, positions: tuple[int, ...]) -> Compiled:
    """`call`, with the results at these positions, which it leaves out, as `make` makes them."""

    def run(*inputs: Any) -> Sequence[Any]:
        results = list(call(*inputs))
        for k, view in zip(positions, make(*inputs)):
            results[k] = view
        return tuple(results)

    return run


def only_views(captured: Captured, positions: tuple[int, ...]) -> Compiled:
    """The part of the captured graph that makes these results. Raises EngineUnsupported where it does more than take
    views."""
    whole = captured.module.graph
    returned: Any = whole.output_node().args[0]
    needed: dict[torch.fx.Node, None] = {}
    pending = [returned[k] for k in positions]
    while pending:
        node = pending.pop()
        if node not in needed:
            needed[node] = None
            pending += node.all_input_nodes
    graph, copies = torch.fx.Graph(), dict[torch.fx.Node, torch.fx.Node]()
    for node in whole.nodes:
        if node in needed or node.op == "placeholder":
            if node.op != "placeholder" and not _takes_a_view(node):
                raise EngineUnsupported("a view of an input depends on what the graph computes")
            copies[node] = graph.node_copy(node, copies.__getitem__)
    graph.output(tuple([copies[returned[k]] for k in positions]))
    return eager_form(torch.fx.GraphModule(captured.module, graph))


def _takes_a_view(node: torch.fx.Node) -> bool:
    value = node.meta.get("val")
    parts = value if isinstance(value, (tuple, list)) else (value,)
    return all(part._is_view() for part in parts if isinstance(part, torch.Tensor))
