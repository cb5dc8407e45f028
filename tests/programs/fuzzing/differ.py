"""One random program, in eager and compiled: what can be told apart."""
from __future__ import annotations

import contextlib
import functools
import gc
import io
import itertools
import linecache
import logging
import random
import re
import signal
import sys
import threading
import types
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import ptdebug
import torch
import torch._dynamo  # torch.utils.checkpoint loads it, and a program has not the time
from ptdebug.cli import wiring
from ptdebug.tracer.frames import dispatch
from ptdebug.tracer.runtime.device_guard import hold_device_guard
from ptdebug.tracer.runtime.global_modes import Modes
from ptdebug.tracer.shapes.frame_shapes import MarkedDynamicError
from torch.fx._lazy_graph_module import _LazyGraphModule

from ..checking import Seen, described, forget_what_eager_compiled, leaves, sharing, shown
from .prelude import MARK

hold_device_guard()  # a program may enter a fake mode in a thread first, in eager (`while_loop` there compiles)
FILE = "/random_program/program.py"
_SECOND_BACKWARD = "Trying to backward through the graph a second time"
_OUT_OF = ("RecursionError", "MemoryError", "can't start new thread", "maximum recursion depth exceeded")
_CHECKPOINT = "CheckpointFunctionBackward"
_GRAPH = "CompiledGraphBackward"
_SEED = re.compile("^# seed .*")
_ATTRIBUTES = (int, float, str, list, dict, tuple)
_ONE_FOR_TWO = sys.version_info < (3, 12)
"""Once a function is warm, Python 3.11 runs STORE_FAST and LOAD_FAST as one instruction: what the second raises is then
said to be at the line of the first."""


@dataclass(frozen=True)
class Difference:
    """What differs: `kind` groups failures that look alike, `detail` shows both sides."""

    kind: str
    detail: str


@dataclass(frozen=True)
class Skipped:
    """The program cannot be compared: eager itself does not end in the time, memory, stack or threads it may have."""

    reason: str


class TooSlow(BaseException):
    """The program did not end in time."""


def load(text: str, compiled: Callable[..., Any]) -> types.ModuleType:
    """The program as a module of its own, in which `compiled` is what makes a compiled function."""
    module = types.ModuleType("random_program")
    module.compiled = compiled  # type: ignore[attr-defined]
    module.__file__ = FILE
    sys.modules[module.__name__] = module
    linecache.cache[FILE] = (len(text), None, text.splitlines(keepends=True), FILE)
    shared, _, own = text.rpartition(MARK)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        exec(_compiled(_SEED.sub("", shared)), module.__dict__)  # what is left is one text for all programs
        exec(compile("\n" * shared.count("\n") + own, FILE, "exec", dont_inherit=True), module.__dict__)
    del module.compiled
    return module


@functools.lru_cache(maxsize=4)
def _compiled(text: str) -> types.CodeType:
    return compile(text, FILE, "exec", dont_inherit=True)


def outcome(function: Callable[..., Any], args: Any) -> Any:
    """The result, or the exception with its chain and its lines of the program."""
    try:
        return function(*args)
    except Exception as error:
        return ("raised", *_chain(error))


def _chain(error: BaseException) -> list[list[str]]:
    """The exception, and each that is the cause or context of an earlier one of the list, which is named by number."""
    described_chain: list[list[str]] = []
    seen: set[int] = set()
    pending: list[tuple[str, BaseException | None]] = [("", error)]
    while pending:
        role, current = pending.pop()
        if current is None or id(current) in seen:
            continue
        seen.add(id(current))
        number = len(described_chain)
        told = [role, type(current).__name__, _text(current), _lines(current)]
        told += map(str, getattr(current, "__notes__", ()))
        described_chain.append([*told, "from"] if current.__suppress_context__ else told)
        pending += [(f"context of {number}", current.__context__), (f"cause of {number}", current.__cause__)]
    return described_chain


