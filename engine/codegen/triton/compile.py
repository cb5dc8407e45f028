"""Triton's compiler, for a GPU that need not be present: TTIR, TTGIR, LLVM IR, PTX and SASS as text, and metrics."""
from __future__ import annotations

import os
import re
import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

from ....artifacts.context import CompileContext
from ....artifacts.records import AnyRecord, Kernel
from ...ir.ir import Group, Plan
from ...unsupported import TritonUnsupported
from .building import parameter_constants, parameter_types
from .generate import generate
from .load import load
from .server import compiled
from .source import Launch, TritonSource

_PRODUCTS = ("ttir", "ttgir", "llir", "ptx")


def compile_launch(
    launch: Launch, function: Any, *, aligned: Sequence[bool] | None = None, wide: bool = False, target: Any = None
) -> Any:
    """The `CompiledKernel` of one launch, compiled in this process.

    `aligned` says which pointers are multiples of 16 (default: all). `target` is a `GPUTarget`, by default the present
    device's.
    """
    places = [k for k in range(len(launch.pointers)) if aligned is None or aligned[k]]
    types, constants = parameter_types(launch, wide), parameter_constants(launch, wide)
    return compiled(function, types, constants, places, launch.warps, target)


def describe_for_target(plan: Plan, target: str, context: CompileContext) -> Iterator[tuple[str, str, AnyRecord]]:
    """Records of stage `kernels` for each group as compiled for `target` ("cuda:90"); nothing runs.

    Groups are compiled in the caller's thread, about 0.1 s each; disassembly, which takes longer and runs in processes
    of its own, overlaps. A group without a Triton form is recorded as absent.
    """
    buffers = dict(plan.program.buffers)
    with ThreadPoolExecutor(max_workers=os.cpu_count()) as pool:
        begun = []
        for group in plan.items:
            if not isinstance(group, Group):
                continue
            try:
                begun.append((group.kernel, _begin_record(generate(group, buffers, context), target, pool)))
            except TritonUnsupported as error:
                context.absent("kernels", f"{group.kernel} for {target}: {error}")
        for name, finish in begun:
            yield "kernels", f"{name}@{target}", finish()


def describe_kernel(source: TritonSource, target: str) -> Kernel:
    """The record of `source` compiled for `target`; a failure of the compiler is its `log`, never an exception."""
    with ThreadPoolExecutor(max_workers=os.cpu_count()) as pool:
        return _begin_record(source, target, pool)()


def _begin_record(source: TritonSource, target: str, pool: ThreadPoolExecutor) -> Callable[[], Kernel]:
    """Compile now, disassemble in `pool`; the result waits for that and makes the record."""
    start = time.perf_counter()
    names = tuple(k.name for k in source.launches)
    products: dict[str, str] = {}
    facts: dict[str, Any] = {"launches": source.meta}
    log: list[str] = []
    later: list[tuple[str, Future[tuple[dict[str, str], dict[str, int]]]]] = []
    try:
        namespace = load(source)
        for launch in source.launches:
            prefix = f"{launch.name}." if len(names) > 1 else ""
            kernel = _compiled_for(launch, namespace[launch.name], target)
            products |= {f"{prefix}{name}": str(kernel.asm[name]) for name in _PRODUCTS if name in kernel.asm}
            metadata = {"num_warps": kernel.metadata.num_warps, "shared_bytes": kernel.metadata.shared}
            facts |= {f"{prefix}{k}": v for k, v in (metadata | dict(launch.constants)).items()}
            if "cubin" in kernel.asm:
                later.append((prefix, pool.submit(_taken_apart, kernel.asm["cubin"], log)))
    except Exception as error:  # Triton raises what it likes; the record says what
        log.append(f"{type(error).__name__}: {error}")
    seconds = time.perf_counter() - start

    def finish() -> Kernel:
        for prefix, future in later:
            texts, numbers = future.result()
            products.update({f"{prefix}{k}": v for k, v in texts.items()})
            facts.update({f"{prefix}{k}": v for k, v in numbers.items()})
        return Kernel(source.signature.name, "triton", source.lines, names, log="\n".join(log), seconds=seconds,
                      target=target, outputs=products, metrics=facts)

    return finish


def _compiled_for(launch: Launch, function: Any, target: str) -> Any:
    from triton.backends.compiler import GPUTarget

    backend, _, capability = target.partition(":")
    return compile_launch(launch, function, target=GPUTarget(backend, int(capability), 32))


def _taken_apart(cubin: bytes, log: list[str]) -> tuple[dict[str, str], dict[str, int]]:
    """What NVIDIA's tools read from a cubin: its instructions, and their resources."""
    facts = _resources(cubin, log)
    sass = _with_tool("nvdisasm", ["-c", "-ndf"], cubin, log)
    return ({"sass": sass} if sass else {}), facts


def _resources(cubin: bytes, log: list[str]) -> dict[str, int]:
    """Registers and spilled bytes of a cubin, as cuobjdump counts them."""
    text = _with_tool("cuobjdump", ["-res-usage"], cubin, log)
    found = re.search(r"REG:(\d+).*?STACK:(\d+).*?SHARED:(\d+).*?LOCAL:(\d+)", text)
    if found is None:
        return {}
    return {"registers": int(found[1]), "stack_bytes": int(found[2]), "spills": int(found[4])}


def _with_tool(name: str, options: list[str], cubin: bytes, log: list[str]) -> str:
    """What one of NVIDIA's tools (those that come with Triton, or on the PATH) prints; "" and a reason otherwise."""
    import triton

    bundled = Path(triton.__file__).parent / "backends" / "nvidia" / "bin" / name
    tool = str(bundled) if bundled.exists() else shutil.which(name)
    if not tool:
        log.append(f"{name} was not found: its output is missing")
        return ""
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(cubin)
        file.flush()
        done = subprocess.run([tool, *options, file.name], capture_output=True, text=True, timeout=60, check=False)
    if done.returncode:
        log.append(f"{name}: {done.stderr.strip()}")
        return ""
    return done.stdout
