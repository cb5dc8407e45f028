"""Triton's compiler, for a GPU that need not be there: TTIR, TTGIR, LLVM IR, PTX and SASS as text, and facts."""
from __future__ import annotations

import re
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from ...artifacts.context import CompileContext
from ...artifacts.records import AnyRecord, Kernel
from ..ir import Group, Plan
from .generate import generate
from .load import load
from .source import Launch, TritonSource
from .unsupported import TritonUnsupported

_PRODUCTS = ("ttir", "ttgir", "llir", "ptx")


def compile_launch(
    launch: Launch, function: Any, *, aligned: Sequence[bool] | None = None, wide: bool = False, target: Any = None
) -> Any:
    """The `CompiledKernel` of one launch.

    `aligned` says which pointers are multiples of 16 (default: all). `target` is a `GPUTarget`, by default the present
    device's. Numerics as eager's: denormals are kept, a multiplication and an addition round twice; asserts on indices
    are live.
    """
    import triton
    import triton.language as tl
    from triton.compiler import ASTSource

    types = dict(zip((f"{p}" for p in function.arg_names), launch.types))
    width = "i64" if wide else "i32"
    width = "i64" if launch.index == "int64" else width
    types |= {s.name: width for s in launch.symbols}
    constants: dict[str, Any] = dict(launch.constants)
    if launch.index == "dynamic":
        constants["INDEX"] = tl.int64 if wide else tl.int32
    types |= dict.fromkeys(constants, "constexpr")
    attributes = {
        (k,): [["tt.divisibility", 16]] for k in range(len(launch.pointers)) if aligned is None or aligned[k]
    }
    source = ASTSource(function, types, constants, attributes)
    options = {"num_warps": launch.warps, "debug": True, "sanitize_overflow": False, "enable_reflect_ftz": False,
               "enable_fp_fusion": False}
    return triton.compile(source, target=target, options=options)


def describe_for_target(plan: Plan, target: str, context: CompileContext) -> Iterator[tuple[str, str, AnyRecord]]:
    """Records of stage `kernels` for what each group would be on `target` ("cuda:90"); nothing runs.

    One at a time, as the caller asks for the next. A group without a Triton form is recorded as absent.
    """
    for group in plan.items:
        if not isinstance(group, Group):
            continue
        try:
            source = generate(group, dict(plan.program.buffers), context)
            record = describe_kernel(source, target)
        except TritonUnsupported as error:
            context.absent("kernels", f"{group.kernel} for {target}: {error}")
            continue
        yield "kernels", f"{group.kernel}@{target}", record


def describe_kernel(source: TritonSource, target: str) -> Kernel:
    """The record of `source` compiled for `target`; a failure of the compiler is its `log`, never an exception."""
    start = time.perf_counter()
    names = tuple(k.name for k in source.launches)
    products: dict[str, str] = {}
    facts: dict[str, Any] = {"launches": source.meta}
    log: list[str] = []
    try:
        namespace = load(source)
        for launch in source.launches:
            made, numbers = _products(launch, namespace[launch.name], target, log)
            prefix = f"{launch.name}." if len(names) > 1 else ""
            products |= {f"{prefix}{k}": v for k, v in made.items()}
            facts |= {f"{prefix}{k}": v for k, v in numbers.items()}
    except Exception as error:  # Triton raises what it likes; the record says what
        log.append(f"{type(error).__name__}: {error}")
    return Kernel(source.signature.name, "triton", source.lines, names, log="\n".join(log),
                  seconds=time.perf_counter() - start, target=target, products=products, facts=facts)


def _products(launch: Launch, function: Any, target: str, log: list[str]) -> tuple[dict[str, str], dict[str, Any]]:
    from triton.backends.compiler import GPUTarget

    backend, _, capability = target.partition(":")
    kernel = compile_launch(launch, function, target=GPUTarget(backend, int(capability), 32))
    products = {name: str(kernel.asm[name]) for name in _PRODUCTS if name in kernel.asm}
    facts: dict[str, Any] = {"num_warps": kernel.metadata.num_warps, "shared_bytes": kernel.metadata.shared}
    facts |= dict(launch.constants)
    cubin = kernel.asm.get("cubin")
    if cubin is not None:
        facts |= _resources(cubin, log)
        sass = _disassembled(cubin, log)
        if sass:
            products["sass"] = sass
    return products, facts


def _resources(cubin: bytes, log: list[str]) -> dict[str, int]:
    """Registers and spilled bytes of a cubin, as cuobjdump counts them."""
    text = _with_tool("cuobjdump", ["-res-usage"], cubin, log)
    found = re.search(r"REG:(\d+).*?STACK:(\d+).*?SHARED:(\d+).*?LOCAL:(\d+)", text)
    if found is None:
        return {}
    return {"registers": int(found[1]), "stack_bytes": int(found[2]), "spills": int(found[4])}


def _disassembled(cubin: bytes, log: list[str]) -> str:
    return _with_tool("nvdisasm", ["-c"], cubin, log)


def _with_tool(name: str, options: list[str], cubin: bytes, log: list[str]) -> str:
    """What one of NVIDIA's tools (those that come with Triton, or on the PATH) prints; "" and a reason otherwise."""
    import triton

    bundled = Path(triton.__file__).parent / "backends" / "nvidia" / "bin" / name
    tool = str(bundled) if bundled.exists() else shutil.which(name)
    if not tool:
        log.append(f"{name} was not found: what it tells is missing")
        return ""
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(cubin)
        file.flush()
        done = subprocess.run([tool, *options, file.name], capture_output=True, text=True, timeout=60, check=False)
    if done.returncode:
        log.append(f"{name}: {done.stderr.strip()}")
        return ""
    return done.stdout