def _lines(error: BaseException) -> str:
    """The lines of the program that its traceback goes through. A backward that runs a second time is noticed by the
    first node that asks for what it had saved: in eager a Function's may be it, compiled it is the graph around."""
    lines, entry = [], error.__traceback__
    again = str(error).startswith(_SECOND_BACKWARD)
    while entry is not None:
        code = entry.tb_frame.f_code
        if code.co_filename == FILE and not (again and entry.tb_next is None and code.co_name == "backward"):
            exact = not (_ONE_FOR_TWO and isinstance(error, UnboundLocalError) and entry.tb_next is None)
            lines.append(f"{code.co_name}:{entry.tb_lineno if exact else '?'}")
        entry = entry.tb_next
    return " ".join(lines)


def _text(error: BaseException) -> str:
    """The message; torch's own, which may name what it was called through, only by its first line."""
    text = str(error)
    return text.split("\n")[0] if isinstance(error, RuntimeError) else text


def observe(text: str, compile: Callable[[Any], Any], collect: bool = False) -> list[tuple[str, Any]]:
    """All that the program shows, leaf by leaf. `collect`: cycles of objects are collected after each call, and only
    then."""
    forget_what_eager_compiled()
    _reset_modes()
    module = load(text, compile)
    torch.manual_seed(0)
    random.seed(0)
    np.random.seed(0)
    printed = io.StringIO()
    function = compile(module.f, **getattr(module, "OPTIONS", {}))
    calls = module.make_calls()
    found: list[tuple[str, Any]] = []
    seen: Seen = {}
    alive = []
    with contextlib.redirect_stdout(printed), warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        for number, args in enumerate(calls):
            with _collecting() if collect else contextlib.nullcontext():
                alive.append(outcome(function, args))
            found += leaves(alive[-1], f"result{number}", seen)
            found += leaves(args, f"args{number}", seen)
            found.append((f"printed{number}", printed.getvalue()))
            draws = random.getstate()[1][-1], random.random(), torch.rand(1).item(), np.random.rand()
            found.append((f"random{number}", draws))
            found.append((f"modes{number}", _modes()))
            found.append((f"warned{number}", _of_the_program(warned)))
    return found + _state(module, seen)


def _modes() -> tuple[Any, ...]:
    """What a program may set for all of torch."""
    autocast = torch.is_autocast_enabled("cpu"), torch.get_autocast_dtype("cpu")
    inference = torch.is_inference_mode_enabled(), torch.are_deterministic_algorithms_enabled()
    return torch.is_grad_enabled(), torch.get_default_dtype(), torch.get_default_device(), autocast, inference


def _reset_modes() -> None:
    """As in a new process: the program before may have left others, where its stack ran out in a block of one."""
    while torch._C._len_torch_function_stack():
        torch._C._pop_torch_function_stack()
    torch.set_autocast_enabled("cpu", False)
    torch.set_autocast_dtype("cpu", torch.bfloat16)
    torch.clear_autocast_cache()  # what it has cast of weights is kept until the outermost block ends
    for _ in range(torch.autocast_increment_nesting()):
        torch.autocast_decrement_nesting()
    torch.set_grad_enabled(True)
    torch.set_default_dtype(torch.float32)
    torch.set_default_device(None)
    torch.use_deterministic_algorithms(False)
    torch.set_float32_matmul_precision("highest")
    threading._counter = itertools.count(1).__next__  # type: ignore[attr-defined]  # threads are named by it


def _of_the_program(warned: list[warnings.WarningMessage]) -> str:
    """Those that the program's own code gave, with their lines: the libraries give some of theirs once in a process."""
    own = [entry for entry in warned if str(entry.message).startswith("warned")]
    return repr([(entry.category.__name__, str(entry.message), entry.filename, entry.lineno) for entry in own])


def _state(module: types.ModuleType, seen: Seen) -> list[tuple[str, Any]]:
    """The globals of the program's module: objects with all that they hold, functions with their defaults and cells,
    the plain attributes of classes."""
    found: list[tuple[str, Any]] = []
    for name, value in list(vars(module).items()):
        if isinstance(value, type) and value.__module__ == module.__name__:
            plain = {key: part for key, part in vars(value).items() if key[:1] != "_" and isinstance(part, _ATTRIBUTES)}
            found += leaves(plain, name, seen)
        elif isinstance(value, types.ModuleType) and getattr(value, "__file__", None) == FILE:
            found += _state(value, seen)
        elif not name.startswith("__") and not isinstance(value, (type, types.ModuleType)):
            found += leaves(value, name, seen)
    return found


