"""Connects the engine to the tracer, and both to the recorder.

The tracer knows its compiler as a plain callable (`Backend`), the engine knows the tracer's result as a captured graph.
Errors of the engine end here: the graph then runs as captured, in eager, and the recording says why.
"""
from __future__ import annotations

import functools
import inspect
import os
import sys
import traceback
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch

from ..artifacts.context import CompileContext, CompileId, DataDependentError
from ..artifacts.external_exceptions import came_from_outside
from ..artifacts.interruptions import watched
from ..artifacts.stages import OF_ENGINE
from ..tracer.breaks.raised_errors import BackendCompilerFailed, become_dynamos
from ..tracer.frames import dispatch
from ..tracer.fx.backend_call import Backend, CapturedGraph, Compiled, CompileOptions
from ..tracer.guards.versions import Versions
from ..tracer.runtime import eval_frame
from ..tracer.runtime.warning_filters import no_warnings
from ..tracer.variables.core.handlers import declare
from . import compile_options, session
from .inputs import saving_inputs
from .interpose import after_import

declare(f"{__package__}.api", {"compile": "compile", "torch_compile": "compile", "graph_break": "graph break"})
declare(f"{__package__}.module", {
    "__call__": "call of a compiled module", "__getattr__": "attribute of a compiled module",
    "training": "mode of a compiled module", "__class__": "class of a compiled module",
})  # fmt: skip


