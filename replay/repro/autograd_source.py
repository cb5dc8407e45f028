"""A traced torch.autograd.Function as a class."""
from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ...artifacts.records import AutogradFunction, Graph, NodeRef, TensorMeta
from ...dependencies import msgspec

INDENT = "    "
Writer = Callable[[Graph, str], list[str]]
"""Writes a graph as a function of that name."""


def autograd_class(function: Writer, name: str, held: AutogradFunction) -> list[str]:
    """A traced torch.autograd.Function. Its forward graph returns its results and what the backward reads."""
    results, saved = held.forward.nodes[-1].args[0]
    metas = {node.id: node.value for node in held.forward.nodes}
    is_tensor = [isinstance(item, NodeRef) and isinstance(metas[item.node], TensorMeta) for item in saved]
    forward = function(_returning(held.forward, [*results, *saved]), "forward")
    forward[0] = forward[0].replace("(", "(ctx, ", 1)
    count = len(results)
    values = forward.pop().partition("return ")[2]
    keep = [f"{INDENT}results = {values}"] if not saved else [
        f"{INDENT}values = {values}", f"{INDENT}results, kept = values[:{count}], values[{count}:]",
        *([] if all(is_tensor) else [f"{INDENT}ctx.numbers = [{_chosen('None', 'kept[{}]', is_tensor)}]"]),
        f"{INDENT}ctx.save_for_backward({_chosen('kept[{}]', 'None', is_tensor)})"]
    keep += [f"{INDENT}ctx.mark_non_differentiable({', '.join(f'results[{i}]' for i in held.non_differentiable)})"
             ] if held.non_differentiable else []
    keep += [f"{INDENT}ctx.mark_dirty({', '.join(f'results[{i}]' for i in held.dirty)})"] if held.dirty else []
    keep += [] if held.materialize_grads else [f"{INDENT}ctx.set_materialize_grads(False)"]
    keep.append(f"{INDENT}return tuple(results)")
    backward = function(held.backward, "from_gradients")
    missing = len(held.needs_input_grad) - sum(held.needs_input_grad)
    none = [f"{INDENT}if gradients[0] is None:", f"{INDENT * 2}return (None,) * {len(held.needs_input_grad)}"]
    found = f"from_gradients(*gradients, *{'ctx.saved_tensors' if all(is_tensor) else _MIXED})"
    steps = [
        *([] if held.materialize_grads else none),
        *_restrided(held.strides),
        *(INDENT + line for line in backward),
        f"{INDENT}return {found}" + (f" + (None,) * {missing}" if missing else ""),
    ]
    once = ["@torch.autograd.function.once_differentiable"] if held.once_differentiable else []
    body = ["@staticmethod", *forward, *keep, "", "@staticmethod", *once, "def backward(ctx, *gradients):", *steps]
    return [f"class {name}(torch.autograd.Function):", *(INDENT + line if line else line for line in body)]


_MIXED = "[n if t is None else t for t, n in zip(ctx.saved_tensors, ctx.numbers)]"


def _chosen(of_tensors: str, of_others: str, is_tensor: list[bool]) -> str:
    """A list with one text or the other for each value that is kept."""
    return ", ".join((of_tensors if is_ else of_others).format(i) for i, is_ in enumerate(is_tensor))


def _restrided(strides: tuple[tuple[int, ...] | None, ...] | None) -> list[str]:
    """Gradients in the layouts that the backward relies on."""
    if strides is None or all(stride is None for stride in strides):
        return [f"{INDENT}gradients = [gradient.contiguous() for gradient in gradients]"] if strides else []
    made = [f"gradients[{i}].contiguous()" if s is None else
            f"torch.empty_strided(gradients[{i}].shape, {s}, dtype=gradients[{i}].dtype).copy_(gradients[{i}])"
            for i, s in enumerate(strides)]
    return [f"{INDENT}gradients = [{', '.join(made)}]"]


def _returning(graph: Graph, results: list[Any]) -> Graph:
    """The graph with other results."""
    output = msgspec.structs.replace(graph.nodes[-1], args=(results,))
    return msgspec.structs.replace(graph, nodes=(*graph.nodes[:-1], output))
