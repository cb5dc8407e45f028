"""Parts of a captured graph as cases of their own: what is computed before a part becomes its inputs, with the values
that eager gives them."""
from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import torch

from ...artifacts.records import Graph, Node, NodeRef, SavedInput, TensorMeta
from ...dependencies import msgspec
from ..failures.case import Case, Inputs, is_training
from ..ladder.rungs import run_graph
from ..recorded.graphs import graph_module
from ..recorded.inputs import RANDOM, bind_symbols, clones
from ..recorded.state import deterministic

Values = Mapping[str, Any]
"""What eager computes, by node."""


def eager_values(case: Case) -> dict[str, Any]:
    """What eager computes for each node of a case's graph, its inputs included. Raises what the graph does."""
    saved = clones(case.inputs.values(), case.device)
    module = graph_module(case.graph, bind_symbols(case.graph, saved), case.trust)
    inputs = {node.id: value for node, value in zip(computed(case.graph, "placeholder"), clones(saved, case.device))}
    with deterministic(case.inputs.random()):
        ran = run_graph(module, saved)
    return inputs | ran.values


def computed(graph: Graph, op: str = "") -> list[Node]:
    """The nodes that compute something; or those of one kind."""
    others = ("placeholder", "output", "get_attr")
    return [n for n in graph.nodes if (n.op == op if op else n.op not in others)]


def references(tree: Any) -> Iterator[str]:
    """The nodes that an argument refers to."""
    if isinstance(tree, NodeRef):
        yield tree.node
    elif isinstance(tree, (list, tuple)):
        for part in tree:
            yield from references(part)
    elif isinstance(tree, dict):
        for part in tree.values():
            yield from references(part)


def arguments(node: Node) -> list[str]:
    """The nodes that a node reads."""
    return list(references((node.args, node.kwargs)))


def results(graph: Graph) -> list[str]:
    """The nodes that a graph returns."""
    return list(dict.fromkeys(references(graph.nodes[-1].args)))


def live_after(graph: Graph, position: int) -> list[str]:
    """The values computed up to a position (inputs and constants aside) that are read after it."""
    names = {n.id for n in graph.nodes[: position + 1] if n.op not in ("placeholder", "get_attr")}
    read = (name for node in graph.nodes[position + 1 :] for name in arguments(node))
    return [name for name in dict.fromkeys(read) if name in names]


def writes(node: Node) -> bool:
    """Whether a node changes a tensor, or the state of the process: it matters although nothing reads it."""
    if not node.op.startswith("call_"):  # an input may be called `L_x_`
        return False
    name = node.target.rpartition(".")[2] if node.op == "call_function" else node.target
    if node.op == "call_function" and node.target.startswith("aten."):
        name = node.target.split(".")[1]
    in_place = name.endswith("_") and not name.endswith("__")
    operators = node.target.startswith("operator.i") and name not in ("is_", "is_not", "index", "inv", "invert")
    return in_place or operators or name in ("setitem", "__setitem__") or _is_state(node.target)


def _is_state(target: str) -> bool:
    words = ("_autocast", "_set_grad", "set_deterministic", "inference_mode", "grad_mode")
    return any(word in target for word in words)


def extract(case: Case, values: Values, outputs: Sequence[str], inputs: Collection[str] = ()) -> Case | None:
    """The case that computes `outputs` and begins at `inputs` (values of nodes). None if a value is no input."""
    graph = case.graph
    needed = set(outputs)
    kept: list[Node] = []
    made: list[Node] = []
    for node in reversed(graph.nodes[:-1]):
        if node.id in inputs and node.op not in ("placeholder", "get_attr"):
            if node.id in needed:
                made.append(node)
        elif node.id in needed or (writes(node) and (not arguments(node) or needed.intersection(arguments(node)))):
            kept.append(node)
            needed.update(arguments(node))
    if not outputs:
        return None
    new = [_as_input(node, values.get(node.id), case.training) for node in reversed(made)]
    if any(item is None for item in new):
        return None
    placed = [item for item in new if item is not None]
    nodes = [*reversed([n for n in kept if n.op == "placeholder"]), *(node for node, _, _ in placed),
             *reversed([n for n in kept if n.op != "placeholder"]), _returning(graph.nodes[-1], outputs)]
    return with_graph(case, nodes, [(record, value) for _, record, value in placed])


