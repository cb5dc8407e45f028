"""Finds a compiled graph on disk, or compiles and keeps it."""
from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from ...artifacts import kept_stages
from ...artifacts.context import CompileContext
from ...artifacts.external_exceptions import came_from_outside
from ...dependencies import msgspec
from ..aot.autograd.entry import training_entry
from ..graphs.functional_graph import Captured
from ..runtime.eager_twin import never_slower
from ..runtime.entry import Compiled, entry
from ..runtime.frozen_call import FrozenCall
from ..runtime.runtime import wrapper_file
from ..toolchain.cpp_build import CannotBuild
from . import disk, sizes
from .half import Half, call_of, encode
from .history import HISTORY, Done, label_of
from .key import key_of, recorded_key_of
from .parts import MakeParts, Parts, decode
from .values import Uncacheable

Compile = Callable[[Captured, CompileContext, Callable[[MakeParts], None]], Compiled]
"""The compiler; it passes the description of a compiled graph to its last argument."""


@dataclass(frozen=True)
class _Keys:
    """The keys of a graph: `plain`, and in a run that records `recorded`, of the graph with its records."""

    plain: str
    recorded: str = ""


def load_or_compile(captured: Captured, context: CompileContext, compiler: Callable[[], Compile]) -> Compiled:
    """The compiled form of `captured`, from disk where this machine has compiled the same before.

    `compiler()` imports the compiler, which a graph from disk does not need.
    """
    with context.timed("cache"):
        try:
            keys: _Keys | None = _keys_of(captured, context)
            found = _loaded(keys, captured, context) if keys is not None else None
        except Uncacheable as reason:
            context.uncached = str(reason)
            _say_why(str(reason), context)
            keys, found = None, None
        except Exception as error:  # a fault of ptdebug, or an unknown version of torch
            if came_from_outside(error):
                raise
            context.notes.append(f"no cache key for a graph: {type(error).__name__}: {error}")
            keys, found = None, None
    if found is not None and keys is not None:
        HISTORY.append(Done(keys.plain, label_of(captured), loaded=True))
        return found
    if keys is None:
        HISTORY.append(Done("", label_of(captured), loaded=False, why=context.uncached or "it has no key"))
        return compiler()(captured, context, lambda make: None)
    before = sizes.count(captured)
    HISTORY.append(Done(keys.plain, label_of(captured), loaded=False))
    with _told(context) as told:

        def keep(make: MakeParts) -> None:
            with context.timed("cache"):
                _keep(keys, make, sizes.since(captured, before), told, context)

        return compiler()(captured, context, keep)


def _keys_of(captured: Captured, context: CompileContext) -> _Keys:
    plain = key_of(captured, context)
    return _Keys(plain, recorded_key_of(plain, captured, context) if context.recording else "")


@contextmanager
def _told(context: CompileContext) -> Iterator[kept_stages.Told]:
    """What the stages record meanwhile; nothing where they do not."""
    if not context.recording:
        yield kept_stages.Told()
        return
    recorder = context.recorder
    keeping = context.recorder = kept_stages.KeepingRecorder(recorder)
    try:
        yield keeping.told
    finally:
        context.recorder = recorder
        keeping.told = kept_stages.Told()  # contexts of parts may live on


def _loaded(keys: _Keys, captured: Captured, context: CompileContext) -> Compiled | None:
    """What is kept, ready to be called and recorded; None where nothing is, or nothing that can be used."""
    key = keys.recorded or keys.plain
    try:
        content = disk.read(key)
        if content is None:
            return None
        parts = decode(content)
        told = kept_stages.unpack(parts.stages) if context.recording else kept_stages.Told()
        if not _libraries_are_there(told):
            return None
        call = _callable(parts, captured, context)
        if not sizes.assume(captured, parts.conditions):
            return None
    except CannotBuild:  # compiling reports it better
        return None
    except disk.Damaged as damaged:
        context.notes.append(str(damaged))
        return None
    except Exception as error:
        if came_from_outside(error):
            raise
        disk.remove(key)
        context.notes.append(f"a cached graph cannot be used and is compiled again: {type(error).__name__}: {error}")
        return None
    if context.recording:
        why = "the graph and its stages' records were cached; cache:graph=compile compiles it anew"
        context.decide("cache", "graph", ("load", "compile"), "load", why)
        with context.timed("recording"):
            kept_stages.tell(told, str(context.id), context.recorder)
    return call


def _libraries_are_there(told: kept_stages.Told) -> bool:
    """Whether the libraries that records of kernels name exist: a recording shows their machine code."""
    records = kept_stages.kernels(told)
    return all(os.path.exists(path) for record in records for path in record.path.split(os.pathsep) if path)


def _called(half: Half, context: CompileContext) -> Compiled:
    call = call_of(half, wrapper_file(context))
    if half.graphs is None:
        return call
    from ..runtime.cuda_graphs.runner import with_graphs  # only where it is needed: `stages.py`

    return with_graphs(call, half.graphs, context)


def _callable(parts: Parts, captured: Captured, context: CompileContext) -> Compiled:
    call = _called(parts.call, context)
    if parts.folding is not None:
        fold = call_of(parts.folding.call, wrapper_file(context.for_part("folding")))
        call = FrozenCall(call, fold, parts.folding.positions)
    context.restartable = True
    if parts.entry is not None:
        return never_slower(entry(call, parts.entry, captured), captured, parts.entry.written, context)
    assert parts.backward is not None and parts.node is not None
    of_backward = context.for_part("backward")
    backward = _called(parts.backward, of_backward)
    outside = call_of(parts.outside, wrapper_file(context.for_part("outside"))) if parts.outside is not None else None
    compiled = training_entry(captured, parts.node, call, backward, outside)
    return never_slower(compiled, captured, parts.node.changed, context, trains=True)


def _keep(
    keys: _Keys, make: MakeParts, conditions: tuple[str, ...], told: kept_stages.Told, context: CompileContext
) -> None:
    try:
        parts = msgspec.structs.replace(make(), conditions=conditions)
        if not context.recording:
            disk.write(keys.plain, encode(parts))
            return
        disk.write(keys.recorded, encode(msgspec.structs.replace(parts, stages=kept_stages.pack(told))))
        if not disk.holds(keys.plain):  # for a run that does not record
            disk.write(keys.plain, encode(parts))
    except Uncacheable as reason:
        _say_why(str(reason), context)
    except OSError as error:
        context.notes.append(f"a graph is not cached: {error}")


def _say_why(reason: str, context: CompileContext) -> None:
    context.decide("cache", "graph", ("compile",), "compile", f"graph cache off: {reason}")
