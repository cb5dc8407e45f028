"""Which functions of torch become one node of the graph when they are called."""
from __future__ import annotations

import functools
from types import BuiltinFunctionType, FunctionType
from typing import Any

import torch
import torch.nn.functional as F

_NAMESPACES = (
    torch._C._VariableFunctions,
    *(getattr(torch._C, name) for name in ("_nn", "_fft", "_linalg", "_special", "_sparse", "_nested")),
    torch.fft, torch.linalg, torch.special,
)  # fmt: skip
"""Modules whose builtins are operators."""

_PYTHON_NAMESPACES = (F, torch.functional)
"""Modules whose Python functions are kept as one node: the engine decomposes them."""

_DEFINING = ("torch.nn.functional", "torch.functional", "torch._jit_internal")

_NO_NODES = frozenset((
    "has_torch_function", "has_torch_function_unary", "has_torch_function_variadic", "handle_torch_function",
    "boolean_dispatch", "assert_int_or_pair", "_verify_batch_size", "_overload",
))  # fmt: skip

_STATE = ("set_", "_set_", "manual_seed", "seed", "initial_seed")


@functools.cache
def _functions() -> dict[int, Any]:
    table: dict[int, Any] = {}
    for namespace in _NAMESPACES:
        for name in dir(namespace):
            found = getattr(namespace, name)
            if isinstance(found, BuiltinFunctionType) and not name.startswith(_STATE):
                table[id(found)] = found
    for name in dir(torch):
        found = getattr(torch, name)
        if isinstance(found, BuiltinFunctionType) and id(found) not in table and _is_operator(name, found):
            table[id(found)] = found
    for module in _PYTHON_NAMESPACES:
        for name, found in vars(module).items():
            if isinstance(found, FunctionType) and name not in _NO_NODES and not name.startswith("__"):
                if (found.__module__ or "").startswith(_DEFINING):
                    table[id(found)] = found
    return table


def _is_operator(name: str, function: Any) -> bool:
    owner = getattr(function, "__self__", None)
    return owner is torch._C._VariableFunctions or getattr(owner, "__name__", "") == "torch._C._VariableFunctions"


def is_graph_function(function: Any) -> bool:
    """Whether a call of `function` is one node."""
    if isinstance(function, (torch._ops.OpOverload, torch._ops.OpOverloadPacket)):
        return True
    try:
        return id(function) in _functions() or id(function) in ALLOWED
    except TypeError:
        return False


ALLOWED: dict[int, Any] = {}
"""Functions that the user allowed in the graph (torch.compiler.allow_in_graph)."""

_INTERNALS = (
    "torch._dynamo", "torch._inductor", "torch._functorch", "torch._logging", "torch.fx.experimental", "logging",
    "torch.autograd", "torch._subclasses", "importlib", "threading", "torch.jit", "torch.onnx", "torch.utils.data",
    "torch.distributed", "torch.profiler", "multiprocessing", "subprocess", "asyncio", "ptdebug",
)  # fmt: skip

_TRACED = frozenset((
    "torch._functorch.apis", "torch._functorch.deprecated", "torch._functorch.eager_transforms",
    "torch._functorch.functional_call", "torch._functorch.utils", "torch._functorch.vmap", "torch.autograd.forward_ad",
    "torch._dynamo._trace_wrapped_higher_order_op", "torch._dynamo.external_utils",
    "ptdebug.tracer.variables.torch.higher_order.flex_attention",
    "ptdebug.tracer.variables.torch.higher_order.inlined_operators", "ptdebug.tracer.frames.function_modes",
    "torch.distributed.tensor._api", "torch.distributed.tensor.parallel.style",
    "torch.distributed.algorithms._checkpoint.checkpoint_wrapper",
))  # fmt: skip
"""Submodules of those whose Python is interpreted like any other."""


def is_module_of_torch_internals(module: str | None) -> bool:
    """Whether functions of the module run in eager only: compilers, processes, threads, logging."""
    if module is None or module in _TRACED:
        return False
    return any(module == name or module.startswith(name + ".") for name in _INTERNALS)


def is_traced(definition: Any) -> bool:
    """Whether a class of torch's internals is interpreted nevertheless."""
    return definition.__module__ in _TRACED
