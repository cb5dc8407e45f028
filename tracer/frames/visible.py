"""Callables as the hook sees them: each in a frame of its own code, for torch keeps entries by code object."""
from __future__ import annotations

import functools
import types
import weakref
from collections.abc import Callable
from typing import Any

import torch
from torch.fx._lazy_graph_module import _LazyGraphModule

from ..runtime.skips import file_skip_reason, only_wraps
from ..variables.core.handlers import handler_of
from .registry import REGISTRY


def visible(fn: Callable[..., Any]) -> Callable[..., Any]:
    """A callable that runs `fn` in a frame that the hook intercepts."""
    function = fn.__func__ if isinstance(fn, types.MethodType) else fn
    if isinstance(fn, types.MethodType) and isinstance(fn.__self__, torch.nn.Module) and function.__name__ in _CALLS:
        _LazyGraphModule.force_recompile(fn.__self__)  # type: ignore[arg-type]
        # A scripted module's class has a descriptor that raises when it is read from the class.
        forward = getattr(getattr(type(fn.__self__), "forward", None), "__code__", None)
        if forward is not None and not only_wraps(forward):
            REGISTRY.wanted[forward] = True
        return fn
    known = handler_of(function) is not None  # its code is not interpreted
    known = known or getattr(function, "__code__", None) in _SHARED
    if isinstance(function, types.FunctionType) and not known and not function.__code__.co_flags & 0x20:
        if function.__closure__ and file_skip_reason(function.__code__.co_filename):
            function = _with_own_code(function)
            fn = types.MethodType(function, fn.__self__) if isinstance(fn, types.MethodType) else function
        REGISTRY.wanted[function.__code__] = True
        return fn

    def call(*args: Any, **kwargs: Any) -> Any:
        return fn(*args, **kwargs)

    # A code object for each function: torch keeps entries by code object.
    code = _own_code(getattr(fn, "func", fn) if type(fn) is functools.partial else fn, call.__code__)
    REGISTRY.wanted[code] = True
    return types.FunctionType(code, call.__globals__, call.__name__, None, call.__closure__)


def _with_own_code(function: types.FunctionType) -> types.FunctionType:
    """A copy of what a decorator of a library made, such as `torch.no_grad()`: all that it made has one code, for which
    entries, limits and verdicts would be shared, and what nobody asked for would be compiled."""
    code = _own_code(function, function.__code__)
    parts = function.__globals__, function.__name__, function.__defaults__, function.__closure__
    copied = types.FunctionType(code, *parts)
    copied.__kwdefaults__ = function.__kwdefaults__
    copied.__dict__.update(function.__dict__)
    copied.__qualname__ = function.__qualname__
    return copied


def _own_code(fn: Callable[..., Any], code: types.CodeType) -> types.CodeType:
    """A copy of `code` for `fn` alone; what is compiled for it goes when `fn` dies."""
    try:
        own = REGISTRY.own_codes.get(fn)
        if own is None:
            own = REGISTRY.own_codes[fn] = code.replace()
            weakref.finalize(fn, REGISTRY.let_go, own).atexit = False
        return own
    except TypeError:  # not hashable, or without weak references
        return code.replace()


_CALLS = ("__call__", "_call_impl", "_wrapped_call_impl")
_SHARED = frozenset((torch.nn.Module._call_impl.__code__, torch.nn.Module._wrapped_call_impl.__code__))
"""What calls of all modules run, where one class is compiled."""
