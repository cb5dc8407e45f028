"""Operators of torch.ops.higher_order that call their function once, as torch runs them in eager, written for the
tracer to interpret (torch/_higher_order_ops/wrap.py and its neighbors)."""
from __future__ import annotations

from collections.abc import Callable
from itertools import repeat
from typing import Any

import torch
import torch.utils.checkpoint

Function = Callable[..., Any]


def dynamo_bypassing_wrapper(wrapper_fn_or_key: Any, inner_fn: Any, *args: Any, **kwargs: Any) -> Any:
    """The result of a wrapper, or of the one that a graph stores by that name, for the function."""
    wrapper = inner_fn.meta[wrapper_fn_or_key] if isinstance(wrapper_fn_or_key, str) else wrapper_fn_or_key
    return wrapper(inner_fn)(*args, **kwargs)


def wrap_with_set_grad_enabled(enable_grad: bool, wrapped_func: Function, *args: Any, **kwargs: Any) -> Any:
    """The mode stays set where the function raises."""
    before = torch.is_grad_enabled()
    torch.set_grad_enabled(enable_grad)
    result = wrapped_func(*args, **kwargs)
    torch.set_grad_enabled(before)
    return result


def wrap_with_autocast(
    device_type: str, dtype: torch.dtype | None, enabled: bool, cache_enabled: bool | None, wrapped_func: Function,
    *args: Any, **kwargs: Any,
) -> Any:
    """The function under autocast."""
    with torch.autocast(device_type, dtype, enabled, cache_enabled):
        return wrapped_func(*args, **kwargs)


def wrap_activation_checkpoint(function: Function, *args: Any, **kwargs: Any) -> Any:
    """A checkpoint that samples new random numbers in the backward."""
    given = {**kwargs, "use_reentrant": False, "preserve_rng_state": False}
    return torch.utils.checkpoint.checkpoint(function, *args, **given)


def tag_activation_checkpoint(gmod: Function, *args: Any, **kwargs: Any) -> Any:
    """The same, with everything saved."""
    given = {**kwargs, "use_reentrant": False, "preserve_rng_state": False, "early_stop": False}
    return torch.utils.checkpoint.checkpoint(gmod, *args, **given)


def register_hook(tensor: torch.Tensor, hook_body: Function, *freevars: Any) -> torch.Tensor:
    """A hook with more arguments than the gradient."""
    tensor.register_hook(lambda grad: hook_body(grad, *freevars))
    return tensor


def foreach_map(op: Function, *operands: Any) -> Any:
    """`op` of the first items of all lists, of the second ones, ...; an argument that is not a list is the same for
    all."""
    if not any(isinstance(operand, (list, tuple)) for operand in operands):
        return op(*operands)
    rows = [operand if isinstance(operand, (list, tuple)) else repeat(operand) for operand in operands]
    return tuple([op(*items) for items in zip(*rows)])
