"""Graphs of torch.fx as records: nodes with ids and origins, arguments as plain data.

torch is never imported here: the caller, who has a graph, has loaded it.
"""
from __future__ import annotations

import base64
import math
import operator
import sys
from collections.abc import Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from .records import AutogradFunction, Graph, Node, NodeRef, TensorMeta

if TYPE_CHECKING:
    import torch
    import torch.fx

LIMIT_CONSTANT = 4096
"""Elements; of a larger constant only the metadata is recorded."""

PLAN = "__ptdebug_plan__"
"""The attribute of a function in a graph that has the graphs it is made of (a FunctionPlan)."""


def graph_record(graph: torch.fx.Graph, name: str, origin_stage: str, notes: tuple[str, ...] = ()) -> Graph:
    """`graph` as a record; each node's origins are its meta["origins"], names of nodes of `origin_stage`."""
    inner = {node.name: record for node in graph.nodes if (record := _inner_record(node, origin_stage)) is not None}
    return Graph(name, tuple(node_record(node, origin_stage) for node in graph.nodes), notes, inner)


def _inner_record(node: torch.fx.Node, origin_stage: str) -> Graph | AutogradFunction | None:
    """The graphs that a node holds, if any."""
    if node.op == "get_attr":
        held = _attribute(node)
        fx = sys.modules["torch"].fx
        return graph_record(held.graph, node.name, origin_stage) if isinstance(held, fx.GraphModule) else None
    plan = getattr(node.target, PLAN, None)
    if plan is None:
        return None
    forward = graph_record(plan.forward.graph, "forward", origin_stage)
    inputs = sum(node.op == "placeholder" for node in plan.forward.graph.nodes)
    backward = graph_record(plan.backward.graph, "backward", origin_stage)
    return AutogradFunction(
        forward, backward, needs_input_grad=tuple(number < plan.gradients for number in range(inputs)),
        strides=plan.strides, non_differentiable=plan.fixed, dirty=plan.dirty, once_differentiable=plan.once,
        materialize_grads=plan.materialized,
    )


def _attribute(node: torch.fx.Node) -> Any:
    """The object that a `get_attr` node reads."""
    return operator.attrgetter(str(node.target))(node.graph.owning_module)


def node_record(node: torch.fx.Node, origin_stage: str) -> Node:
    """One node as a record. A small constant (get_attr) carries its data, so that the graph can be run again.

    Passes leave most nodes unchanged, so a node caches its last record, after what it was made from, in its meta.
    """
    meta = node.meta
    value, args, kwargs, origins = meta.get("val"), node.args, node.kwargs, meta.get("origins")
    known: _Known | None = meta.get("record")
    described: Any = _UNKNOWN
    if known is not None and known[0] is value:  # a copy of a node has its value
        if known[1] is args and known[2] is kwargs and known[3] is origins and known[4] == origin_stage:
            return known[5]
        described = known[5].value
    record = _node_record(node, origin_stage, described)
    meta["record"] = value, args, kwargs, origins, origin_stage, record
    return record


def keep_record(node: torch.fx.Node, copy: torch.fx.Node) -> None:
    """Let a copy of a node have its record, where that is known: a copy with the same name and metadata, whose
    arguments are copies with their names, too."""
    known: _Known | None = node.meta.get("record")
    if known is not None and known[1] is node.args and known[2] is node.kwargs:
        copy.meta["record"] = (known[0], copy.args, copy.kwargs, *known[3:])


_Known = tuple[Any, Any, Any, Any, str, Node]
_UNKNOWN = object()
_NONE: dict[str, Any] = {}


def _node_record(node: torch.fx.Node, origin_stage: str, described: Any) -> Node:
    """`described` is the record of its value, where that is known."""
    meta, op, target, own = node.meta, node.op, node.target, node.args
    kind = type(node)
    args = tuple([NodeRef(a.name) if type(a) is kind else plain(a) for a in own])  # most are nodes
    if (target is operator.getitem or target is operator.setitem) and isinstance(own[1], list):
        args = (args[0], {"list": args[1]}, *args[2:])  # x[[1, 0]] is not x[1, 0]
    value = meta.get("val")
    if op == "get_attr":
        constant = _attribute(node)
        if not isinstance(constant, sys.modules["torch"].Tensor):
            value = None
        elif constant.numel() <= LIMIT_CONSTANT:
            args = (tensor_data(constant),)
    origins = meta.get("origins", ())
    return Node(
        node.name,
        op,
        target_name(target),
        args,
        {k: plain(v) for k, v in node.kwargs.items()} if node.kwargs else _NONE,
        value_record(value) if described is _UNKNOWN else described,
        tuple(meta.get("stack", ())),
        meta.get("module", ""),
        tuple([f"{origin_stage}#{origin}" for origin in origins]) if origins else (),
        meta.get("checkpoint") or 0,
    )


def tensor_data(tensor: torch.Tensor) -> dict[str, Any]:
    """A small tensor's values in the record: little-endian bytes in row-major order, base64."""
    contiguous = tensor.detach().cpu().contiguous()
    data = contiguous.reshape(-1).view(sys.modules["torch"].uint8).numpy().tobytes()
    return {
        "tensor": base64.b64encode(data).decode(), "dtype": str(tensor.dtype).removeprefix("torch."),
        "shape": list(tensor.shape), "stride": list(tensor.stride()), "device": str(tensor.device),
    }


