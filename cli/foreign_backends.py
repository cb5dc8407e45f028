"""Backends of someone else: a callable of the program's, one that it has registered, one of another package, or one of
PyTorch's own. Each gets the captured graph as Dynamo gives it.
"""
from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch

from ..artifacts.context import CompileContext
from ..artifacts.external_exceptions import came_from_outside
from ..artifacts.interruptions import watched
from ..artifacts.stages import OF_ENGINE
from ..tracer.breaks.raised_errors import BackendCompilerFailed
from ..tracer.fx.backend_call import Backend, CapturedGraph, Compiled
from . import session
from .dynamo_form import around_backend, in_dynamos_form
from .inputs import saving_inputs


def custom_backend(compiler: Callable[..., Any], keywords: Mapping[str, Any]) -> Backend:
    """A backend of someone else, called as torch.compile would: `compiler(graph_module, example_inputs)`.

    What it raises reaches the program in a BackendCompilerFailed.
    """

    def backend(captured: CapturedGraph, context: CompileContext) -> Compiled:
        for stage in OF_ENGINE:
            context.absent(stage, f"the backend {_name(compiler)} took the graph")
        graph = in_dynamos_form(captured, context.id)
        try:
            with around_backend(graph, context.id), watched():
                compiled = compiler(graph.module, list(graph.example_inputs), **keywords)
            if not callable(compiled):
                raise TypeError(f"the backend {_name(compiler)} returned {type(compiled).__name__}, not a callable")
        except Exception as error:
            if came_from_outside(error):
                raise
            program_part = error.__traceback__.tb_next if error.__traceback__ is not None else None
            raise BackendCompilerFailed(compiler, error) from error.with_traceback(program_part)
        call = _unless_inputs_share(graph.adapted(compiled), captured)
        return saving_inputs(session.current(), captured, context, call)

    return backend


def _unless_inputs_share(call: Compiled, captured: CapturedGraph) -> Compiled:
    """`call`, but the captured graph itself for a call in which an input that the graph writes shares memory with
    another: backends that functionalize rely on Dynamo's guards against that."""
    tensors = [(i, v) for i, v in enumerate(captured.inputs) if isinstance(v, torch.Tensor)]
    written = {i for i, v in tensors if not v.is_inference() and v._version}
    if not written or len(tensors) < 2:
        return call
    from ..engine.runtime.entry import apart

    plain = all(v.layout is torch.strided for _, v in tensors)
    return apart(call, captured.module, captured.inputs, written) if plain else call


def invalid_backend(name: str, known: Sequence[str]) -> Exception:
    """torch._dynamo.exc.InvalidBackend, which lists the backends that there are."""
    error: Exception = sys.modules["torch._dynamo.exc"].InvalidBackend(name)
    shown = ", ".join(known_name for known_name in known if not known_name.endswith("TESTING_ONLY"))
    error.args = (f"Invalid backend: {name!r}; there are: {shown} (`torch._dynamo.list_backends()`)",)
    return error


def registered_backend(name: str) -> Callable[..., Any]:
    """The backend under that name: registered by the program, offered by a package, or PyTorch's own.

    Raises torch._dynamo.exc.InvalidBackend where there is none. The registry is Dynamo's: a program that names such a
    backend loads it.
    """
    from importlib import import_module

    registry: Any = import_module("torch._dynamo.backends.registry")
    if name not in registry.list_backends(None):
        raise invalid_backend(name, registry.list_backends(None))
    found: Callable[..., Any] = registry.lookup_backend(name)
    return found


def _name(function: Callable[..., Any]) -> str:
    return getattr(function, "__qualname__", None) or repr(function)
