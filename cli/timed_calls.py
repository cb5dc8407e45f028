"""`ptdebug run --time-calls`: what torch.compile returned is timed beside the function itself, in the program.

That is eager as the program has it. A captured graph in eager may be slower: libraries ask whether they are traced, and
make a mask, say, that they leave out otherwise. Each function is timed at one call, the fifth, with the arguments of
that call; what it changes, it changes again each time. On a GPU the kernels of both are named.
"""
from __future__ import annotations

import functools
from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch.utils._pytree import tree_leaves

from ..replay.measure.reasons import short_kernel
from ..replay.measure.stopwatch import stopwatch
from ..replay.measure.timing import Timing, interleaved
from ..replay.measure.twins import unnumbered
from . import session
from .measured import time_text

AT_CALL = 5
MOST = 4  # kernels that are named of each side
SLOWER = 1.05


def timing(compile_function: Callable[..., Any]) -> Callable[..., Any]:
    """`torch.compile`, whose results are timed beside eager."""

    def call(model: Any = None, *args: Any, **options: Any) -> Any:
        if model is None:
            return lambda decorated: call(decorated, *args, **options)
        return _timed(model, compile_function(model, *args, **options))

    return call


def _timed(model: Any, compiled: Any) -> Any:
    if isinstance(model, torch.nn.Module):
        if compiled is not model:
            compiled.forward = _counting(model, compiled.forward)
        return compiled
    return compiled if isinstance(model, type) or not callable(model) else _counting(model, compiled)


def _counting(model: Any, compiled: Callable[..., Any]) -> Callable[..., Any]:
    calls = 0

    def call(*args: Any, **kwargs: Any) -> Any:
        nonlocal calls
        calls += 1
        result = compiled(*args, **kwargs)
        if calls == AT_CALL:
            pair = {"compiled": functools.partial(compiled, *args, **kwargs),
                    "eager": functools.partial(model, *args, **kwargs)}
            try:
                lines = measured(_name(model), pair, _device((args, kwargs, model)))
            except Exception as error:  # out of memory, say: the program goes on
                lines = [f"{_name(model)} was not timed beside eager: {type(error).__name__}: {error}"]
            for line in lines:
                session.current().say(f"ptdebug: {line}")
        return result

    return functools.wraps(model)(call) if hasattr(model, "__name__") else call


def _name(model: Any) -> str:
    code = getattr(model, "__code__", None) or getattr(getattr(type(model), "forward", None), "__code__", None)
    place = f" ({code.co_filename.rpartition('/')[2]}:{code.co_firstlineno})" if code is not None else ""
    return f"{getattr(model, '__name__', type(model).__name__)}{place}"


def _device(values: Any) -> str:
    args, kwargs, model = values
    leaves = [*tree_leaves((args, kwargs)), *(model.parameters() if isinstance(model, torch.nn.Module) else ())]
    return next((str(v.device) for v in leaves if isinstance(v, torch.Tensor) and v.is_cuda), "cpu")


def measured(name: str, pair: Mapping[str, Callable[[], object]], device: str) -> list[str]:
    """What is said of a function: times, and on a GPU what its kernels take and which only one side runs."""
    on_gpu = device.startswith("cuda")
    with torch.random.fork_rng([torch.device(device).index or 0] if on_gpu else []):
        times = interleaved(pair, device)
        kernels: dict[str, Timing] = {}
        if on_gpu:
            with stopwatch(device) as watch:
                for side, call in pair.items():
                    watch.run(side, call)
            kernels = watch.times()
    compiled, eager = times["compiled"].seconds, times["eager"].seconds
    verdict = f"{compiled / eager:.2f} times as slow as eager" if compiled > SLOWER * eager else (
        f"{eager / compiled:.2f} times as fast as eager")
    noise = max(t.noise for t in times.values())
    head = (f"{name}: compiled {time_text(compiled)}, eager {time_text(eager)}, {verdict} (call {AT_CALL}, forward, "
            f"noise {noise:.0%})")
    return [head, *(_kernel_lines(kernels["compiled"], kernels["eager"]) if kernels else ())]


def _kernel_lines(compiled: Timing, eager: Timing) -> list[str]:
    ours, theirs = (_by_name(side) for side in (compiled, eager))
    lines = [f"  its kernels: compiled {time_text(compiled.seconds)}, eager {time_text(eager.seconds)}"]
    for side, own, other in (("compiled", ours, theirs), ("eager", theirs, ours)):
        more = {name: seconds - other.get(name, (0, 0.0))[1] for name, (_, seconds) in own.items()}
        most = [(name, seconds) for name, seconds in Counter(more).most_common(MOST) if seconds > 0]
        if most:
            told = ", ".join(f"{own[name][0]} x {name} {time_text(own[name][1])}" for name, _ in most)
            lines.append(f"  more than the other, {side}: {told}")
    return lines


def _by_name(side: Timing) -> dict[str, tuple[int, float]]:
    """How often kernels were launched and what they took, those of alike layers together."""
    found: dict[str, tuple[int, float]] = {}
    for one in side.launched:
        name = unnumbered(short_kernel(one.name))
        count, seconds = found.get(name, (0, 0.0))
        found[name] = count + one.count, seconds + one.seconds
    return found
