"""From a recorded graph back to a graph module that runs.

torch.fx generates Python from names and arguments and executes it. So all of a record is checked first, trusted or not:
names are identifiers, arguments are plain values, constants have the size that they claim. What the graph calls must be
on a list (`allowed.py`), unless the user trusts the recording.
"""
from __future__ import annotations

import base64
import binascii
import importlib
import keyword
import math
import operator
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

import torch
import torch.fx

from ...artifacts.decode import form_of
from ...artifacts.fx_graphs import LIMIT_CONSTANT
from ...artifacts.records import AutogradFunction, Graph, Node, NodeRef
from ...operators.autograd_plans import FunctionPlan
from .allowed import ATTRIBUTES, allowed, allowed_method
from .sizes import SizeError, bounded_ilshift, bounded_ipow, bounded_lshift, bounded_pow, evaluate

BOUNDED: dict[Any, Callable[..., Any]] = {
    operator.pow: bounded_pow, operator.ipow: bounded_ipow, pow: bounded_pow, operator.lshift: bounded_lshift,
    operator.ilshift: bounded_ilshift, torch.ops.aten._reshape_alias: torch.ops.aten.as_strided,
    torch.ops.aten._reshape_alias.default: torch.ops.aten.as_strided.default,
}
"""Functions that could run without end on integers, or read outside of a tensor's memory, and their replacements."""


class ReplayError(Exception):
    """The recording cannot be run again; the message says why and what to do."""

    exit_code = 2


def graph_module(record: Graph, symbols: Mapping[str, float], trust: bool = False) -> torch.fx.GraphModule:
    """A graph module that computes what `record` says; node names are kept.

    `symbols` gives the value of each size symbol ("s0") in the arguments. Raises ReplayError for a target
    that does not exist or is not trusted, for a large constant that was not recorded, and for a damaged record.
    """
    try:
        return _graph_module(record, symbols, trust)
    except (LookupError, TypeError, ValueError, AttributeError, RuntimeError, AssertionError) as error:
        raise ReplayError(f"the recorded graph is damaged: {type(error).__name__}: {error}") from error


def _graph_module(record: Graph, symbols: Mapping[str, float], trust: bool) -> torch.fx.GraphModule:
    graph = torch.fx.Graph()
    root = torch.nn.Module()
    nodes: dict[str, torch.fx.Node] = {}
    for node in record.nodes:
        if node.id in nodes:
            raise ReplayError(f"the recorded graph is damaged: it has two nodes {_identifier(node.id)}")
        held = record.inner.get(node.id)
        inner = None if held is None else _inner(node, held, symbols, trust)
        made = nodes[node.id] = _rebuild(graph, root, nodes, node, inner, symbols, trust)
        made.meta["stack"], made.meta["module"] = tuple(node.stack), node.module
        if node.checkpoint:
            made.meta.update(recompute="always", checkpoint=node.checkpoint)
    if not record.nodes or record.nodes[-1].op != "output":
        raise ReplayError("the recorded graph is damaged: it does not end with an output node")
    return torch.fx.GraphModule(root, graph, re.sub(r"\W", "_", record.name) or "Recorded")


def _identifier(name: str) -> str:
    """`name`, checked to be a Python identifier. Raises ReplayError."""
    if not name.isidentifier() or keyword.iskeyword(name):
        raise ReplayError(f"the recorded graph has a name that is not an identifier: {name!r}")
    return name


def _inner(node: Node, held: Graph | AutogradFunction, symbols: Mapping[str, float], trust: bool) -> Any:
    """What a node holds: the subgraph of a higher-order operator, or the autograd function that it calls."""
    if isinstance(held, Graph):
        return _graph_module(held, symbols, trust)
    forward, backward = (_graph_module(side, symbols, trust) for side in (held.forward, held.backward))
    gradients = sum(held.needs_input_grad)
    if not all(held.needs_input_grad[:gradients]):
        raise ReplayError(f"the recorded graph is damaged: inputs of {node.id} that need gradients do not come first")
    return FunctionPlan(
        _identifier(node.target), forward, backward, gradients, held.strides, held.non_differentiable, held.dirty,
        held.once_differentiable, held.materialize_grads,
    ).function()


