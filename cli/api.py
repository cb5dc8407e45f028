"""The Python interface: `ptdebug.compile` and the rest, and the replacements for PyTorch's functions.

`import ptdebug` does not load this module; its first use does, and imports torch.
"""
from __future__ import annotations

import functools
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from types import FrameType
from typing import Any, TypeVar

import torch

from ..artifacts.home import new_recording_folder, recordings_home
from ..artifacts.recording import Recording
from ..artifacts.store import RecordingWriter
from ..tracer.frames import dispatch
from ..tracer.runtime import eval_frame
from ..tracer.runtime.dynamo_settings import compiles_nothing
from . import session
from .compile_anything import compile_anything
from .dynamo_compatibility import dynamo_explain
from .explain import Explanation, explain
from .run_times import run_times
from .serving import (
    CacheBundle,
    WarmUp,
    load_cache,
    load_cache_artifacts,
    save_cache,
    save_cache_artifacts,
    warm_up,
)
from .settings import checked
from .wiring import Request, requested

F = TypeVar("F", bound=Callable[..., Any])

__all__ = [
    "CacheBundle", "Explanation", "WarmUp", "compile", "disable", "dynamo_backend", "dynamo_explain", "explain",
    "graph_break", "load_cache", "load_cache_artifacts", "mark_dynamic", "record", "save_cache", "save_cache_artifacts",
    "stats", "warm_up",
]


def compile(
    model: Any = None, *, mode: str | None = None, dynamic: bool | None = None, fullgraph: bool = False,
    backend: str | Callable[..., Any] = "ptdebug", options: dict[str, Any] | None = None, disable: bool = False,
    recompile_limit: int | None = None, name: str | None = None, isolate_recompiles: bool = False,
    shapes_spec: Any = None,
) -> Any:
    """Compile a function, a method, a class or an `nn.Module`; without `model`, the decorator that does.

    A drop-in for `torch.compile`, with its meaning of `dynamic`, `fullgraph`, `disable` and `recompile_limit`.
    `backend`: "ptdebug" and "inductor" are the engine, "aot_eager" runs its ATen graphs by ATen, "eager" the captured
    graph; a callable, or the name of another registered backend, gets each captured graph as Dynamo gives it, its
    example inputs, and mode or options. Options are Inductor's: "freezing" computes once, in inference, what depends on
    parameters and buffers alone; "cpp_wrapper" makes the wrapper of a graph C++; docs/backends.md has the others,
    and what each mode means. What has no effect here is said once. "memory_budget" (ptdebug's own) is the share of its
    saved values that a training graph may keep, the rest being recomputed (1.0: all, the default; 0.0: only inputs).
    Calls for one function with equal options share what is compiled, except those with `isolate_recompiles`.

    Raises RuntimeError for something that is not callable, if `mode` and `options` are both given, and for a backend,
    mode or option that does not exist; ValueError for a memory budget that is not between 0 and 1.
    """
    session.current().compile_called()
    request = requested(
        backend, mode, options, dynamic=dynamic, fullgraph=fullgraph, recompile_limit=recompile_limit,
        isolated=isolate_recompiles)
    if disable or compiles_nothing():
        return (lambda it: it) if model is None else model
    if model is None:
        return functools.partial(_compile_decorated, request=request)
    return compile_anything(model, request)


def _compile_decorated(model: Any, *, request: Request) -> Any:
    if model is None:
        raise RuntimeError("Model can't be None")
    return compile_anything(model, request)


def torch_compile(model: Any = None, *, backend: str | Callable[..., Any] | None = None, **options: Any) -> Any:
    """`torch.compile` under `ptdebug run`: where no backend is given, or Inductor, it is ptdebug. A default
    backend that the program has set holds.

    What PyTorch compiles internally (`flex_attention`) need not fit into one graph: the error would be unexpected.
    """
    if options.get("fullgraph") and _is_own_affair(_caller()):
        options["fullgraph"] = False
    if backend is None:
        registry = sys.modules.get("torch._dynamo.backends.registry")
        backend = getattr(registry, "_default_backend", "ptdebug")  # torch 2.13 has one
    return compile(model, backend=backend, **options)


