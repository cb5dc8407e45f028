"""The graph cache: compiled graphs on disk, so that a second process runs what the first one compiled.

Read `key.py` (the key: a hash of everything that a compilation depends on, with `values.py` and `state.py`), `parts.py`
(a compiled graph as data, and back), `sizes.py` (guards that compiling added) and `disk.py` (the files). Why a graph is
not cached is a decision of kind "cache". A recorded run does not use the cache, since a recording shows every stage.
"""
from __future__ import annotations

from collections.abc import Callable

from ...artifacts.context import CompileContext
from ...artifacts.external_exceptions import came_from_outside
from ...dependencies import msgspec
from ..aot.autograd.entry import training_entry
from ..graphs.functional_graph import Captured
from ..passes.freezing.call import FrozenCall
from ..runtime.entry import Compiled, entry
from ..runtime.runtime import wrapper_file
from ..toolchain.cpp_build import CannotBuild
from . import disk, sizes
from .key import key_of
from .parts import MakeParts, Parts, call_of, decode, encode
from .values import Uncacheable

Compile = Callable[[Captured, CompileContext, Callable[[MakeParts], None]], Compiled]
"""The compiler; it passes the description of a compiled graph to its last argument."""


def load_or_compile(captured: Captured, context: CompileContext, compiler: Callable[[], Compile]) -> Compiled:
    """The compiled form of `captured`, from disk where this machine has compiled the same before.

    `compiler()` imports the compiler, which a graph from disk does not need.
    """
    with context.timed("cache"):
        try:
            key = key_of(captured, context)
            found = _loaded(key, captured, context)
        except Uncacheable as reason:
            _say_why(str(reason), context)
            key, found = "", None
        except Exception as error:  # a fault of ptdebug, or an unknown version of torch
            if came_from_outside(error):
                raise
            context.notes.append(f"no cache key for a graph: {type(error).__name__}: {error}")
            key, found = "", None
    if found is not None:
        return found
    before = sizes.count(captured)

    def keep(make: MakeParts) -> None:
        if key:
            with context.timed("cache"):
                _keep(key, make, sizes.since(captured, before), context)

    return compiler()(captured, context, keep)


def _loaded(key: str, captured: Captured, context: CompileContext) -> Compiled | None:
    """What is kept under `key`, ready to be called; None where nothing is, or nothing that can be used."""
    try:
        content = disk.read(key)
        if content is None:
            return None
        parts = decode(content)
        call = _callable(parts, captured, context)
        return call if sizes.assume(captured, parts.conditions) else None
    except CannotBuild:  # compiling reports it better
        return None
    except disk.Damaged as damaged:
        context.notes.append(str(damaged))
    except Exception as error:
        if came_from_outside(error):
            raise
        disk.remove(key)
        context.notes.append(f"a cached graph cannot be used and is compiled again: {type(error).__name__}: {error}")
    return None


def _callable(parts: Parts, captured: Captured, context: CompileContext) -> Compiled:
    call = call_of(parts.call, wrapper_file(context))
    if parts.folding is not None:
        fold = call_of(parts.folding.call, wrapper_file(context.for_part("folding")))
        call = FrozenCall(call, fold, parts.folding.positions)
    context.restartable = True
    if parts.entry is not None:
        return entry(call, parts.entry, captured)
    assert parts.backward is not None and parts.node is not None
    backward = call_of(parts.backward, wrapper_file(context.for_part("backward")))
    outside = call_of(parts.outside, wrapper_file(context.for_part("outside"))) if parts.outside is not None else None
    return training_entry(captured, parts.node, call, backward, outside)


def _keep(key: str, make: MakeParts, conditions: tuple[str, ...], context: CompileContext) -> None:
    try:
        disk.write(key, encode(msgspec.structs.replace(make(), conditions=conditions)))
    except Uncacheable as reason:
        _say_why(str(reason), context)
    except OSError as error:
        context.notes.append(f"a graph is not cached: {error}")


def _say_why(reason: str, context: CompileContext) -> None:
    context.decide("cache", "graph", ("compile",), "compile", f"graph cache off: {reason}")
