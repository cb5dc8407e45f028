"""Graphs inside the graph: the branches of torch.cond, the body of a loop, forward and backward of an
autograd.Function.

While one is open, nodes are added to it; what it uses of the graphs around it is lifted: it becomes an input of the
inner graph, and the node that runs the inner graph passes it. A tensor of an inner graph that has been closed cannot be
used outside of it.
"""
from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
import torch.fx
from torch.fx._lazy_graph_module import _LazyGraphModule

from ..breaks.reasons import Reason
from ..breaks.unsupported import Unsupported


class Scope:
    """One graph under construction: `lifted` maps nodes of the graph around it to its own inputs."""

    def __init__(self, graph: torch.fx.Graph) -> None:
        self.graph = graph
        self.lifted: dict[torch.fx.Node, torch.fx.Node] = {}
        self.modules: dict[str, torch.fx.GraphModule] = {}
        self._last_input: torch.fx.Node | None = None
        self._input_names: dict[str, int] = {}

    def add_input(self, name: str, fake: Any) -> torch.fx.Node:
        """A placeholder after the existing ones."""
        number = self._input_names[name] = self._input_names.get(name, 0) + 1
        if number > 1:  # the inputs are the parameters of the graph's function
            name = f"{name}_again_{number}"
        anchor = self._last_input
        first = next(iter(self.graph.nodes), self.graph._root)
        with self.graph.inserting_after(anchor) if anchor is not None else self.graph.inserting_before(first):
            node = self.graph.placeholder(name)
        node.meta["val"] = fake
        self._last_input = node
        return node

    def lift(self, node: torch.fx.Node) -> torch.fx.Node:
        """The input that represents a node of the graph around this one."""
        own = self.lifted.get(node)
        if own is None:
            own = self.lifted[node] = self.add_input(f"lifted_{len(self.lifted)}", node.meta["val"])
        return own

    def lift_again(self, node: torch.fx.Node) -> None:
        """One more input for `node`: nothing reads the second and later ones, which have gradients of their own."""
        if node in self.lifted:
            self.add_input(f"{self.lifted[node].name}_repeated", node.meta["val"])
        else:
            self.lift(node)

    def align(self, nodes: Sequence[torch.fx.Node]) -> None:
        """Have exactly the lifted inputs for `nodes`, in this order, after the graph's own inputs."""
        for node in nodes:
            own = self.lift(node)
            if own is not self._last_input:
                assert self._last_input is not None
                self._last_input.append(own)
                self._last_input = own

    def add_module(self, module: torch.fx.GraphModule) -> torch.fx.Node:
        """The node that represents an inner graph."""
        name = f"inner_{len(self.modules)}"
        self.modules[name] = module
        node = self.graph.get_attr(name)
        node.meta["val"] = module.forward  # tracing a call of it runs none of the user's global module hooks
        return node

    def close(self, outputs: Any) -> torch.fx.GraphModule:
        """The graph, with these outputs."""
        self.graph.output(outputs)
        return _LazyGraphModule(self.modules, self.graph)


class Scopes:
    """The open graphs, innermost last."""

    def __init__(self) -> None:
        self.open = [Scope(torch.fx.Graph())]

    def graphs(self) -> list[torch.fx.Graph]:
        """The open graphs themselves."""
        return [scope.graph for scope in self.open]

    def home(self, args: Sequence[Any]) -> int:
        """The depth of the innermost graph that a node among `args` belongs to, counted from the innermost (-1)."""
        graphs = [arg.graph for arg in args if isinstance(arg, torch.fx.Node)]
        depths = range(-1, -len(self.open) - 1, -1)
        return next((depth for depth in depths if self.open[depth].graph in graphs), -1)

    def here(self, node: torch.fx.Node, depth: int = -1) -> torch.fx.Node:
        """What represents `node` in the innermost graph (in the one at `depth`). Raises Unsupported where nothing
        does."""
        scope = self.open[depth]
        if node.graph is scope.graph:
            return node
        if depth == -len(self.open):
            raise Unsupported(Reason.RECONSTRUCT, detail=f"{node.name}, a tensor of an inner graph that has ended,")
        return scope.lift(self.here(node, depth - 1))


def versions(graphs: Sequence[torch.fx.Graph]) -> dict[torch.fx.Node, int]:
    """How often each tensor of some graphs has been written."""
    found = {}
    for graph in graphs:
        for node in graph.nodes:
            fake = node.meta.get("val")
            if isinstance(fake, torch.Tensor) and not fake.is_inference():
                found[node] = fake._version
    return found


def refuse_writes(graphs: Sequence[torch.fx.Graph], before: dict[torch.fx.Node, int], what: str) -> None:
    """Raises Unsupported where a tensor older than `before` has been written since; an input that a graph got
    meanwhile may stand for such a tensor."""
    lifted = {id(node.meta["val"]): version for node, version in before.items()}
    for node, version in versions(graphs).items():
        new = lifted.get(id(node.meta["val"]), 0) if node.op == "placeholder" else version
        if version != before.get(node, new):
            raise Unsupported(Reason.SIDE_EFFECT_IN_SUBGRAPH, detail=f"{what} changes the tensor {node.name} in place")


def refuse_writes_as_data(inner: torch.fx.Graph, around: Sequence[torch.fx.Graph], what: str) -> None:
    """Raises Unsupported where an inner graph writes to `x.data`, whose version counter is separate, of an `x`
    outside."""
    written = [node for node, version in versions([inner]).items() if version and node.target is getattr]
    memory = {node.meta["val"].untyped_storage()._cdata for node in versions(around)} if written else set()
    for node in written:
        if node.meta["val"].untyped_storage()._cdata in memory:
            raise Unsupported(
                Reason.SIDE_EFFECT_IN_SUBGRAPH, detail=f"{what} changes the tensor {node.args[0]} in place"
            )
