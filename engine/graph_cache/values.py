"""Values of a captured graph as strings, so that different values have different strings.

Each string starts with its kind and is self-delimiting (by its length, or by brackets around parts that are), so
strings can be concatenated. What has no entry in the tables is refused: a graph with it is not cached.
"""
from __future__ import annotations

import builtins
import hashlib
import math
import operator
import struct
import sys
import types
from collections.abc import Callable, Mapping
from typing import Any

import torch
import torch.fx
import torch.nn.functional
from torch._subclasses.fake_tensor import FakeTensor

CONSTANT_LIMIT = 16 << 20  # bytes of one tensor that a graph holds


DEVICES = ("cpu", "cuda")
"""The kinds of devices whose tensors are kept."""


class Uncacheable(Exception):
    """This graph is not cached; the message says why."""


NAMESPACES = frozenset(("aten", "prims", "prim", "mkldnn", "mkl", "onednn", "quantized", "ptdebug"))
"""Operators of torch and of ptdebug: their meaning is fixed by a version, where user-defined ones may change."""


def text_of(value: Any) -> str:
    """The text of an argument or of what stands in a node's metadata. Raises Uncacheable."""
    write = _WRITERS.get(type(value))
    if write is None and isinstance(value, tuple):  # what torch.max returns, a named tuple
        return f"{type(value).__module__}.{type(value).__qualname__} {_items(value)}"
    if write is None:
        raise Uncacheable(f"a value of type {type(value).__module__}.{type(value).__qualname__}")
    return write(value)


def string(value: str) -> str:
    """The text of a string."""
    return f"s{len(value)}:{value}"


def _float(value: float) -> str:
    return f"f{struct.pack('<d', value).hex()}"  # -0.0 and each NaN are values of their own


def _items(value: Any) -> str:
    return f"{type(value).__name__}({''.join(map(text_of, value))})"


def _mapping(value: Mapping[Any, Any]) -> str:
    return f"dict({''.join(text_of(k) + text_of(v) for k, v in value.items())})"


def _symbolic(value: Any) -> str:
    from sympy import srepr  # loaded: a symbol is there

    return f"{type(value).__name__}({srepr(value.node.expr)})"


def _node(value: torch.fx.Node) -> str:
    return f"n{len(value.name)}:{value.name}"


def fake_tensor(value: torch.Tensor) -> str:
    """The metadata of a fake tensor, but for its memory (see `memory_of`)."""
    if type(value) is not FakeTensor:
        raise Uncacheable(f"a tensor of type {type(value).__qualname__}")
    if value.layout is not torch.strided or value.is_quantized or value.is_nested:
        raise Uncacheable(f"a tensor of layout {value.layout}")
    grad = value.grad_fn
    flags = (
        value.requires_grad, value.is_leaf, value.is_conj(), value.is_neg(), value.is_inference(),
        value._is_zerotensor(), value._is_view(),
    )
    return (
        f"t({value.dtype} {value.device} {''.join('01'[flag] for flag in flags)}"
        f" {'' if grad is None else type(grad).__name__}"
        f"{_items(tuple(value.shape))}{_items(tuple(value.stride()))}{text_of(value.storage_offset())})"
    )


def memory_of(tensors: list[torch.Tensor]) -> str:
    """Which of the tensors share memory, and how large it is."""
    numbers: dict[int, int] = {}
    found = []
    for tensor in tensors:
        storage = tensor.untyped_storage()
        known = numbers.get(storage._cdata)
        if known is None:
            known = numbers[storage._cdata] = len(numbers)
            found.append(f"{known} of {text_of(storage.nbytes())}")
        else:
            found.append(str(known))
    return ", ".join(found)


