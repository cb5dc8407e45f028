"""What an untrusted recorded graph may call: what capture and the engine make nodes of, and nothing else.

Most of the list comes from torch: operators of its dispatcher namespaces; functions and tensor methods that have the
name of an operator; Python functions of torch.nn.functional, which the tracer does not inline. The few others are named
here. Operators that read files, take addresses or print are excluded by name. tests/replay/test_allowed.py compares the
list with what the tracer makes nodes of.
"""
from __future__ import annotations

import importlib
import math
import operator
import sys
from collections.abc import Callable, Iterator
from functools import lru_cache
from types import BuiltinFunctionType, FunctionType
from typing import Any

import torch
import torch.nn.functional as F

from ...artifacts.fx_graphs import target_name
from ...operators import graph_calls

NAMESPACES = ("aten", "prims", "mkldnn", "mkl", "onednn", "ptdebug", "quantized_decomposed", "_c10d_functional")
"""Namespaces of operators that graphs have: arithmetic of torch, oneDNN and MKL, ptdebug's, quantization, collectives
(which find no other process in a replay)."""
DEFINED_BY = {"quantized_decomposed": "torch.ao.quantization.fx._decomposed"}
"""The module of torch that defines the operators of a namespace, where `import torch` does not."""

REFUSED = frozenset((
    "from_file", "data_ptr", "_print", "_from_blob", "record_stream", "set_data", "_pin_memory", "pin_memory",
    "_sparse_coo_tensor_unsafe", "_sparse_csr_tensor_unsafe", "_sparse_csc_tensor_unsafe",
    "_sparse_compressed_tensor_unsafe", "_reshape_alias_copy", "_nested_view_from_buffer",
    "_nested_view_from_buffer_copy", "_nested_view_from_jagged", "_nested_view_from_jagged_copy",
    "_cufft_set_plan_cache_max_size", "_cufft_clear_plan_cache",
))  # fmt: skip
"""Operators that do more than compute: files, addresses, streams, terminal output, views without bounds checks."""

HIGHER_ORDER = ("cond", "while_loop", "scan", "associative_scan", "map_impl", "flex_attention")

FUNCTIONS = (
    "torch.tensor", "torch.as_tensor", "torch.asarray", "torch.dsmm", "torch.hsmm", "torch.saddmm", "torch.spmm",
    "torch.sym_float", "torch.sym_int", "torch.sym_max", "torch.sym_min", "torch.sym_not", "torch.sym_ite",
    "torch.sym_sum", "torch._sym_sqrt", "torch.promote_types", "torch._C._set_grad_enabled",
    "torch.amp.autocast_mode._enter_autocast", "torch.amp.autocast_mode._exit_autocast",
    "torch._C._functorch._add_batch_dim", "torch._C._functorch._remove_batch_dim",
    "torch._C._functorch._wrap_for_grad", "torch._C._functorch._unwrap_for_grad",
    "torch._C._functorch._vmap_increment_nesting", "torch._C._functorch._vmap_decrement_nesting",
    "torch._C._functorch._grad_increment_nesting", "torch._C._functorch._grad_decrement_nesting",
    "torch._C._functorch._jvp_increment_nesting", "torch._C._functorch._jvp_decrement_nesting",
    "torch._C._functorch.set_inplace_requires_grad_allowed", "torch._C._set_fwd_grad_enabled",
    "torch._C._enter_dual_level", "torch._C._exit_dual_level", "torch.set_default_dtype",
    "torch._C._set_sdp_priority_order", *(f"torch._C._set_sdp_use_{name}" for name in (
        "flash", "mem_efficient", "math", "cudnn", "overrideable", "fa3")),
)  # fmt: skip
"""Functions of torch without an operator of their name."""

OWN: tuple[Callable[..., Any], ...] = (
    graph_calls.chosen_row, graph_calls.differentiate, graph_calls.enter_inference_mode,
    graph_calls.exit_inference_mode, graph_calls.exchange_grad_mode, graph_calls.set_deterministic,
)  # fmt: skip
"""Functions of ptdebug's own that the tracer puts into graphs."""