@contextlib.contextmanager
def _collecting() -> Iterator[None]:
    gc.disable()
    try:
        yield
    finally:
        gc.collect()
        gc.enable()


def _too_deep(found: list[tuple[str, Any]]) -> bool:
    """Whether a call ran out of stack, memory or threads: where it does so is nobody's promise. (Each thread has a
    stack of its own: a recursion through threads without end goes on until the process may have no more of them.)"""
    return any(isinstance(leaf, str) and leaf.startswith(_OUT_OF) for _, leaf in found)


@contextlib.contextmanager
def graphs_in_eager() -> Iterator[None]:
    """Captured graphs run as they are in the block: what the tracer does, without an engine."""
    engine = wiring.engine_backend
    wiring.engine_backend = _as_it_is
    try:
        yield
    finally:
        wiring.engine_backend = engine


def _as_it_is(graph: Any, context: Any) -> Callable[..., Any]:
    """The graph in the engine's place. As there, one that raises has changed no input and drawn no random number."""
    context.restartable = True
    _LazyGraphModule.force_recompile(graph.module)

    def run(*inputs: Any) -> Any:
        tensors = [part for part in inputs if isinstance(part, torch.Tensor)]
        before, drawn, modes = [part.detach().clone() for part in tensors], torch.get_rng_state(), Modes.now()
        try:
            return graph.module.forward(*inputs)
        except Exception:
            modes.restore()  # inside of a transform that it left open, no input can be written
            torch.set_rng_state(drawn)
            for part, values in zip(tensors, before):
                if not torch.equal(_bytes(part), _bytes(values)):
                    once = tuple([slice(1) if stride == 0 else slice(None) for stride in part.stride()])  # of a row
                    part.data[once].copy_(values[once])
            raise

    return run


def _bytes(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.detach().resolve_conj().resolve_neg().contiguous().view(-1).view(torch.uint8)


@contextlib.contextmanager
def time_limit(seconds: float) -> Iterator[None]:
    """Raise TooSlow in the block after `seconds` of processor time: other processes of a busy machine do not count.
    A program may lose it (a `finally` that raises, a callback of the interpreter): it is raised at the end then."""
    over = False

    def stop(*_: Any) -> None:
        nonlocal over
        over = True
        raise TooSlow

    before = signal.signal(signal.SIGPROF, stop)
    signal.setitimer(signal.ITIMER_PROF, seconds, 1.0)  # again: one raised in a callback of the interpreter is lost
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, before)
    if over:
        raise TooSlow


def _in_eager(text: str, seconds: float, collect: bool = False) -> list[tuple[str, Any]] | Skipped:
    """What the program shows in eager."""
    try:
        with time_limit(seconds):
            found = observe(text, lambda function, **_: function, collect)
    except TooSlow:
        return Skipped(f"eager takes more than {seconds:.0f} s")
    except MemoryError:
        return Skipped("eager runs out of memory")
    if _too_deep(found):
        return Skipped("eager runs out of stack, memory or threads")
    return found


def difference(text: str, engine: bool = False, seconds: float = 60.0) -> Difference | None:
    """The first difference between the program and its compiled form; None when there is none."""
    found = verdict(text, engine, seconds)
    return found if isinstance(found, Difference) else None


def verdict(
    text: str, engine: bool = False, seconds: float = 60.0, entering: Callable[[str], None] = lambda _: None
) -> Difference | Skipped | None:
    """The first difference between the program and its compiled form; None when there is none.

    `seconds`: of processor time for the compiled program, thirty times what eager may take. `entering` is told which of
    the two, "eager" or "compiled", is about to run: where the process dies, this says in which.
    Where eager itself shows something else depending on when cycles of objects are collected (contextlib leaves one
    that holds the frame, and with it the frame's generators), both are run with the collector held back.
    """
    entering("eager")
    expected = _in_eager(text, seconds / 30)
    if isinstance(expected, Skipped):
        return expected
    entering("compiled")
    found = _difference(text, expected, engine, seconds)
    if found is None or isinstance(found, Skipped):
        return found
    entering("eager")
    collected = _in_eager(text, seconds / 30, collect=True)
    if isinstance(collected, Skipped) or compared(expected, collected, engine) is None:
        return found
    entering("compiled")
    return _difference(text, collected, engine, seconds, collect=True)


