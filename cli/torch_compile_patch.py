"""Replaces `torch.compile` while a program runs under `ptdebug run`.

Nothing here imports torch: `watch_for_torch` waits until the program does, and then replaces the functions in the table
below. ptdebug's compiler is imported by the first call of `torch.compile`.
"""
from __future__ import annotations

import logging
import sys
from collections.abc import Callable
from functools import wraps
from types import ModuleType
from typing import Any

from ..artifacts.garbage import fewer_collections
from . import session
from .interpose import after_import

REPLACED = {
    # attribute of torch (or below it) -> name in api.py
    "torch": {"compile": "torch_compile"},
    "torch.compiler": {"reset": "reset", "disable": "disable", "allow_in_graph": "allow_in_graph",
                       "assume_constant_result": "assume_constant_result", "set_stance": "set_stance",
                       "cudagraph_mark_step_begin": "cudagraph_mark_step_begin",
                       "save_cache_artifacts": "save_cache_artifacts", "load_cache_artifacts": "load_cache_artifacts"},
    # Dynamo's other functions set marks that ptdebug's tracer reads, and torch itself uses them.
    "torch._dynamo": {"optimize": "dynamo_optimize", "reset": "reset", "allow_in_graph": "allow_in_graph",
                      "explain": "dynamo_explain"},
}


def watch_for_torch() -> None:
    """Act as soon as the program imports torch."""
    compiler = session.current().settings.compiler
    actions = {"ptdebug": _ours, "torch": _stock, "eager": _nobody}
    after_import({"torch": _safely(actions[compiler])})
    if compiler == "ptdebug":
        after_import({"torch._dynamo": _safely(lambda module: _replace(module, "torch._dynamo"))})
        after_import({"torch._dynamo.utils": _safely(_counted)})


def _safely(action: Callable[[ModuleType], None]) -> Callable[[ModuleType], None]:
    """An action that cannot break the program's import."""

    def act(module: ModuleType) -> None:
        try:
            session.current().saw_torch = True
            action(module)
        except Exception as error:
            session.current().say(f"ptdebug: torch.compile was not replaced: {type(error).__name__}: {error}")

    return act


class _AtTheEnd(logging.Handler):
    """Keeps log messages of ptdebug for the end of the program, when the summary is printed."""

    def emit(self, record: logging.LogRecord) -> None:
        session.current().say(f"ptdebug: {record.getMessage()}")


def _ours(torch: ModuleType) -> None:
    log = logging.getLogger("ptdebug")
    log.addHandler(_AtTheEnd(logging.WARNING))
    log.propagate = False
    _replace(torch, "torch")
    _replace(torch.compiler, "torch.compiler")
    if session.current().settings.compile_all:
        from .compile_all import compile_outermost_modules

        compile_outermost_modules()


def _counted(utils: ModuleType) -> None:
    from .dynamo_compatibility import count_as_dynamo

    count_as_dynamo(utils)


def _stock(torch: ModuleType) -> None:
    from .torch_trace_import import record_stock

    record_stock(torch)


def _nobody(torch: ModuleType) -> None:
    _put(torch, "compile", _maybe_checking(_leave_uncompiled))


def _maybe_checking(compile_function: Callable[..., Any]) -> Callable[..., Any]:
    """`torch.compile`, whose results check their calls if --check-calls is given, and time one if --time-calls is."""
    if session.current().settings.time_calls:
        from .timed_calls import timing

        compile_function = timing(compile_function)
    if not session.current().settings.check_calls:
        return compile_function
    from .checked_calls import checking

    return checking(compile_function)


def _leave_uncompiled(model: Any = None, **_options: Any) -> Any:
    """--compiler eager: the function or module itself."""
    session.current().saw_compile = True
    return _leave_uncompiled if model is None else model


def _replace(module: ModuleType, name: str) -> None:
    for attribute, ours in REPLACED[name].items():
        if hasattr(module, attribute):
            function = _loading(ours)
            _put(module, attribute, _maybe_checking(function) if ours == "torch_compile" else function)


def _loading(name: str) -> Callable[..., Any]:
    """A function that loads api.py when it is called; if that fails, the program runs uncompiled."""

    def call(*args: Any, **kwargs: Any) -> Any:
        try:
            with fewer_collections():
                from . import api
        except Exception as error:  # a torch or a library that ptdebug does not know
            why = f"{type(error).__name__}: {error}".splitlines()[0]
            session.current().say(f"ptdebug: nothing is compiled, the program runs in eager: {why}")
            return _leave_uncompiled(*args, **kwargs)
        return getattr(api, name)(*args, **kwargs)

    return call


def _put(module: ModuleType, attribute: str, function: Callable[..., Any]) -> None:
    """Replace a function by one with the same name, documentation and signature."""
    stock = getattr(module, attribute)
    if isinstance(stock, type):  # torch.compiler.set_stance is a class in some versions
        setattr(module, attribute, function)
    else:
        setattr(module, attribute, wraps(stock)(function))


def stats() -> dict[str, Any]:
    """The counters of this process so far; empty if nothing was compiled."""
    dispatch = _dispatch()
    return dispatch.stats() if dispatch else {}


def reruns() -> list[str]:
    """What calls of compiled functions ran again in eager, because a graph raised in them."""
    found = []
    for reason, times in stats().get("reasons", {}).items():
        kind, _, what = reason.partition(": ")
        if kind == "rerun in eager":
            calls = "a call" if times == 1 else f"{times} calls"
            seen = " (what eager raises, too, the program has seen)" if what.startswith("a graph raised") else ""
            found.append(f"{calls} ran in eager a second time: {what}{seen}")
    return found


def _dispatch() -> Any:
    # The tracer is asked only where the program's use of torch.compile has loaded it.
    return sys.modules.get(f"{__package__.rpartition('.')[0]}.tracer.frames.dispatch")
