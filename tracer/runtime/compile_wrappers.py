"""Recognizes what `compile` and `disable` return, as distinct from wrappers that the user puts around it."""
from __future__ import annotations

from collections.abc import Callable
from typing import Any


def mark_wrapper(wrapper: Callable[..., Any], fn: Callable[..., Any]) -> None:
    """Store in `wrapper` what it runs and its own id, in the attributes that torch.compile's wrappers have."""
    wrapper.__dict__["_torchdynamo_orig_callable"] = fn
    wrapper.__dict__["_torchdynamo_wrapper_id"] = id(wrapper)


def mark_compiled(wrapper: Callable[..., Any], fn: Callable[..., Any]) -> None:
    """`mark_wrapper`, with ptdebug's marks as well; torch's wrappers copy them and ignore them."""
    mark_wrapper(wrapper, fn)
    wrapper.__dict__["_ptdebug_original"] = fn
    wrapper.__dict__["_ptdebug_wrapper_id"] = id(wrapper)


def is_compiled(function: Any) -> bool:
    """Whether `function` itself is what `compile` returned. `functools.wraps` copies all attributes to a wrapper around
    it, but the mark holds the id of the original object."""
    return function.__dict__.get("_ptdebug_wrapper_id") == id(function)
