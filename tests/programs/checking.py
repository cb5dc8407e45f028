"""Runs a program in eager and compiled, and compares all that the program and its caller can see.

A program is a function of `compile`, which gets the identity first, then ptdebug's capture. What it returns is
compared leaf by leaf (values bit for bit, dtypes, shapes, strides, gradients, aliasing, identity), with what it
printed, the state of the random number generators and the modes of torch.
"""
from __future__ import annotations

import collections
import contextlib
import contextvars
import io
import itertools
import os
import random
import re
import sys
import traceback
import types
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import ptdebug
import torch
from ptdebug.artifacts.context import CompileContext
from ptdebug.artifacts.recording import Recording
from ptdebug.cli import wiring
from ptdebug.tracer.fx.backend_call import CapturedGraph
from ptdebug.tracer.runtime.statistics import STATISTICS
from torch.fx._lazy_graph_module import _LazyGraphModule

PLAIN = (int, float, str, bool, complex, bytes, range, torch.dtype, torch.device, slice)

Seen = dict[int, tuple[str, Any]]
"""By id, where an object was first and the object itself: one that is gone would leave its id to another."""
_ADDRESS = re.compile(" at 0x[0-9a-f]+")
"""In the text of an object without one of its own: another in each run of the program."""
_LIBRARIES = (os.path.dirname(torch.__file__), os.path.dirname(os.__file__))


class Programs(dict[str, Callable[..., Any]]):
    """A table of programs by name; called as a decorator, it takes one in."""

    def __call__(self, function: Callable[..., Any]) -> Callable[..., Any]:
        self[function.__name__] = function
        return function