METHODS = frozenset((
    "__abs__", "__add__", "__div__", "__eq__", "__floordiv__", "__ge__", "__getitem__", "__gt__", "__iadd__",
    "__idiv__", "__ifloordiv__", "__imod__", "__imul__", "__invert__", "__ipow__", "__isub__", "__itruediv__",
    "__le__", "__lt__", "__matmul__", "__mod__", "__mul__", "__ne__", "__neg__", "__pos__", "__pow__", "__radd__",
    "__rand__", "__rdiv__", "__rfloordiv__", "__rlshift__", "__rmatmul__", "__rmod__", "__rmul__", "__ror__",
    "__rpow__", "__rrshift__", "__rsub__", "__rtruediv__", "__rxor__", "__setitem__", "__sub__", "__truediv__",
    "bfloat16", "bool", "byte", "cdouble", "cfloat", "chalf", "char", "cpu", "cuda", "double", "element_size", "float",
    "half", "int", "long", "ndimension", "nelement", "new_tensor", "requires_grad_", "short", "to_sparse_coo", "tolist",
    "type", "unique",
))  # fmt: skip
"""Methods of tensors without an operator of their name."""

ATTRIBUTES = frozenset(("T", "mT", "H", "mH", "real", "imag", "data"))
"""Attributes of tensors that are views of them."""

BUILTINS: dict[str, Callable[..., Any]] = {
    f.__name__: f for f in (getattr, abs, max, min, pow, round, int, float, bool, len, sum, divmod, slice)
}
OPERATORS = (
    "abs", "add", "and_", "eq", "floordiv", "ge", "getitem", "gt", "iadd", "iand", "ifloordiv", "ilshift", "imatmul",
    "imod", "imul", "index", "inv", "invert", "ior", "ipow", "irshift", "is_", "is_not", "isub", "itruediv", "ixor",
    "le", "lshift", "lt", "matmul", "mod", "mul", "ne", "neg", "not_", "or_", "pos", "pow", "rshift", "setitem", "sub",
    "truediv", "truth", "xor",
)  # fmt: skip
MATH = (
    "acos", "acosh", "asin", "asinh", "atan", "atan2", "atanh", "cbrt", "ceil", "copysign", "cos", "cosh", "degrees",
    "dist", "erf", "erfc", "exp", "exp2", "expm1", "fabs", "floor", "fmod", "frexp", "fsum", "gamma", "hypot",
    "isclose", "isfinite", "isinf", "isnan", "ldexp", "lgamma", "log", "log10", "log1p", "log2", "modf", "nextafter",
    "pow", "radians", "remainder", "sin", "sinh", "sqrt", "tan", "tanh", "trunc", "ulp",
)  # fmt: skip


def allowed(name: str) -> Callable[..., Any] | None:
    """The function that a recorded target names, if it is on the list and exists."""
    found = _functions().get(name)
    return found if found is not None else _operator(name)


def allowed_method(name: str) -> bool:
    """Whether a graph may call the method of that name."""
    return hasattr(torch.Tensor, name) and (name in METHODS or (not name.startswith("__") and _is_operators(name))
                                            or name in _DUNDER_OPERATORS)


_DUNDER_OPERATORS = frozenset((
    "__and__", "__iand__", "__ilshift__", "__ior__", "__irshift__", "__ixor__", "__lshift__", "__or__", "__rshift__",
    "__xor__",
))  # fmt: skip


@lru_cache(maxsize=1)
def _operator_names() -> frozenset[str]:
    """The dispatcher's operators (and not TorchScript's, which save and load files) in the namespaces of graphs."""
    return frozenset(
        name for name in torch._C._dispatch_get_all_op_names()
        if name.partition("::")[0] in NAMESPACES and _base(name) not in REFUSED and not _base(name).startswith("_test_")
    )


@lru_cache(maxsize=1)
def _aten_names() -> frozenset[str]:
    return frozenset(_base(name) for name in _operator_names() if name.startswith("aten::"))


def _base(name: str) -> str:
    return name.partition("::")[2].partition(".")[0]


