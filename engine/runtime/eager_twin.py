"""Never slower than eager: a compiled graph and its eager twin are timed at a warm call, and the faster one stays.

Asked for by mode="max-autotune". The program gets the compiled graph's results up to the choice; what is timed runs
beside it and leaves nothing behind: inputs that the graph writes get their values back, and graphs that call what may
have effects are not timed. Where sizes vary, each combination of sizes has a choice of its own.
"""
from __future__ import annotations

import operator
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
import torch.fx
from torch.utils._pytree import tree_leaves

from ...artifacts.context import CHANGED_INPUTS, CompileContext
from ...artifacts.fx_graphs import PLAN
from ...artifacts.records import Option
from ...operators.custom_ops import TORCHS, names_of
from ..graphs.functional_graph import Captured
from .entry import Compiled, eager_form, shares_written

AT_CALL = 5  # counted from 1: by then libraries are loaded, and CUDA graphs captured
FASTER = 0.95  # of the compiled graph's time, at most, for which eager is taken
ROUNDS = 5
BUDGET = 1.0  # seconds, after which no further round begins
SAMPLE = 0.002  # seconds; short calls are repeated within it
MOST = 20  # calls in a sample
MOST_SIZES = 16  # combinations of sizes that have a choice

Call = Callable[[], object]


def never_slower(
    compiled: Compiled, captured: Captured, written: Sequence[int], context: CompileContext, trains: bool = False
) -> Compiled:
    """`compiled`, or what chooses between it and the captured graph in eager: a decision of kind "eager-twin".

    `written` are the positions of the inputs that the graph writes.
    """
    forced = context.override("eager-twin", "graph")
    if (forced is None and not context.max_autotune) or context.way != "kernels":
        return compiled
    refused = "errors must come before it writes to its inputs, for the frame runs again after some" if (
        written and context.rerun) else ""
    why = refused or why_not_timed(captured, written, trains)
    eager = eager_form(captured.module)
    if written:
        eager = _marking(eager, tuple(written))
    if forced == "eager" and refused:
        context.refuse("eager-twin", "graph", forced, "compiled", refused)
        return compiled
    if forced is not None:
        options = ("compiled",) if refused else ("compiled", "eager")
        chosen = context.decide("eager-twin", "graph", options, "compiled", why or "not timed")
        return compiled if chosen == "compiled" else eager
    if why:
        context.decide("eager-twin", "graph", ("compiled",), "compiled", f"not timed beside eager: {why}")
        return compiled
    twins = _Twins(compiled, eager, tuple(written), _gpus(captured), trains, context)
    varying = [position for position, value in enumerate(captured.inputs) if _varies(value)]
    return _choosing_by_size(twins, varying) if varying else _choosing(twins, "graph")


def why_not_timed(captured: Captured, written: Sequence[int], trains: bool) -> str:
    """Why the graph cannot run beside itself; "" where it can."""
    for position in written:
        value = captured.inputs[position]
        if value.requires_grad and trains:  # timed, it would be a leaf, which autograd lets nobody write
            return "the graph writes to an input that requires gradients"
        if value.layout is not torch.strided:
            return "the graph writes to an input that is not strided memory"
    for node in captured.module.graph.nodes:
        if node.op == "call_module" or (node.op == "call_function" and not _is_torchs(node.target)):
            return f"{getattr(node.target, '__name__', node.target)} may have effects"
    return ""


def _marking(eager: Compiled, written: tuple[int, ...]) -> Compiled:
    """`eager`, which writes to inputs as it goes, where the compiled graph does so at its end: what it raises after
    that is marked, so that the call does not run again."""

    def run(*inputs: Any) -> Sequence[Any]:
        tensors = [inputs[position] for position in written]
        before = [None if tensor.is_inference() else tensor._version for tensor in tensors]
        try:
            return eager(*inputs)
        except Exception as error:
            if any(count is None or tensor._version != count for tensor, count in zip(tensors, before)):
                setattr(error, CHANGED_INPUTS, True)
            raise

    return run