_PASSED_ON = ("torch.compiler", "torch.nn.modules.module", "torch.testing", "torch._dynamo", "torch.utils.benchmark")
"""Modules of PyTorch that pass on the program's call of `torch.compile`, or are programs of their own."""


def _caller() -> str:
    """The name of the module whose call of `torch.compile` this is."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and str(frame.f_globals.get("__name__")).partition(".")[0] == "ptdebug":
        frame = frame.f_back
    return str(frame.f_globals.get("__name__")) if frame is not None else ""


def _is_own_affair(module: str) -> bool:
    """Whether a call of `torch.compile` in that module is internal to PyTorch."""
    within = f"{module}."
    return within.startswith("torch.") and not within.startswith(tuple(f"{name}." for name in _PASSED_ON))


def dynamo_optimize(backend: str | Callable[..., Any] = "inductor", *, nopython: bool = False,
                    dynamic: bool | None = None, **_others: Any) -> Callable[[Any], Any]:
    """What `torch._dynamo.optimize(backend)` is under `ptdebug run`: a decorator."""
    return compile(backend=backend, fullgraph=nopython, dynamic=dynamic)


def dynamo_backend(module: torch.fx.GraphModule, example_inputs: Sequence[Any], **_options: Any) -> Callable[..., Any]:
    """`torch.compile(fn, backend="ptdebug")`: PyTorch's own capture, ptdebug's engine."""
    from .dynamo_graph import compile_dynamo_graph  # only where Dynamo is in use

    return compile_dynamo_graph(module, example_inputs)


@contextmanager
def record(name: str | None = None, out: str | None = None, **settings: Any) -> Iterator[Recording]:
    """Record what is compiled inside the block; yields the recording, which can be queried at any time.

    `settings` are those of `ptdebug run`: compiler, inputs, inputs_limit, overrides, target, steps. A function that was
    compiled before is not compiled again and so not recorded: call `torch.compiler.reset()` first if it should be.
    Raises OSError if the folder cannot be created, ValueError for an invalid override or target.
    """
    chosen = checked(session.Settings(**settings))
    folder = new_recording_folder(recordings_home(out), _program_name(), name)
    writer = RecordingWriter(folder, command=_command())
    before = set(run_times())
    inside = session.enter(session.Session(chosen, writer, folder))
    if before:
        writer.note(f"{len(before)} compilations were made before this recording and are not in it")
    try:
        yield Recording.open(folder)
    finally:
        session.leave(inside)
        writer.flush_runtime({id: runtime for id, runtime in run_times().items() if id not in before})
        for message in inside.messages:
            writer.note(message.removeprefix("ptdebug: "))
        writer.close()


def _command() -> list[str]:
    """The words after `python` and its options that started this program; none of a prompt, which no words started."""
    options = len(sys.orig_argv) - len(sys.argv)
    if options < 1:
        return []
    flag = sys.orig_argv[options - 1]
    way = [f"-{flag[-1]}"] if options > 1 and flag[0] == "-" and flag[-1] in "mc" else []
    return [*way, *sys.orig_argv[options:]]


def _program_name() -> str:
    return Path(sys.argv[0] or "python").stem or "python"


def stats() -> dict[str, Any]:
    """This process so far: `graphs`, `ops`, `graph_breaks`, `recompiles`, `reasons` (of the breaks, with counts), and
    `fallbacks`: why graphs run in eager that were captured (with counts)."""
    return {**dispatch.stats(), "fallbacks": dict(session.FALLBACKS)}


def reset() -> None:
    """Forget everything compiled so far (`torch.compiler.reset`); `stats` still counts it."""
    dispatch.forget()
    dynamo = sys.modules.get("torch._dynamo")
    stock = getattr(getattr(dynamo, "reset", None), "__wrapped__", None)
    if stock is not None:  # the program uses Dynamo directly too
        stock()


def disable(fn: Any = None, recursive: bool = True, *, reason: str | None = None) -> Any:
    """Run `fn`, and by default all that it calls, in eager: a function, a decorator, or a decorator with arguments.

    With `recursive=False` only `fn`'s own frame is skipped. `reason` is told where a graph breaks there.
    """
    if fn is None:
        return functools.partial(disable, recursive=recursive, reason=reason)
    if isinstance(fn, torch.nn.Module):
        fn.forward = dispatch.disable(fn.forward, recursive, reason)
        return fn
    return dispatch.disable(fn, recursive, reason)


def graph_break(msg: str = "") -> None:
    """End the graph here and start another one after it; does nothing in eager."""


graph_break._ptdebug_graph_break = True  # type: ignore[attr-defined]


def mark_dynamic(tensor: torch.Tensor, index: int | Sequence[int], **bounds: Any) -> None:
    """Compile `tensor`'s dimension `index` (or each of them) for any size from the first call on.

    Sets the attribute that `torch._dynamo.mark_dynamic` sets, without importing Dynamo. `bounds` (min, max) are
    accepted and not used.
    """
    dims: set[int] = getattr(tensor, "_dynamo_dynamic_indices", set())
    indices = {index} if isinstance(index, int) else set(index)
    tensor._dynamo_dynamic_indices = dims | {i % tensor.dim() for i in indices}  # type: ignore[attr-defined]


def allow_in_graph(fn: Any) -> Any:
    """Put calls of `fn` into the graph without tracing into them (`torch.compiler.allow_in_graph`)."""
    if isinstance(fn, (list, tuple)):
        return [allow_in_graph(each) for each in fn]
    with suppress(AttributeError, TypeError):  # a builtin goes into the graph anyway
        fn._ptdebug_allow_in_graph = True
    return fn


def assume_constant_result(fn: F) -> F:
    """Treat what `fn` returns as a constant (`torch.compiler.assume_constant_result`)."""
    fn._dynamo_marked_constant = True  # type: ignore[attr-defined]
    return fn


def cudagraph_mark_step_begin() -> None:
    """`torch.compiler.cudagraph_mark_step_begin`: what compiled functions returned before is not needed any more.

    Nothing that is still held is overwritten, with this call or without it: results that are in use are copied, and
    after it they are lent again from the memory of the CUDA graph that made them.
    """
    runner = sys.modules.get(f"{__package__.rpartition('.')[0]}.engine.runtime.cuda_graphs.runner")
    if runner is not None:
        runner.mark_step_begin()


STANCES = (
    "default", "eager_then_compile", "aot_eager_then_compile", "force_eager", "eager_on_recompile", "fail_on_recompile",
)


class set_stance:  # lower case: it stands in for torch.compiler.set_stance
    """`torch.compiler.set_stance`: "default" compiles, "force_eager" does not; a call, a decorator, a context manager.

    "eager_on_recompile" and "fail_on_recompile" run a call that needs a compilation in eager, or raise RuntimeError.
    "eager_then_compile" runs the first call of each function in eager, "aot_eager_then_compile" its ATen graph; what
    differs at the second is dynamic. `force_backend` is used in the place of each backend. Guards are evaluated also
    with `skip_guard_eval_unsafe`. Raises RuntimeError for another stance, and in a call that is compiled.
    """

    def __init__(
        self, stance: str = "default", *, skip_guard_eval_unsafe: bool = False,
        force_backend: str | Callable[..., Any] | None = None,
    ) -> None:
        if stance not in STANCES:
            raise RuntimeError(f"invalid torch.compile stance {stance!r}; there are: {', '.join(STANCES)}")
        if force_backend is not None and stance != "default":
            raise RuntimeError("non-default stance cannot have force_backend set")
        if eval_frame.current_callback():
            raise RuntimeError("attempted to set_stance in a torch.compile region")
        self.stance, self.backend = stance, force_backend
        self._before = self._set(stance, force_backend)

    @staticmethod
    def _set(stance: str, backend: Any) -> tuple[str, Any]:
        return dispatch.set_stance(stance), dispatch.force_backend(backend)

    def __enter__(self) -> None:
        self._set(self.stance, self.backend)

    def __exit__(self, *_exception: object) -> None:
        self._set(*self._before)

    def __call__(self, function: F) -> F:
        self._set(*self._before)  # as a decorator it acts during calls only

        @functools.wraps(function)
        def call(*args: Any, **kwargs: Any) -> Any:
            with set_stance(self.stance, force_backend=self.backend):
                return function(*args, **kwargs)

        return call  # type: ignore[return-value]
