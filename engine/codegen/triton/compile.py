"""Kernels for a GPU that need not be present, and the records of kernels with all that the compiler made of them."""
from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from typing import Any

from ....artifacts.context import CompileContext
from ....artifacts.records import AnyRecord, Kernel
from ...ir.ir import Group, Plan
from ...unsupported import TritonUnsupported
from .building import Build, begin, parameter_constants, parameter_types
from .generate import generate
from .machine_code import forms_of, prefix_of, with_sass
from .server import compiled
from .source import Launch, TritonSource


def compile_launch(
    launch: Launch, function: Any, *, aligned: Sequence[bool] | None = None, wide: bool = False, target: Any = None
) -> Any:
    """The `CompiledKernel` of one launch, compiled in this process.

    `aligned` says which pointers are multiples of 16 (default: all). `target` is a `GPUTarget`, by default the present
    device's.
    """
    places = [k for k in range(len(launch.pointers)) if aligned is None or aligned[k]]
    types, constants = parameter_types(launch, wide), parameter_constants(launch, wide)
    return compiled(function, types, constants, places, launch.warps, launch.stages, target)


def cuda_version_of(capability: int) -> str:
    """The version of CUDA whose assembler makes machine code for GPUs of this capability, "12.8"."""
    from triton.backends.nvidia.compiler import get_ptxas

    return str(get_ptxas(capability).version)


def describe_for_target(plan: Plan, target: str, context: CompileContext) -> Iterator[tuple[str, str, AnyRecord]]:
    """Records of stage `kernels` for each group as compiled for `target` ("cuda:90"); nothing runs.

    All are compiled in processes of their own, each distinct text once. A group without a Triton form is recorded as
    absent.
    """
    buffers = dict(plan.program.buffers)
    begun: list[tuple[TritonSource, list[Build]]] = []
    for group in plan.items:
        if not isinstance(group, Group):
            continue
        try:
            source = generate(group, buffers, context, plan.program.sizes)
            begun.append((source, _begin(source, target)))
        except TritonUnsupported as error:
            context.absent("kernels", f"{group.kernel} for {target}: {error}")
    made = []
    for number, (source, builds) in enumerate(begun, 1):
        context.progress(f"compiling kernel {number} of {len(begun)} for sm_{_capability(target)}")
        made.append(record_of(source, builds, target))
    context.progress(f"disassembling {len(made)} kernels")
    for record, full in zip(made, with_sass(made)):
        yield "kernels", f"{record.name}@{target}", full or record


def describe_kernel(source: TritonSource, target: str) -> Kernel:
    """The record of `source` compiled for `target`; a failure of the compiler is its `log`, never an exception."""
    record = record_of(source, _begin(source, target), target)
    return with_sass([record])[0] or record


def record_of(source: TritonSource, builds: Sequence[Build], target: str) -> Kernel:
    """The record of `source` as built, without its SASS (see `with_sass`); what failed is in its log."""
    names = tuple(k.name for k in source.launches)
    products: dict[str, str] = {}
    metrics: dict[str, Any] = {"launches": source.meta}
    log: list[str] = []
    paths, seconds = [], 0.0
    for launch, build in zip(source.launches, builds):
        prefix = prefix_of(launch.name, names)
        try:
            binary = build.wait()
        except TritonUnsupported as error:
            log.append(str(error))
            paths.append("")
            continue
        paths.append(binary.path)
        seconds += binary.seconds
        products |= {f"{prefix}{form}": text for form, text in forms_of(binary, launch, source).items()}
        facts = {"num_warps": binary.warps, "shared_bytes": binary.shared, **launch.constants}
        metrics |= {f"{prefix}{name}": value for name, value in facts.items()}
        if binary.name != launch.name:
            log.append(f"one binary with {binary.name}, which differs in names alone: those of variables are its")
    return Kernel(
        source.signature.name, "triton", source.lines, names, log="\n".join(log), path=os.pathsep.join(paths),
        seconds=seconds, cached=all(b.cached for b in builds), target=target, outputs=products, metrics=metrics)


def _begin(source: TritonSource, target: str) -> list[Build]:
    """What a usual call needs: aligned pointers, 32-bit indices."""
    return [begin(k, _capability(target), (True,) * len(k.pointers), False) for k in source.launches]


def _capability(target: str) -> int:
    return int(target.partition(":")[2])