def constant(value: Any) -> str:
    """The content of a tensor that the graph holds."""
    if type(value) not in (torch.Tensor, torch.nn.Parameter) or value.device.type not in DEVICES or value.is_sparse:
        raise Uncacheable(f"the graph contains a value of type {type(value).__qualname__}")
    if value.layout is not torch.strided or value.is_quantized or value.is_conj() or value.is_neg():
        raise Uncacheable("the graph contains a tensor that is not strided")
    if value.numel() * value.itemsize > CONSTANT_LIMIT:
        raise Uncacheable("the graph contains a large tensor")
    content = hashlib.sha256(bytes_of(value)).hexdigest()
    layout = f"{_items(tuple(value.shape))}{_items(value.stride())}"
    return f"c({value.dtype} {value.device}{layout}{value.requires_grad} {content})"


def bytes_of(tensor: torch.Tensor) -> bytes:
    """The elements of a tensor in the order of its dimensions."""
    flat = tensor.detach().cpu().clone(memory_format=torch.contiguous_format).reshape(-1)  # one element is strided by 1
    content: bytes = flat.view(torch.uint8).numpy().tobytes() if flat.numel() else b""
    return content


# ---- functions -------------------------------------------------------------------------------------------------------
_PLACES: Mapping[str, Any] = {
    "torch": torch, "torch.Tensor": torch.Tensor, "torch.nn.functional": torch.nn.functional,
    **{f"torch._C.{name}": getattr(torch._C, name) for name in ("_nn", "_linalg", "_fft", "_special")},
    "operator": operator, "math": math, "builtins": builtins,
}
"""Modules of functions written in C, which do not know their own module."""

_LIBRARIES = ("torch", "operator", "_operator", "math", "builtins", "ptdebug")
"""Packages whose versions are in the key, and ptdebug, whose sources are."""


def target(value: Any) -> str:
    """The text of what a node calls: the qualified name under which exactly this function is found. Only functions of
    torch, of Python itself and of ptdebug have one, since a version fixes their meaning; others may change."""
    if isinstance(value, torch._ops.OpOverload):
        if value.namespace not in NAMESPACES:
            raise Uncacheable(f"the custom operator {value}")
        return f"op {value}"
    if isinstance(value, torch._ops.OpOverloadPacket):
        if str(value).partition(".")[0] not in NAMESPACES:
            raise Uncacheable(f"the custom operator {value}")
        return f"packet {value}"
    if isinstance(value, (types.FunctionType, types.BuiltinFunctionType, type, types.MethodDescriptorType)):
        place = _place(value)
        if place is not None:
            return f"call {place}"
    raise Uncacheable(f"a call of {getattr(value, '__qualname__', value)!r}")


def _place(function: Any) -> str | None:
    module = getattr(function, "__module__", None)
    if module is None or module.partition(".")[0] in _LIBRARIES:
        name = function.__name__
        for place, holder in _PLACES.items():
            if getattr(holder, name, None) is function:
                return f"{place}.{name}"
        if module is not None and not isinstance(function, types.BuiltinFunctionType):
            return _qualified(function, module)
    return None


def _qualified(function: Any, module: str) -> str | None:
    found: Any = sys.modules.get(module)
    for part in function.__qualname__.split("."):
        found = getattr(found, part, None)
    return f"{module}.{function.__qualname__}" if found is function else None


_WRITERS: dict[type, Callable[[Any], str]] = {
    type(None): lambda _: "None;", type(...): lambda _: "...;",
    bool: lambda v: f"b{int(v)}", int: lambda v: f"i{v};", float: _float,
    complex: lambda v: f"z{_float(v.real)}{_float(v.imag)}", str: string,
    tuple: _items, list: _items, dict: _mapping, torch.Size: _items,
    torch.fx.immutable_collections.immutable_list: _items, torch.fx.immutable_collections.immutable_dict: _mapping,
    slice: lambda v: f"slice({text_of(v.start)}{text_of(v.stop)}{text_of(v.step)})",
    range: lambda v: f"{v};",
    torch.dtype: lambda v: f"{v};", torch.device: lambda v: f"{v};", torch.layout: lambda v: f"{v};",
    torch.memory_format: lambda v: f"{v};",
    torch.SymInt: _symbolic, torch.SymFloat: _symbolic, torch.SymBool: _symbolic,
    torch.fx.Node: _node, FakeTensor: fake_tensor,
}
