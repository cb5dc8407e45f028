"""Which ATen operators are decomposed before lowering, and by which rule.

There are three tables. `by_torch.py` names the operators whose reference decomposition in torch (`torch._decomp`,
`torch._refs`) is as precise and as fast as eager. `composite.py` has ptdebug's rules, where torch's lose precision or
speed or do not exist; `gradients.py`, `padding.py`, `upsampling.py`, `adaptive_pooling.py`, `filtered_rows.py`,
`cumulative.py` and `masked.py` add those of their subjects. `foreach.py` unpacks operators on lists of tensors.
ptdebug's rules take precedence over lowerings, and lowerings over torch's rules; an operator that is in no table and
has no lowering is a call of ATen. To add an operator, add its name to the first table, or a rule to the second.
"""
from __future__ import annotations

import operator
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
from torch._decomp import decomposition_table
from torch._dispatch.python import enable_python_dispatcher

from . import (
    adaptive_pooling as adaptive_pooling,  # it adds rules
    gradients as gradients,
)
from .by_torch import BY_TORCH
from .composite import OWN, max_pool1d, one_hot
from .cumulative import cumprod
from .foreach import foreach_rule
from .masked import assign, fill_diagonal
from .padding import pad
from .upsampling import interpolate


def rule_for(operator: torch._ops.OpOverload) -> Callable[..., Any] | None:
    """The decomposition of `operator`, or None where it has none or keeps its own kernel.

    A rule may return NotImplemented for arguments that are better left to ATen.
    """
    own = OWN.get(operator)
    if own is not None:
        return own
    if operator.namespace != "aten":
        return None
    name = operator._schema.name[len("aten::"):]
    if name.startswith("_foreach_"):
        return foreach_rule(operator)
    return decomposition_table.get(operator) if name in BY_TORCH else None


def described(rule: Callable[..., Any]) -> str:
    """The name of a rule: `torch._decomp.decompositions.gelu_backward`."""
    function = getattr(rule, "__wrapped__", rule)
    name = getattr(function, "__name__", type(function).__name__)
    return f"{getattr(function, '__module__', '?')}.{name}".replace("ptdebug.engine.", "")


PYTHON_RULES = frozenset((
    torch.batch_norm, torch.instance_norm, torch.nn.functional.batch_norm, torch.nn.functional.instance_norm,
    torch.ops.aten.native_batch_norm.default,
))
"""Functions whose C++ decomposition a graph cannot express: the running statistics of a batch norm are mutated, and its
schema does not say so. torch has Python rules for these, which do."""

UPSAMPLING = frozenset((
    torch.nn.functional.interpolate, torch.nn.functional.upsample, torch.nn.functional.upsample_bilinear,
    torch.nn.functional.upsample_nearest,
))
"""Functions (of a tensor, a size, a scale) whose Python forms, used for dynamic sizes, apply a scale exactly; ATen's
kernels have special cases for sizes that stay equal or double, whatever the scale. The Python forms also accept some
integer tensors that the kernels refuse."""

IN_CPP = frozenset((
    torch.nn.functional.multilabel_margin_loss, torch._C._nn.multilabel_margin_loss,
    torch.nn.functional.multi_margin_loss, torch._C._nn.multi_margin_loss,
    torch.nn.functional.hardshrink, torch.hardshrink, torch.Tensor.hardshrink, torch.ops.aten.hardshrink.default,
    torch.nn.functional.softshrink, torch._C._nn.softshrink, torch.ops.aten.softshrink.default,
))
"""Functions whose Python forms give another value than ATen's kernels, (of a NaN) another gradient, or take dtypes that
these refuse."""

DROPOUTS = frozenset((
    torch.nn.functional.dropout, torch.dropout, torch.dropout_, torch.ops.aten.dropout, torch.ops.aten.dropout.default,
))
"""Functions (of a tensor, a probability, and whether to drop) whose Python form copies what it drops nothing of, where
ATen gives the tensor itself, and draws numbers to drop everything, unlike ATen's."""

REPLACED: dict[Any, Callable[..., Any]] = {
    torch.nn.functional.one_hot: one_hot, torch.nn.functional.max_pool1d: max_pool1d, torch.max_pool1d: max_pool1d,
    torch.nn.functional.pad: pad, torch.nn.functional.interpolate: interpolate, operator.setitem: assign,
    torch.cumprod: cumprod, torch.Tensor.cumprod: cumprod, torch.Tensor.fill_diagonal_: fill_diagonal,
}
"""Functions and methods that look at their data, at sizes, or at the kind of tensor, before the dispatcher sees them,
or whose gradients do, and what is traced in their place."""


def python_rules(function: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> AbstractContextManager[Any]:
    """The context in which `function` of a captured graph runs while it is traced."""
    scaled = function in UPSAMPLING and _is_scaled(*args, **kwargs)
    identity = function in DROPOUTS and not _draws(*args[1:], **kwargs)
    if scaled or identity or function in IN_CPP:
        return torch._C._DisablePythonDispatcher()
    return enable_python_dispatcher() if function in PYTHON_RULES else nullcontext()


def _is_scaled(input: torch.Tensor, size: Any = None, scale_factor: Any = None, *_: Any, **__: Any) -> bool:
    """Whether an upsampling has a scale factor, or an integer input."""
    return scale_factor is not None or not input.is_floating_point()


def _draws(p: Any = 0.5, training: Any = True, inplace: bool = False, *, train: Any = None, input: Any = None) -> bool:
    """Whether a dropout draws random numbers; takes the arguments of functions and operators after the tensor. A
    probability that varies is one number to the graph: operators take no other."""
    return bool(training if train is None else train) and (isinstance(p, torch.Tensor) or float(p) not in (0, 1))