def _rebuild(
    graph: torch.fx.Graph, root: torch.nn.Module, nodes: dict[str, torch.fx.Node], node: Node, inner: Any,
    symbols: Mapping[str, float], trust: bool,
) -> torch.fx.Node:
    def value(tree: Any) -> Any:
        return argument(tree, nodes, symbols)

    name = _identifier(node.id)
    args = tuple(value(a) for a in node.args)
    kwargs = {_identifier(k): value(v) for k, v in node.kwargs.items()}
    target: Any = node.target
    if _ON.get() and node.op in ("call_function", "call_method"):
        args, kwargs = tuple(map(_moved, args)), {k: _moved(v) for k, v in kwargs.items()}
        if (node.op, target) == ("call_method", "cuda") and not _ON.get().startswith("cuda"):
            target, args = "to", (*args[:1], _ON.get())
    if node.op == "call_function":
        target = inner or resolve(node.target, trust)
        if target is getattr:
            _check_attribute(args)
        elif node.target.startswith(("operator.", "builtins.")) and any(isinstance(arg, str) for arg in args):
            raise ReplayError("the recorded graph computes with strings")
        if target in (operator.getitem, operator.setitem) and isinstance(args[1], list) and _is_key(node.args[1]):
            args = (args[0], tuple(args[1]), *args[2:])
    elif node.op == "call_method":
        _check_method(target, args, trust)
    elif node.op == "get_attr":
        if not args and inner is None:
            raise ReplayError(f"the recording lacks the constant {name}: it was too large to be recorded")
        if hasattr(root, name):
            raise ReplayError(f"the recorded graph has a constant of the name {name}")
        target = name
        setattr(root, name, inner or args[0])
        args = ()
    elif node.op == "output":
        return graph.output(_tuples(args[0]))
    elif node.op == "placeholder":
        target, args, kwargs = _identifier(node.target), (), {}  # arguments would be executed, as default values
    else:
        raise ReplayError(f"the recorded graph has a node that captures do not make: {node.op}")
    return graph.create_node(node.op, target, args, kwargs, name=name)


def _check_attribute(args: tuple[Any, ...]) -> None:
    """Attributes of tensors only: from other objects, attributes lead to any code."""
    if len(args) != 2 or not isinstance(args[0], torch.fx.Node) or args[1] not in ATTRIBUTES:
        raise ReplayError(f"the recorded graph reads an attribute that is not a tensor's: {args[1:2]}")


def _check_method(name: str, args: tuple[Any, ...], trust: bool) -> None:
    owner = args[0] if args else None
    if not isinstance(owner, torch.fx.Node):
        raise ReplayError(f"the recorded graph calls the method {name!r} of something that is not a tensor")
    if not allowed_method(_identifier(name)) and not trust:
        raise ReplayError(f"the recorded graph calls the method {name} of a tensor: replay runs it with --trust only")


def _tuples(tree: Any) -> Any:
    """Graphs return tuples (of tuples); JSON has lists."""
    return tuple(map(_tuples, tree)) if isinstance(tree, list) else tree


def _is_key(index: Any) -> bool:
    """Whether a recorded index is a tuple's, which `{"list": ...}` is not."""
    return not isinstance(index, dict)


def resolve(name: str, trust: bool = False) -> Callable[..., Any]:
    """The function that a recorded target names. Raises ReplayError where it is not on the list of what graphs call,
    unless the recording is trusted."""
    found = allowed(name)
    if found is None and trust:
        found = _operator(name) or _attribute(name)
    if found is not None:
        return BOUNDED.get(found, found)
    namespace = name.partition(".")[0]
    if namespace == "builtins":
        raise ReplayError(f"the recorded graph calls the builtin {name.partition('.')[2]}, which replay does not run")
    if namespace in ("torch", "aten", "prims", "operator", "math") and not trust:
        raise ReplayError(
            f"this torch ({torch.__version__}) has no {name} among what graphs call: others run with --trust only"
        )
    raise ReplayError(
        f"the recorded graph calls {name}, which is not torch's: pass --trust to run code that the recording names"
    )


def _operator(name: str) -> Callable[..., Any] | None:
    """An operator of any library that is loaded."""
    namespace, _, rest = name.partition(".")
    packet, _, overload = rest.partition(".")
    return getattr(getattr(getattr(torch.ops, namespace, None), packet, None), overload or "default", None)


def _attribute(name: str) -> Callable[..., Any]:
    parts = name.split(".")
    for cut in range(len(parts) - 1, 0, -1):
        try:
            found: Any = importlib.import_module(".".join(parts[:cut]))
            for part in parts[cut:]:
                found = getattr(found, part)
        except (ImportError, AttributeError, ValueError):
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
    form = form_of(tree)
    if form is not None:
        return FORMS[form[0]](form[1], nodes, symbols)
    if "tensor" in tree and "dtype" in tree:
        return _tensor(tree)
    return {k: argument(v, nodes, symbols) for k, v in tree.items()}


