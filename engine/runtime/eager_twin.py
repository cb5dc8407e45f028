"""Never slower than eager: a compiled graph and its eager twin are timed at a warm call, and the faster one stays.

Asked for by mode="max-autotune". The program gets the compiled graph's results up to the choice; what is timed runs
beside it and leaves nothing behind: graphs that write to their inputs, or call what may have effects, are not timed.
"""
from __future__ import annotations

import operator
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
import torch.fx
from torch.utils._pytree import tree_leaves

from ...artifacts.context import CompileContext
from ...artifacts.fx_graphs import PLAN
from ...artifacts.records import Option
from ...operators.custom_ops import TORCHS, names_of
from ..graphs.functional_graph import Captured
from .entry import Compiled, eager_form

AT_CALL = 5  # counted from 1: by then libraries are loaded, and CUDA graphs captured
FASTER = 0.95  # of the compiled graph's time, at most, for which eager is taken
ROUNDS = 5
BUDGET = 1.0  # seconds, after which no further round begins
SAMPLE = 0.002  # seconds; short calls are repeated within it
MOST = 20  # calls in a sample

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
    why = why_not_timed(captured, written)
    eager = eager_form(captured.module)
    if forced == "eager" and written:
        context.refuse("eager-twin", "graph", forced, "compiled", f"{why}: compile:graph can be eager instead")
        return compiled
    if forced is not None:
        options = ("compiled",) if written else ("compiled", "eager")
        chosen = context.decide("eager-twin", "graph", options, "compiled", why or "not timed")
        return compiled if chosen == "compiled" else eager
    if why:
        context.decide("eager-twin", "graph", ("compiled",), "compiled", f"not timed beside eager: {why}")
        return compiled
    devices = _gpus(captured)
    return _choosing(compiled, eager, lambda inputs: _choose(compiled, eager, inputs, devices, context, trains))


def why_not_timed(captured: Captured, written: Sequence[int]) -> str:
    """Why the graph cannot run beside itself, or one choice does not hold for all of its calls; "" where it can."""
    if written:
        return "the graph writes to its inputs"
    for value in captured.inputs:
        sizes = value.shape if isinstance(value, torch.Tensor) else (value,)
        if any(isinstance(size, (torch.SymInt, torch.SymFloat, torch.SymBool)) for size in sizes):
            return "its sizes vary, and so would the choice"
    for node in captured.module.graph.nodes:
        if node.op == "call_module" or (node.op == "call_function" and not _is_torchs(node.target)):
            return f"{getattr(node.target, '__name__', node.target)} may have effects"
    return ""


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


def _choosing(compiled: Compiled, eager: Compiled, choose: Callable[[tuple[Any, ...]], bool]) -> Compiled:
    lock = threading.Lock()
    calls = 0
    chosen: Compiled | None = None

    def run(*inputs: Any) -> Sequence[Any]:
        nonlocal calls, chosen
        if chosen is not None:
            return chosen(*inputs)
        calls += 1
        if calls < AT_CALL or not _alone() or not lock.acquire(blocking=False):
            return compiled(*inputs)
        try:
            chosen = compiled  # for the calls below, and what fails
            chosen = eager if choose(inputs) else compiled
        finally:
            lock.release()
        return chosen(*inputs)

    return run


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


def _choose(
    compiled: Compiled, eager: Compiled, inputs: tuple[Any, ...], devices: Sequence[int], context: CompileContext,
    trains: bool,
) -> bool:
    """Whether eager is the faster one; records the decision."""
    pair = {"compiled": compiled, "eager": eager}
    steps = {name: _step(call, inputs, trains) for name, call in pair.items()}
    try:
        with torch.random.fork_rng(devices):  # what the program draws next is what it would have drawn
            times = _race(steps, devices)
    except Exception as error:  # no memory for both, say: the compiled graph runs as it did
        context.decide("eager-twin", "graph", ("compiled",), "compiled",
                       f"not timed beside eager: {type(error).__name__}: {str(error).partition(chr(10))[0]}")
        return False
    chosen = "eager" if times["eager"] < FASTER * times["compiled"] else "compiled"
    what = "forward and backward" if trains else "the graph"
    why = f"{what} at its call {AT_CALL}, the shortest of {ROUNDS} rounds; eager has to be {1 - FASTER:.0%} faster"
    options = [Option(name, round(s * 1e6, 1), unit="us", better="lower") for name, s in times.items()]
    context.decide("eager-twin", "graph", options, chosen, why)
    return chosen == "eager"


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


def _race(steps: Mapping[str, Call], devices: Sequence[int]) -> dict[str, float]:
    """Seconds of each, turn by turn, so that what disturbs the machine disturbs all."""
    repeats, least = {}, dict.fromkeys(steps, float("inf"))
    for name, step in steps.items():
        _sample(step, 1, devices)
        once = _sample(step, 1, devices)
        repeats[name] = max(1, min(MOST, int(SAMPLE / max(once, 1e-9))))
    until = time.perf_counter() + BUDGET
    for number in range(ROUNDS):
        if number and time.perf_counter() > until:
            break
        for name, step in steps.items():
            least[name] = min(least[name], _sample(step, repeats[name], devices))
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
