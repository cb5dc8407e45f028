"""Matrix products with what surrounds them on a GPU: ptdebug's default and max-autotune, stock's max-autotune, eager.

    python benchmarks/products.py [--only PART ...] [--ways eager ptdebug ptdebug-max stock-max] [--out FILE]

Microseconds on the device of one call, the least of 20, with nothing in its cache and the launches queued ahead; the
largest error relative to the largest number of a result computed in float64.
"""
from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable, Iterator
from typing import Any

import torch
import torch.nn.functional as F

Case = tuple[Callable[..., torch.Tensor], tuple[torch.Tensor, ...]]
DTYPE = torch.bfloat16
ROUNDS = 20


def floats(*shape: int) -> torch.Tensor:
    """Random numbers of a weight's size."""
    return (torch.randn(*shape, device="cuda") * 0.1).to(DTYPE)


def mlp(x: torch.Tensor, w: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """BERT's."""
    return F.gelu(F.linear(x, w, b))


def tanh_mlp(x: torch.Tensor, w: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """GPT-2's."""
    return F.gelu(F.linear(x, w, b), approximate="tanh")


def gated(x: torch.Tensor, w: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    """Llama's."""
    return F.silu(F.linear(x, w)) * F.linear(x, v)


def residual(x: torch.Tensor, w: torch.Tensor, b: torch.Tensor, r: torch.Tensor) -> torch.Tensor:
    """A projection into the residual stream, whose norm follows."""
    y = F.linear(x, w, b) + r
    return F.layer_norm(y, y.shape[-1:])


def scaled(x: torch.Tensor, w: torch.Tensor, s: torch.Tensor) -> torch.Tensor:
    """Weight-only int8 as gpt-fast writes it."""
    return F.linear(x, w.to(x.dtype)) * s


def scaled_weight(x: torch.Tensor, w: torch.Tensor, s: torch.Tensor) -> torch.Tensor:
    """Weight-only int8, the weight scaled first."""
    return F.linear(x, w.to(x.dtype) * s[:, None])


def dynamic(x: torch.Tensor, w: torch.Tensor, s: torch.Tensor) -> torch.Tensor:
    """Products of int8, each row with a scale of its own."""
    step = x.abs().amax(-1, keepdim=True).float() / 127
    q = torch.round(x.float() / step).clamp(-127, 127).to(torch.int8)
    return (torch._int_mm(q, w.t()).float() * step * s).to(x.dtype)


def cases() -> Iterator[tuple[str, Case]]:
    """By name, the inputs made when they are needed."""
    yield "mlp 4096x768x3072", (mlp, (floats(4096, 768), floats(3072, 768), floats(3072)))
    yield "mlp 4096x1024x4096", (mlp, (floats(4096, 1024), floats(4096, 1024), floats(4096)))
    yield "tanh-mlp 4096x768x3072", (tanh_mlp, (floats(4096, 768), floats(3072, 768), floats(3072)))
    yield "residual 4096x3072x768", (residual, (floats(4096, 3072), floats(768, 3072), floats(768), floats(4096, 768)))
    yield "gated 4096x4096x11008", (gated, (floats(4096, 4096), floats(11008, 4096), floats(11008, 4096)))
    for rows in (1, 4, 16):
        x, s = floats(rows, 4096), floats(11008)
        w = torch.randint(-127, 128, (11008, 4096), dtype=torch.int8, device="cuda")
        yield f"bf16 {rows}x4096x11008", (F.linear, (x, floats(11008, 4096)))
        yield f"scaled {rows}x4096x11008", (scaled, (x, w, s))
        yield f"scaled-weight {rows}x4096x11008", (scaled_weight, (x, w, s))
    w = torch.randint(-127, 128, (4096, 4096), dtype=torch.int8, device="cuda")
    yield "bf16 16x4096x4096", (F.linear, (floats(16, 4096), floats(4096, 4096)))
    yield "scaled 16x4096x4096", (scaled, (floats(16, 4096), w, floats(4096)))
    yield "scaled 4096x4096x4096", (scaled, (floats(4096, 4096), w, floats(4096)))
    yield "dynamic 4096x4096x4096", (dynamic, (floats(4096, 4096), w, floats(4096)))


def made(way: str, function: Callable[..., Any]) -> Callable[..., Any]:
    """`function` compiled one way."""
    if way == "eager":
        return function
    mode = "max-autotune-no-cudagraphs" if way.endswith("-max") else "default"
    if way.startswith("stock"):
        return torch.compile(function, mode=mode, dynamic=False)
    import ptdebug

    return ptdebug.compile(function, mode=mode, dynamic=False)


def microseconds(call: Callable[[], object]) -> float:
    """The least time on the device."""
    cache = torch.empty(1 << 27, dtype=torch.uint8, device="cuda")
    best = float("inf")
    for _ in range(ROUNDS):
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        cache.zero_()
        torch.cuda._sleep(2_000_000)
        start.record()
        call()
        end.record()
        end.synchronize()
        best = min(best, start.elapsed_time(end) * 1e3)
    return best


def error(got: torch.Tensor, function: Callable[..., Any], inputs: tuple[torch.Tensor, ...]) -> float:
    """Relative to the largest element in float64."""
    if function is dynamic:
        exact = function(*inputs).double()
    else:
        exact = function(*[v.double() if v.is_floating_point() else v for v in inputs])
    return float((got.double() - exact).abs().max() / exact.abs().max())


def main() -> None:
    """Print a line for each case and way, and write them as JSON."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", nargs="*", default=[])
    parser.add_argument("--ways", nargs="*", default=["eager", "ptdebug", "ptdebug-max", "stock-max"])
    parser.add_argument("--out", default="")
    given = parser.parse_args()
    torch.manual_seed(0)
    found: dict[str, dict[str, Any]] = {}
    with torch.no_grad():
        for name, (function, inputs) in cases():
            if given.only and not any(part in name for part in given.only):
                continue
            for way in given.ways:
                torch._dynamo.reset()
                begun = time.perf_counter()
                call = made(way, function)
                for _ in range(6):
                    got = call(*inputs)
                torch.cuda.synchronize()
                compiled = time.perf_counter() - begun
                us = microseconds(lambda call=call, inputs=inputs: call(*inputs))  # type: ignore[misc]
                off = error(got, function, inputs)
                found.setdefault(name, {})[way] = {"us": us, "error": off, "compile_s": compiled}
                print(f"{name:28} {way:12} {us:9.1f} us  error {off:.1e}  {compiled:5.1f} s", flush=True)
            if given.out:
                with open(given.out, "w") as file:
                    json.dump(found, file, indent=1)


if __name__ == "__main__":
    main()
