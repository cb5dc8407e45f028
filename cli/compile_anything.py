"""What `compile` makes of a module, a class, a function or another callable."""
from __future__ import annotations

import functools
import inspect
from typing import Any

import torch

from .module import OptimizedModule
from .wiring import Request


def compile_anything(model: Any, request: Request) -> Any:
    """What torch.compile does with each kind of argument: a module, a class, a function, another callable."""
    if isinstance(model, OptimizedModule):
        return model
    if isinstance(model, torch.nn.Module):
        return OptimizedModule(model, request)
    if inspect.isclass(model):  # instances' calls are compiled, as stock does, where they can be called
        method = "_call_impl" if issubclass(model, torch.nn.Module) else "__call__"
        if any(method in vars(base) for base in model.__mro__):
            setattr(model, method, request.optimize(getattr(model, method)))
        return model
    if not callable(model):
        raise RuntimeError(f"A callable function is expected, but {type(model)} is provided.")
    if inspect.isroutine(model) or isinstance(model, functools.partial):
        return request.optimize(model)
    return request.optimize(model.__call__)  # an object with __call__
