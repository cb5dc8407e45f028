"""What `compile` makes of a module, a class, a function or another callable."""
from __future__ import annotations

import functools
import inspect
from typing import Any

import torch

from .compile_options import say_once
from .module import OptimizedModule
from .wiring import Request


def compile_anything(model: Any, request: Request) -> Any:
    """What torch.compile does with each kind of argument: a module, a class, a function, another callable."""
    if isinstance(model, OptimizedModule):
        return model
    if isinstance(model, torch.nn.Module):
        if _is_prepared_in_vain(model):
            say_once("the module was prepared for quantization (PT2E), and no operator of its graph is quantized: the "
                     "quantizer found no layer in it. Where torch.export.export traced it without strict=True, torch "
                     "2.11 does not tell the quantizer which operators are layers")
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


def _is_prepared_in_vain(model: torch.nn.Module) -> bool:
    """Whether a module went through PT2E's preparation, and has neither observers nor quantized operators."""
    if not isinstance(model, torch.fx.GraphModule) or "_observed_graph_module_attrs" not in model.meta:
        return False
    return not any(getattr(node.target, "namespace", "") == "quantized_decomposed" or (node.op == "call_module"
                   and str(node.target).startswith("activation_post_process")) for node in model.graph.nodes)