def target_name(target: Any) -> str:
    """The printed name of a node's target: "aten.add.Tensor", "operator.getitem", "torch.nn.functional.gelu"."""
    if isinstance(target, str):
        return target
    if isinstance(target, sys.modules["torch"]._ops.OpOverload):
        return _operator_name(target._name)
    if target is operator.getitem:
        return "operator.getitem"
    if hasattr(target, PLAN):
        return str(target.__name__)
    if getattr(target, "__objclass__", None) is sys.modules["torch"]._C.TensorBase:
        return f"torch.Tensor.{target.__name__}"
    module = (getattr(target, "__module__", "") or "").replace("_operator", "operator")
    name = getattr(target, "__qualname__", None) or getattr(target, "__name__", None) or type(target).__name__
    if name.startswith(("_VariableFunctionsClass.", "pybind11_")):  # the class that holds a C++ function
        name = name.partition(".")[2]
    if not _resolves(module, name, target):
        module, name = _found_by_value(module, target) or (module, name)
    return f"{module}.{name}" if module else name


_EXPORTING = ("torch.nn.functional", "torch.functional", "torch.linalg", "torch.fft", "torch.special", "torch.sparse",
              "torch.nested", "torch.func", "torch.amp.autocast_mode", "torch")
"""Modules of torch under whose names functions are recorded that were created by another function, or renamed."""


def _resolves(module: str, name: str, target: Any) -> bool:
    """Whether the qualified name of a function leads to it."""
    found: Any = sys.modules.get(module)
    for part in name.split("."):
        found = getattr(found, part, None)
    return found is target


def _found_by_value(module: str, target: Any) -> tuple[str, str] | None:
    """Module and attribute where a function is found whose own name leads elsewhere, or nowhere: F.max_pool2d."""
    if not callable(target):
        return None
    for place in (*_EXPORTING, module):
        for name, held in vars(sys.modules.get(place, object)).items():
            if held is target and not name.startswith("__"):
                return place, name
    owner = sys.modules["torch"].Tensor
    methods = (name for name in dir(owner) if getattr(owner, name, None) is target)
    return next((("torch.Tensor", name) for name in methods), None)


def tensor_meta(tensor: torch.Tensor) -> TensorMeta:
    """Metadata of a (fake) strided tensor; symbolic sizes become strings."""
    strided = tensor.layout is sys.modules["torch"].strided
    offset = tensor.storage_offset() if strided else 0
    return _shared_meta(
        tensor.dtype,
        _sizes(tensor.shape),
        _sizes(tensor.stride()) if strided else (),
        tensor.device,
        tensor.requires_grad,
        offset if type(offset) is int else size_record(offset),
    )


@lru_cache(maxsize=4096)
def _shared_meta(
    dtype: torch.dtype, shape: tuple[int | str, ...], stride: tuple[int | str, ...], device: torch.device,
    requires_grad: bool, offset: int | str,
) -> TensorMeta:
    """Most tensors of a graph have the metadata of others: one record for all is no new object for the collector."""
    return TensorMeta(_dtype_name(dtype), shape, stride, _printed(device), requires_grad, offset)


_INTEGERS = frozenset([int])


def _sizes(sizes: Sequence[Any]) -> tuple[int | str, ...]:
    known = tuple(sizes)
    return known if _INTEGERS.issuperset(map(type, known)) else tuple([size_record(s) for s in known])


def value_record(value: Any) -> TensorMeta | tuple[Any, ...] | str | None:
    """A node's result: a tensor's metadata, a tuple of such, or a number as text."""
    if value is None:
        return None
    if isinstance(value, sys.modules["torch"].Tensor):
        return tensor_meta(value)
    if isinstance(value, (tuple, list)):
        return tuple(value_record(v) for v in value)
    return str(value)


_ATOMS = frozenset({int, str, bool, type(None)})


def plain(value: Any) -> Any:
    """An argument tree as JSON-like data (forms: NodeRef, {"float": "-inf"}, {"torch": ...}, {"symbol": ...}, ...)."""
    kind = type(value)
    if kind in _ATOMS:
        return value
    torch = sys.modules["torch"]
    if isinstance(value, torch.fx.Node):
        return NodeRef(value.name)
    if isinstance(value, (int, str)):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else {"float": str(value)}
    if isinstance(value, (tuple, list)):
        return list(value) if _INTEGERS.issuperset(map(type, value)) else [plain(v) for v in value]
    if isinstance(value, dict):
        return {str(k): plain(v) for k, v in value.items()}
    if isinstance(value, slice):
        return {"slice": [plain(value.start), plain(value.stop), plain(value.step)]}
    if isinstance(value, (torch.SymInt, torch.SymFloat, torch.SymBool)):
        return {"symbol": str(value)}
    if isinstance(value, complex):
        return {"complex": [str(value.real), str(value.imag)]}
    if value is Ellipsis:
        return {"python": "..."}
    return {"torch": str(value)}


def size_record(value: Any) -> int | str:
    """A size, stride or offset: an int, or the text of a symbolic one."""
    if isinstance(value, int):
        return value if type(value) is int else int(value)
    expression = getattr(getattr(value, "node", None), "expr", None)  # of a SymInt
    return str(value) if expression is None else _printed(expression)


@lru_cache(maxsize=4096)
def _operator_name(name: str) -> str:
    """How an operator prints: aten::relu is "aten.relu.default"."""
    whole, dot, overload = name.partition(".")
    return f"{whole.replace('::', '.')}.{overload if dot else 'default'}"


@lru_cache(maxsize=64)
def _dtype_name(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


@lru_cache(maxsize=4096)
def _printed(value: Any) -> str:
    """str(value), cached: printing a sympy expression, or an operator, costs more than the rest of a node's record."""
    return str(value)