def _varies(value: Any) -> bool:
    sizes = (*value.shape, *value.stride()) if isinstance(value, torch.Tensor) else (value,)
    return any(isinstance(size, (torch.SymInt, torch.SymFloat, torch.SymBool)) for size in sizes)


def _is_torchs(target: Any) -> bool:
    """Whether a function is one of torch's or Python's operators, without effects but on random numbers."""
    if isinstance(target, (torch._ops.OpOverload, torch._ops.OpOverloadPacket)):
        return all(name.partition("::")[0] in TORCHS for name in names_of(target))
    if isinstance(target, torch._ops.HigherOrderOperator) or hasattr(target, PLAN):
        return False
    module = getattr(target, "__module__", None) or "torch"
    if module.startswith(("torch.distributed", "torch.utils")):
        return False
    return module.partition(".")[0] in ("torch", "math", "builtins", operator.__name__, "_operator")


def _gpus(captured: Captured) -> list[int]:
    """The GPUs that the graph runs on, also where it gets nothing from there."""
    values = tree_leaves([captured.inputs, [node.meta.get("val") for node in captured.module.graph.nodes]])
    found = {v.device.index or 0 for v in values if isinstance(v, torch.Tensor) and v.device.type == "cuda"}
    return sorted(found)


@dataclass(frozen=True)
class _Twins:
    """The two forms of a graph, and what has to be known to time them."""

    compiled: Compiled
    eager: Compiled
    written: tuple[int, ...]
    devices: Sequence[int]
    trains: bool
    context: CompileContext


def _choosing(twins: _Twins, subject: str) -> Compiled:
    """The compiled graph, up to the call at which one of the two is chosen."""
    lock = threading.Lock()
    calls = 0
    chosen: Compiled | None = None

    def run(*inputs: Any) -> Sequence[Any]:
        nonlocal calls, chosen
        if chosen is not None:
            return chosen(*inputs)
        calls += 1
        if calls < AT_CALL or not _alone() or not lock.acquire(blocking=False):
            return twins.compiled(*inputs)
        try:
            chosen = twins.compiled  # for the calls below, and what fails
            chosen = twins.eager if _choose(twins, inputs, subject) else twins.compiled
        finally:
            lock.release()
        return chosen(*inputs)

    return run


def _choosing_by_size(twins: _Twins, varying: Sequence[int]) -> Compiled:
    """The same for each of the first combinations of sizes; `varying` are the positions of the inputs that they are
    of."""
    known: dict[tuple[Any, ...], Compiled] = {}

    def run(*inputs: Any) -> Sequence[Any]:
        values = [inputs[position] for position in varying]
        sizes = tuple([value.shape if isinstance(value, torch.Tensor) else value for value in values])
        call = known.get(sizes)
        if call is None:
            if len(known) >= MOST_SIZES:
                return twins.compiled(*inputs)
            call = known[sizes] = _choosing(twins, f"graph:{','.join(map(_size_text, sizes))}")
        return call(*inputs)

    return run


def _size_text(size: Any) -> str:
    return "x".join(map(str, size)) if isinstance(size, tuple) else str(size)


def _alone() -> bool:
    """Whether a call now is only a call: nothing watches its operators or what autograd saves (a checkpoint, say), and
    no CUDA graph is being captured."""
    if torch._C._len_torch_dispatch_stack() or torch._C._len_torch_function_stack():
        return False
    if torch._C._autograd._top_saved_tensors_default_hooks(False) is not None:
        return False
    if torch._C._functorch.peek_interpreter_stack() is not None:
        return False
    return not (torch.cuda.is_initialized() and torch.cuda.is_current_stream_capturing())


