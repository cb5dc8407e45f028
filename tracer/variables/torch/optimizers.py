"""torch.optim: its Python is interpreted like any other. Here is what it does only for other compilers.

A step requests a graph break before and after, so that a compiler which differentiates whole graphs sees that nothing
inside requires grad; this tracer knows that already. And the state that the first step makes is made while tracing, as
PyTorch's own compiler does: else the first step would be compiled separately.
"""
from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch.optim import asgd, optimizer as module, radam, rprop

from ...breaks.reasons import Reason
from ...breaks.unsupported import Unsupported
from ..containers.lists import ListValue
from ..core.base import Value
from ..core.constant import constant
from ..core.handlers import NAMED, handles
from ..core.registry import from_python
from ..python.objects import ObjectValue
from .tensor import TensorValue
from .tensor_methods import METHODS
from .torch_functions import requested_break

if TYPE_CHECKING:
    from ..core.base import Translator

Args = Sequence[Value]
Kwargs = Mapping[str, Value]

def _graph_break(tx: Translator, args: Args, kwargs: Kwargs) -> Value:
    if tx.code.co_filename != module.__file__:
        return requested_break(tx, args, kwargs)
    optimizer = tx.locals.get("self")
    if isinstance(optimizer, ObjectValue) and isinstance(optimizer.real, torch.optim.Optimizer):
        _make_state(tx, optimizer)
    return constant(None)


NAMED["torch._dynamo.decorators", "graph_break"] = _graph_break


def _make_state(tx: Translator, optimizer: ObjectValue) -> None:
    """Let an optimizer of torch make the state that its first step would make.

    What it refuses (a sparse gradient) it will refuse again when it is traced.
    """
    real: Any = optimizer.real
    make = getattr(type(real), "_init_group", None)
    pending = any(tx.effects.has_pending(optimizer, name) for name in ("state", "param_groups"))
    if make is None or not (make.__module__ or "").startswith("torch.optim.") or pending:
        return
    lists = len(inspect.signature(make).parameters) - 2
    for group in real.param_groups:
        if any(p.grad is not None and not real.state.get(p) for p in group["params"]):
            try:
                with torch.no_grad():
                    real._init_group(group, *([] for _ in range(lists)))
            except RuntimeError:
                return


@handles(module._get_value)
def _get_value(tx: Translator, args: Args, kwargs: Kwargs) -> Value:
    """The step count as a float64 tensor: eager computes with it in Python, in that precision."""
    value = args[0]
    return value.call_method(tx, "double", [], {}) if isinstance(value, TensorValue) else value


@handles(module._stack_if_compiling)
def _stack_if_compiling(tx: Translator, args: Args, kwargs: Kwargs) -> Value:
    """A list stays a list: `_foreach_addcdiv_` takes it below."""
    return args[0]


def _scaled(name: str, combine: Callable[..., Any]) -> None:
    """`x.NAME_(first, second, value=factor)` with a factor in a tensor, which ATen would read: as products of tensors.

    In the order of ATen's kernels, (factor * first) / second, so that rounding is the same.
    """

    def one(tx: Translator, x: Value, first: Value, second: Value, factor: Value) -> Value:
        scaled = tx.graph.call(torch.mul, [first, factor], {}, tx)
        return x.call_method(tx, "add_", [tx.graph.call(combine, [scaled, second], {}, tx)], {})

    def method(tx: Translator, x: TensorValue, args: Args, kwargs: Kwargs) -> Value | None:
        factor = kwargs.get("value")
        return one(tx, x, args[0], args[1], factor) if isinstance(factor, TensorValue) else None

    METHODS[f"{name}_"] = method
    foreach = getattr(torch, f"_foreach_{name}_")

    @handles(foreach)
    def each(tx: Translator, args: Args, kwargs: Kwargs) -> Value:
        factors = args[3] if len(args) > 3 else None
        if not isinstance(factors, ListValue) or not any(isinstance(f, TensorValue) for f in factors.items):
            return tx.graph.call(foreach, args, kwargs, tx)
        for x, first, second, factor in zip(*[arg.iterate(tx) for arg in args]):
            one(tx, x, first, second, factor)
        return constant(None)


_scaled("addcdiv", torch.div)
_scaled("addcmul", torch.mul)


def _weighted(tx: Translator, x: TensorValue, args: Args, kwargs: Kwargs) -> Value | None:
    """`x.add_(y, alpha=weight)` with a weight in a tensor."""
    weight = kwargs.get("alpha")
    return x.call_method(tx, "addcmul_", [args[0], weight], {}) if isinstance(weight, TensorValue) else None


METHODS["add_"] = _weighted


# ---- branches on data ------------------------------------------------------------------------------------------------
def _without_branches(function: Any) -> None:
    """These have an equivalent form without branches on data, for CUDA graphs."""

    @handles(function)
    def handler(tx: Translator, args: Args, kwargs: Kwargs) -> Value:
        wrapped = from_python(tx, function.__wrapped__)
        return wrapped.call(tx, args, {**kwargs, "capturable": constant(True)})


_without_branches(asgd.asgd)
_without_branches(rprop.rprop)


def _radam(
    params: Any, grads: Any, exp_avgs: Any, exp_avg_sqs: Any, state_steps: Any, *, beta1: Any, beta2: Any, lr: Any,
    weight_decay: Any, eps: Any, decoupled_weight_decay: bool, maximize: bool, **_others: Any,
) -> None:  # fmt: skip
    """The steps of `torch.optim.radam._single_tensor_radam`, except that the branch on the step count is a `where`.

    Its own form without branches computes with that number in float32, in which the branch differs.
    """
    lr = lr.squeeze() if isinstance(lr, torch.Tensor) else lr
    rho_inf = 2 / (1 - beta2) - 1
    for param, given, exp_avg, exp_avg_sq, step_t in zip(params, grads, exp_avgs, exp_avg_sqs, state_steps):
        grad = -given if maximize else given
        step_t += 1
        step = step_t.double()
        if weight_decay != 0:
            if decoupled_weight_decay:
                param.mul_(1 - lr * weight_decay)
            else:
                grad = grad.add(param, alpha=weight_decay)
        exp_avg.lerp_(grad, 1 - beta1)
        exp_avg_sq.mul_(beta2).addcmul_(grad, grad, value=1 - beta2)
        bias_correction1 = 1 - beta1**step
        bias_correction2 = 1 - beta2**step
        corrected = exp_avg / bias_correction1 * lr
        rho_t = rho_inf - 2 * step * (beta2**step) / bias_correction2
        rect = ((rho_t - 4) * (rho_t - 2) * rho_inf / ((rho_inf - 4) * (rho_inf - 2) * rho_t)) ** 0.5
        adaptive = (bias_correction2**0.5) / exp_avg_sq.sqrt().add_(eps)
        param.sub_(torch.where(rho_t > 5.0, corrected * adaptive * rect, corrected))


@handles(radam._single_tensor_radam, radam._multi_tensor_radam)
def _radam_handler(tx: Translator, args: Args, kwargs: Kwargs) -> Value:
    if any(isinstance(p, TensorValue) and p.fake.is_complex() for p in args[0].iterate(tx)):
        raise Unsupported(Reason.DATA_DEPENDENT_BRANCH, detail="RAdam of complex numbers")
    return tx.inline(from_python(tx, _radam), args, kwargs)
