"""From a recorded graph back to a graph module that runs."""
from __future__ import annotations

import ast
import base64
import builtins
import importlib
import math
import operator
from collections.abc import Callable, Mapping
from typing import Any

import torch
import torch.fx

from ..artifacts.records import AutogradFunction, Graph, Node, NodeRef

TRUSTED_ROOTS = ("torch", "operator", "math")
"""Top-level modules that a recorded graph may call into without being trusted."""

OWN = frozenset(("ptdebug.tracer.variables.torch.scalar_tensor_index.chosen_row",))
"""Functions of ours that the tracer puts into graphs."""

PLANS = "ptdebug.tracer.fx.autograd_plans"
"""The module of ours whose FunctionPlan makes an autograd function of two graphs."""

BUILTINS = ("getattr", "abs", "max", "min", "pow", "round", "int", "float", "bool", "len", "sum", "divmod", "slice")


class ReplayError(Exception):
    """The recording cannot be run again; the message says why and what to do."""

    exit_code = 2


def graph_module(record: Graph, symbols: Mapping[str, float], trust: bool = False) -> torch.fx.GraphModule:
    """A graph module that computes what `record` says; node names are kept.

    `symbols` gives the value of each size symbol ("s0") that stands in the arguments. Raises ReplayError for a target
    that cannot be found or is not trusted, and for a large constant that the recording does not hold.
    """
    graph = torch.fx.Graph()
    root = torch.nn.Module()
    nodes: dict[str, torch.fx.Node] = {}
    for node in record.nodes:
        held = record.inner.get(node.id)
        inner = None if held is None else _inner(node, held, symbols, trust)
        made = nodes[node.id] = _rebuild(graph, root, nodes, node, inner, symbols, trust)
        made.meta["stack"], made.meta["module"] = tuple(node.stack), node.module
        if node.checkpoint:
            made.meta.update(recompute="always", checkpoint=node.checkpoint)
    return torch.fx.GraphModule(root, graph, record.name or "Recorded")


def _inner(node: Node, held: Graph | AutogradFunction, symbols: Mapping[str, float], trust: bool) -> Any:
    """What a node holds: a graph that it hands to an operator, or the autograd function that it calls."""
    if isinstance(held, Graph):
        return graph_module(held, symbols, trust)
    sides = [graph_module(side, symbols, trust) for side in (held.forward, held.backward)]
    facts = held.gradients, held.strides, held.fixed, held.dirty, held.once, held.materialized
    return importlib.import_module(PLANS).FunctionPlan(node.target, *sides, *facts).function()


def _rebuild(
    graph: torch.fx.Graph, root: torch.nn.Module, nodes: dict[str, torch.fx.Node], node: Node, inner: Any,
    symbols: Mapping[str, float], trust: bool,
) -> torch.fx.Node:
    def value(tree: Any) -> Any:
        return argument(tree, nodes, symbols)

    target: Any = node.target
    args = tuple(value(a) for a in node.args)
    kwargs = {k: value(v) for k, v in node.kwargs.items()}
    if node.op == "call_function":
        target = inner or resolve(node.target, trust)
        if target in (operator.getitem, operator.setitem) and isinstance(args[1], list) and _is_key(node.args[1]):
            args = (args[0], tuple(args[1]), *args[2:])
    elif node.op == "get_attr":
        if not args and inner is None:
            raise ReplayError(f"the recording does not hold the constant {node.id}: it is too large to be kept")
        target = node.id
        setattr(root, target, inner or args[0])
        args = ()
    elif node.op == "output":
        return graph.output(_tuples(args[0]))
    elif node.op == "placeholder":
        args = ()
    return graph.create_node(node.op, target, args, kwargs, name=node.id)


def _tuples(tree: Any) -> Any:
    """What graphs return is a tuple, as are its parts; JSON has lists."""
    return tuple(map(_tuples, tree)) if isinstance(tree, list) else tree


def _is_key(index: Any) -> bool:
    """Whether a recorded index is a tuple's, which `{"list": ...}` is not."""
    return not isinstance(index, dict)


def resolve(name: str, trust: bool = False) -> Callable[..., Any]:
    """The function that a recorded target names. Raises ReplayError."""
    namespace, _, rest = name.partition(".")
    if namespace == "builtins":
        if rest in BUILTINS:
            return getattr(builtins, rest)
        raise ReplayError(f"the recorded graph calls the builtin {rest}, which replay does not run")
    packet, _, overload = rest.partition(".")
    if namespace not in TRUSTED_ROOTS and hasattr(getattr(torch.ops, namespace), packet):
        return getattr(getattr(getattr(torch.ops, namespace), packet), overload or "default")
    if namespace not in TRUSTED_ROOTS and name not in OWN and not trust:
        raise ReplayError(
            f"the recorded graph calls {name}, which is not torch's: pass --trust to run code that the recording names"
        )
    return _attribute(name)


