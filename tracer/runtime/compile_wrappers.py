"""What `compile` and `disable` return, told from what the program wraps around it."""
from __future__ import annotations

from collections.abc import Callable
from typing import Any


def mark_wrapper(wrapper: Callable[..., Any], fn: Callable[..., Any]) -> None:
    """Note in `wrapper`, as torch.compile's wrappers have it, what it runs and which object it is."""
    wrapper.__dict__["_torchdynamo_orig_callable"] = fn
    wrapper.__dict__["_torchdynamo_wrapper_id"] = id(wrapper)


def mark_compiled(wrapper: Callable[..., Any], fn: Callable[..., Any]) -> None:
    """`mark_wrapper`, with marks of our own, which torch's wrappers copy and leave alone."""
    mark_wrapper(wrapper, fn)
    wrapper.__dict__["_ptdebug_original"] = fn
    wrapper.__dict__["_ptdebug_wrapper_id"] = id(wrapper)


def is_compiled(function: Any) -> bool:
    """Whether `function` itself is what `compile` returned. A function that wraps it may have all of its attributes,
    which `functools.wraps` copies: not the number of the object."""
    return function.__dict__.get("_ptdebug_wrapper_id") == id(function)