_WORDS: dict[str, Any] = {
    f"torch.{name}": value for name, value in vars(torch).items()
    if isinstance(value, (torch.dtype, torch.layout, torch.memory_format))
}
_DEVICE = re.compile(r"[a-z]{2,20}(:\d{1,3})?$")
_OF_DEVICES = re.compile(r"(cpu|cuda)(:\d{1,3})?$")


def dtype(name: str) -> torch.dtype:
    """The dtype of that name. Raises ReplayError."""
    found = _WORDS.get(f"torch.{name.removeprefix('torch.')}")
    if not isinstance(found, torch.dtype):
        raise ReplayError(f"the recording has a dtype that this torch does not know: {name!r}")
    return found


_ON: ContextVar[str] = ContextVar("on", default="")


@contextmanager
def on_device(device: str) -> Iterator[None]:
    """Graphs that are rebuilt inside name this device where the recorded ones name one of another kind."""
    before = _ON.set(device)
    try:
        yield
    finally:
        _ON.reset(before)


def _there(name: str) -> str:
    """The device to use where a recorded graph names this one."""
    other, kind = _ON.get(), name.partition(":")[0]
    return other if other and kind not in ("meta", other.partition(":")[0]) else name


def _moved(value: Any) -> Any:
    """An argument that names a device as text (`x.to("cuda")`, a kind of autocast): the device to use."""
    return _there(value) if isinstance(value, str) and _OF_DEVICES.match(value) else value


def _torch_object(text: str) -> Any:
    if text in _WORDS:
        return _WORDS[text]
    if _DEVICE.match(text):
        return torch.device(_there(text))
    raise ReplayError(f"the recorded graph has an argument that replay does not know: {text!r}")


FORMS: dict[str, Callable[[Any, Mapping[str, Any], Mapping[str, float]], Any]] = {
    "float": lambda content, nodes, symbols: float(content),
    "torch": lambda content, nodes, symbols: _torch_object(content),
    "slice": lambda content, nodes, symbols: slice(*(argument(v, nodes, symbols) for v in content)),
    "symbol": lambda content, nodes, symbols: size_value(content, symbols),
    "complex": lambda content, nodes, symbols: complex(float(content[0]), float(content[1])),
    "python": lambda content, nodes, symbols: Ellipsis,
    "list": lambda content, nodes, symbols: [argument(v, nodes, symbols) for v in content],
}


def _tensor(tree: Mapping[str, Any]) -> torch.Tensor:
    """A constant of a graph. Its shape and strides are held against the bytes that are there."""
    kind = dtype(str(tree["dtype"]))
    shape, stride = ([int(n) for n in tree[key]] for key in ("shape", "stride"))
    try:
        data = base64.b64decode(tree["tensor"], validate=True)
    except (binascii.Error, TypeError, ValueError) as error:
        raise ReplayError(f"a constant of the recorded graph is damaged: {error}") from error
    count = math.prod(shape)
    if min([*shape, *stride, 0]) < 0 or len(shape) != len(stride) or count > LIMIT_CONSTANT or (
            len(data) != count * kind.itemsize or _span(shape, stride) > MAX_SPAN):
        raise ReplayError("a constant of the recorded graph is damaged: its shape does not fit its bytes")
    flat = torch.frombuffer(bytearray(data), dtype=torch.uint8) if data else None
    values = torch.empty(0, dtype=kind, device="cpu") if flat is None else flat.view(kind)
    result = torch.empty_strided(shape, stride, dtype=kind, device="cpu")
    return result.copy_(values.reshape(shape)).to(_torch_object(str(tree["device"])))


MAX_SPAN = 1 << 24  # elements between the first and the last of a constant


def _span(shape: list[int], stride: list[int]) -> int:
    return sum((size - 1) * step for size, step in zip(shape, stride) if size)


def size_value(expression: int | str, symbols: Mapping[str, float]) -> Any:
    """The value of a recorded size ("2*s0 + 1"). Only arithmetic is evaluated; raises ReplayError for the rest."""
    if isinstance(expression, int):
        return expression
    try:
        return evaluate(expression, symbols)
    except SizeError as error:
        raise ReplayError(f"replay cannot evaluate the recorded size {expression[:200]!r}: {error}") from error
