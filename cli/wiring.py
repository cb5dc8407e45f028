"""Connects the engine to the tracer, and both to the recorder.

The tracer knows its compiler as a plain callable (`Backend`), the engine knows the tracer's result as a captured graph.
Errors of the engine end here: the graph then runs as captured, in eager, and the recording says why.
"""
from __future__ import annotations

import functools
import os
import sys
import traceback
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from ..artifacts.context import CompileContext, CompileId, DataDependentError
from ..artifacts.external_exceptions import came_from_outside
from ..artifacts.stages import OF_ENGINE
from ..tracer.breaks.raised_errors import become_dynamos
from ..tracer.frames import dispatch
from ..tracer.fx.backend_call import CapturedGraph, Compiled, CompileOptions
from ..tracer.guards.versions import Versions
from ..tracer.runtime import eval_frame
from ..tracer.runtime.dynamo_settings import setting
from ..tracer.runtime.warning_filters import no_warnings
from ..tracer.variables.core.handlers import declare
from . import compile_options, compile_progress, session
from .foreign_backends import custom_backend
from .inputs import saving_inputs
from .interpose import after_import
from .ranks import note_rank
from .torch_settings import inductor_settings, preferred

declare(f"{__package__}.api", {"compile": "compile", "torch_compile": "compile", "graph_break": "graph break"})
declare(f"{__package__}.module", {
    "__call__": "call of a compiled module", "__getattr__": "attribute of a compiled module",
    "training": "mode of a compiled module", "__class__": "class of a compiled module",
})  # fmt: skip


@dataclass(frozen=True)
class Request:
    """The arguments of one call of `compile`. `backend` is a name that the engine stands for, or a callable, which gets
    `keywords`: the mode and the options."""

    backend: str | Callable[..., Any] = "ptdebug"
    dynamic: bool | None = None
    fullgraph: bool = False
    recompile_limit: int | None = None
    memory_budget: float | None = None
    settings: tuple[tuple[str, Any], ...] = ()  # of Inductor, by the mode and options
    keywords: tuple[tuple[str, Any], ...] = ()
    keep_guards: Callable[[Any], Any] | None = None  # options["guard_filter_fn"]
    isolated: bool = False  # shares what is compiled with no other call of `compile`
    automatic_dynamic: bool = True  # what changed since an earlier compilation is a symbol
    varying: tuple[str, ...] = ()  # else the numbers at these sources are

    def options(self) -> CompileOptions:
        """The same for the tracer; one object for equal requests, which share what is compiled."""
        if self.isolated:
            return self._options()
        known, key = session.current().options, (self, _stock_budget(), tuple(inductor_settings({}).items()))
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
            new_context, memory_budget=self.memory_budget, settings=dict(self.settings),
            way=compile_options.WAYS.get(self.backend, "kernels") if isinstance(self.backend, str) else "kernels",
        )
        ours = isinstance(self.backend, str)  # what a user-defined backend's graph raises is the program's
        options = CompileOptions(
            backend, make_context, self.dynamic, self.fullgraph, run_again=ours, versions=dict_versions,
            overrides=lambda: session.current().settings.overrides, keep_guards=self.keep_guards,
            with_backend=self._with_backend, automatic_dynamic=self.automatic_dynamic, varying=self.varying,
        )
        _errors_as_dynamos()
        if self.recompile_limit is not None:
            options.recompile_limit = self.recompile_limit
        return options

    def _with_backend(self, backend: str | Callable[..., Any]) -> CompileOptions:
        """The options of the same request for another backend."""
        return requested(
            backend, dynamic=self.dynamic, fullgraph=self.fullgraph, recompile_limit=self.recompile_limit,
            keep_guards=self.keep_guards,
        ).options()

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
    compile_id: CompileId, memory_budget: float | None = None, settings: Mapping[str, Any] | None = None,
    way: str = "kernels",
) -> CompileContext:
    """The context of a compilation that starts now, in the current session.

    What neither mode nor options say is as in stock's configuration, which programs set.
    """
    note_rank(session.current())
    context = session.current().context(compile_id)
    held = inductor_settings(settings or {})
    context.way = way
    context.memory_budget = _stock_budget() if memory_budget is None else memory_budget
    context.freezing = bool(held.get("freezing"))
    context.max_autotune = bool(held.get("max_autotune"))
    context.cpp_wrapper = bool(held["cpp_wrapper"]) if "cpp_wrapper" in held else None
    context.cuda_graphs = bool(held.get("triton.cudagraphs"))
    context.preferred = {kind: wish for kind, wish in preferred(held).items() if kind != "compile" or way == "kernels"}
    if held.get("force_disable_caches") or not held.get("fx_graph_cache", True):
        context.uncached = "torch's settings turn it off (fx_graph_cache, force_disable_caches)"
    context.buckets = _ddp_buckets()
    context.progress = compile_progress.told
    if session.current().profiler is not None:
        context.profiled, context.uncached = True, "kernels are marked for the profiler"
    return context