def _returning(output: Node, names: Sequence[str]) -> Node:
    return msgspec.structs.replace(output, args=([NodeRef(name) for name in names],))


def _as_input(node: Node, value: Any, training: bool) -> tuple[Node, SavedInput, Any] | None:
    meta: TensorMeta | None = None
    if isinstance(value, torch.Tensor) and value.layout is torch.strided:
        needs = training and isinstance(node.value, TensorMeta) and node.value.requires_grad
        meta = meta_of(value, needs)
    elif not isinstance(value, (bool, int, float)):
        return None
    placeholder = Node(node.id, "placeholder", node.id, value=meta or node.value, stack=node.stack)
    return placeholder, SavedInput(node.id, meta, value=None if meta else value), value


def meta_of(value: torch.Tensor, requires_grad: bool = False) -> TensorMeta:
    """The metadata of a tensor at the start of its memory."""
    return TensorMeta(str(value.dtype).removeprefix("torch."), tuple(value.shape), tuple(value.stride()),
                      str(value.device), requires_grad)


def with_graph(case: Case, nodes: Sequence[Node], new: Iterable[tuple[SavedInput, Any]] = ()) -> Case:
    """The case of other nodes: inputs that are no longer there are dropped; `new` ones have their values."""
    names = [n.id for n in case.graph.nodes if n.op == "placeholder"]
    records = dict(zip(names, case.inputs.records))
    flats = dict(case.inputs.flats)
    for record, value in new:
        if record.meta is None:
            records[record.name] = record
            continue
        key = f"value_{record.name}"
        flats[key] = flat_of(value)
        records[record.name] = msgspec.structs.replace(record, tensor=key)
    kept = tuple(records[n.id] for n in nodes if n.op == "placeholder")
    used = {record.tensor for record in kept}
    inner = {name: held for name, held in case.graph.inner.items() if any(n.id == name for n in nodes)}
    graph = msgspec.structs.replace(case.graph, nodes=tuple(nodes), inner=inner, notes=())
    flats = {name: flat for name, flat in flats.items() if name in used or name.startswith(RANDOM)}
    made = replace(case, graph=graph, inputs=Inputs(kept, flats))
    needs = any(record.meta is not None and record.meta.requires_grad for record in kept)
    return replace(made, training=case.training and needs and is_training(graph))


def flat_of(value: torch.Tensor) -> torch.Tensor:
    """The memory of a tensor, from its first element to its last, on the CPU."""
    span = 1 + sum((n - 1) * s for n, s in zip(value.shape, value.stride())) if value.numel() else 0
    return value.detach().as_strided((span,), (1,)).to("cpu", copy=True)


def replaced(tree: Any, names: Mapping[str, Any]) -> Any:
    """An argument in which some nodes are others, or constants."""
    if isinstance(tree, NodeRef):
        return names.get(tree.node, tree)
    if isinstance(tree, (list, tuple)):
        return type(tree)(replaced(part, names) for part in tree)
    if isinstance(tree, dict):
        return {key: replaced(part, names) for key, part in tree.items()}
    return tree


def substituted(case: Case, names: Mapping[str, Any]) -> Case | None:
    """The case in which readers of some nodes read others; what nothing reads any more is gone."""
    nodes = [
        node if node.id in names else msgspec.structs.replace(
            node, args=replaced(node.args, names), kwargs=replaced(node.kwargs, names))
        for node in case.graph.nodes
    ]  # fmt: skip
    outputs = list(dict.fromkeys(references(nodes[-1].args)))
    whole = replace(case, graph=msgspec.structs.replace(case.graph, nodes=tuple(nodes)))
    return extract(whole, {}, outputs)
