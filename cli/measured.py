"""What `replay --time` prints."""
from __future__ import annotations

from typing import TYPE_CHECKING

from ..artifacts.listing import Line, printable
from ..artifacts.measured import Measured, MeasuredKernel
from .printing import print_lines, print_title

if TYPE_CHECKING:
    from ..replay.measure.regions import Region
    from ..replay.measure.steps import KernelTime

WIDEST = 44
MOST_OPERATORS = 5


def print_region(region: Region) -> None:
    """One graph: eager against compiled, its kernels, and what makes it slower."""
    noise = max(region.eager.noise, region.compiled.noise)
    print_title(f"{region.selector}  {region.what}: eager {time_text(region.eager.seconds)}, compiled "
                f"{time_text(region.compiled.seconds)}, {region.ratio:.2f} times as fast (noise {noise:.0%})")
    on_gpu = bool(region.device_seconds)
    width = min(max((len(_name(k)) for k in region.kernels), default=0), WIDEST)
    head = (f"  {'kernel':<{width}} {'time':>10} {'eager':>10} {'bytes':>13} {'GB/s':>8}  of peak "
            f"{'TFLOP/s' if on_gpu else 'GFLOP/s':>8}  of peak")
    lines = [*(_gpu_lines(region) if on_gpu else ()), head, *(_kernel(k, width, on_gpu) for k in region.kernels)]
    lines.append(f"  {'outside of kernels':<{width}} {time_text(region.overhead):>10}")
    lines += [*_operator_lines(region), *(f"  slower than eager: {reason}" for reason in region.reasons)]
    lines += [f"  {note}" for note in region.notes]
    print_lines([Line(printable(line)) for line in lines])


def measured_of(region: Region) -> Measured:
    """What is kept of it beside the recording."""
    kernels = tuple(MeasuredKernel(
        k.part, k.name, k.kind, k.seconds, k.eager, k.bytes, round(k.bandwidth, 4), k.flops, round(k.peak, 4),
        tuple(one.name for one in k.launched)) for k in region.kernels)
    return Measured(region.machine.name or region.machine.device, region.what, region.eager.seconds,
                    region.compiled.seconds, kernels, region.reasons)


def _gpu_lines(region: Region) -> list[str]:
    eager, compiled = map(time_text, region.device_seconds)
    machine = region.machine
    rates = ", ".join(f"{kind} {flops / 1e12:.0f}" for kind, flops in machine.products.items())
    return [
        f"  kernels alone: eager {eager}, compiled {compiled}; eager is the captured graph, operator by operator",
        f"  this GPU: copies in memory {machine.memory / 1e9:,.0f} GB/s, products {rates} TFLOP/s; what touches less "
        f"than its {machine.cache >> 20} MB of cache is compared with copies there",
    ]


def _operator_lines(region: Region) -> list[str]:
    """Where the time goes by operators of the program, and where eager is faster, although the whole is not."""
    from ..replay.measure.reasons import by_operator, slower_twins, twin_text  # imports torch

    groups = by_operator(region.twins)
    most = [twin_text(*each) for each in groups[:MOST_OPERATORS]] if len(groups) > 1 else []
    lines = [f"  {'most time' if not number else '':9} {text}" for number, text in enumerate(most)]
    slower = [] if region.reasons else slower_twins(region.twins)[:MOST_OPERATORS]
    return lines + [f"  faster in eager, although the whole is not: {text}" for _, text, _ in slower]


def _kernel(k: KernelTime, width: int, on_gpu: bool) -> str:
    from ..replay.measure.reasons import short_kernel  # imports torch

    eager = time_text(k.eager) if k.eager is not None else ""
    seconds = max(k.seconds, 1e-9)
    flops = f"{k.flops / seconds / (1e12 if on_gpu else 1e9):8.2f} {k.peak:8.1%}" if k.flops else ""
    place = f"  {k.location.file.rpartition('/')[2]}:{k.location.line}" if k.location else ""
    traffic = f"{k.bytes:>13,} {k.bytes / seconds / 1e9:8.2f} {k.bandwidth:8.1%}" if k.bytes else ""
    head = f"  {_name(k)[:width]:<{width}} {time_text(k.seconds):>10} {eager:>10}"
    ran = "; ".join(short_kernel(one.name) for one in k.launched[:2] if k.kind == "extern")
    return f"{head} {traffic:31} {flops:17}{place}{ran and f'  {ran}'}".rstrip()


def _name(k: KernelTime) -> str:
    return f"{k.part}.{k.name}" if k.part else k.name


def time_text(seconds: float) -> str:
    """Microseconds, or milliseconds."""
    return f"{seconds * 1e6:.1f} us" if seconds < 1e-3 else f"{seconds * 1e3:.2f} ms"
