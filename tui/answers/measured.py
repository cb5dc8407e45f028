"""The kernels of a compilation by the time that `ptdebug replay --time` measured, beside what the device can do."""
from __future__ import annotations

from ...artifacts.measured import Measured, MeasuredKernel, of_groups
from ...artifacts.records import ref
from ..session import Session, Target
from .answer import Answer, fixed

ROOF = 10  # characters of a full share of what the device can do


def measured_rows(session: Session, compile_id: str, known: Measured | None) -> list[Answer]:
    """The graph, then its kernels, the longest first; nothing where it was not measured."""
    if known is None or not known.compiled_seconds:
        return []
    ratio = known.eager_seconds / known.compiled_seconds
    title = (f"{known.compiled_seconds * 1e3:9.3f} ms {compile_id} measured on {known.device}: {ratio:.2f} times as "
             "fast as eager")
    slower = [f"slower than eager: {reason}" for reason in known.reasons]
    why = [f"{known.what}: eager {known.eager_seconds * 1e3:.3f} ms", *slower]
    rows = [Answer(title, fixed(*why), (Target(compile_id), 0))]
    groups = sorted(of_groups(session.recording, compile_id, known), key=lambda each: -each[2].seconds)
    return rows + [_row(compile_id, part, group, kernel, known) for part, group, kernel in groups]


def _row(compile_id: str, part: str, group: str, kernel: MeasuredKernel, known: Measured) -> Answer:
    share = max(kernel.bandwidth, kernel.peak if kernel.kind == "extern" else 0.0)
    roof = "#" * round(ROOF * min(1.0, share))
    title = f"{kernel.seconds * 1e3:9.3f} ms [{roof:<{ROOF}}] {f'{part}.' if part else ''}{kernel.name}"
    eager = "" if kernel.eager_seconds is None else f"its operators in eager: {kernel.eager_seconds * 1e6:.1f} us"
    ran = [f"ran {name}" for name in kernel.launched]
    spent = f"{kernel.seconds / known.compiled_seconds:.0%} of the graph's time"
    details = [kernel.text, spent, *([eager] if eager else []), *ran,
               f"[{'#' * ROOF}] is what {known.device} can do: a copy of as many bytes, or a matrix product"]
    return Answer(title, fixed(*details), (Target(compile_id, "schedule", part), ref("schedule", group, part)), 1)