@dataclass(frozen=True)
class Request:
    """The arguments of one call of `compile`. `backend` is a name (all existing names mean the engine) or a callable,
    which gets `keywords`: the mode and the options."""

    backend: str | Callable[..., Any] = "ptdebug"
    dynamic: bool | None = None
    fullgraph: bool = False
    recompile_limit: int | None = None
    memory_budget: float | None = None
    freezing: bool | None = None
    cpp_wrapper: bool | None = None
    keywords: tuple[tuple[str, Any], ...] = ()
    isolated: bool = False  # shares what is compiled with no other call of `compile`

    def options(self) -> CompileOptions:
        """The same for the tracer; one object for equal requests, which share what is compiled."""
        if self.isolated:
            return self._options()
        known, key = session.current().options, (self, *_stock_settings())
        try:
            options = known.get(key)
        except TypeError:  # a backend without a hash
            return self._options()
        if options is None:
            options = known[key] = self._options()
        return options

    def _options(self) -> CompileOptions:
        backend = engine_backend if isinstance(self.backend, str) else custom_backend(self.backend, dict(self.keywords))
        make_context = functools.partial(
            new_context, memory_budget=self.memory_budget, freezing=self.freezing, cpp_wrapper=self.cpp_wrapper
        )
        ours = isinstance(self.backend, str)  # what a user-defined backend's graph raises is the program's
        options = CompileOptions(
            backend, make_context, self.dynamic, self.fullgraph, run_again=ours, versions=dict_versions,
            overrides=lambda: session.current().settings.overrides,
        )
        if self.fullgraph or not ours:
            _errors_as_dynamos()
        if self.recompile_limit is not None:
            options.recompile_limit = self.recompile_limit
        return options

    def optimize(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """`function`, compiled when it is called."""
        compiled, observe = dispatch.optimize(function, self.options()), session.current().observe
        return compiled if observe is None else observe(compiled, function)


@functools.cache
def _errors_as_dynamos() -> None:
    """Make ptdebug's errors catchable as Dynamo's, once the program has loaded Dynamo's classes."""
    after_import({"torch._dynamo.exc": become_dynamos})


def dict_versions() -> Versions | None:
    """The library by which guards skip dicts that have not changed, if available."""
    return _guard_library()()


@functools.cache
def _guard_library() -> Any:
    """Loaded with the engine's compiler when a module was accepted a few times."""
    from .guard_library import GuardLibrary

    return GuardLibrary()


def new_context(
    compile_id: CompileId, memory_budget: float | None = None, freezing: bool | None = None,
    cpp_wrapper: bool | None = None,
) -> CompileContext:
    """The context of a compilation that starts now, in the current session.

    Memory budget, freezing and the C++ wrapper default to stock's configuration, which programs set.
    """
    context = session.current().context(compile_id)
    stock_budget, stock_freezing, stock_wrapper = _stock_settings()
    context.memory_budget = stock_budget if memory_budget is None else memory_budget
    context.freezing = stock_freezing if freezing is None else freezing
    context.cpp_wrapper = stock_wrapper if cpp_wrapper is None else cpp_wrapper
    return context


def _stock_settings() -> tuple[float, bool, bool]:
    """Of stock's configuration: the memory budget, freezing, the C++ wrapper."""
    inductor = sys.modules.get("torch._inductor.config")
    budget = getattr(sys.modules.get("torch._functorch.config"), "activation_memory_budget", 1.0)
    return budget, getattr(inductor, "freezing", False), getattr(inductor, "cpp_wrapper", False)


def engine_backend(captured: CapturedGraph, context: CompileContext) -> Compiled:
    """The engine, guarded: whatever it raises, the graph runs (as captured, in eager) and the reason is recorded."""
    if not session.current().settings.engine:
        return _as_it_is(captured)
    try:
        load_or_compile = _engine()
        with no_warnings():  # torch's warnings about the engine's work are not for the program
            compiled = load_or_compile(captured, context, _compiler)
    except DataDependentError:
        raise
    except Exception as error:
        if came_from_outside(error):
            raise
        compiled = _as_captured(captured, context, error)
    for note in context.notes:
        session.current().say(f"ptdebug: {note}")
    if context.fallback:
        session.FALLBACKS[context.fallback.splitlines()[0]] += 1
    if context.fallback and not context.recording:  # a recording says it of the compilation
        session.current().say(f"ptdebug: a graph runs in eager: {context.fallback.splitlines()[0]}")
    return saving_inputs(session.current(), captured, context, compiled)


@functools.cache
def _engine() -> Any:
    """The engine's entrance, loaded when there is a graph. A backward that runs while a compiled function does is no
    part of that: were its frames observed, the graph that it repeats in eager would be compiled, and so on."""
    from ..engine.aot.autograd.dependent_results import Lead
    from ..engine.aot.autograd.function import CompiledGraph, gradients
    from ..engine.graph_cache import load_or_compile

    for function in (CompiledGraph.backward, Lead.backward, gradients):
        eval_frame.skip_code_with_callees(function.__code__)
    return load_or_compile


def _compiler() -> Any:
    """The engine itself, loaded when there is something to compile."""
    from ..engine.compile import compile_graph

    return compile_graph


def _as_it_is(captured: CapturedGraph) -> Compiled:
    from ..engine.runtime.entry import eager_form

    return eager_form(captured.module)


def _as_captured(captured: CapturedGraph, context: CompileContext, error: Exception) -> Compiled:
    place = traceback.extract_tb(error.__traceback__)[-1]
    why = f"{type(error).__name__}: {error} ({os.path.basename(place.filename)}:{place.lineno})"
    context.fallback = context.fallback or why
    for stage in OF_ENGINE:
        context.absent(stage, why)
    return _as_it_is(captured)


def requested(
    backend: str | Callable[..., Any] = "ptdebug", mode: str | None = None, options: Mapping[str, Any] | None = None,
    **others: Any,
) -> Request:
    """The request for a backend, a mode, options and `others` (those of `Request`).

    Raises what stock does for what does not exist; ValueError for a memory budget that is not between 0 and 1.
    """
    if mode is not None and options is not None:
        raise RuntimeError("Either mode or options can be specified, but both can't be specified at the same time.")
    wanted = dict(options or {})
    if isinstance(backend, str):
        backend = compile_options.backend_called(backend) or backend
    if not isinstance(backend, str):
        given = {"mode": None if mode == "default" else mode, "options": options}
        keywords = tuple((name, value) for name, value in given.items() if value)
        return Request(backend, keywords=keywords, **others)
    if backend in ("inductor", "ptdebug"):  # the other backends take any
        compile_options.check_mode(mode)
        compile_options.check_options(wanted)
    budget = wanted.get("memory_budget")
    if budget is not None and not 0 <= budget <= 1:
        raise ValueError(f"a memory budget is a share between 0 and 1, not {budget}")
    return Request(backend, memory_budget=None if budget is None else float(budget), freezing=wanted.get("freezing"),
                   cpp_wrapper=wanted.get("cpp_wrapper"), **others)


def custom_backend(compiler: Callable[..., Any], keywords: Mapping[str, Any]) -> Backend:
    """A backend of the program's own, called as torch.compile would: `compiler(graph_module, example_inputs)`.

    What it raises reaches the program in a BackendCompilerFailed.
    """

    def backend(captured: CapturedGraph, context: CompileContext) -> Compiled:
        for stage in OF_ENGINE:
            context.absent(stage, f"the program's own backend {_name(compiler)} took the graph")
        try:
            with watched():
                compiled = compiler(captured.module, list(captured.inputs), **keywords)
            if not callable(compiled):
                raise TypeError(f"the backend {_name(compiler)} returned {type(compiled).__name__}, not a callable")
        except Exception as error:
            if came_from_outside(error):
                raise
            program_part = error.__traceback__.tb_next if error.__traceback__ is not None else None
            raise BackendCompilerFailed(compiler, error) from error.with_traceback(program_part)
        return saving_inputs(session.current(), captured, context, compiled)

    return backend


def _name(function: Callable[..., Any]) -> str:
    return getattr(function, "__qualname__", None) or repr(function)


def compile_anything(model: Any, request: Request) -> Any:
    """What torch.compile does with each kind of argument: a module, a class, a function, another callable."""
    from .module import OptimizedModule

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
