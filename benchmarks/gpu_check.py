"""Check and time the Triton kernels on a CUDA GPU; needs only torch, Triton and msgspec, no installation.

    PYTHONPATH=.types python benchmarks/gpu_check.py [--check] [--time] [--only NAME ...] [--json FILE]

First the programs of tests/engine/triton/programs.py run on the GPU and are compared with eager; then four workloads
are timed against eager and stock `torch.compile`: medians of 30, by CUDA events, inputs and results in memory larger
than the L2 cache.
"""
from __future__ import annotations

import argparse
import importlib.util
import json
import statistics
import sys
import time
import traceback
from collections.abc import Callable, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

import torch
import torch.nn.functional as F

REPEATS = 30


def programs() -> ModuleType:
    """tests/engine/triton/programs.py, which is in no package."""
    path = Path(__file__).parent.parent / "tests" / "engine" / "triton" / "programs.py"
    spec = importlib.util.spec_from_file_location("triton_programs", path)
    if spec is None or spec.loader is None:
        raise FileNotFoundError(path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def softmax(x: torch.Tensor) -> torch.Tensor:
    return torch.softmax(x, -1)


def layer_norm_gelu(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
    return F.gelu(F.layer_norm(x, (2048,), weight, bias))


def rms_norm_rotary(x: torch.Tensor, weight: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
    wide = x.float()
    normed = (wide * torch.rsqrt((wide * wide).mean(-1, keepdim=True) + 1e-6)).to(x.dtype) * weight
    half = 64
    turned = torch.cat([-normed[..., half:], normed[..., :half]], dim=-1)
    return normed * cos + turned * sin


def adam(p: torch.Tensor, g: torch.Tensor, m: torch.Tensor, v: torch.Tensor) -> tuple[torch.Tensor, ...]:
    m = m * 0.9 + g * 0.1
    v = v * 0.999 + g * g * 0.001
    return p - 1e-3 * (m / 0.5) / ((v / 0.3).sqrt() + 1e-8), m, v


def _half(*shape: int) -> torch.Tensor:
    return torch.randn(*shape, device="cuda", dtype=torch.float16)


def workloads() -> dict[str, tuple[Callable[..., Any], tuple[torch.Tensor, ...]]]:
    """Name: (function, inputs on the GPU)."""
    flat = [torch.randn(1 << 24, device="cuda") for _ in range(4)]
    return {
        "softmax 16384x4096 f16": (softmax, (_half(16384, 4096),)),
        "layer norm + gelu 32768x2048 f16": (layer_norm_gelu, (_half(32768, 2048), _half(2048), _half(2048))),
        "rms norm + rotary 8x32x2048x128 f16": (
            rms_norm_rotary, (_half(8, 32, 2048, 128), _half(128), _half(2048, 128), _half(2048, 128))
        ),
        "Adam 16M f32": (adam, (flat[0], flat[1], flat[2], flat[3].abs())),
    }


def differences(function: Callable[..., Any], inputs: Sequence[torch.Tensor], actual: Any) -> str:
    """Why `actual` is wrong, "" when it is not: twice as far from a float64 reference as eager is may it be."""
    expected = function(*inputs)
    wide = function(*(t.double() if t.is_floating_point() else t for t in inputs))
    triples = zip(actual, *(r if isinstance(r, (tuple, list)) else (r,) for r in (expected, wide)), strict=True)
    for number, (a, e, reference) in enumerate(triples):
        if not e.is_floating_point():
            if not torch.equal(a, e):
                return f"result {number} differs"
            continue
        same = a.isnan() == e.isnan()
        same &= (a == e) | a.isfinite() | a.isnan()
        if not bool(same.all()):
            return f"result {number}: infinities or NaN in other places"
        finite = e.isfinite()
        ours, eagers = ((t.double() - reference)[finite].abs() for t in (a, e))
        scale = float(reference[finite].abs().max()) if bool(finite.any()) else 0.0
        allowed = 2 * float(eagers.max() if eagers.numel() else 0.0) + 4 * torch.finfo(e.dtype).eps * scale
        if ours.numel() and float(ours.max()) > allowed:
            return f"result {number}: off by {float(ours.max()):.3g}, allowed {allowed:.3g}"
    return ""


def check(module: ModuleType, only: Sequence[str]) -> int:
    """Run every program on the GPU; returns how many differ from eager or fail."""
    failures = 0
    for name, (function, inputs) in module.PROGRAMS.items():
        if only and name not in only:
            continue
        on_gpu = tuple(t.cuda() for t in inputs)
        try:
            why = differences(function, on_gpu, module.compiled(function, on_gpu)(*on_gpu))
        except Exception:  # each program is its own verdict
            why = traceback.format_exc()
        failures += bool(why)
        print(f"{'FAILED' if why else 'ok':7}{name}{': ' + why if why else ''}", flush=True)
    return failures


def median_ms(function: Callable[..., Any], inputs: Sequence[torch.Tensor]) -> float:
    """Median time of a call on the GPU, by events around each."""
    for _ in range(5):
        function(*inputs)
    torch.cuda.synchronize()
    pairs = [(torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)) for _ in range(REPEATS)]
    for begin, end in pairs:
        begin.record()
        function(*inputs)
        end.record()
    torch.cuda.synchronize()
    return statistics.median(begin.elapsed_time(end) for begin, end in pairs)


def measure(module: ModuleType, only: Sequence[str]) -> list[dict[str, Any]]:
    """Time the workloads and print a row for each."""
    print(f"\n{'workload':38}{'eager ms':>10}{'stock ms':>10}{'ours ms':>10}{'x eager':>9}{'x stock':>9}"
          f"{'compile s':>11}{'stock s':>9}  kernels")
    rows = []
    for name, (function, inputs) in workloads().items():
        if only and not any(o in name for o in only):
            continue
        start = time.perf_counter()
        ours = module.compiled(function, inputs)
        result = ours(*inputs)
        torch.cuda.synchronize()
        ours_seconds = time.perf_counter() - start
        why = differences(function, inputs, result)
        stock = torch.compile(function, dynamic=False)
        start = time.perf_counter()
        stock(*inputs)
        torch.cuda.synchronize()
        stock_seconds = time.perf_counter() - start
        times = [median_ms(f, inputs) for f in (function, stock, ours)]
        tiles = [k.tile for kernel in ours.kernels.values() for k in kernel.source.launches]
        print(f"{name:38}{times[0]:10.4f}{times[1]:10.4f}{times[2]:10.4f}{times[0] / times[2]:9.2f}"
              f"{times[1] / times[2]:9.2f}{ours_seconds:11.2f}{stock_seconds:9.2f}  {', '.join(tiles)}"
              f"{'  DIFFERENT: ' + why if why else ''}", flush=True)
        rows.append({"workload": name, "eager_ms": times[0], "stock_ms": times[1], "ours_ms": times[2],
                     "compile_s": ours_seconds, "stock_compile_s": stock_seconds, "tiles": tiles, "different": why})
    return rows


def launch_overhead(module: ModuleType) -> float:
    """Microseconds on the CPU for one call of a kernel on tensors that take the GPU no time."""
    x = torch.randn(64, device="cuda")
    runner = module.compiled(lambda x: x + 1, (x,))
    (kernel,) = runner.kernels.values()
    out = torch.empty_like(x)
    memory = dict(zip(runner.plan.program.inputs, (x,)))
    addresses = [memory.get(name, out).data_ptr() for name in kernel.signature.buffers]
    samples = []
    for _ in range(REPEATS):
        torch.cuda.synchronize()
        start = time.perf_counter()
        for _ in range(100):
            kernel(*addresses)
        samples.append((time.perf_counter() - start) * 1e4)
    torch.cuda.synchronize()
    return statistics.median(samples)


def main() -> int:
    """Exit code 0 when all values agree, 1 when some do not, 2 without a GPU."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--check", action="store_true", help="only compare values")
    parser.add_argument("--time", action="store_true", help="only measure")
    parser.add_argument("--only", nargs="*", default=[], help="names of programs, or parts of names of workloads")
    parser.add_argument("--json", type=Path, help="write the measurements there")
    arguments = parser.parse_args()
    if not torch.cuda.is_available():
        print("no CUDA device here", file=sys.stderr)
        return 2
    print(f"torch {torch.__version__}, {torch.cuda.get_device_name()}")
    module = programs()
    failures = 0 if arguments.time else check(module, arguments.only)
    rows = [] if arguments.check else measure(module, arguments.only)
    if not arguments.check:
        print(f"one launch of a kernel: {launch_overhead(module):.2f} us on the CPU")
    if arguments.json:
        arguments.json.write_text(json.dumps(rows, indent=1))
    return 1 if failures or any(r["different"] for r in rows) else 0


if __name__ == "__main__":
    sys.exit(main())