def _is_operators(name: str) -> bool:
    return name in _aten_names()


def _operator(name: str) -> Callable[..., Any] | None:
    """`aten.add.Tensor`, and `torch._ops.aten.index`, an operator with all its overloads."""
    namespace, _, rest = name.removeprefix("torch._ops.").partition(".")
    if namespace in DEFINED_BY and DEFINED_BY[namespace] not in sys.modules:
        importlib.import_module(DEFINED_BY[namespace])
        _operator_names.cache_clear()
    packet, _, overload = rest.partition(".")
    if namespace not in NAMESPACES or not packet.isidentifier():
        return None
    if name.startswith("torch._ops."):
        known = any(_base(one) == packet and one.startswith(f"{namespace}::") for one in _operator_names())
        return getattr(getattr(torch.ops, namespace), packet) if known and not overload else None
    overload = overload or "default"
    if _full_name(namespace, packet, overload) not in _operator_names():
        return None
    found = getattr(getattr(torch.ops, namespace), packet)
    return getattr(found, overload, None)


def _full_name(namespace: str, packet: str, overload: str) -> str:
    return f"{namespace}::{packet}" + (f".{overload}" if overload != "default" else "")


@lru_cache(maxsize=1)
def _functions() -> dict[str, Callable[..., Any]]:
    """By the name used in recordings."""
    table: dict[str, Callable[..., Any]] = dict(_builtins_of_torch())
    for module in (torch.functional, F):
        table |= dict(_python_functions(module))
    for prefix, source, names in (("operator", operator, OPERATORS), ("math", math, MATH)):
        table |= {f"{prefix}.{name}": getattr(source, name) for name in names if hasattr(source, name)}
    table |= {f"builtins.{name}": function for name, function in BUILTINS.items()}
    table |= {f"torch.Tensor.{name}": getattr(torch.Tensor, name) for name in dir(torch.Tensor) if allowed_method(name)}
    higher_order = torch._ops._higher_order_ops
    table |= {f"torch.ops.higher_order.{name}": higher_order[name] for name in HIGHER_ORDER if name in higher_order}
    table |= {target_name(f): f for name, f in higher_order.items() if name in HIGHER_ORDER}
    table |= {target_name(f): f for f in OWN}
    table |= {name: f for name in FUNCTIONS if (f := _named(name)) is not None}
    return {target_name(f): f for f in table.values()} | table


def _builtins_of_torch() -> Iterator[tuple[str, Callable[..., Any]]]:
    """C++ functions that have the name of an operator, under the names of all modules that export them."""
    own = (torch._C._VariableFunctions, *(getattr(torch._C, name) for name in (
        "_nn", "_fft", "_linalg", "_special", "_sparse", "_nested")))
    functions = {
        id(found): found for module in own for name in dir(module)
        if isinstance(found := getattr(module, name), BuiltinFunctionType) and _is_operators(name)
    }  # fmt: skip
    yield from ((target_name(found), found) for found in functions.values())
    for module in (torch, F, torch.fft, torch.linalg, torch.special, torch.sparse, torch.functional):
        for name, found in vars(module).items():
            if id(found) in functions:
                yield f"{module.__name__}.{name}", found


def _python_functions(module: Any) -> Iterator[tuple[str, Callable[..., Any]]]:
    for name, found in vars(module).items():
        if isinstance(found, FunctionType) and (found.__module__ or "").startswith(_DEFINING) and not (
                {name, found.__name__} & set(_ASKING)):
            yield f"{module.__name__}.{name}", found


_DEFINING = ("torch.nn.functional", "torch.functional", "torch._jit_internal")
_ASKING = ("has_torch_function", "has_torch_function_unary", "has_torch_function_variadic", "handle_torch_function",
           "boolean_dispatch", "_overload", "unused")


def _named(name: str) -> Callable[..., Any] | None:
    module, _, attribute = name.rpartition(".")
    try:
        found = getattr(importlib.import_module(module), attribute, None)
    except ImportError:
        return None
    return found if callable(found) else None
