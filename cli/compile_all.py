"""`ptdebug run --compile-all`: the outermost nn.Module calls of a program that never calls torch.compile."""
from __future__ import annotations

import threading
from typing import Any

import torch

from . import session
from .wiring import Request


class _Depth(threading.local):
    inside = False


def compile_outermost_modules() -> None:
    """From now on, calling a module (not from within another's call) compiles it.

    A program that has called torch.compile by then chooses itself: nothing else is compiled.
    """
    stock = torch.nn.Module.__call__
    depth = _Depth()
    request = Request()

    def outermost(module: torch.nn.Module, *args: Any, **kwargs: Any) -> Any:
        if depth.inside or session.current().saw_compile or torch.compiler.is_compiling():
            return stock(module, *args, **kwargs)
        if module._compiled_call_impl is None:  # as module.compile() does it: in place, and left out of pickles
            module._compiled_call_impl = request.optimize(module._call_impl)
        depth.inside = True
        try:
            return stock(module, *args, **kwargs)
        finally:
            depth.inside = False

    torch.nn.Module.__call__ = outermost  # type: ignore[method-assign]
