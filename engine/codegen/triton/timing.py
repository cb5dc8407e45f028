"""How long kernels that do the same take on their device: compiled at the same time, timed once, kept on disk."""
from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import lru_cache, partial
from pathlib import Path

import torch

from ....artifacts.context import CompileContext
from ...ir.ir import DOTS, Buffer, Group, Plan
from ...toolchain.benchmarking import Call
from ...toolchain.device_benchmarking import device_costs, made_up
from ...unsupported import TritonUnsupported
from .emit import OUT_OF_BOUNDS
from .generate import Sources, Timing, generate
from .launch import TritonKernel


@lru_cache(maxsize=1)
def generator() -> str:
    """Says which kernels are generated, by the sources of what generates them: times of others are not theirs."""
    digest = hashlib.sha256()
    for path in sorted(Path(__file__).parent.rglob("*.py")):
        digest.update(path.read_bytes())
    return digest.hexdigest()


def timing_on(device: torch.device, buffers: Mapping[str, Buffer]) -> Timing | None:
    """What times kernels for `generate`, on memory like that of `buffers`; None without a GPU."""
    return partial(_timed, device, buffers) if device.type == "cuda" and torch.cuda.is_available() else None


def begin_timing(plan: Plan, context: CompileContext) -> None:
    """Begin to compile all kernels that will be timed for a plan's matrix products, which takes longest."""

    def begin(group: Group, sources: Sources) -> Mapping[str, float]:
        for make in sources.values():
            TritonKernel(make(), plan.program.buffers, group.device).begin()
        return {}

    for group in plan.items:
        if isinstance(group, Group) and any(s.mode in DOTS for b in group.bodies for s in b.statements):
            with suppress(TritonUnsupported):
                generate(group, plan.program.buffers, context, plan.program.sizes, partial(begin, group))


def _timed(device: torch.device, buffers: Mapping[str, Buffer], sources: Sources) -> Mapping[str, float]:
    """Seconds of each kernel, of those that the compiler and the device take; empty where sizes vary.

    The layers of a network have kernels that differ in names alone: one of the candidates tells which they are, the
    others are not even written then.
    """
    first = TritonKernel(next(iter(sources.values()))(), buffers, device)
    if first.signature.symbols:
        return {}
    subject = repr([*first.keys(), *[str(launch.grid) for launch in first.source.launches], *sources])
    calls = lambda: _calls(_ready(device, buffers, sources), buffers)
    return device_costs(f"kernels {hashlib.sha256(subject.encode()).hexdigest()}", device, calls, cold=True)


def _ready(device: torch.device, buffers: Mapping[str, Buffer], sources: Sources) -> dict[str, TritonKernel]:
    """The kernels that can run, compiled at the same time."""
    kernels = {name: TritonKernel(make(), buffers, device) for name, make in sources.items()}
    for kernel in kernels.values():
        kernel.begin()
    return {name: kernel for name, kernel in kernels.items() if _is_ready(kernel)}


def _is_ready(kernel: TritonKernel) -> bool:
    try:
        kernel.wait()
        kernel.runner()
    except TritonUnsupported:  # too much shared memory, say
        return False
    return True


def _calls(kernels: Mapping[str, TritonKernel], buffers: Mapping[str, Buffer]) -> Mapping[str, Call]:
    """A launch of each kernel on the same made-up data; where numbers are indices, all of them are 0."""
    by_data = any(OUT_OF_BOUNDS in kernel.source.text for kernel in kernels.values())
    memory: dict[str, torch.Tensor] = {}
    for name in {n for kernel in kernels.values() for n in kernel.signature.buffers}:
        b = buffers[name]
        memory[name] = made_up([int(n) for n in b.size], [int(n) for n in b.stride], b.dtype, b.device, zeros=by_data)
    return {name: partial(_launch, kernel, [memory[n] for n in kernel.signature.buffers])
            for name, kernel in kernels.items()}


def _launch(kernel: TritonKernel, tensors: Sequence[torch.Tensor]) -> None:
    kernel(*[tensor.data_ptr() for tensor in tensors])
