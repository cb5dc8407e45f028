"""What `replay --time` prints."""
from __future__ import annotations

from typing import TYPE_CHECKING

from ..artifacts.listing import Line, printable
from .printing import print_lines, print_title

if TYPE_CHECKING:
    from ..replay.measure.regions import Region
    from ..replay.measure.steps import KernelTime

WIDEST = 44


def print_region(region: Region) -> None:
    """One graph: eager against compiled, its kernels, and what makes it slower."""
    from ..replay.measure.reasons import slower_twins  # imports torch

    noise = max(region.eager.noise, region.compiled.noise)
    print_title(f"{region.selector}  {region.what}: eager {time_text(region.eager.seconds)}, compiled "
                f"{time_text(region.compiled.seconds)}, {region.ratio:.2f} times as fast (noise {noise:.0%})")
    if region.device_seconds:
        eager, compiled = map(time_text, region.device_seconds)
        print_lines([Line(f"  kernels alone: eager {eager}, compiled {compiled}; copies reach "
                          f"{max(region.machine.bandwidth) / 1e9:,.0f} GB/s here")])
    width = min(max((len(_name(k)) for k in region.kernels), default=0), WIDEST)
    head = f"  {'kernel':<{width}} {'time':>10} {'eager':>10} {'bytes':>12} {'GB/s':>7}  of peak  GFLOP/s  of peak"
    lines = [head, *(_kernel(k, width) for k in region.kernels)]
    lines.append(f"  {'outside of kernels':<{width}} {time_text(region.overhead):>10}")
    lines += [f"  slower than eager: {reason}" for reason in region.reasons]
    if not region.reasons:
        slower = slower_twins(region.twins)[:3]
        lines += [f"  faster in eager, although the whole is not: {text}" for _, text, _ in slower]
    lines += [f"  {note}" for note in region.notes]
    print_lines([Line(printable(line)) for line in lines])


def _kernel(k: KernelTime, width: int) -> str:
    from ..replay.measure.reasons import short_kernel  # imports torch

    eager = time_text(k.eager) if k.eager is not None else ""
    seconds = max(k.seconds, 1e-9)
    flops = f"{k.flops / seconds / 1e9:8.2f} {k.peak:8.1%}" if k.flops else ""
    place = f"  {k.location.file.rpartition('/')[2]}:{k.location.line}" if k.location else ""
    traffic = f"{k.bytes:>12,} {k.bytes / seconds / 1e9:7.2f} {k.bandwidth:8.1%}" if k.bytes else ""
    head = f"  {_name(k)[:width]:<{width}} {time_text(k.seconds):>10} {eager:>10}"
    ran = "; ".join(short_kernel(one.name) for one in k.launched[:2] if k.kind == "extern")
    return f"{head} {traffic:29} {flops:17}{place}{ran and f'  {ran}'}".rstrip()


def _name(k: KernelTime) -> str:
    return f"{k.part}.{k.name}" if k.part else k.name


def time_text(seconds: float) -> str:
    """Microseconds, or milliseconds."""
    return f"{seconds * 1e6:.1f} us" if seconds < 1e-3 else f"{seconds * 1e3:.2f} ms"