def _choose(twins: _Twins, inputs: tuple[Any, ...], subject: str) -> bool:
    """Whether eager is the faster one; records the decision."""
    context = twins.context
    if context.override("eager-twin", subject) is not None:
        return context.decide("eager-twin", subject, ("compiled", "eager"), "compiled", "not timed") == "eager"
    pair = {"compiled": twins.compiled, "eager": twins.eager}
    steps = {name: _step(call, inputs, twins.trains) for name, call in pair.items()}
    try:
        with torch.random.fork_rng(twins.devices), _written_back(inputs, twins.written) as restore:
            most = 1 if twins.written else MOST  # what it writes may be where it reads next: a position in a cache
            times = _race(steps, twins.devices, restore, most)  # the program draws next what it would have drawn
    except Exception as error:  # no memory for both, say: the compiled graph runs as it did
        context.decide("eager-twin", subject, ("compiled",), "compiled",
                       f"not timed beside eager: {type(error).__name__}: {str(error).partition(chr(10))[0]}")
        return False
    chosen = "eager" if times["eager"] < FASTER * times["compiled"] else "compiled"
    what = "forward and backward" if twins.trains else "the graph"
    why = f"{what} at its call {AT_CALL}, the shortest of {ROUNDS} rounds; eager has to be {1 - FASTER:.0%} faster"
    options = [Option(name, round(s * 1e6, 1), unit="us", better="lower") for name, s in times.items()]
    context.decide("eager-twin", subject, options, chosen, why)
    return chosen == "eager"


class _Shared(Exception):
    """Memory that the graph writes is also somebody else's."""


@contextmanager
def _written_back(inputs: Sequence[Any], written: Sequence[int]) -> Iterator[Call]:
    """Gives what restores the inputs that are `written` (by position): their values, and autograd's counts of writes.
    At the end that is done, too: they are written where they are, for a CUDA graph knows them by their addresses."""
    tensors = [inputs[position] for position in written]
    if written and shares_written(inputs, set(written)):
        raise _Shared("an input that it writes shares memory with another")
    if any(tensor.device.type == "cpu" and tensor.is_shared() for tensor in tensors):
        raise _Shared("an input that it writes is shared with other processes")
    values = [tensor.detach().clone() for tensor in tensors]
    counted = tuple([tensor for tensor in tensors if not tensor.is_inference()])
    counts = tuple([tensor._version for tensor in counted])

    def restore() -> None:
        with torch.no_grad():
            for tensor, value in zip(tensors, values):
                tensor.detach().copy_(value)
        torch._C._autograd._unsafe_set_version_counter(counted, counts)

    try:
        yield restore
    finally:
        restore()


def _step(call: Compiled, inputs: tuple[Any, ...], trains: bool) -> Call:
    """A call on the program's inputs; of a graph that trains with its gradients, which reach no `.grad`."""
    if not trains:
        return lambda: call(*inputs)

    def both() -> object:
        own = [v.detach().requires_grad_(v.requires_grad) if isinstance(v, torch.Tensor) else v for v in inputs]
        with torch.enable_grad():
            made = [v for v in call(*own) if isinstance(v, torch.Tensor) and v.requires_grad]
        leaves = [v for v in own if isinstance(v, torch.Tensor) and v.requires_grad]
        return torch.autograd.grad(made, leaves, [torch.ones_like(v) for v in made], allow_unused=True)

    return both


def _race(steps: Mapping[str, Call], devices: Sequence[int], restore: Call, most: int) -> dict[str, float]:
    """Seconds of each, turn by turn, so that what disturbs the machine disturbs all; `restore` is called between
    samples, which have up to `most` calls."""
    repeats, least = {}, dict.fromkeys(steps, float("inf"))
    for name, step in steps.items():
        _sample(step, 1, devices)
        restore()
        once = _sample(step, 1, devices)
        restore()
        repeats[name] = max(1, min(most, int(SAMPLE / max(once, 1e-9))))
    until = time.perf_counter() + BUDGET
    for number in range(ROUNDS):
        if number and time.perf_counter() > until:
            break
        for name, step in steps.items():
            least[name] = min(least[name], _sample(step, repeats[name], devices))
            restore()
    return least


def _sample(step: Call, count: int, devices: Sequence[int]) -> float:
    _wait(devices)
    start = time.perf_counter()
    for _ in range(count):
        step()
    _wait(devices)
    return (time.perf_counter() - start) / count


def _wait(devices: Sequence[int]) -> None:
    for device in devices:
        torch.cuda.synchronize(device)