@contextlib.contextmanager
def _without_log() -> Iterator[None]:
    """What ptdebug says of frames that run eagerly is not printed in the block."""
    logger = logging.getLogger("ptdebug")
    before = logger.level
    logger.setLevel(logging.CRITICAL)
    try:
        yield
    finally:
        logger.setLevel(before)


def _difference(
    text: str, expected: list[tuple[str, Any]], engine: bool, seconds: float, collect: bool = False
) -> Difference | Skipped | None:
    dispatch.reset()
    try:
        with _without_log(), time_limit(seconds):
            with contextlib.nullcontext() if engine else graphs_in_eager():
                got = observe(text, ptdebug.compile, collect)
    except TooSlow:
        return Difference("too slow", f"more than {seconds} s")
    if any(leaf == MarkedDynamicError.__name__ for _, leaf in got):
        return Skipped("a size that is marked dynamic has one value only, which is an error by design")
    internal = [reason for reason in dispatch.stats()["reasons"] if reason.startswith("internal error")]
    if internal:
        return Difference(internal[0].split("0x")[0][:160], "")
    found = compared(expected, got, engine)
    if found is not None and _depends_on_the_stack(text, expected, seconds):
        return Skipped("eager runs out of stack, memory or threads")
    return found


def _depends_on_the_stack(text: str, expected: list[tuple[str, Any]], seconds: float) -> bool:
    """Whether eager shows something else with a few frames less: a recursion without end may end where an error is
    caught and told as another one."""
    limit = sys.getrecursionlimit()
    try:
        for frames in range(1, 9):
            sys.setrecursionlimit(limit - frames)
            again = _in_eager(text, seconds / 30)
            if isinstance(again, Skipped) or compared(expected, again, False) is not None:
                return True
    finally:
        sys.setrecursionlimit(limit)
    return False


def compared(expected: list[tuple[str, Any]], got: list[tuple[str, Any]], engine: bool) -> Difference | None:
    """The first leaf in which two runs differ, or what shares memory in one of them only."""
    for (path, theirs), (our_path, ours) in zip(expected, got):
        if path != our_path:
            detail = f"{path}: {shown(theirs):.5000}\n{our_path}: {shown(ours):.5000}"
            return Difference(f"structure of {_place(path)}", detail)
        if engine and isinstance(theirs, torch.Tensor) and isinstance(ours, torch.Tensor):
            with torch._C.DisableTorchFunction():  # of a subclass that refuses the call
                same = torch.allclose(theirs, ours, rtol=1e-3, atol=1e-4, equal_nan=True)
        else:
            same = described(theirs) == described(ours) or (engine and isinstance(theirs, float))
            same = same or _of_a_graph(theirs, ours)
        if not same:
            detail = f"{path}\n  eager:    {shown(theirs):.5000}\n  compiled: {shown(ours):.5000}"
            return Difference(_kind(path, theirs, ours), detail)
    if len(expected) != len(got):
        return Difference("structure", f"{len(expected)} leaves in eager, {len(got)} compiled")
    if sharing(expected) != sharing(got):
        pairs = [(a, b) for a, b in zip(sharing(expected), sharing(got)) if a != b]
        return Difference("aliasing", f"{pairs[0]}")
    return None


def _of_a_graph(theirs: Any, ours: Any) -> bool:
    """Whether two texts differ in the nodes of autograd alone that they name, and eager's is that of a checkpoint (a
    graph has its inside inline, and another node makes the result) or ours is that of a compiled graph."""
    if not isinstance(theirs, str) or not isinstance(ours, str):
        return False
    names = re.compile(r"grad_fn=<(\w+)>")
    pairs = zip(names.findall(theirs), names.findall(ours))
    only = all(a == b or a == _CHECKPOINT or b == _GRAPH for a, b in pairs)
    return only and names.sub("", theirs) == names.sub("", ours)


def _place(path: str) -> str:
    return path.split(".")[0].rstrip("0123456789")


def _kind(path: str, theirs: Any, ours: Any) -> str:
    types_ = f"{type(theirs).__name__} {type(ours).__name__}"
    return f"{_place(path)}: {theirs!r:.60} / {ours!r:.60}" if isinstance(theirs, str) else f"{_place(path)}: {types_}"