def _attribute(name: str) -> Callable[..., Any]:
    parts = name.split(".")
    for cut in range(len(parts) - 1, 0, -1):
        try:
            found: Any = importlib.import_module(".".join(parts[:cut]))
            for part in parts[cut:]:
                found = getattr(found, part)
        except (ImportError, AttributeError):
            continue
        if callable(found):
            return found
    raise ReplayError(f"this torch ({torch.__version__}) has no {name}, which the recorded graph calls")


# ---- arguments: the plain data that artifacts/fx_graphs.py writes, read back -----------------------------------------
def argument(tree: Any, nodes: Mapping[str, Any], symbols: Mapping[str, float]) -> Any:
    """An argument tree with nodes, dtypes, symbolic sizes, ... in place of their plain forms."""
    if isinstance(tree, NodeRef):
        return nodes[tree.node]
    if isinstance(tree, (list, tuple)):
        return [argument(v, nodes, symbols) for v in tree]
    if not isinstance(tree, dict):
        return tree
    if tree.get("record") == "NodeRef":
        return nodes[tree["node"]]
    if len(tree) == 1:
        kind, content = next(iter(tree.items()))
        special = FORMS.get(kind)
        if special is not None:
            return special(content, nodes, symbols)
    if "tensor" in tree and "dtype" in tree:
        return _tensor(tree)
    return {k: argument(v, nodes, symbols) for k, v in tree.items()}


def _torch_object(text: str) -> Any:
    if text.startswith("torch."):
        return getattr(torch, text.removeprefix("torch."))
    return torch.device(text)


FORMS: dict[str, Callable[[Any, Mapping[str, Any], Mapping[str, float]], Any]] = {
    "float": lambda content, nodes, symbols: float(content),
    "torch": lambda content, nodes, symbols: _torch_object(content),
    "slice": lambda content, nodes, symbols: slice(*(argument(v, nodes, symbols) for v in content)),
    "symbol": lambda content, nodes, symbols: size_value(content, symbols),
    "complex": lambda content, nodes, symbols: complex(float(content[0]), float(content[1])),
    "python": lambda content, nodes, symbols: {"...": Ellipsis}[content],
    "list": lambda content, nodes, symbols: [argument(v, nodes, symbols) for v in content],
}


def _tensor(tree: Mapping[str, Any]) -> torch.Tensor:
    dtype = getattr(torch, tree["dtype"])
    flat = torch.frombuffer(bytearray(base64.b64decode(tree["tensor"])), dtype=torch.uint8) if tree["tensor"] else None
    values = torch.empty(0, dtype=dtype) if flat is None else flat.view(dtype)
    dense = values.reshape(tree["shape"])
    result = torch.empty_strided(tree["shape"], tree["stride"], dtype=dtype)
    return result.copy_(dense).to(tree["device"])


_OPERATORS: dict[type, Callable[..., Any]] = {
    ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul, ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod, ast.Pow: operator.pow, ast.USub: operator.neg, ast.Div: operator.truediv,
}
_FUNCTIONS: dict[str, Callable[..., Any]] = {
    "Max": max, "Min": min, "FloorDiv": operator.floordiv, "CleanDiv": operator.floordiv, "Mod": operator.mod,
    "PythonMod": operator.mod, "IntTrueDiv": operator.truediv, "Abs": abs, "floor": math.floor, "ceiling": math.ceil,
    "FloatTrueDiv": operator.truediv, "ToFloat": float, "FloorToInt": math.floor, "CeilToInt": math.ceil,
    "TruncToInt": math.trunc, "FloatPow": operator.pow, "PowByNatural": operator.pow,
}


def size_value(expression: int | str, symbols: Mapping[str, float]) -> Any:
    """The value of a recorded size ("2*s0 + 1"). Only arithmetic is evaluated; raises ReplayError for the rest."""
    if isinstance(expression, int):
        return expression

    def value(node: ast.expr) -> Any:
        if isinstance(node, ast.Constant) and isinstance(node.value, (int, float)):
            return node.value
        if isinstance(node, ast.Name) and node.id in symbols:
            return symbols[node.id]
        if isinstance(node, ast.BinOp) and type(node.op) in _OPERATORS:
            return _OPERATORS[type(node.op)](value(node.left), value(node.right))
        if isinstance(node, ast.UnaryOp) and type(node.op) in _OPERATORS:
            return _OPERATORS[type(node.op)](value(node.operand))
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in _FUNCTIONS:
            return _FUNCTIONS[node.func.id](*(value(a) for a in node.args))
        raise ReplayError(f"replay cannot evaluate the recorded size {expression!r}")

    return value(ast.parse(expression, mode="eval").body)