def call(function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """The result, or a description of the exception: its type, text, lines of the program, cause and context."""
    try:
        return function(*args, **kwargs)
    except Exception as error:
        frames = traceback.extract_tb(error.__traceback__)
        lines = [(f.name, f.line) for f in frames if re.search(r"/tests/programs/\w+/test_", f.filename)]
        return ("raised", type(error), str(error), lines, type(error.__cause__), type(error.__context__))


def trained(model: torch.nn.Module, *outputs: torch.Tensor) -> dict[str, torch.Tensor | None]:
    """Backward through the sum of the outputs; the gradients of the model's parameters."""
    sum(output.float().sum() for output in outputs).backward()  # type: ignore[union-attr]
    return {name: p.grad for name, p in model.named_parameters()}


def leaves(value: Any, path: str, seen: Seen) -> list[tuple[str, Any]]:
    """(path, leaf) of a tree of objects; an object that comes again is named by where it was first. Without recursion:
    a chain of exceptions may be a thousand deep."""
    found: list[tuple[str, Any]] = []
    pending = [(path, value)]
    while pending:
        place, part = pending.pop()
        leaf, parts = _opened(part, place, seen)
        found.append((place, leaf))
        pending += [(_ADDRESS.sub("", f"{place}.{key}"), inner) for key, inner in reversed(parts)]
    return found


def _opened(value: Any, path: str, seen: Seen) -> tuple[Any, list[tuple[Any, Any]]]:
    """What stands for one object itself, and its named parts."""
    if value is None or isinstance(value, PLAIN):
        return value, []
    if isinstance(value, torch.Tensor) and torch._C._functorch.is_functorch_wrapped_tensor(value):
        return ("a tensor that left its transform", tuple(value.shape)), []
    if isinstance(value, torch.Tensor):
        first = seen.setdefault(id(value), (path, value))[0] == path
        return value, [*_grad(value), *vars(value).items()] if first else []
    if isinstance(value, torch.Generator):
        return ("generator", value.get_state().numpy().tobytes()), []
    if isinstance(value, (set, frozenset)):
        return (type(value), sorted(map(shown, value))), []
    if isinstance(value, type) or (callable(value) and not isinstance(value, torch.nn.Module)):
        name = getattr(value, "__qualname__", str(type(value)))
        if not isinstance(value, types.FunctionType) or value.__code__.co_filename.startswith(_LIBRARIES):
            return name, []
        if id(value) in seen:
            return ("again", seen[id(value)][0]), []
        seen[id(value)] = path, value
        return name, _held(value)
    if not isinstance(value, tuple):  # the interpreter may share tuples of constants
        if id(value) in seen:
            return ("again", seen[id(value)][0]), []
        seen[id(value)] = path, value
    return type(value).__name__, _parts(value)


def _grad(tensor: torch.Tensor) -> list[tuple[str, Any]]:
    return [("grad", tensor.grad)] if tensor.is_leaf and tensor.grad is not None else []


def _held(function: types.FunctionType) -> list[tuple[str, Any]]:
    """What calls of a function may change: its defaults, attributes and variables of functions around it."""
    held = [("defaults", function.__defaults__), *vars(function).items()]
    for name, cell in zip(function.__code__.co_freevars, function.__closure__ or ()):
        with contextlib.suppress(ValueError):  # an empty cell
            held.append((name, cell.cell_contents))
    return held


def _drained(iterator: Iterator[Any]) -> list[tuple[str, Any]]:
    """The next items of an iterator or generator that the program left behind, and how it ends."""
    items: list[Any] = []
    try:
        items.extend(itertools.islice(iterator, 5))
    except Exception as error:
        items.append(("raised", type(error).__name__, str(error)))
    return [(f"next{number}", item) for number, item in enumerate(items)]


def _parts(value: Any) -> list[tuple[Any, Any]]:
    if isinstance(value, Iterator):
        return [*_drained(value), *getattr(value, "__dict__", {}).items()]
    if isinstance(value, Mapping):
        keys = [f"tensor {i}" if isinstance(key, torch.Tensor) else key for i, key in enumerate(value)]
        return list(zip(keys, value.values()))
    if isinstance(value, (list, tuple, collections.deque)):
        return list(enumerate(value))
    if isinstance(value, torch.nn.Module):
        own = {name: part for name, part in vars(value).items() if not name.startswith("_")}
        return [*value.state_dict(keep_vars=True).items(), *own.items()]
    if hasattr(value, "__dict__"):
        return list(vars(value).items())
    slots = [name for cls in type(value).__mro__ for name in cls.__dict__.get("__slots__", ())]
    if slots:
        return [(name, getattr(value, name)) for name in slots if hasattr(value, name)]
    if isinstance(value, contextvars.ContextVar):
        return [("value", value.get(None))]
    return [("repr", _ADDRESS.sub("", repr(value)))]


def observe(program: Callable[..., Any], compile: Callable[..., Any]) -> tuple[list[tuple[str, Any]], Any]:
    """The leaves of what the program returns, and the state that it leaves behind."""
    forget_what_eager_compiled()
    torch.manual_seed(0)
    np.random.seed(0)
    random.seed(0)
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        result = program(compile)
    modes = torch.is_grad_enabled(), torch.get_default_dtype(), torch.is_autocast_enabled("cpu")
    state = printed.getvalue(), torch.get_rng_state().tolist(), random.random(), np.random.rand(), modes
    return leaves(result, "result", {}), state


def forget_what_eager_compiled() -> None:
    """In eager, `torch.cond` and `while_loop` are compiled by torch, for sizes that vary once it has seen others: that
    may fail for a program because of those before it."""
    if "torch._dynamo" in sys.modules:
        torch._dynamo.reset_code_caches()


def _as_captured(module: torch.fx.GraphModule, inputs: Any) -> Callable[..., Any]:
    """The captured graph as a plain function: as a module, it would have global module hooks run."""
    _LazyGraphModule.force_recompile(module)
    return module.forward


def as_the_engine(captured: CapturedGraph, context: CompileContext) -> Callable[..., Any]:
    """In the place of `wiring.engine_backend`: graphs that run as captured, and may be rerun in eager."""
    context.restartable = True
    return _as_captured(captured.module, ())


def described(leaf: Any) -> Any:
    """All of a leaf that must be equal; a tensor or array bit for bit."""
    if isinstance(leaf, (np.ndarray, np.generic)) and leaf.dtype != object:
        strides = [stride for stride, size in zip(leaf.strides, leaf.shape) if size > 1]
        return type(leaf), leaf.dtype, leaf.shape, strides, leaf.flags.writeable, leaf.tobytes()
    if not isinstance(leaf, torch.Tensor):
        return leaf if type(leaf) is int else _ADDRESS.sub(" at", repr(leaf))
    data = leaf.detach().resolve_conj().contiguous().view(-1)
    numbers = data.view(torch.uint8).tolist() if data.numel() and not data.is_meta else []
    layout = tuple(leaf.shape), leaf.stride(), leaf.storage_offset()
    grad = leaf.requires_grad, leaf.grad_fn is None, leaf.is_inference(), leaf.is_conj()
    return type(leaf).__qualname__, leaf.dtype, leaf.device, layout, grad, numbers


def shown(leaf: Any) -> str:
    """The leaf as text; Python refuses to write integers of many thousand digits in decimals."""
    return hex(leaf) if type(leaf) is int and leaf.bit_length() > 10_000 else repr(leaf)


def sharing(found: list[tuple[str, Any]]) -> list[tuple[str, str, str]]:
    """For each tensor or array the first one with its memory, and the first that is the same object."""
    tensors = [(path, leaf) for path, leaf in found if isinstance(leaf, (torch.Tensor, np.ndarray))]
    memory: list[tuple[int, int, str]] = []
    objects: dict[int, str] = {}
    pairs = []
    for path, leaf in tensors:
        start, stop = _span(leaf)
        memory.append((start, stop, path))
        first = next(known for begin, end, known in memory if begin < stop and start < end)
        pairs.append((path, first, objects.setdefault(id(leaf), path)))
    return pairs


def _span(leaf: torch.Tensor | np.ndarray[Any, Any]) -> tuple[int, int]:
    """Where its memory begins and ends: of a tensor the whole storage; where there is none, a place of its own."""
    if isinstance(leaf, np.ndarray):
        start, stop = np.lib.array_utils.byte_bounds(leaf)
        return (start, stop) if leaf.size else (-id(leaf), 1 - id(leaf))
    storage = leaf.untyped_storage()
    if not storage.data_ptr() or not storage.nbytes():
        return -storage._cdata, 1 - storage._cdata
    return storage.data_ptr(), storage.data_ptr() + storage.nbytes()


def check(program: Callable[..., Any]) -> None:
    """Raises AssertionError where the compiled program differs from the same program in eager, or a frame of it ran in
    eager because of an internal error."""
    before = _internal_errors()
    expected, expected_state = observe(program, lambda function=None, **_: function or (lambda f: f))

    def compiled(function: Any = None, **options: Any) -> Any:
        return ptdebug.compile(function, backend=_as_captured, **options)

    got, got_state = observe(program, compiled)
    assert [path for path, _ in got] == [path for path, _ in expected]
    for (path, ours), (_, theirs) in zip(got, expected):
        assert described(ours) == described(theirs), path
    assert sharing(got) == sharing(expected)
    assert got_state == expected_state
    assert not _internal_errors() - before


def _internal_errors() -> collections.Counter[str]:
    reasons = STATISTICS.reasons
    return collections.Counter({reason: n for reason, n in reasons.items() if reason.startswith("internal error")})


def check_whole(program: Callable[..., Any]) -> None:
    """`check`, for a program that is captured without a break."""
    STATISTICS.clear()
    check(program)
    assert not [reason for reason in STATISTICS.reasons if not reason.startswith("recompile")]
    assert STATISTICS.graphs > 0


def check_engine(program: Callable[..., Any]) -> None:
    """Raises AssertionError where the program, compiled to the end, differs from eager: tensors by more than rounding,
    anything else at all."""
    expected, expected_state = observe(program, lambda function=None, **_: function or (lambda f: f))
    got, got_state = observe(program, ptdebug.compile)
    for (path, ours), (expected_path, theirs) in zip(got, expected, strict=True):
        assert path == expected_path
        if isinstance(theirs, torch.Tensor):
            torch.testing.assert_close(ours, theirs, msg=path)
        else:
            assert described(ours) == described(theirs), path
    assert got_state == expected_state


def recordings(folder: Path, programs: Mapping[str, Callable[..., Any]]) -> Iterator[tuple[str, Recording]]:
    """Each program's name and what `ptdebug.record` recorded of it, with graphs that run as captured."""
    engine, wiring.engine_backend = wiring.engine_backend, as_the_engine
    try:
        for number, (name, program) in enumerate(programs.items()):
            with ptdebug.record(f"case-{number}", out=folder):
                program(ptdebug.compile)
            with Recording.open(folder / f"case-{number}") as recording:
                yield name, recording
    finally:
        wiring.engine_backend = engine
