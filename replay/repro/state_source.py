"""The state of the process around a call, as statements of a script."""
from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

import torch

from ...artifacts.records import Graph, ProcessState
from ...operators.effects import may_draw_by_name
from ..recorded.inputs import RANDOM
from ..recorded.state import FLAGS, read_state
from .tensors import Tensors


def state_lines(state: ProcessState | None) -> list[str]:
    """Statements that bring a fresh process (as this one is) to `state`; none for what is so anyway."""
    return list(_lines(state, read_state())) if state is not None else []


def _lines(state: ProcessState, fresh: ProcessState) -> Iterator[str]:
    if state.dtype != fresh.dtype:
        yield f"torch.set_default_dtype(torch.{_word(state.dtype)})"
    if state.device and state.device != fresh.device:
        yield f"torch.set_default_device({state.device!r})"
    for device, cast in state.autocast.items():
        before = fresh.autocast.get(device)
        if cast.enabled and cast != before:
            yield f"torch.set_autocast_enabled({device!r}, True)"
            yield f"torch.set_autocast_dtype({device!r}, torch.{_word(cast.dtype)})"
    if state.autocast_cache != fresh.autocast_cache:
        yield f"torch.set_autocast_cache_enabled({bool(state.autocast_cache)})"
    changed = {name: value for name, value in state.flags.items()
               if name in FLAGS and name in fresh.flags and value != fresh.flags[name]}
    for name, value in changed.items():
        if name == "deterministic_algorithms":
            yield f"torch.use_deterministic_algorithms({value != 'off'}, warn_only={value == 'warn'})"
        elif "float32_matmul_precision" not in changed or not name.startswith("fp32_precision."):  # which it sets
            yield FLAGS[name].text.format(value)


def draws(graph: Graph) -> bool:
    """Whether a graph may draw random numbers."""
    inner = [part for held in graph.inner.values()
             for part in ((held,) if isinstance(held, Graph) else (held.forward, held.backward))]
    return any(node.op.startswith("call_") and may_draw_by_name(node.target) for node in graph.nodes) or any(
        map(draws, inner))


def random_facts(graph: Graph, restored: bool = False) -> list[str]:
    """What a script says of random numbers; nothing where none are drawn."""
    start = "as they did at the recorded call" if restored else "from seed 0"
    return [f"Random numbers start {start}."] if draws(graph) else []


def random_lines(graph: Graph, states: Mapping[str, torch.Tensor], tensors: Tensors) -> list[str]:
    """Statements that bring random number generators to these states, which go to the file of `tensors`; none for a
    graph that draws nothing."""
    lines = []
    for device, state in states.items() if draws(graph) else ():
        if device == "cpu" or re.fullmatch(r"cuda:\d+", device):
            key = RANDOM + device
            tensors.file[key] = state
            call = "torch.set_rng_state" if device == "cpu" else "torch.cuda.set_rng_state"
            lines.append(f"{call}(saved[{key!r}]{'' if device == 'cpu' else f', {device!r}'})")
    return lines


def _word(name: str) -> str:
    """A name of torch; what is recorded may be anything."""
    return name if name.isidentifier() else "float32"