def _ddp_buckets() -> tuple[int, int] | None:
    """The sizes of the buckets of the DistributedDataParallel whose forward runs now: its first, and the others."""
    if not setting("optimize_ddp", True):
        return None
    wrapper = getattr(sys.modules.get("torch.nn.parallel.distributed"), "DistributedDataParallel", None)
    active = None if wrapper is None else wrapper._get_active_ddp_module()
    if active is None:
        return None
    usual = active.bucket_bytes_cap_default  # then its first bucket is smaller
    first = sys.modules["torch.distributed"]._DEFAULT_FIRST_BUCKET_BYTES if usual else active.bucket_bytes_cap
    return first, active.bucket_bytes_cap


def _stock_budget() -> float:
    return float(getattr(sys.modules.get("torch._functorch.config"), "activation_memory_budget", 1.0))


def engine_backend(captured: CapturedGraph, context: CompileContext) -> Compiled:
    """The engine, guarded: whatever it raises, the graph runs (as captured, in eager) and the reason is recorded."""
    if (own := session.current().graphs) is not None:
        return own(captured, context)
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
    if context.fallback and context.way != "eager":
        session.FALLBACKS[context.fallback.splitlines()[0]] += 1
    if context.fallback and not context.recording and context.way != "eager":  # a recording says it of the compilation
        session.current().say(f"ptdebug: a graph runs in eager: {context.fallback.splitlines()[0]}")
    profiler = session.current().profiler
    if profiler is not None:
        compiled = profiler.around(compiled)
    return saving_inputs(session.current(), captured, context, compiled)


@functools.cache
def _engine() -> Any:
    """The engine's entrance, loaded when there is a graph. A backward that runs while a compiled function does is no
    part of that: were its frames observed, the graph that it repeats in eager would be compiled, and so on."""
    from ..engine.aot.autograd.dependent_results import Lead
    from ..engine.aot.autograd.function import CompiledGraph, gradients
    from ..engine.graph_cache.cache import load_or_compile

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

    Raises what stock does for what does not exist or is of another type; ValueError for a memory budget that is not
    between 0 and 1.
    """
    if mode is not None and options is not None:
        raise RuntimeError("Either mode or options can be specified, but both can't be specified at the same time.")
    if not isinstance(others.get("dynamic"), (bool, type(None))):
        raise AssertionError(f"Expected dynamic to be a bool or None, got {type(others['dynamic'])}")
    if not isinstance(options, (Mapping, type(None))):
        raise AttributeError(f"options have to be a dict, not {options!r}")
    wanted = dict(options or {})
    others["keep_guards"] = wanted.pop("guard_filter_fn", others.get("keep_guards"))
    wanted.pop("use_aoti", None)
    if isinstance(backend, str):
        backend = compile_options.backend_called(backend) or backend
    if not isinstance(backend, str):
        given = {"mode": None if mode == "default" else mode, "options": wanted}
        keywords = tuple((name, value) for name, value in given.items() if value)
        return Request(backend, keywords=keywords, **others)
    settings: dict[str, Any] = {}
    if backend in ("inductor", "ptdebug"):  # the other backends take any
        compile_options.check_mode(mode)
        compile_options.check_options(wanted)
        settings = compile_options.settings_of(mode, wanted)
    elif backend == "cudagraphs":
        settings = {"triton.cudagraphs": True}
    budget = wanted.get("memory_budget")
    if budget is not None and not 0 <= budget <= 1:
        raise ValueError(f"a memory budget is a share between 0 and 1, not {budget}")
    return Request(backend, memory_budget=None if budget is None else float(budget),
                   settings=tuple(sorted(settings.items())), **others)
